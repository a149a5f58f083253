"""A daemon started by a script: its life, its admin API and its port. Standard library only.

Used by tools/demo, tests/clients and benchmarks.
"""

import contextlib
import errno
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Container, Iterator, Mapping

REPOSITORY = Path(__file__).resolve().parent.parent

# What uv says besides its progress: "minilm: Using CPython 3.11.2", "minilm:  + numpy==2.4.6".
UV_DETAIL = re.compile(r": (Using|Creating|Resolved| \+) ")


class DaemonError(Exception):
    """What went wrong, for the person at the terminal."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def port_in_use(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Daemon:
    """`omni serve --root ROOT`. A context manager: when it ends, the daemon has stopped."""

    def __init__(self, binary: Path, root: Path, port: int) -> None:
        self.binary = binary
        self.root = root
        self.port = port
        self.log = root / "logs/daemon.log"
        self.admin_socket = root / "run/admin.sock"
        self._process: subprocess.Popen[bytes] | None = None

    # ---- life

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C reaches the script, which stops the daemon in order.
            self._process = subprocess.Popen(
                [self.binary, "serve", "--root", self.root],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self, seconds: float = 60) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise DaemonError(f"the daemon did not stop within {seconds:.0f} s") from None

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait()

    def check_alive(self) -> None:
        assert self._process is not None
        if (status := self._process.poll()) is not None:
            lines = self.log.read_text(errors="replace").splitlines()[-10:]
            raise DaemonError("\n".join([f"the daemon ended with status {status}:", *lines]))

    def wait_ready(self, seconds: float = 20) -> None:
        """Until the admin API answers."""
        deadline = time.monotonic() + seconds
        while True:
            self.check_alive()
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.admin("GET", "/admin/status", timeout=5)
                return
            if time.monotonic() > deadline:
                raise DaemonError(
                    f"the daemon did not answer within {seconds:.0f} s, see {self.log}"
                )
            time.sleep(0.05)

    def wait_provisioned(
        self, names: Container[str], seconds: float = 1800, show: Callable[[str], None] = print
    ) -> None:
        """Until none of these models is being prepared; what is done meanwhile is shown."""
        deadline = time.monotonic() + seconds
        last_id = 0
        while True:
            self.check_alive()
            for event in self._events(last_id):
                last_id = event["id"]
                if event["type"] == "provision" and not UV_DETAIL.search(event["line"]):
                    show(event["line"])
            models = [model for model in self.models().values() if model["name"] in names]
            if failed := [model for model in models if model["state"] == "failed"]:
                reasons = [f"{model['name']}: {model['last_error']}" for model in failed]
                raise DaemonError("\n".join(reasons))
            if all(model["state"] != "provisioning" for model in models):
                return
            if time.monotonic() > deadline:
                raise DaemonError(f"the models were not prepared within {seconds:.0f} s")
            time.sleep(0.2)

    def __enter__(self) -> "Daemon":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # ---- admin API

    def admin(self, method: str, path: str, timeout: float = 60) -> Any:
        status, body = exchange(UnixConnection(self.admin_socket, timeout), method, path)
        answer = json.loads(body)
        if status != 200:
            raise DaemonError(answer["error"]["message"])
        return answer

    def models(self) -> dict[str, Any]:
        return {model["name"]: model for model in self.admin("GET", "/admin/models")["models"]}

    def instances(self) -> list[dict[str, Any]]:
        """With their processes' memory (PSS)."""
        found: list[dict[str, Any]] = self.admin("GET", "/admin/instances?pss=1")["instances"]
        return found

    def _events(self, after: int) -> Iterator[dict[str, Any]]:
        """The events there are, of the stream that goes on."""
        connection = UnixConnection(self.admin_socket, timeout=0.5)
        with contextlib.closing(connection):
            connection.request("GET", "/admin/events", headers={"Last-Event-ID": str(after)})
            with contextlib.suppress(TimeoutError):  # nothing more for now
                for line in connection.getresponse():
                    if line.startswith(b"data:"):
                        yield json.loads(line[5:])

    # ---- public API

    def post(
        self, path: str, body: bytes, content_type: str = "application/json", timeout: float = 180
    ) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        status, answer = exchange(connection, "POST", path, body, {"Content-Type": content_type})
        if status != 200:
            raise DaemonError(f"{path}: status {status}: {answer[:500].decode(errors='replace')}")
        return answer


def exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    with contextlib.closing(connection):
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read()


def build(preset: str, *targets: str) -> Path:
    """Builds omni; returns the binary."""
    for command in (
        ["cmake", "--preset", preset],
        ["cmake", "--build", "--preset", preset, "--target", *targets],
    ):
        if subprocess.run(command, cwd=REPOSITORY, check=False).returncode != 0:
            raise DaemonError(f"{' '.join(command)} failed")
    return REPOSITORY / "build" / preset / "bin/omni"


def use_tools() -> None:
    """tools/env.sh for this process and the daemon."""
    listed = subprocess.run(
        ["bash", "-c", ". tools/env.sh && env -0"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    pairs = (pair.partition("=") for pair in listed.stdout.split("\0"))
    os.environ.update({name: value for name, equals, value in pairs if equals})
