"""One real question to each of the models in models/, and what a right answer is; chains of several.

Standard library only. The pictures are in tests/data.
"""

import array
import functools
import io
import json
import math
import random
import struct
import uuid
import wave
from dataclasses import dataclass
from typing import Any, Callable, Iterable

from omni_daemon import REPOSITORY, Daemon

QUESTION = "What is the capital of Japan?"
SENTENCES = [
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The stock market fell sharply today.",
]
COMPLAINT = "I was charged twice for order 1182, I want my money back"
LABELS = {
    "flights": "search and book flights",
    "refunds": "refund a payment",
    "weather": "forecasts for a city",
}
FRENCH = "Bonjour tout le monde, comment allez-vous ?"
NEWS = "Tim Cook met Angela Merkel in Berlin on Monday."
NAMED = {"Tim Cook": "PERSON", "Angela Merkel": "PERSON", "Berlin": "GPE", "Monday": "DATE"}
PORTUGUESE, ENGLISH = "Como você está hoje?", "How are you today?"
INVOICE = "Invoice 42\nTotal: 99.50"  # what invoice.png says
LETTER = "O gato preto dorme na cozinha."  # letter.png, and small.png in small print
LETTER_ENGLISH = "The black cat sleeps in the kitchen."
SPOKEN = "The quick brown fox jumps over the lazy dog."
NOISE_DB = 1  # louder than the speech
LANDSCAPE = "terrain, difficulty 70"
SEED = 1


@dataclass
class Answer:
    shown: str
    right: bool
    audio: bytes = b""


def chat(daemon: Daemon, _: bytes) -> Answer:
    text = reply(daemon, QUESTION)
    return Answer(text, "Tokyo" in text)


def embeddings(daemon: Daemon, _: bytes) -> Answer:
    body = {"model": "minilm", "input": SENTENCES}
    answer = json.loads(daemon.post("/v1/embeddings", json.dumps(body).encode()))
    food, bread, market = (row["embedding"] for row in answer["data"])
    paraphrase, stranger = dot(food, bread), dot(food, market)
    shown = f"paraphrase {paraphrase:.2f}, stranger {stranger:.2f}"
    return Answer(shown, paraphrase > 0.6 and stranger < 0.3)


def decision(daemon: Daemon, _: bytes) -> Answer:
    answer = run(daemon, "decider", text=COMPLAINT, labels=LABELS)
    label, score = answer["label"], answer["scores"][answer["label"]]
    return Answer(f"{label} {score:.2f}", label == "refunds" and score > 0.8)


def language(daemon: Daemon, _: bytes) -> Answer:
    answer = run(daemon, "langid", text=FRENCH)
    shown = f"{answer['language']} {answer['score']:.2f}"
    return Answer(shown, answer["language"] == "fr" and answer["score"] > 0.8)


def entities(daemon: Daemon, _: bytes) -> Answer:
    found = run(daemon, "ner-en", text=NEWS)["entities"]
    placed = all(NEWS[entity["start"] : entity["end"]] == entity["text"] for entity in found)
    labels = {entity["text"]: entity["label"] for entity in found}
    return Answer(", ".join(labels), placed and labels == NAMED)


def translation(daemon: Daemon, _: bytes) -> Answer:
    text = run(daemon, "translate", text=PORTUGUESE, source="pt", target="en")["text"]
    return Answer(text, text == ENGLISH)


def reading(daemon: Daemon, _: bytes) -> Answer:
    text = read_text(daemon, picture("invoice.png"))
    return Answer(text.replace("\n", " / "), same_letters(text, INVOICE))


def safety(daemon: Daemon, _: bytes) -> Answer:
    answer = json.loads(send(daemon, "image-safety", picture("house.png"), "image/png"))
    unsafe, safe = answer["unsafe"], answer["safe"]
    return Answer(f"unsafe {unsafe:.3f}", unsafe < 0.5 and abs(unsafe + safe - 1) < 1e-3)


def speech(daemon: Daemon, _: bytes) -> Answer:
    audio = speak(daemon, SPOKEN)
    with wave.open(io.BytesIO(audio)) as sound:
        seconds = sound.getnframes() / sound.getframerate()
    return Answer(f"{seconds:.1f} s of speech, {len(audio) >> 10} KiB", 2 < seconds < 6, audio)


def transcription(daemon: Daemon, audio: bytes) -> Answer:
    text = transcribe(daemon, audio)
    return Answer(text, words(text) == words(SPOKEN))


def cleaning(daemon: Daemon, audio: bytes) -> Answer:
    quiet, noisy = with_noise(audio)
    cleaned = send(daemon, "denoise", noisy, "audio/wav")
    gain = signal_to_noise(quiet, samples(cleaned)) + NOISE_DB
    return Answer(f"{gain:.1f} dB less noise", gain > 8)


def upscaling(daemon: Daemon, _: bytes) -> Answer:
    small = picture("house.png")
    width, height = size(send(daemon, "upscale", small, "image/png"))
    return Answer(f"{width}x{height} pixels", [width, height] == [2 * side for side in size(small)])


def terrain(daemon: Daemon, _: bytes) -> Answer:
    png = landscape(daemon)
    width, height = size(png)
    return Answer(f"{width}x{height} pixels, {len(png) >> 10} KiB", (width, height) == (128, 128))


@dataclass
class Task:
    model: str
    task: str
    shown: str
    ask: Callable[[Daemon, bytes], Answer]  # the bytes are the speech of the task before


