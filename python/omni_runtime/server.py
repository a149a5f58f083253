"""Loads a handler and runs its requests.

A `def` handler runs in the main thread, where load() ran: libraries bind contexts, event loops and
signal handlers to it. With concurrency n, n - 1 more threads help. An `async def` handler runs as
up to n tasks on one loop, in the main thread too. The I/O thread of connection.py feeds both.
"""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import threading
import time
from _queue import SimpleQueue  # what queue.SimpleQueue is, without the rest of queue

from omni import Context, File, InvalidRequest, Request
from omni_runtime import answers, protocol
from omni_runtime.connection import Cancelled, IoThread, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections import deque
    from collections.abc import Callable, Iterator
    from typing import Any

FLUSH_SECONDS = 5.0
_loops = threading.local()  # .loop: see _thread_loop()
_CO_COROUTINE, _CO_ASYNC_GENERATOR = 0x80, 0x200  # inspect's, which is slow to import


class LoadError(Exception):
    """Why the handler cannot serve, in one line."""


def main(argv: list[str]) -> None:
    """Does not return: exits with 0 after DRAIN, 1 when the handler cannot be loaded, 2 for bad
    settings."""
    os.dup2(2, 1)  # what models print belongs to the log
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    sys.stderr.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    started = time.monotonic()
    try:
        settings = json.loads(argv[1])
        context = _context(settings)
        handler_path = os.path.join(context.model_dir, settings.get("handler", "handler.py"))
        preload = settings.get("preload", [])
        listener = socket.socket(fileno=protocol.SOCKET_FD)
        listener.set_inheritable(False)
    except (LookupError, TypeError, ValueError, OSError) as error:
        _exit_with(2, f"bad settings or no socket as descriptor 3: {_describe(error)}")
    server = Server(IoThread(listener), context)
    server.io.start()
    try:
        server.load(handler_path, preload)
    except LoadError as error:
        _exit_with(1, f'cannot load model "{context.model}": {error}')
    context.log(f"omni_runtime: loaded in {time.monotonic() - started:.3f} s")
    server.serve()
    server.io.flush_blocking(FLUSH_SECONDS)


def _context(settings: dict[str, Any]) -> Context:
    return Context(
        model=settings["model"],
        task=settings.get("task", "other"),
        instance=str(settings.get("instance", "")),
        model_dir=os.path.abspath(settings["model_dir"]),
        cache_dir=settings.get("cache_dir", ""),
        weights=settings.get("weights", {}),
        concurrency=max(1, int(settings.get("concurrency", 1))),
    )


