#!/usr/bin/env python3
"""A fake HTTP engine for tests: OpenAI-like answers that depend on the request alone, and one flag per misbehaviour.

Standard library only. It stands in for llama-server and the like wherever a test is about omni and not about a model.

    engine.py --socket /tmp/x.sock
    engine.py --port 8080 --host ::1 --tokens 32 --token-delay 0.01
"""

from __future__ import annotations

import argparse
import hashlib
import http.server
import json
import os
import signal
import socket
import socketserver
import struct
import sys
import threading
import time
from typing import Any, Iterator
from urllib.parse import parse_qs, urlsplit


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_argument_group("where it listens")
    where.add_argument(
        "--socket", help="Unix socket; one that exists is an error, as with llama-server"
    )
    where.add_argument("--port", type=int, default=0)
    where.add_argument("--host", default="127.0.0.1", help="numeric, IPv4 or IPv6")
    answers = parser.add_argument_group("answers")
    answers.add_argument("--model", default="fake", help="the name in /v1/models")
    answers.add_argument(
        "--tokens", type=int, default=8, help="of an answer, unless max_tokens is less"
    )
    answers.add_argument("--token-delay", type=float, default=0.0, metavar="SECONDS")
    start = parser.add_argument_group("misbehaviour at start")
    start.add_argument(
        "--slow-start",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="/health is 503 for so long, while dots are printed and CPU time is used",
    )
    start.add_argument("--stall", action="store_true", help="never listens and does nothing")
    start.add_argument(
        "--never-ready", action="store_true", help="/health is 503 for ever, without any progress"
    )
    start.add_argument(
        "--garbage-health",
        type=float,
        nargs="?",
        const=float("inf"),
        default=0.0,
        metavar="SECONDS",
        help="/health answers what is not HTTP, for ever or for so long",
    )
    start.add_argument("--die-at-start", type=int, nargs="?", const=1, metavar="CODE")
    life = parser.add_argument_group("misbehaviour of the process")
    life.add_argument("--ignore-term", action="store_true")
    life.add_argument(
        "--fork-setsid",
        action="store_true",
        help="a grandchild in a session of its own ignores SIGTERM and holds on",
    )
    life.add_argument(
        "--flood-log", action="store_true", help="writes to its log as fast as it can"
    )
    life.add_argument(
        "--leak", type=int, default=0, metavar="MIB", help="per request, never given back"
    )
    request = parser.add_argument_group("misbehaviour at a request")
    request.add_argument(
        "--die-on-request",
        nargs="?",
        const="",
        metavar="TEXT",
        help="before any byte of the answer; with TEXT only when the body holds it",
    )
    request.add_argument(
        "--garbage-answer", action="store_true", help="answers requests with what is not HTTP"
    )
    request.add_argument("--die-mid-stream", action="store_true", help="after half of the tokens")
    request.add_argument(
        "--error-in-stream",
        action="store_true",
        help="an error event after half of the tokens and no [DONE]",
    )
    return parser.parse_args()


