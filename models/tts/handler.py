"""Speech from English text: Hibari, voice "heart"."""

import io
import textwrap
import wave

import numpy as np
from hibari import SAMPLE_RATE, Hibari
from omni import InvalidRequest, Response

VOICE = "heart"  # the one that is in the package; others would be downloaded
MAX_CHARACTERS = 4096
MAX_PHONEMES = 200  # in one piece: the memory it needs grows with its length, 1 GiB at 3,000


def load(context):
    context.state.tts = Hibari(voice=VOICE, threads=1)
    _ = context.state.tts.g2p  # lexicon and tagger: else the first request loads them


def handle_request(request, context):
    text, speed = request["input"], request.get("speed", 1.0)
    if not isinstance(text, str) or len(text) > MAX_CHARACTERS:
        raise InvalidRequest(f"input must be text of at most {MAX_CHARACTERS} characters", "input")
    if request.get("voice", VOICE) != VOICE:
        raise InvalidRequest(f'unknown voice, the one there is: "{VOICE}"', param="voice")
    if isinstance(speed, bool) or not isinstance(speed, (int, float)) or not 0.25 <= speed <= 4:
        raise InvalidRequest("speed must be a number from 0.25 to 4", param="speed")
    pieces = split(text, context.state.tts)
    if not pieces:
        raise InvalidRequest("nothing to say: the text holds no English words", param="input")
    chunks = synthesise(pieces, speed, context.state.tts)
    if request.get("format", "wav") == "pcm":
        return Response(chunks, content_type="audio/pcm")  # streamed, a sentence at a time
    return Response(wav(b"".join(chunks)), content_type="audio/wav")


def split(text, tts):
    """The ids of the text's sentences, long ones in pieces; two ids are the padding around none."""
    pieces = (piece for line in tts.phonemize(text) for piece in textwrap.wrap(line, MAX_PHONEMES))
    return [ids for ids in map(tts.ids, pieces) if len(ids) > 2]


def synthesise(pieces, speed, tts):
    noise = np.random.default_rng(0)  # seeded: the same text gives the same bytes
    for ids in pieces:
        samples = tts.from_ids(ids, speed, noise)
        yield (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


def wav(pcm):
    """A whole file, not a stream: the header of a WAV file states its length."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(SAMPLE_RATE)
        out.writeframes(pcm)
    return file.getvalue()
