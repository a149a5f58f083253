"""Starts real daemons for integration tests: one Daemon per test, its own root, a free port, everything gone after.

Standard library only. The binary is $OMNI_BIN (set by ctest). Waits are for events with a deadline, never fixed sleeps.
"""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FAKE_ENGINE = REPOSITORY / "tests/fakes/engine.py"
OMNI = os.environ.get("OMNI_BIN", str(REPOSITORY / "build/dev/bin/omni"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, seconds=20, what="the condition"):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come true within {seconds} s")


@contextlib.contextmanager
def small_file_system(folder, options="size=1m"):
    """Lays a small file system over a folder. Skips the test where that is not allowed."""
    command = ["mount", "-t", "tmpfs", "-o", f"{options},mode=0755", "omni-test", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode != 0:
        raise unittest.SkipTest(f"mounting takes root: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:2000]!r}>"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Daemon:
    """A daemon in a temporary root. Use as a context manager."""

    def __init__(
        self, memory="4GiB", limits=None, extra="", listen=None, environment=None, keys=""
    ):
        # Short and outside the repository: socket paths are limited, and models must be able to reach it.
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="omni-test-"))
        self.root.chmod(0o755)
        self.models = self.root / "models"
        self.models.mkdir()
        self.port = free_port()
        self.environment = dict(environment or {})  # beside the test's own
        self.process = None
        self.log = self.root / "daemon.log"
        listen = listen or [f"127.0.0.1:{self.port}"]
        lines = [
            f"listen = {json.dumps(listen)}",
            f"models = [{json.dumps(str(self.models))}]",
            extra,
        ]
        lines += ["[device.host]", f'memory = "{memory}"']
        if keys:
            lines.append(keys)
        if limits:
            lines += ["[limits]"] + [
                f"{key} = {json.dumps(value)}" for key, value in limits.items()
            ]
        self.config = self.root / "omni.toml"
        self.config.write_text("\n".join(lines) + "\n")

    # ---- models

    def model(self, name, toml, files=None):
        folder = self.models / name
        folder.mkdir()
        (folder / "model.toml").write_text(toml)
        for file, content in (files or {}).items():
            (folder / file).write_text(content)
        return folder

    def fake_engine(
        self,
        name,
        *flags,
        transport="socket",
        task="chat",
        memory="32MiB",
        engine="",
        scaling="",
        extra="",
    ):
        """A model served by tests/fakes/engine.py."""
        address = {
            "socket": ["--socket", "{socket}"],
            "port": ["--port", "{port}"],
            "v6": ["--host", "::1", "--port", "{port}"],
        }[transport]
        command = ["/usr/bin/python3", "{model_dir}/engine.py", *address, *flags]
        folder = self.model(
            name,
            f'task = "{task}"\n{extra}\n[engine]\nkind = "command"\ncommand = {json.dumps(command)}\n{engine}\n'
            f'[resources]\nmemory = "{memory}"\n[scaling]\n{scaling}\n',
        )
        shutil.copy(FAKE_ENGINE, folder / "engine.py")
        return folder

    def handler(self, name, source, task="other", memory="32MiB", engine="", scaling=""):
        """A model served by a Python handler."""
        return self.model(
            name,
            f'task = "{task}"\n[engine]\nkind = "python"\n{engine}\n[resources]\nmemory = "{memory}"\n[scaling]\n{scaling}\n',
            {"handler.py": source},
        )

    # ---- life

    def start(self, wait=True, arguments=()):
        command = [
            OMNI,
            "serve",
            "--root",
            str(self.root),
            "--config",
            str(self.config),
            "--log-level",
            "debug",
            *arguments,
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, **self.environment},
            )
        if wait:
            wait_until(self._ready, what="the daemon to be ready")
        return self

    def _ready(self):
        if self.process.poll() is not None:
            raise AssertionError(
                f"the daemon ended with {self.process.returncode}:\n{self.log.read_text()}"
            )
        with contextlib.suppress(OSError):
            return self.get("/readyz").status == 200

    def stop(self, number=signal.SIGTERM, seconds=60):
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(
                f"the daemon did not stop within {seconds} s:\n{self.log.read_text()[-4000:]}"
            )

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        try:
            if kind is not None:
                sys.stderr.write(
                    f"---- log of the daemon\n{self.log.read_text()[-8000:] if self.log.exists() else ''}\n"
                )
                for log in sorted(self.root.glob("logs/*.log")):
                    sys.stderr.write(
                        f"---- {log.name}\n{log.read_text(errors='replace')[-3000:]}\n"
                    )
            self.stop()
        finally:
            if self.process and self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            shutil.rmtree(self.root, ignore_errors=True)

    # ---- requests

    def connection(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None, timeout=60):
        connection = self.connection(timeout)
        return self._exchange(connection, method, path, body, headers)

    def admin(self, method, path, timeout=60):
        return self._exchange(
            UnixConnection(self.admin_socket(), timeout), method, path, None, None
        )

    def admin_socket(self):
        return str(next(self.root.rglob("admin.sock")))

    @staticmethod
    def _exchange(connection, method, path, body, headers):
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body, **options):
        return self.request("POST", path, body, **options)

    def chat(self, model, text="hello", timeout=60, **fields):
        body = {"model": model, "messages": [{"role": "user", "content": text}], **fields}
        return self.post("/v1/chat/completions", body, timeout=timeout)

    def stream(self, model, text="hello", timeout=60, **fields):
        """An open streaming chat: (connection, response)."""
        connection = self.connection(timeout)
        body = {
            "model": model,
            "messages": [{"role": "user", "content": text}],
            "stream": True,
            **fields,
        }
        connection.request(
            "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        return connection, connection.getresponse()

    # ---- views

    def state(self, model):
        return self.admin("GET", f"/admin/models/{model}").json()["state"]

    def instances(self, pss=False):
        return self.admin("GET", "/admin/instances" + ("?pss=1" if pss else "")).json()["instances"]

    def omni(self, *arguments, timeout=60, socket=True):
        place = ["--socket", self.admin_socket()] if socket else []
        return subprocess.run(
            [OMNI, *arguments, *place],
            capture_output=True,
            text=True,
            timeout=timeout,
        )


def processes_with(text):
    """Process ids whose command line holds the text."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def main():
    unittest.main(verbosity=2)
