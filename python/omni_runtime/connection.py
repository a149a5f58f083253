"""Connections and streams: frames in and out, credit, cancellation.

One I/O thread reads all connections, so that CANCEL, PING and new connections are answered while a
handler computes. Whoever has something to send writes it at once from its own thread and leaves to
the I/O thread only what the socket does not take. `Connection.lock` guards what both touch.
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import sys
import threading
import time
from collections import deque

from omni_runtime import protocol
from omni_runtime.protocol import ProtocolError, frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from omni import Request

READ_SIZE = 128 * 1024
FDS_PER_READ = 16
MAX_STREAMS = 4096  # of one connection; the daemon's leases keep far below
PAUSE_READING_AT = 1024 * 1024  # unsent bytes: a daemon that reads nothing is not listened to
MAX_ERROR_TEXT = 4000  # characters


class Cancelled(BaseException):
    """The stream was cancelled. Never seen by a handler: raised only outside of its code."""


class Stream:
    """One request on one connection, and its answer.

    Received by the I/O thread, then handed to a worker, which calls begin(), sends, and ends it
    with finish() or fail(). A cancelled stream that no worker has begun is ended at once.
    """

    def __init__(self, connection: Connection, id: int) -> None:
        self.connection = connection
        self.id = id
        self.head = bytearray()  # payload of the REQUEST frames
        self.head_complete = False
        self.fds: list[int] = []
        self.lost_fds = False
        self.body = bytearray()
        self.received = False
        self.uncredited = 0

        self.request: Request | None = None
        self.on_cancel: Callable[[], None] | None = None
        self.on_credit: Callable[[], None] | None = None
        self.cancelled = False
        self.began = False
        self.ended = False
        self.responded = False
        self._credit = protocol.INITIAL_CREDIT
        self._held: list[bytes | memoryview] = []  # frames that go out with the next flush
        self._condition: threading.Condition | None = None

    # The worker's side.

    def begin(self) -> bool:
        """False when the stream was cancelled, and ended, before a worker came to it."""
        with self.connection.lock:
            self.began = not self.ended
            return self.began

    def check(self) -> None:
        if self.cancelled:
            raise Cancelled

    def respond(
        self, status: int, content_type: str, headers: dict[str, str], streaming: bool
    ) -> None:
        head = {
            "status": status,
            "content_type": content_type,
            "streaming": streaming,
            "headers": headers,
        }
        payload = protocol.json_payload(head)
        if len(payload) > protocol.MAX_PAYLOAD:
            raise ValueError("the headers of the response are over 64 KiB")
        self._held.append(frame(protocol.RESPONSE, self.id, payload))
        self.responded = True

    def put(self, kind: int, data: bytes, offset: int = 0) -> int:
        """Takes as much of an item as there is credit for. -1: all of it; else where to go on, after
        wait(). Call flush() to send what was taken."""
        self.check()
        view = memoryview(data)
        with self.connection.lock:
            while self._credit > protocol.HEADER_SIZE:
                room = min(self._credit - protocol.HEADER_SIZE, protocol.MAX_PAYLOAD)
                part = view[offset : offset + room]
                offset += len(part)
                self._credit -= protocol.HEADER_SIZE + len(part)
                last = offset == len(data)
                flags = kind if last else kind | protocol.FLAG_MORE
                header = protocol.HEADER.pack(len(part), protocol.DATA, flags, 0, self.id)
                self._held += (header, part)
                if last:
                    return -1
        self.flush()
        return offset

    def wait(self) -> None:
        """Blocks until there is credit; raises Cancelled when there will be none."""
        with self.connection.lock:
            if self._condition is None:
                self._condition = threading.Condition(self.connection.lock)
            while self._credit <= protocol.HEADER_SIZE and not self.cancelled:
                self._condition.wait()
        self.check()

    def has_credit(self) -> bool:
        return self._credit > protocol.HEADER_SIZE

    def flush(self) -> None:
        held, self._held = self._held, []
        if held:
            self.connection.send(held)

    def finish(self, usage: dict[str, Any] | None = None) -> None:
        if usage:
            payload = protocol.json_payload({"usage": usage})
            if len(payload) > protocol.MAX_PAYLOAD:
                raise ValueError("usage is over 64 KiB")
            self._held.append(frame(protocol.TRAILER, self.id, payload))
        self._end(frame(protocol.END, self.id))

    def fail(self, code: str, message: str, param: str | None = None) -> None:
        self._end(self._error_frame(code, message, param))

    def _error_frame(self, code: str, message: str, param: str | None = None) -> bytes:
        error = {"code": code, "message": message[:MAX_ERROR_TEXT]}
        if param is not None:
            error["param"] = param[:200]
        payload = protocol.json_payload(error)
        return frame(protocol.END, self.id, payload, protocol.FLAG_ERROR)

    def _end(self, last: bytes) -> None:
        with self.connection.lock:
            self._end_locked(last)

    def _end_locked(self, last: bytes) -> None:
        if self.ended:
            return
        self.ended = True
        self.connection.streams.pop(self.id, None)
        held, self._held = self._held, []
        self.connection.send_locked([*held, last])

    # The I/O thread's side.

    def cancel(self) -> None:
        with self.connection.lock:
            if self.cancelled or self.ended:
                return
            self.cancelled = True
            if self._condition is not None:
                self._condition.notify_all()
            on_credit, on_cancel = self.on_credit, self.on_cancel
            if self.request is not None:
                self.request.cancelled = True
            began = self.began
            if not began:
                reason = "the request was cancelled before it began"
                self._end_locked(self._error_frame("cancelled", reason))
        if not began:
            self.close_fds()
        if on_credit is not None:
            on_credit()
        if on_cancel is not None:
            on_cancel()

    def add_credit(self, amount: int) -> None:
        with self.connection.lock:
            self._credit += amount
            if self._condition is not None:
                self._condition.notify_all()
            on_credit = self.on_credit
        if on_credit is not None:
            on_credit()

    def close_fds(self) -> None:
        fds, self.fds = self.fds, []
        for fd in fds:
            os.close(fd)


class Connection:
    """One connection of the daemon. `streams` are those that have not ended."""

    def __init__(self, io: IoThread, sock: socket.socket) -> None:
        self.io = io
        self.socket = sock
        self.fileno = sock.fileno()
        self.lock = threading.Lock()
        self.streams: dict[int, Stream] = {}
        self.greeted = False
        self.closed = False
        self._last_stream = 0
        self._inbox = bytearray()
        self._fds: deque[int] = deque()  # received, not yet claimed by an FD frame; -1: lost
        self._unsent: deque[bytes | memoryview] = deque()
        self._unsent_bytes = 0
        self._events = select.EPOLLIN
        sock.setblocking(False)

    def send(self, buffers: list[bytes | memoryview]) -> None:
        with self.lock:
            self.send_locked(buffers)

    def send_locked(self, buffers: list[bytes | memoryview]) -> None:
        if self.closed:
            return
        if not self._unsent:
            buffers = self._write(buffers)
        if buffers:
            self._unsent.extend(buffers)
            self._unsent_bytes += sum(map(len, buffers))
            self._watch()

    def on_event(self, events: int) -> None:
        """Called by the I/O thread alone."""
        if events & select.EPOLLOUT:
            with self.lock:
                self._write_unsent()
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            self._read()

    def close(self) -> None:
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self._unsent.clear()
            streams = list(self.streams.values())
        self.io.forget(self)
        self.socket.close()
        for fd in self._fds:
            if fd >= 0:
                os.close(fd)
        for stream in streams:
            stream.cancel()

    def flush_blocking(self, seconds: float) -> None:
        """Before the process exits: the last answers reach the daemon, or it is gone."""
        with self.lock:
            if self.closed:
                return
            try:
                self.socket.settimeout(seconds)
                self.socket.sendall(b"".join(self._unsent))
            except OSError:
                pass

    def _write(self, buffers: list[bytes | memoryview]) -> list[bytes | memoryview]:
        """Sends what the socket takes and returns the rest."""
        try:
            sent = self.socket.sendmsg(buffers, (), socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return buffers
        except OSError:
            return []  # the read side sees the end of the connection and closes it
        for index, buffer in enumerate(buffers):
            if sent < len(buffer):
                return [memoryview(buffer)[sent:], *buffers[index + 1 :]]
            sent -= len(buffer)
        return []

    def _write_unsent(self) -> None:
        while self._unsent and not self.closed:
            batch = [self._unsent.popleft() for _ in range(min(64, len(self._unsent)))]
            before = sum(map(len, batch))
            rest = self._write(batch)
            self._unsent_bytes -= before - sum(map(len, rest))
            self._unsent.extendleft(reversed(rest))
            if rest:
                break
        self._watch()

    def _watch(self) -> None:
        events = select.EPOLLIN if self._unsent_bytes < PAUSE_READING_AT else 0
        if self._unsent:
            events |= select.EPOLLOUT
        if events != self._events and not self.closed:
            self._events = events
            self.io.watch(self, events)

    def _read(self) -> None:
        try:
            data, ancillary, flags, _ = self.socket.recvmsg(
                READ_SIZE, socket.CMSG_SPACE(4 * FDS_PER_READ), socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, ancillary, flags = b"", [], 0
        if not data:
            self.close()
            return
        arrived = 0
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                for at in range(0, len(content) - len(content) % 4, 4):
                    self._fds.append(int.from_bytes(content[at : at + 4], sys.byteorder))
                    arrived += 1
        if flags & socket.MSG_CTRUNC and arrived == 0:
            self._fds.append(-1)  # this process is out of descriptors
        self._inbox += data
        try:
            self._take_frames()
        except ProtocolError as error:
            print(f"omni_runtime: closing a connection: {error}", file=sys.stderr, flush=True)
            self.close()

    def _take_frames(self) -> None:
        inbox, at = self._inbox, 0
        while len(inbox) - at >= protocol.HEADER_SIZE:
            length, kind, flags, reserved, stream = protocol.HEADER.unpack_from(inbox, at)
            if (
                length > protocol.MAX_PAYLOAD
                or reserved
                or not protocol.HELLO <= kind <= protocol.PONG
            ):
                raise ProtocolError("what came is not a frame")
            start = at + protocol.HEADER_SIZE
            if len(inbox) < start + length:
                break
            at = start + length
            self._on_frame(kind, flags, stream, bytes(inbox[start:at]))
            if self.closed:
                return
        del inbox[:at]

    def _on_frame(self, kind: int, flags: int, id: int, payload: bytes) -> None:
        if kind == protocol.HELLO:
            self._on_hello(payload)
        elif not self.greeted:
            raise ProtocolError("the first frame is not HELLO")
        elif kind == protocol.PING:
            self.send([frame(protocol.PONG, 0, payload)])
        elif kind == protocol.DRAIN:
            self.io.on_drain()
        elif kind == protocol.REQUEST:
            self._on_request(id, flags, payload)
        elif kind in (protocol.FD, protocol.DATA, protocol.END, protocol.CREDIT, protocol.CANCEL):
            self._on_stream_frame(kind, id, payload)
        elif kind != protocol.PONG:
            raise ProtocolError(f"frame type {kind} is the runtime's to send")

    def _on_hello(self, payload: bytes) -> None:
        try:
            version = json.loads(payload)["version"]
        except (ValueError, TypeError, LookupError):
            raise ProtocolError("HELLO is not the JSON object it should be") from None
        if self.greeted or not isinstance(version, int) or version < protocol.OLDEST_VERSION:
            raise ProtocolError(f"HELLO of version {version!r}")
        hello = protocol.json_payload({"version": min(version, protocol.VERSION)})
        self.io.greet(self, frame(protocol.HELLO, 0, hello))

    def _on_request(self, id: int, flags: int, payload: bytes) -> None:
        stream = self.streams.get(id)
        if stream is None:
            if id <= self._last_stream:
                return  # the rest of a request that was answered early
            if not self.io.ready:
                raise ProtocolError("REQUEST before READY")
            self._last_stream = id
            stream = Stream(self, id)
            with self.lock:
                self.streams[id] = stream
            if self.io.draining:
                stream.fail("shutting_down", "the instance takes no new requests")
                return
            if len(self.streams) > MAX_STREAMS:
                stream.fail("overloaded", f"more than {MAX_STREAMS} requests at once")
                return
        elif stream.head_complete:
            raise ProtocolError("REQUEST on a stream that has one")
        stream.head += payload
        stream.head_complete = not flags & protocol.FLAG_MORE
        if len(stream.head) > protocol.MAX_REQUEST:
            stream.fail("body_too_large", "the request is over 64 MiB")

    def _on_stream_frame(self, kind: int, id: int, payload: bytes) -> None:
        fd = None
        if kind == protocol.FD:
            if not self._fds:
                raise ProtocolError("FD without a descriptor")
            fd = self._fds.popleft()
        stream = self.streams.get(id)
        if stream is None:
            if fd is not None and fd >= 0:
                os.close(fd)
            if id > self._last_stream:
                raise ProtocolError("a frame of a stream that was never opened")
            return  # it crossed our END
        if kind == protocol.CANCEL:
            stream.cancel()
        elif kind == protocol.CREDIT:
            if len(payload) != 4:
                raise ProtocolError("CREDIT is not four bytes")
            stream.add_credit(int.from_bytes(payload, "little"))
        elif not stream.head_complete or stream.received:
            raise ProtocolError("a frame out of order")
        elif fd is not None:
            if fd >= 0:
                stream.fds.append(fd)
            else:
                stream.lost_fds = True
        elif kind == protocol.DATA:
            self._on_data(stream, payload)
        else:
            stream.received = True
            self._on_received(stream)

    def _on_data(self, stream: Stream, payload: bytes) -> None:
        stream.body += payload
        if len(stream.body) > protocol.MAX_REQUEST:
            stream.close_fds()
            stream.fail("body_too_large", "the request is over 64 MiB")
            return
        stream.uncredited += protocol.HEADER_SIZE + len(payload)
        if stream.uncredited >= protocol.CREDIT_STEP:
            credit = stream.uncredited.to_bytes(4, "little")
            stream.uncredited = 0
            self.send([frame(protocol.CREDIT, stream.id, credit)])

    def _on_received(self, stream: Stream) -> None:
        if stream.lost_fds:
            stream.close_fds()
            stream.fail("handler_failed", "the instance is out of file descriptors")
        elif self.io.draining:
            stream.close_fds()
            stream.fail("shutting_down", "the instance takes no new requests")
        else:
            self.io.on_request(stream)


class IoThread(threading.Thread):
    """Accepts and reads. What it learns goes to `on_request` and `on_drain`, in this thread."""

    def __init__(self, listener: socket.socket) -> None:
        super().__init__(name="omni-io", daemon=True)
        self.ready = False
        self.draining = False
        self.on_request: Callable[[Stream], None] = _not_ready
        self.on_drained: Callable[[], None] | None = None
        self._ready_payload = b""
        self._listener = listener
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._lock = threading.Lock()  # ready, draining and the set of connections
        listener.setblocking(False)
        self._epoll.register(listener.fileno(), select.EPOLLIN)
        # A forked child, as of multiprocessing, must not keep the connections open: the daemon
        # sees this process die by their end.
        os.register_at_fork(after_in_child=self._close_in_child)

    def run(self) -> None:
        try:
            while True:
                for fd, events in self._epoll.poll():
                    if fd == self._listener.fileno():
                        self._accept()
                    elif fd in self._connections:
                        self._connections[fd].on_event(events)
        except BaseException:
            # A bug of ours: better an instance that is gone than one that answers nothing.
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
            os._exit(70)

    def set_ready(self, concurrency: int, on_request: Callable[[Stream], None]) -> None:
        """load() has returned: READY goes to every connection, now and as they come."""
        with self._lock:
            self.on_request = on_request
            self._ready_payload = protocol.json_payload({"concurrency": concurrency})
            self.ready = True
            greeted = [c for c in self._connections.values() if c.greeted]
            for connection in greeted:
                connection.send([frame(protocol.READY, 0, self._ready_payload)])

    def greet(self, connection: Connection, hello: bytes) -> None:
        with self._lock:
            connection.greeted = True
            connection.send([hello])
            if self.ready:
                connection.send([frame(protocol.READY, 0, self._ready_payload)])

    def set_drained_callback(self, on_drained: Callable[[], None]) -> None:
        """`on_drained` is called once, when DRAIN has come: then no further stream is handed on."""
        with self._lock:
            self.on_drained = on_drained
            if not self.draining:
                return
        on_drained()

    def on_drain(self) -> None:
        with self._lock:
            if self.draining:
                return
            self.draining = True
            on_drained = self.on_drained
        if on_drained is not None:
            on_drained()

    def flush_blocking(self, seconds: float) -> None:
        for connection in list(self._connections.values()):
            connection.flush_blocking(seconds)

    def watch(self, connection: Connection, events: int) -> None:
        self._epoll.modify(connection.fileno, events)

    def forget(self, connection: Connection) -> None:
        self._epoll.unregister(connection.fileno)
        with self._lock:
            del self._connections[connection.fileno]

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(0.05)  # it waits in the backlog and would wake us again at once
            return
        connection = Connection(self, sock)
        with self._lock:
            self._connections[connection.fileno] = connection
        self._epoll.register(connection.fileno, select.EPOLLIN)

    def _close_in_child(self) -> None:
        self._epoll.close()
        self._listener.close()
        for connection in self._connections.values():
            connection.socket.close()


def _not_ready(stream: Stream) -> None:
    raise ProtocolError("REQUEST before READY")