class Server:
    def __init__(self, io: IoThread, context: Context) -> None:
        self.io = io
        self.context = context
        self._handle: Callable[[Request, Context], Any]
        self._queue: SimpleQueue[Stream | None] = SimpleQueue()

    def load(self, path: str, preload: list[str]) -> None:
        for name in preload:
            _run(f"preload {name}", lambda: __import__(name))
        module = _run(os.path.basename(path), lambda: _import_handler(path, self.context.model_dir))
        handle = getattr(module, "handle_request", None)
        if not callable(handle):
            raise LoadError(f"{path} has no function handle_request(request, context)")
        self._handle = handle
        load = getattr(module, "load", None)
        if load is not None:
            result = _run("load()", lambda: load(self.context))
            if hasattr(result, "__await__"):
                _run("load()", lambda: _thread_loop().run_until_complete(result))

    def serve(self) -> None:
        """Until DRAIN has come and every request has ended."""
        if _is_async(self._handle):
            self._serve_async()
        else:
            self._serve_threads()

    # def handlers

    def _serve_threads(self) -> None:
        count = self.context.concurrency
        helpers = [
            threading.Thread(target=self._work, name=f"handler-{n}", daemon=True)
            for n in range(2, count + 1)
        ]
        for helper in helpers:
            helper.start()
        self.io.set_ready(count, self._queue.put)

        def on_drained() -> None:
            for _ in range(count):
                self._queue.put(None)

        self.io.set_drained_callback(on_drained)
        self._work()
        for helper in helpers:
            helper.join()

    def _work(self) -> None:
        while True:
            stream = self._queue.get()
            if stream is None:
                return
            if stream.begin():
                self._answer(stream)

    def _answer(self, stream: Stream) -> None:
        request = None
        try:
            request = _make_request(stream)
            result = self._handle(request, self.context)
            if hasattr(result, "__await__"):
                result = _thread_loop().run_until_complete(result)
            response = answers.to_response(result)
            body = response.body
            if answers.is_async_iterable(body):
                body = _iterate(body)
            head = (response.status, response.content_type or "", response.headers)
            if answers.is_iterator(body):
                try:
                    for item in body:
                        stream.check()
                        kind, data = answers.encode(item)
                        if not stream.responded:
                            stream.respond(*head, streaming=True)
                        _send(stream, kind, data)
                        stream.flush()
                finally:
                    _close(body)
                if not stream.responded:
                    stream.respond(*head, streaming=True)
            else:
                kind, data = answers.encode(body)
                stream.respond(*head, streaming=False)
                _send(stream, kind, data)
            stream.finish(response.usage)
        except BaseException as error:
            _fail(stream, error)
            if isinstance(error, KeyboardInterrupt):
                raise
        finally:
            _release(request)

    # async def handlers

    def _serve_async(self) -> None:
        import asyncio
        from collections import deque

        loop = _thread_loop()
        waiting: deque[Stream] = deque()
        running: set[asyncio.Task[None]] = set()
        draining = False

        def admit() -> None:
            while waiting and len(running) < self.context.concurrency:
                stream = waiting.popleft()
                if stream.begin():
                    task = loop.create_task(self._answer_async(stream))
                    running.add(task)
                    task.add_done_callback(on_done)
            if draining and not running and not waiting:
                loop.stop()

        def on_done(task: asyncio.Task[None]) -> None:
            running.discard(task)
            admit()

        def on_request(stream: Stream) -> None:
            waiting.append(stream)
            admit()

        def on_drained() -> None:
            nonlocal draining
            draining = True
            admit()

        asyncio.set_event_loop(loop)
        self.io.set_ready(
            self.context.concurrency, lambda stream: _call_soon(loop, on_request, stream)
        )
        self.io.set_drained_callback(lambda: _call_soon(loop, on_drained))
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    async def _answer_async(self, stream: Stream) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        stream.on_cancel = lambda: _call_soon(loop, task.cancel)
        request = None
        try:
            stream.check()
            request = _make_request(stream)
            result = self._handle(request, self.context)
            if hasattr(result, "__await__"):
                result = await result
            response = answers.to_response(result)
            body = response.body
            head = (response.status, response.content_type or "", response.headers)
            if answers.is_async_iterable(body) or answers.is_iterator(body):
                try:
                    async for item in _as_async(body):
                        stream.check()
                        kind, data = answers.encode(item)
                        if not stream.responded:
                            stream.respond(*head, streaming=True)
                        await _send_async(stream, kind, data)
                        stream.flush()
                finally:
                    await _close_async(body)
                if not stream.responded:
                    stream.respond(*head, streaming=True)
            else:
                kind, data = answers.encode(body)
                stream.respond(*head, streaming=False)
                await _send_async(stream, kind, data)
            stream.finish(response.usage)
        except BaseException as error:
            _fail(stream, error)
            if isinstance(error, (KeyboardInterrupt, asyncio.CancelledError)):
                raise
        finally:
            _release(request)


def _make_request(stream: Stream) -> Request:
    head = json.loads(bytes(stream.head))
    stream.head.clear()
    parts = head.get("files", [])
    fds, stream.fds = stream.fds, []
    files = []
    for fd, part in zip(fds, parts):
        files.append(
            File(
                io.FileIO(fd, "rb"),
                field=part["name"],
                filename=part.get("filename", ""),
                content_type=part.get("content_type", ""),
                size=part.get("size", 0),
            )
        )
    timeout_ms = head.get("timeout_ms", 0)
    # A raw body is here, or it is the file of no name.
    held = head.get("raw", False) and not any(file.field == "" for file in files)
    request = Request(
        head.get("parameters", {}),
        id=head.get("id", ""),
        task=head.get("task", "other"),
        body=bytes(stream.body) if held else None,
        content_type=head.get("content_type", ""),
        files=files,
        stream=head.get("stream", False),
        deadline=time.monotonic() + timeout_ms / 1000 if timeout_ms else None,
    )
    stream.body = bytearray()
    with stream.connection.lock:
        stream.request = request
        request.cancelled = stream.cancelled
    if len(fds) != len(parts):
        raise RuntimeError(f"{len(parts)} files were announced, {len(fds)} came")
    return request


