"""The classes of the SDK. Standard library only, and little of it: every instance imports this."""

from __future__ import annotations

import io
import sys

TYPE_CHECKING = False  # importing typing costs a start several milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class InvalidRequest(Exception):
    """Raised by a handler when the caller is wrong: the client gets status 400 with this message.

    `param` names the field that is wrong, as in OpenAI's errors.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class File(io.BufferedReader):
    """An uploaded file: an ordinary binary file object, seekable, open until the request ends."""

    def __init__(
        self,
        raw: io.RawIOBase,
        *,
        field: str = "file",
        filename: str = "",
        content_type: str = "",
        size: int = 0,
    ) -> None:
        super().__init__(raw)
        self.field = field
        self.filename = filename
        self.content_type = content_type
        self.size = size

    @property
    def name(self) -> str:
        """The client's file name. Libraries that guess a format from a file object look here."""
        return self.filename or self.field

    def __repr__(self) -> str:
        return f"<File {self.field!r} {self.filename!r} {self.content_type!r} {self.size} bytes>"


class Request:
    """One request. Built by the runtime; a handler's own tests may build one too.

    Parameters read like a dictionary: `request["input"]`, `request.get("temperature", 1.0)`,
    `"tools" in request`. A missing key of `request[...]` is the client's error (status 400).
    """

    def __init__(
        self,
        parameters: dict[str, Any] | None = None,
        *,
        id: str = "",
        task: str = "other",
        body: bytes | None = None,
        content_type: str = "",
        files: Sequence[File] = (),
        stream: bool = False,
        deadline: float | None = None,
    ) -> None:
        #: The request's id, as in the daemon's log and the X-Request-Id header.
        self.id = id
        #: The model's task: "chat", "embeddings", ...
        self.task = task
        #: The JSON object of the request, in the task's canonical form.
        self.parameters: dict[str, Any] = {} if parameters is None else parameters
        #: The media type of `body`, with its parameters; empty for a JSON request.
        self.content_type = content_type
        #: Uploaded files, in the order of the form.
        self.files = tuple(files)
        #: Whether the client asked for a stream. A handler may ignore it: omni folds and splits.
        self.stream = stream
        #: Until when the daemon waits for the answer to begin, in time.monotonic(); None: no limit.
        self.deadline = deadline
        #: Becomes true when the client has left. Long loops look at it; generators are closed.
        self.cancelled = False
        self._body = body

    @property
    def body(self) -> bytes:
        """The raw bytes of a request that is not JSON; empty for one that is."""
        if self._body is None:
            raw = next((file for file in self.files if file.field == ""), None)
            self._body = b"" if raw is None else raw.read()
        return self._body

    def file(self, field: str = "file") -> File:
        """The uploaded file of this form field. Without one, the client gets status 400."""
        for file in self.files:
            if file.field == field:
                return file
        raise InvalidRequest(f'a file in form field "{field}" is required', param=field)

    def get(self, key: str, default: Any = None) -> Any:
        return self.parameters.get(key, default)

    def __getitem__(self, key: str) -> Any:
        try:
            return self.parameters[key]
        except KeyError:
            raise InvalidRequest(f'"{key}" is required', param=key) from None

    def __contains__(self, key: object) -> bool:
        return key in self.parameters

    def __repr__(self) -> str:
        return f"<Request {self.id} {self.task} {sorted(self.parameters)}>"


class Response:
    """An answer with more than its body. A handler that needs no more returns the body itself.

    `body` is a dict or list (JSON), str, bytes, or an iterator, sync or async, whose items are any
    of these: they are streamed as they come. `usage` is read when the body has ended, so a
    generator may fill it while it runs. `status` and `headers` reach clients of /ai/run.
    """

    def __init__(
        self,
        body: Any,
        content_type: str | None = None,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        usage: dict[str, Any] | None = None,
    ) -> None:
        if isinstance(status, bool) or not isinstance(status, int):
            raise TypeError(f"status must be an int, not {type(status).__name__}")
        if not 200 <= status <= 599:
            raise ValueError(f"status must be from 200 to 599, not {status}")
        self.body = body
        self.content_type = content_type
        self.status = status
        self.headers = dict(headers or {})
        self.usage = usage
        for name, value in (*self.headers.items(), ("Content-Type", content_type or "")):
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"header {name!r} must be a string with a string value")
            if not name or any(ord(c) < 32 or ord(c) == 127 for c in name + value):
                raise ValueError(f"header {name!r} holds a control character or has no name")


class Weights(dict[str, str]):
    """Paths of the weights that model.toml declares, by name."""

    def __missing__(self, name: str) -> str:
        known = ", ".join(sorted(self)) or "none"
        raise KeyError(f'no weight named "{name}"; model.toml declares: {known}')


class Context:
    """What a handler knows about its instance. The same object in load() and every request."""

    def __init__(
        self,
        *,
        model: str = "",
        task: str = "other",
        instance: str = "",
        model_dir: str = ".",
        cache_dir: str = "",
        weights: Mapping[str, str] | None = None,
        concurrency: int = 1,
    ) -> None:
        #: The model's name, its task, and the id of this instance.
        self.model = model
        self.task = task
        self.instance = instance
        #: The model's own folder, read-only.
        self.model_dir = model_dir
        #: A writable folder that outlives the instance: for compile caches. May be empty.
        self.cache_dir = cache_dir
        #: Paths by the names of model.toml: context.weights["name"].
        self.weights: Mapping[str, str] = Weights(weights or {})
        #: How many requests may run at once in this instance.
        self.concurrency = concurrency
        #: Free for the handler: what load() keeps for handle_request().
        self.state: Any = _State()

    def log(self, message: object) -> None:
        """Writes one line to the model's log. print() goes there too."""
        print(message, file=sys.stderr, flush=True)


class _State:
    """Attributes of the handler's choice."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"context.state.{name} was never set; load() is the place to set it")
