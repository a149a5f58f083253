"""The omni model protocol, this side of it: docs/contracts/model-protocol.md.

The daemon's side is src/protocol/model_protocol.h; numbers and names are the same there.
"""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = 1
OLDEST_VERSION = 1
SOCKET_FD = 3

HELLO, READY, REQUEST, DATA, END, CREDIT, CANCEL = 1, 2, 3, 4, 5, 6, 7
RESPONSE, TRAILER, FD, DRAIN, PING, PONG = 8, 9, 10, 11, 12, 13

FLAG_MORE = 0x01
KIND_JSON = 0x00
KIND_TEXT = 0x02
KIND_BYTES = 0x04
FLAG_ERROR = 0x08

HEADER = struct.Struct("<IBBHQ")  # payload length, type, flags, reserved, stream
HEADER_SIZE = HEADER.size
MAX_PAYLOAD = 64 * 1024
INITIAL_CREDIT = 256 * 1024
MAX_ITEM = 64 * 1024 * 1024
MAX_REQUEST = 64 * 1024 * 1024
CREDIT_STEP = 64 * 1024  # credit is given back in steps of this


class ProtocolError(Exception):
    """The peer is not a daemon that speaks this protocol: its connection is closed."""


def frame(kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return HEADER.pack(len(payload), kind, flags, 0, stream) + payload


def json_payload(value: dict[str, Any]) -> bytes:
    """Strict JSON in UTF-8. Half a character, which Python's strings may hold, becomes "?"."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