def _release(request: Request | None) -> None:
    if request is not None:
        for file in request.files:
            file.close()


def _fail(stream: Stream, error: BaseException) -> None:
    """Ends the stream with what went wrong. The traceback goes to the log alone."""
    if stream.cancelled:
        stream.fail("cancelled", "the request was cancelled")
    elif isinstance(error, InvalidRequest):
        stream.fail("invalid_request", error.message, error.param)
    else:
        request_id = stream.request.id if stream.request is not None else ""
        _print_traceback(error, f"omni_runtime: request {request_id} failed\n")
        stream.fail("handler_failed", _describe(error))


def _send(stream: Stream, kind: int, data: bytes) -> None:
    at = stream.put(kind, data)
    while at >= 0:
        stream.wait()
        at = stream.put(kind, data, at)


async def _send_async(stream: Stream, kind: int, data: bytes) -> None:
    at = stream.put(kind, data)
    while at >= 0:
        await _wait_async(stream)
        at = stream.put(kind, data, at)


async def _wait_async(stream: Stream) -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    with stream.connection.lock:
        stream.on_credit = lambda: _call_soon(loop, changed.set)
    while not stream.has_credit():
        stream.check()
        await changed.wait()
        changed.clear()


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *args: Any) -> None:
    """From the I/O thread. A loop that has ended takes nothing, and nothing waits for it."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        pass


def _thread_loop() -> asyncio.AbstractEventLoop:
    """This thread's event loop: of async handlers, or of what a def handler returned to await."""
    import asyncio

    loop: asyncio.AbstractEventLoop | None = getattr(_loops, "loop", None)
    if loop is None:
        loop = _loops.loop = asyncio.new_event_loop()
    return loop


def _iterate(body: Any) -> Iterator[Any]:
    """An async iterator driven by a def handler's thread."""
    loop = _thread_loop()
    iterator = body.__aiter__()
    try:
        while True:
            try:
                item = loop.run_until_complete(_next(iterator))
            except StopAsyncIteration:
                return
            yield item
    finally:
        loop.run_until_complete(_close_async(iterator))


async def _next(iterator: Any) -> Any:
    return await iterator.__anext__()


async def _as_async(body: Any) -> Any:
    if answers.is_async_iterable(body):
        async for item in body:
            yield item
        return
    import asyncio

    for item in body:
        yield item
        await asyncio.sleep(0)  # other requests get their turn between the items


def _close(body: Any) -> None:
    close = getattr(body, "close", None)
    if close is not None:
        close()


async def _close_async(body: Any) -> None:
    close = getattr(body, "aclose", None)
    if close is not None:
        await close()
    else:
        _close(body)


def _is_async(function: Any) -> bool:
    """Whether calling it gives a coroutine or an async generator."""
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    function = getattr(function, "__wrapped__", function)
    if not hasattr(function, "__code__") and not hasattr(function, "__func__"):
        function = getattr(type(function), "__call__", function)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and bool(code.co_flags & (_CO_COROUTINE | _CO_ASYNC_GENERATOR))


def _import_handler(path: str, model_dir: str) -> Any:
    import importlib.util

    if not os.path.isfile(path):
        raise LoadError(f"there is no file {path}")
    sys.path.insert(0, model_dir)
    sys.argv = [path]
    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules:
        name = f"omni_handler_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _run(what: str, action: Callable[[], Any]) -> Any:
    """Runs a part of the start; whatever it raises is in the log, and the reason in one line."""
    try:
        return action()
    except LoadError:
        raise
    except BaseException as error:  # sys.exit() too: a start that does not serve has failed
        _print_traceback(error)
        raise LoadError(f"{what}: {_describe(error)}") from None


def _describe(error: BaseException) -> str:
    kind = type(error)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    try:
        text = str(error)
    except Exception:
        text = "(its message cannot be shown)"
    return f"{name}: {text}" if text else name


def _print_traceback(error: BaseException, title: str = "") -> None:
    import traceback

    lines = traceback.format_exception(type(error), error, error.__traceback__)
    try:
        print(title + "".join(lines), end="", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass  # the model closed its log: no reason not to answer


def _exit_with(status: int, reason: str) -> Any:
    """The reason is the last line of the log, whatever other threads and exit handlers do."""
    print(f"omni_runtime: {' '.join(reason.split())}", file=sys.stderr, flush=True)
    os._exit(status)
