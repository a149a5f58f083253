"""Which of the caller's labels fits a text: Sparrow Nano, a static embedding with a small head."""

from omni import InvalidRequest
from sparrow_decider import Decider

QUESTION = "Which label fits best?"
MAX_CHARACTERS = 10_000  # far above the 512 tokens that are read of a text
MAX_LABELS = 100


def load(context):
    context.state.decider = Decider.load()  # the one for general text; it lies in the package


def handle_request(request, context):
    text = request["text"]
    if not isinstance(text, str) or not 0 < len(text.strip()) <= len(text) <= MAX_CHARACTERS:
        raise InvalidRequest(f"text must be 1 to {MAX_CHARACTERS:,} characters", param="text")
    question = {"type": "choice", "instructions": QUESTION, "criteria": criteria(request["labels"])}
    answer = context.state.decider.ask(text, {"label": question})["label"]
    return {"label": answer["choice"], "scores": answer["probabilities"]}


def criteria(labels):
    """Each label with what it stands for, which is the label itself in a list."""
    if isinstance(labels, list) and all(isinstance(label, str) for label in labels):
        labels = {label: label for label in labels}
    if not isinstance(labels, dict) or not all(isinstance(text, str) for text in labels.values()):
        raise InvalidRequest(
            "labels must be a list of strings or an object of label: description", param="labels"
        )
    if not 2 <= len(labels) <= MAX_LABELS:
        raise InvalidRequest(
            f"{len(labels)} different labels: send 2 to {MAX_LABELS}", param="labels"
        )
    if sum(len(label) + len(text) for label, text in labels.items()) > MAX_CHARACTERS:
        raise InvalidRequest(
            f"labels and descriptions are over {MAX_CHARACTERS:,} characters: shorten them",
            param="labels",
        )
    return labels