TASKS = [
    Task("smollm2-135m", "chat", QUESTION, chat),
    Task("minilm", "embeddings", "food / bread / stock market", embeddings),
    Task("decider", "choice of a label", COMPLAINT, decision),
    Task("langid", "language", FRENCH, language),
    Task("ner-en", "entities", NEWS, entities),
    Task("translate", "translation", PORTUGUESE, translation),
    Task("ocr", "text in images", "invoice.png", reading),
    Task("image-safety", "image moderation", "house.png", safety),
    Task("tts", "text to speech", SPOKEN, speech),
    Task("whisper-tiny-en", "speech to text", "the speech of tts", transcription),
    Task("denoise", "noise reduction", "the speech of tts in noise", cleaning),
    Task("upscale", "image to image", "house.png", upscaling),
    Task("terrain", "image generation", LANDSCAPE, terrain),
]

NAMES = {task.model for task in TASKS}


# ---- chains: what one model answers is the next one's question -----------------------------------


def drawn_text_is_translated(daemon: Daemon) -> Answer:
    text = read_text(daemon, picture("letter.png"))
    source = run(daemon, "langid", text=text)["language"]
    text = run(daemon, "translate", text=text, source=source, target="en")["text"]
    return Answer(f"{source}: {text}", (source, text) == ("pt", LETTER_ENGLISH))


def enlarged_text_is_read(daemon: Daemon) -> Answer:
    text = read_text(daemon, send(daemon, "upscale", picture("small.png"), "image/png"))
    return Answer(text, same_letters(text, LETTER))


def question_in_noise_is_answered(daemon: Daemon) -> Answer:
    _, noisy = with_noise(speak(daemon, QUESTION))
    heard = transcribe(daemon, send(daemon, "denoise", noisy, "audio/wav"))
    text = reply(daemon, heard)
    return Answer(f"{heard} {text}", words(heard) == words(QUESTION) and "Tokyo" in text)


def seed_repeats_its_picture(daemon: Daemon) -> Answer:
    first, second = landscape(daemon), landscape(daemon)
    return Answer(f"{len(first)} and {len(second)} bytes", first == second)


CHAINS = [
    drawn_text_is_translated,
    enlarged_text_is_read,
    question_in_noise_is_answered,
    seed_repeats_its_picture,
]


# ---- requests and answers ------------------------------------------------------------------------


def run(daemon: Daemon, model: str, **parameters: Any) -> Any:
    return json.loads(daemon.post(f"/ai/run/{model}", json.dumps(parameters).encode()))


def send(daemon: Daemon, model: str, content: bytes, content_type: str) -> bytes:
    return daemon.post(f"/ai/run/{model}", content, content_type)


def reply(daemon: Daemon, question: str) -> str:
    message = {"role": "user", "content": question}
    body = {"model": "smollm2-135m", "messages": [message], "temperature": 0, "max_tokens": 32}
    answer = json.loads(daemon.post("/v1/chat/completions", json.dumps(body).encode()))
    return str(answer["choices"][0]["message"]["content"]).strip()


def speak(daemon: Daemon, text: str) -> bytes:
    body = {"model": "tts", "input": text, "voice": "heart", "response_format": "wav"}
    return daemon.post("/v1/audio/speech", json.dumps(body).encode())


def transcribe(daemon: Daemon, audio: bytes) -> str:
    body, content_type = form({"model": "whisper-tiny-en"}, "speech.wav", audio)
    return str(json.loads(daemon.post("/v1/audio/transcriptions", body, content_type))["text"])


def read_text(daemon: Daemon, png: bytes) -> str:
    return str(json.loads(send(daemon, "ocr", png, "image/png"))["text"])


def landscape(daemon: Daemon) -> bytes:
    body = {"prompt": LANDSCAPE, "size": "128x128", "seed": SEED}
    return daemon.post("/ai/run/terrain", json.dumps(body).encode())


def picture(name: str) -> bytes:
    return (REPOSITORY / "tests/data" / name).read_bytes()


def size(png: bytes) -> list[int]:
    return list(struct.unpack_from(">II", png, 16))


def same_letters(text: str, expected: str) -> bool:
    return "".join(text.split()) == "".join(expected.split())


@functools.lru_cache(maxsize=1)
def with_noise(audio: bytes) -> tuple[list[int], bytes]:
    """The speech, quiet enough that nothing is clipped, and it in noise that is louder, as WAV."""
    quiet = [sample // 4 for sample in samples(audio)]
    loudness = math.sqrt(energy(quiet) / len(quiet)) * 10 ** (NOISE_DB / 20)
    chance = random.Random(SEED)
    noisy = [sample + round(chance.gauss(0, loudness)) for sample in quiet]
    with wave.open(io.BytesIO(audio)) as sound, wave.open(file := io.BytesIO(), "wb") as out:
        out.setparams(sound.getparams())
        out.writeframes(array.array("h", noisy).tobytes())
    return quiet, file.getvalue()


def samples(audio: bytes) -> list[int]:
    with wave.open(io.BytesIO(audio)) as sound:
        return array.array("h", sound.readframes(sound.getnframes())).tolist()


def signal_to_noise(clean: list[int], heard: list[int]) -> float:
    noise = energy(a - b for a, b in zip(clean, heard, strict=True))
    return 10 * math.log10(energy(clean) / noise)


def energy(signal: Iterable[int]) -> int:
    return sum(sample * sample for sample in signal)


def dot(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def words(text: str) -> list[str]:
    return [word.strip(".,!?;:").lower() for word in text.split()]


def form(fields: dict[str, str], filename: str, content: bytes) -> tuple[bytes, str]:
    """multipart/form-data with one file, and its content type."""
    boundary = uuid.uuid4().hex
    part = f'--{boundary}\r\nContent-Disposition: form-data; name="'
    head = "".join(f'{part}{name}"\r\n\r\n{value}\r\n' for name, value in fields.items())
    head += f'{part}file"; filename="{filename}"\r\nContent-Type: audio/wav\r\n\r\n'
    body = head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
    return body, f"multipart/form-data; boundary={boundary}"
