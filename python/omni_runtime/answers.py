"""What a handler returned, as items of the protocol."""

from __future__ import annotations

import json
import math

from omni import Response
from omni_runtime import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def to_response(result: Any) -> Response:
    return result if isinstance(result, Response) else Response(result)


def is_async_iterable(body: Any) -> bool:
    return hasattr(body, "__anext__") or hasattr(body, "__aiter__")


def is_iterator(body: Any) -> bool:
    return hasattr(body, "__next__")


def encode(value: Any) -> tuple[int, bytes]:
    """Kind and bytes of one item. TypeError and ValueError name what cannot be sent, and where."""
    if isinstance(value, str):
        kind, data = protocol.KIND_TEXT, _utf8(value)
    elif isinstance(value, bytes):
        kind, data = protocol.KIND_BYTES, value
    elif isinstance(value, (bytearray, memoryview)):
        kind, data = protocol.KIND_BYTES, bytes(value)
    elif isinstance(value, (dict, list, tuple, int, float)) or hasattr(value, "tolist"):
        kind, data = protocol.KIND_JSON, _json(value)
    else:
        raise TypeError(
            f"the handler gave {_article(value)}; it can give a Response, dict, list, str, bytes "
            "or an iterator of these"
        )
    if len(data) > protocol.MAX_ITEM:
        raise ValueError(
            f"the handler gave {len(data)} bytes at once, the limit is {protocol.MAX_ITEM}: "
            "yield them in parts"
        )
    return kind, data


def _json(value: Any) -> bytes:
    try:
        return _encoder.encode(value).encode("utf-8")
    except (TypeError, ValueError):
        where = _find_culprit(value, "answer", 0)
        if where is None:
            raise
        raise TypeError(where) from None


def _plain(value: Any) -> Any:
    """Arrays and numbers of numpy, torch and their like turn into lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{_type_name(value)} is not JSON")


_encoder = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
)


def _find_culprit(value: Any, path: str, depth: int) -> str | None:
    """The first part of the value that is not JSON, for the error message: only then walked."""
    if depth > 50:
        return None
    if isinstance(value, str):
        bad = next((c for c in value if 0xD800 <= ord(c) <= 0xDFFF), None)
        return None if bad is None else f"{path} holds U+{ord(bad):04X}, half of a character"
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, (str, int, float)) and key is not None:
                return f"{path} has a key of type {_type_name(key)}, which JSON has not"
            found = _find_culprit(item, f"{path}[{key!r}]", depth + 1)
            if found:
                return found
        return None
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            found = _find_culprit(item, f"{path}[{index}]", depth + 1)
            if found:
                return found
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{path} is {value}, which JSON has not"
    if value is None or isinstance(value, int):
        return None
    if hasattr(value, "tolist"):
        return _find_culprit(value.tolist(), path, depth + 1)
    return f"{path} is {_article(value)}, which is not JSON"


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        bad = ord(text[error.start])
        raise ValueError(
            f"the text holds U+{bad:04X} at {error.start}, half of a character"
        ) from None


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _article(value: Any) -> str:
    name = _type_name(value)
    if value is None:
        return "None"
    return f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"
