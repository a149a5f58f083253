"""The daemon's side of the protocol, as small as it can be, and a runtime in a process of its own."""

from __future__ import annotations

import array
import json
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from omni_runtime import protocol

PYTHON_DIR = Path(__file__).resolve().parent.parent
DEADLINE = 20.0

# A child gets the listening socket as descriptor 3, whatever number it has here.
_LAUNCH = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.execv(sys.argv[2], sys.argv[2:])"


class Answer:
    """Everything that came on one stream."""

    def __init__(self) -> None:
        self.head: dict[str, Any] | None = None
        self.items: list[Any] = []
        self.part = b""
        self.data_bytes = 0
        self.trailer: dict[str, Any] | None = None
        self.error: dict[str, Any] | None = None
        self.ended = False


class Client:
    """One connection. Frames are read only when something is waited for."""

    def __init__(self, path: str, role: str = "data", grant: bool = True) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(DEADLINE)
        self.socket.connect(path)
        self.answers: dict[int, Answer] = {}
        self.credit: dict[int, int] = {}
        self.pongs: list[bytes] = []
        self.ready: dict[str, Any] | None = None
        self.hello: dict[str, Any] | None = None
        self.grant = grant
        self.next_id = 1
        self.send(protocol.HELLO, 0, json.dumps({"version": 1, "role": role}).encode())

    def close(self) -> None:
        self.socket.close()

    def send(self, kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> None:
        self.socket.sendall(protocol.frame(kind, stream, payload, flags))

    def send_fd(self, stream: int, fd: int) -> None:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))
        self.socket.sendmsg([protocol.frame(protocol.FD, stream)], [rights])

    def open(
        self,
        parameters: dict[str, Any] | None = None,
        *,
        body: bytes | None = None,
        files: list[tuple[dict[str, Any], int]] | None = None,
        end: bool = True,
        **head: Any,
    ) -> int:
        stream = self.next_id
        self.next_id += 1
        self.answers[stream] = Answer()
        self.credit[stream] = protocol.INITIAL_CREDIT
        head = {"id": f"req-{stream}", "task": "other", "parameters": parameters or {}, **head}
        head["files"] = [part for part, _ in files or []]
        head["raw"] = body is not None
        payload = json.dumps(head).encode()
        while True:
            part, payload = payload[: protocol.MAX_PAYLOAD], payload[protocol.MAX_PAYLOAD :]
            self.send(protocol.REQUEST, stream, part, protocol.FLAG_MORE if payload else 0)
            if not payload:
                break
        for _, fd in files or []:
            self.send_fd(stream, fd)
        body = body or b""
        while body:
            part, body = body[: protocol.MAX_PAYLOAD], body[protocol.MAX_PAYLOAD :]
            while self.credit[stream] < protocol.HEADER_SIZE + len(part):
                self.read_frame()
            self.credit[stream] -= protocol.HEADER_SIZE + len(part)
            self.send(protocol.DATA, stream, part)
        if end:
            self.send(protocol.END, stream)
        return stream

    def ask(self, parameters: dict[str, Any] | None = None, **options: Any) -> Answer:
        return self.wait(self.open(parameters, **options))

    def wait(self, stream: int) -> Answer:
        answer = self.answers[stream]
        while not answer.ended:
            self.read_frame()
        return answer

    def wait_items(self, stream: int, count: int) -> list[Any]:
        answer = self.answers[stream]
        while len(answer.items) < count and not answer.ended:
            self.read_frame()
        return answer.items

    def wait_ready(self) -> Client:
        while self.ready is None:
            self.read_frame()
        return self

    def ping(self, payload: bytes = b"ping") -> None:
        self.send(protocol.PING, 0, payload)
        while payload not in self.pongs:
            self.read_frame()

    def read_frame(self) -> int:
        header = self._read(protocol.HEADER_SIZE)
        kind: int
        length, kind, flags, reserved, stream = protocol.HEADER.unpack(header)
        assert length <= protocol.MAX_PAYLOAD and reserved == 0
        payload = self._read(length)
        if kind == protocol.HELLO:
            self.hello = json.loads(payload)
        elif kind == protocol.READY:
            self.ready = json.loads(payload)
        elif kind == protocol.PONG:
            self.pongs.append(payload)
        elif kind == protocol.CREDIT:
            self.credit[stream] += int.from_bytes(payload, "little")
        else:
            self._on_answer(self.answers[stream], stream, kind, flags, payload)
        return kind

    def _on_answer(self, answer: Answer, stream: int, kind: int, flags: int, data: bytes) -> None:
        assert not answer.ended
        if kind == protocol.RESPONSE:
            answer.head = json.loads(data)
        elif kind == protocol.DATA:
            answer.data_bytes += protocol.HEADER_SIZE + len(data)
            answer.part += data
            if self.grant:
                self.give_credit(stream, protocol.HEADER_SIZE + len(data))
            if not flags & protocol.FLAG_MORE:
                item, answer.part = answer.part, b""
                if flags & protocol.KIND_BYTES:
                    answer.items.append(item)
                elif flags & protocol.KIND_TEXT:
                    answer.items.append(item.decode())
                else:
                    answer.items.append(json.loads(item))
        elif kind == protocol.TRAILER:
            answer.trailer = json.loads(data)
        elif kind == protocol.END:
            answer.ended = True
            answer.error = json.loads(data) if flags & protocol.FLAG_ERROR else None
        else:
            raise AssertionError(f"frame of type {kind}")

    def give_credit(self, stream: int, amount: int) -> None:
        try:
            self.send(protocol.CREDIT, stream, amount.to_bytes(4, "little"))
        except BrokenPipeError:
            pass  # the runtime has ended; what it sent is still read

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise ConnectionError("the runtime closed the connection")
            data += part
        return data


class Runtime:
    """`python -m omni_runtime` serving the given handler."""

    def __init__(self, handler: str | None, files: dict[str, str] | None = None, **settings: Any):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        model_dir = self.folder / "model"
        model_dir.mkdir()
        if handler is not None:
            (model_dir / "handler.py").write_text(textwrap.dedent(handler))
        for name, text in (files or {}).items():
            (model_dir / name).write_text(textwrap.dedent(text))
        self.model_dir = model_dir
        self.path = str(self.folder / "model.sock")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.path)
        listener.listen(16)
        settings = {"model": "tested", "model_dir": str(model_dir), **settings}
        command = [sys.executable, "-m", "omni_runtime", json.dumps(settings)]
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-S", "-c", _LAUNCH, str(listener.fileno()), *command],
                pass_fds=[listener.fileno()],
                env={"PYTHONPATH": str(PYTHON_DIR), "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        listener.close()

    def connect(self, **options: Any) -> Client:
        return Client(self.path, **options).wait_ready()

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def wait(self) -> int:
        return self.process.wait(DEADLINE)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._folder.cleanup()


def anonymous_file(content: bytes) -> int:
    fd = os.memfd_create("part")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
