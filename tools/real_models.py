"""One real question to each of the four models in models/, and what a right answer is."""

import io
import json
import uuid
import wave
from dataclasses import dataclass
from typing import Callable

from omni_daemon import Daemon

QUESTION = "What is the capital of Japan?"
SENTENCES = [
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The stock market fell sharply today.",
]
SPOKEN = "The quick brown fox jumps over the lazy dog."


@dataclass
class Answer:
    shown: str
    right: bool
    audio: bytes = b""


def chat(daemon: Daemon, _: bytes) -> Answer:
    message = {"role": "user", "content": QUESTION}
    body = {"model": "smollm2-135m", "messages": [message], "temperature": 0, "max_tokens": 32}
    answer = json.loads(daemon.post("/v1/chat/completions", json.dumps(body).encode()))
    text = answer["choices"][0]["message"]["content"].strip()
    return Answer(text, "Tokyo" in text)


def embeddings(daemon: Daemon, _: bytes) -> Answer:
    body = {"model": "minilm", "input": SENTENCES}
    answer = json.loads(daemon.post("/v1/embeddings", json.dumps(body).encode()))
    food, bread, market = (row["embedding"] for row in answer["data"])
    paraphrase, stranger = dot(food, bread), dot(food, market)
    shown = f"paraphrase {paraphrase:.2f}, stranger {stranger:.2f}"
    return Answer(shown, paraphrase > 0.6 and stranger < 0.3)


def speech(daemon: Daemon, _: bytes) -> Answer:
    body = {"model": "tts", "input": SPOKEN, "voice": "heart", "response_format": "wav"}
    audio = daemon.post("/v1/audio/speech", json.dumps(body).encode())
    with wave.open(io.BytesIO(audio)) as sound:
        seconds = sound.getnframes() / sound.getframerate()
    return Answer(f"{seconds:.1f} s of speech, {len(audio) >> 10} KiB", 2 < seconds < 6, audio)


def transcription(daemon: Daemon, audio: bytes) -> Answer:
    body, content_type = form({"model": "whisper-tiny-en"}, "speech.wav", audio)
    text = json.loads(daemon.post("/v1/audio/transcriptions", body, content_type))["text"]
    return Answer(text, words(text) == words(SPOKEN))


@dataclass
class Task:
    model: str
    task: str
    shown: str
    ask: Callable[[Daemon, bytes], Answer]  # the bytes are the speech of the task before


TASKS = [
    Task("smollm2-135m", "chat", QUESTION, chat),
    Task("minilm", "embeddings", "food / bread / stock market", embeddings),
    Task("tts", "text to speech", SPOKEN, speech),
    Task("whisper-tiny-en", "speech to text", "the speech of tts", transcription),
]

NAMES = {task.model for task in TASKS}


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