class Stats:
    """Counters that /stats shows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests = 0
        self.cancelled = 0
        self.active = 0
        self.peak_active = 0

    def begin(self) -> None:
        with self._lock:
            self.requests += 1
            self.active += 1
            self.peak_active = max(self.peak_active, self.active)

    def end(self, cancelled: bool) -> None:
        with self._lock:
            self.active -= 1
            self.cancelled += cancelled

    def snapshot(self) -> dict[str, int]:
        with self._lock:
            return {
                "requests": self.requests,
                "cancelled": self.cancelled,
                "active": self.active,
                "peak_active": self.peak_active,
            }


class Cancelled(Exception):
    """The client has closed the connection."""


class BadRequest(Exception):
    """Answered with 400 and this text."""


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 512

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.stats = Stats()
        self.begin = time.monotonic()
        self.leaked: list[bytearray] = []
        if options.socket:
            self.address_family = socket.AF_UNIX
            address: Any = options.socket
        else:
            self.address_family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
            address = (options.host, options.port)
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()

    def age(self) -> float:
        return time.monotonic() - self.begin

    def handle_error(self, request: Any, client_address: Any) -> None:
        kind = sys.exc_info()[0]
        if kind is not None and not issubclass(kind, (ConnectionError, Cancelled)):
            super().handle_error(request, client_address)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    # Chunks leave as they are written.
    wbufsize = 0
    disable_nagle_algorithm = False  # not every address family has it

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def address_string(self) -> str:
        return "client"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self.serve
        raise AttributeError(name)

    # ---- Dispatch

    def serve(self) -> None:
        path = urlsplit(self.path).path
        if path == "/health":
            return self.health()
        if path == "/stats":
            return self.send_json(self.server.stats.snapshot())
        self.server.stats.begin()
        cancelled = False
        try:
            self.misbehave()
            self.route(path)
        except BadRequest as error:
            self.send_json(
                {"error": {"message": str(error), "type": "invalid_request_error"}}, status=400
            )
        except (Cancelled, ConnectionError):
            cancelled = True
            self.close_connection = True
        finally:
            self.server.stats.end(cancelled)

    def route(self, path: str) -> None:
        routes = {
            "/v1/chat/completions": self.chat,
            "/v1/completions": self.completion,
            "/v1/embeddings": self.embeddings,
            "/v1/models": self.models,
            "/echo": self.echo,
            "/slow": self.slow,
            "/reset": self.reset,
            "/upgrade": self.upgrade,
        }
        route = routes.get(path)
        if route is None:
            self.read_body()
            self.send_json(
                {"error": {"message": f"no path {path}", "type": "not_found"}}, status=404
            )
        else:
            route()

    def misbehave(self) -> None:
        if self.server.options.garbage_answer:
            self.read_body()
            self.send_garbage()
            raise ConnectionError("garbage on request")
        if self.server.options.die_on_request == "":
            self.die()
        if self.server.options.leak:
            # Written to, so that it is resident.
            self.server.leaked.append(bytearray(b"x" * (self.server.options.leak << 20)))

    def die(self) -> None:
        print("dies on request", flush=True)
        os._exit(3)

    # ---- Paths

    def health(self) -> None:
        options = self.server.options
        if self.server.age() < options.garbage_health:
            self.send_garbage()
        elif options.never_ready or self.server.age() < options.slow_start:
            self.send_json({"status": "loading"}, status=503)
        else:
            self.send_json({"status": "ok"})

    def send_garbage(self) -> None:
        self.wfile.write(b"\x00\xffSSH-2.0-not-http\r\n\r\n")
        self.close_connection = True

    def models(self) -> None:
        self.send_json(
            {"object": "list", "data": [{"id": self.server.options.model, "object": "model"}]}
        )

    def chat(self) -> None:
        body = self.read_json()
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise BadRequest("messages is missing")
        prompt = sum(len(str(message.get("content", "")).split()) for message in messages)
        self.answer(
            body,
            prompt,
            "chat.completion",
            lambda text: {"message": {"role": "assistant", "content": text}},
            lambda text: {"delta": {"content": text}},
        )

    def completion(self) -> None:
        body = self.read_json()
        prompt = len(str(body.get("prompt", "")).split())
        self.answer(
            body,
            prompt,
            "text_completion",
            lambda text: {"text": text},
            lambda text: {"text": text},
        )

    def embeddings(self) -> None:
        body = self.read_json()
        texts = body.get("input", [])
        texts = [texts] if isinstance(texts, str) else texts
        data = [
            {"object": "embedding", "index": i, "embedding": embed(str(text))}
            for i, text in enumerate(texts)
        ]
        words = sum(len(str(text).split()) for text in texts)
        self.send_json(
            {
                "object": "list",
                "model": body.get("model", ""),
                "data": data,
                "usage": {"prompt_tokens": words, "total_tokens": words},
            }
        )

    def echo(self) -> None:
        body = self.read_body()
        self.send_json(
            {
                "method": self.command,
                "path": self.path,
                "headers": list(self.headers.items()),
                "length": len(body),
                "sha256": hashlib.sha256(body).hexdigest(),
            }
        )

    def reset(self) -> None:
        """Breaks its connection and lives on."""
        self.read_body()
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        raise ConnectionError("reset on request")

    def slow(self) -> None:
        """Answers after ?seconds=N, or counts as cancelled when the client leaves before."""
        self.read_body()
        query = parse_qs(urlsplit(self.path).query)
        self.wait(float(query.get("seconds", ["1"])[0]))
        self.send_json({"status": "done"})

    def upgrade(self) -> None:
        protocol = self.headers.get("Upgrade")
        if not protocol:
            raise BadRequest("this path wants an Upgrade header")
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", protocol)
        self.end_headers()
        self.close_connection = True
        while data := self.rfile.read1(65536):
            self.wfile.write(data)

    # ---- Token answers

    def answer(self, body: dict[str, Any], prompt: int, kind: str, whole: Any, part: Any) -> None:
        count = self.server.options.tokens
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        if isinstance(limit, int):
            count = min(count, limit)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": count,
            "total_tokens": prompt + count,
        }
        common = {"id": "fake-1", "created": 0, "model": body.get("model", "")}
        if body.get("stream"):
            options = body.get("stream_options") or {}
            chunk_kind = "chat.completion.chunk" if kind == "chat.completion" else kind
            self.stream(
                {**common, "object": chunk_kind},
                count,
                part,
                usage if options.get("include_usage") else None,
            )
            return
        text = "".join(self.generate(count))
        choice = {"index": 0, "finish_reason": "stop", **whole(text)}
        self.send_json({**common, "object": kind, "choices": [choice], "usage": usage})

    def generate(self, count: int) -> Iterator[str]:
        for i in range(count):
            self.wait(self.server.options.token_delay)
            yield f"t{i} "

    def stream(
        self, common: dict[str, Any], count: int, part: Any, usage: dict[str, int] | None
    ) -> None:
        options = self.server.options
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i, text in enumerate(self.generate(count)):
            if i == count // 2 and options.die_mid_stream:
                print("dies in a stream", flush=True)
                os._exit(4)
            if i == count // 2 and options.error_in_stream:
                self.send_event(
                    {
                        "error": {
                            "message": "the fake fails here",
                            "type": "server_error",
                            "code": 500,
                        }
                    }
                )
                self.send_chunk(b"")
                return
            self.send_event(
                {**common, "choices": [{"index": 0, "finish_reason": None, **part(text)}]}
            )
        self.send_event({**common, "choices": [{"index": 0, "finish_reason": "stop", **part("")}]})
        if usage:
            self.send_event({**common, "choices": [], "usage": usage})
        self.send_chunk(b"data: [DONE]\n\n")
        self.send_chunk(b"")

    def send_event(self, value: dict[str, Any]) -> None:
        self.send_chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    # ---- HTTP

    def send_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def send_json(self, value: Any, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def read_json(self) -> dict[str, Any]:
        try:
            value = json.loads(self.read_body())
        except ValueError as error:
            raise BadRequest(f"bad JSON: {error}") from error
        if not isinstance(value, dict):
            raise BadRequest("the body is not a JSON object")
        return value

    def read_body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return b"".join(self.read_chunks())
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(size)
        if len(body) < size:
            raise Cancelled
        fatal = self.server.options.die_on_request
        if fatal and fatal.encode() in body:
            self.die()
        return body

    def read_chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline() not in (b"\r\n", b"\n", b""):
            pass

    def wait(self, seconds: float) -> None:
        """Sleeps, but notices within 10 ms that the client has closed."""
        end = time.monotonic() + seconds
        while True:
            self.raise_if_closed()
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.01))

    def raise_if_closed(self) -> None:
        try:
            if self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"":
                raise Cancelled
        except BlockingIOError:
            pass


def embed(text: str) -> list[float]:
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
    return [round(byte / 255 * 2 - 1, 6) for byte in digest[:8]]


def fork_setsid() -> None:
    """A grandchild that nothing but its cgroup, namespace or subreaper ties to this process."""
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    print(f"grandchild {os.getpid()} holds on", flush=True)
    while True:
        time.sleep(60)


def flood_log() -> None:
    block = ("flood " * 20 + "\n") * 512
    while True:
        sys.stdout.write(block)


def show_progress(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        print(".", end="", flush=True)
        sum(i * i for i in range(20000))
        time.sleep(0.02)
    print("loaded", flush=True)


def main() -> None:
    options = parse_arguments()
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.fork_setsid:
        fork_setsid()
    if options.die_at_start is not None:
        print("dies at start", file=sys.stderr, flush=True)
        sys.exit(options.die_at_start)
    if options.stall:
        while True:
            time.sleep(60)
    server = Server(options)
    if options.slow_start:
        threading.Thread(target=show_progress, args=(options.slow_start,), daemon=True).start()
    if options.flood_log:
        threading.Thread(target=flood_log, daemon=True).start()
    where = options.socket or f"{options.host} port {server.server_address[1]}"
    print(f"listens on {where}", flush=True)
    server.serve_forever(poll_interval=60)


if __name__ == "__main__":
    main()
