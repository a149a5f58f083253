"""The unmodified `openai` Python package against a running omni at OMNI_BASE_URL."""

import base64
import io
import os
import struct
import unittest
import wave
from pathlib import Path

import openai

CHAT, EMBEDDINGS, SPEECH, TRANSCRIPTION = "smollm2-135m", "minilm", "tts", "whisper-tiny-en"
JAPAN = [{"role": "user", "content": "What is the capital of Japan?"}]
SPOKEN = "The quick brown fox jumps over the lazy dog."
SPOKEN_WORDS = "the quick brown fox jumps over the lazy dog"

client = openai.OpenAI(
    base_url=os.environ["OMNI_BASE_URL"] + "/v1", api_key="unused", max_retries=0, timeout=120
)
DATA = Path(__file__).resolve().parents[1] / "data"


def size(png):
    return struct.unpack_from(">II", png, 16)


def words(text):
    return "".join(c for c in text.lower() if c.isalpha() or c == " ").strip()


def speak(text, **options):
    answer = client.audio.speech.create(model=SPEECH, voice="heart", input=text, **options)
    return answer.read()


class Models(unittest.TestCase):
    def test_list_names_every_model(self):
        listed = {model.id: model for model in client.models.list()}
        self.assertLessEqual({CHAT, EMBEDDINGS, SPEECH, TRANSCRIPTION}, set(listed))
        self.assertEqual(listed[CHAT].owned_by, "omni")

    def test_retrieve(self):
        self.assertEqual(client.models.retrieve(EMBEDDINGS).id, EMBEDDINGS)

    def test_an_unknown_model_is_not_found(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            client.models.retrieve("nosuch")
        self.assertEqual(caught.exception.code, "model_not_found")


class Chat(unittest.TestCase):
    def test_answers(self):
        answer = client.chat.completions.create(model=CHAT, messages=JAPAN, temperature=0)
        self.assertEqual(answer.choices[0].message.content, "The capital of Japan is Tokyo.")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.model, CHAT)
        self.assertGreater(answer.usage.completion_tokens, 3)

    def test_streams_the_same_answer_in_pieces(self):
        stream = client.chat.completions.create(
            model=CHAT,
            messages=JAPAN,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        pieces = [c.choices[0].delta.content for c in chunks if c.choices]
        pieces = [piece for piece in pieces if piece]
        self.assertGreater(len(pieces), 3)
        self.assertEqual("".join(pieces), "The capital of Japan is Tokyo.")
        self.assertGreater(chunks[-1].usage.completion_tokens, 3)

    def test_a_stream_that_is_left_early_frees_the_model(self):
        for _ in range(4):  # more than the model has slots
            stream = client.chat.completions.create(
                model=CHAT,
                messages=[{"role": "user", "content": "Tell me a long story."}],
                max_tokens=900,
                stream=True,
            )
            next(iter(stream))
            stream.close()
        answer = client.chat.completions.create(
            model=CHAT, messages=JAPAN, temperature=0, timeout=20
        )
        self.assertIn("Tokyo", answer.choices[0].message.content)

    def test_completion(self):
        answer = client.completions.create(
            model=CHAT, prompt="The capital of France is", temperature=0, max_tokens=4
        )
        self.assertTrue(answer.choices[0].text.startswith(" Paris"), answer.choices[0].text)


class Embeddings(unittest.TestCase):
    def test_a_paraphrase_is_nearer_than_a_stranger(self):
        # The package asks for base64 by itself.
        answer = client.embeddings.create(
            model=EMBEDDINGS,
            input=[
                "A man is eating food.",
                "A man is eating a piece of bread.",
                "The stock market fell sharply today.",
            ],
        )
        food, bread, market = (row.embedding for row in answer.data)
        self.assertEqual([row.index for row in answer.data], [0, 1, 2])
        self.assertEqual(len(food), 384)
        self.assertGreater(sum(a * b for a, b in zip(food, bread)), 0.6)
        self.assertLess(sum(a * b for a, b in zip(food, market)), 0.3)
        self.assertGreater(answer.usage.prompt_tokens, 0)

    def test_one_string_and_plain_numbers(self):
        answer = client.embeddings.create(model=EMBEDDINGS, input="hello", encoding_format="float")
        self.assertAlmostEqual(sum(x * x for x in answer.data[0].embedding), 1, places=3)


class Audio(unittest.TestCase):
    def test_what_is_spoken_is_heard_word_for_word(self):
        answer = client.audio.transcriptions.create(
            model=TRANSCRIPTION, file=("speech.wav", speak(SPOKEN))
        )
        self.assertEqual(words(answer.text), SPOKEN_WORDS)

    def test_speech_is_a_wav_file_and_the_same_every_time(self):
        first, second = speak(SPOKEN), speak(SPOKEN)
        self.assertEqual(first, second)
        with wave.open(io.BytesIO(first)) as sound:
            self.assertEqual((sound.getframerate(), sound.getnchannels()), (24000, 1))
            self.assertGreater(sound.getnframes(), 48000)

    def test_pcm_comes_in_pieces(self):
        with client.audio.speech.with_streaming_response.create(
            model=SPEECH, voice="heart", input=f"{SPOKEN} {SPOKEN}", response_format="pcm"
        ) as answer:
            size = sum(len(piece) for piece in answer.iter_bytes())
        self.assertGreater(size, 2 * 2 * 48000)
        self.assertEqual(size % 2, 0)

    def test_formats_of_a_transcription(self):
        def transcribe(form):
            return client.audio.transcriptions.create(
                model=TRANSCRIPTION, file=("speech.wav", speak(SPOKEN)), response_format=form
            )

        verbose = transcribe("verbose_json")
        self.assertGreater(verbose.segments[0].end, 2)
        self.assertEqual(words(str(transcribe("text"))), SPOKEN_WORDS)
        self.assertIn("-->", str(transcribe("srt")))
        self.assertTrue(str(transcribe("vtt")).startswith("WEBVTT"))

    def test_a_transcription_streams(self):
        stream = client.audio.transcriptions.create(
            model=TRANSCRIPTION, file=("speech.wav", speak(SPOKEN)), stream=True
        )
        events = list(stream)
        deltas = "".join(e.delta for e in events if e.type == "transcript.text.delta")
        self.assertEqual(words(deltas), SPOKEN_WORDS)
        self.assertEqual(events[-1].type, "transcript.text.done")
        self.assertEqual(words(events[-1].text), SPOKEN_WORDS)

    def test_silence_is_no_word(self):
        silence = io.BytesIO()
        with wave.open(silence, "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(16000)
            out.writeframes(bytes(2 * 16000 * 3))
        answer = client.audio.transcriptions.create(
            model=TRANSCRIPTION, file=("silence.wav", silence.getvalue())
        )
        self.assertEqual(answer.text, "")


class Images(unittest.TestCase):
    def test_one_seed_makes_one_picture_of_the_size_asked_for(self):
        pictures = [
            client.images.generate(
                model="terrain", prompt="hills", size="128x64", extra_body={"seed": 7}
            )
            .data[0]
            .b64_json
            for _ in range(2)
        ]
        self.assertEqual(size(base64.b64decode(pictures[0])), (128, 64))
        self.assertEqual(pictures[0], pictures[1])

    def test_a_size_that_the_model_does_not_make_is_the_callers_error(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            client.images.generate(model="terrain", prompt="hills", size="4096x4096")
        self.assertEqual(caught.exception.param, "size")

    def test_an_edit_gives_the_image_back_changed(self):
        picture = (DATA / "house.png").read_bytes()
        answer = client.images.edit(
            model="upscale", image=("house.png", picture, "image/png"), prompt="larger"
        )
        width, height = size(picture)
        self.assertEqual(size(base64.b64decode(answer.data[0].b64_json)), (2 * width, 2 * height))


class Errors(unittest.TestCase):
    def test_an_unknown_model_is_not_found_with_its_code(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            client.chat.completions.create(model="smollm", messages=JAPAN)
        self.assertEqual(caught.exception.code, "model_not_found")
        self.assertTrue(caught.exception.request_id)

    def test_a_model_of_another_task_is_refused_by_name(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            client.embeddings.create(model=CHAT, input="hello")
        self.assertEqual(caught.exception.code, "task_mismatch")

    def test_what_a_handler_refuses_is_the_callers_error(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            speak("你好")
        self.assertEqual(caught.exception.param, "input")
        with self.assertRaises(openai.BadRequestError) as caught:
            client.audio.transcriptions.create(model=TRANSCRIPTION, file=("x.wav", b"junk" * 100))
        self.assertEqual(caught.exception.param, "file")

    def test_a_missing_field_is_the_callers_error(self):
        with self.assertRaises(openai.BadRequestError):
            client.post("/chat/completions", body={"model": CHAT}, cast_to=object)


if __name__ == "__main__":
    unittest.main()
