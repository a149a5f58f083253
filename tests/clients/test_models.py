"""The example models together, and what they must refuse. Against the running daemon of OMNI_ROOT and
OMNI_PORT.
"""

import http.client
import io
import json
import os
import struct
import sys
import unittest
import wave
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from omni_daemon import Daemon, exchange  # noqa: E402
from real_models import CHAINS, picture  # noqa: E402

DAEMON = Daemon(Path("omni"), Path(os.environ["OMNI_ROOT"]), int(os.environ["OMNI_PORT"]))


def png(width: int, height: int, content: bytes = b"") -> bytes:
    """Black, or with this content, whatever that is."""
    rows = content or zlib.compress(bytes(height * (3 * width + 1)))
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", rows)]
    framed = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in [*chunks, (b"IEND", b"")]
    )
    return b"\x89PNG\r\n\x1a\n" + framed


def wav(seconds: float, rate: int = 48000, width: int = 2) -> bytes:
    with wave.open(file := io.BytesIO(), "wb") as sound:
        sound.setparams((1, width, rate, 0, "NONE", ""))
        sound.writeframes(bytes(round(seconds * rate) * width))
    return file.getvalue()


IMAGES = [
    b"",
    b"junk",
    png(20_000, 20_000, zlib.compress(bytes(1_000_000))),
    png(100_000, 100_000, b"-"),
    png(64, 64, b"-"),
    png(64, 64, zlib.compress(bytes(64))),
    picture("house.png")[:300],
]
PORTUGUESE = {"source": "pt", "target": "en"}
REFUSED: dict[str, list[dict | bytes]] = {
    "decider": [
        {"text": "a", "labels": ["b"]},
        {"text": "a", "labels": ["b", "b"]},
        {"text": "a", "labels": {"b": 1, "c": 2}},
        {"text": "a" * 10_001, "labels": ["b", "c"]},
        {"text": "a"},
    ],
    "langid": [{"text": ""}, {"text": 1}, {}, b"text"],
    "ner-en": [{"text": "a " * 10_001}, {"text": "a " * 9000}, {"text": ".," * 5000}, {"text": ""}],
    "translate": [
        {"text": "a" * 5001, **PORTUGUESE},
        {"text": " ", **PORTUGUESE},
        {"text": "a", "source": "pt", "target": "pt"},
        {"text": "a", "source": ["pt"], "target": None},
    ],
    "ocr": [*IMAGES, png(4000, 10), png(7, 7), {"image": "?"}],
    "image-safety": IMAGES,
    "upscale": [*IMAGES, png(1, 5000)],
    "denoise": [b"", b"junk", wav(0), wav(1)[:44], wav(31), wav(1, rate=1), wav(1, width=1), {}],
    "terrain": [
        {"prompt": ""} | change
        for change in (
            {"size": "513x16"},
            {"size": "0x0"},
            {"size": 1},
            {"seed": -1},
            {"seed": True},
            {"n": 2},
            {"prompt": "101"},
            {"prompt": None},
        )
    ],
}


class Models(unittest.TestCase):
    def test_chains_of_models_answer_right(self):
        for chain in CHAINS:
            with self.subTest(chain.__name__):
                answer = chain(DAEMON)
                self.assertTrue(answer.right, answer.shown)

    def test_what_a_model_cannot_read_is_the_callers_fault(self):
        for model, bodies in REFUSED.items():
            for body in bodies:
                status, answer = ask(model, body)
                with self.subTest(f"{model}: {body!r:.60}", answer=answer):
                    self.assertEqual(status, 400)
                    self.assertEqual(json.loads(answer)["error"]["code"], "invalid_request")

    def test_a_picture_may_be_in_a_form(self):
        content = picture("invoice.png")
        part = b'--x\r\nContent-Disposition: form-data; name="image"; filename="i.png"\r\n\r\n'
        form = part + content + b"\r\n--x--\r\n"
        status, answer = ask("ocr", form, "multipart/form-data; boundary=x")
        self.assertEqual((status, answer), ask("ocr", content))


def ask(model: str, body: dict | bytes, content_type: str = "application/octet-stream"):
    if isinstance(body, dict):
        body, content_type = json.dumps(body).encode(), "application/json"
    connection = http.client.HTTPConnection("127.0.0.1", DAEMON.port, timeout=180)
    headers = {"Content-Type": content_type}
    return exchange(connection, "POST", f"/ai/run/{model}", body, headers)


if __name__ == "__main__":
    unittest.main()
