"""Weights from a hub, interpreters, and what `omni gc` leaves to a daemon that runs."""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
import urllib.request

import harness
from harness import Daemon, wait_until

FAKE_HUB = harness.REPOSITORY / "tests/fakes/hub.py"
TOKEN = "hf_never_to_be_seen"
READ_WEIGHT = (
    "import hashlib, pathlib, sys\n"
    "def handle_request(request, context):\n"
    "    content = b''.join(pathlib.Path(p).read_bytes() for p in context.weights.values())\n"
    "    return {'sha256': hashlib.sha256(content).hexdigest(), 'python': sys.executable,\n"
    "            'prefix': sys.prefix}\n"
)


class Hub:
    """tests/fakes/hub.py, and the environment that leads a daemon to it."""

    def __init__(self, **variables):
        self.variables = {"HF_ENDPOINT": None, "HF_TOKEN": None, "HF_TOKEN_PATH": None, **variables}

    def __enter__(self):
        self.process = subprocess.Popen(
            [sys.executable, FAKE_HUB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port, self.cdn_port, _ = map(int, self.process.stdout.readline().split())
        self.variables["HF_ENDPOINT"] = f"http://127.0.0.1:{self.port}"
        self.before = {name: os.environ.pop(name, None) for name in self.variables}
        os.environ.update({name: value for name, value in self.variables.items() if value})
        return self

    def stop(self):
        self.process.communicate("")

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()
        for name, value in self.before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    def put(self, name, content, flags=""):
        url = f"http://127.0.0.1:{self.port}/files/{name}?{flags}"
        urllib.request.urlopen(urllib.request.Request(url, content, method="PUT")).close()

    def open_gate(self, name):
        urllib.request.urlopen(f"http://127.0.0.1:{self.port}/open/{name}").close()

    def log(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/log") as answer:
            return json.load(answer)


def weight(source, sha256=""):
    digest = f'\nsha256 = "{sha256}"' if sha256 else ""
    return f'[[weights]]\nsource = "{source}"{digest}\n'


def gc(daemon, *arguments):
    return subprocess.run(
        [harness.OMNI, "gc", "--root", str(daemon.root), "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
    )


def removed(result):
    return {item["path"] for item in json.loads(result.stdout)["removed"]}


class Weights(unittest.TestCase):
    def test_a_hub_file_serves_and_the_token_is_nowhere_and_a_restart_needs_no_network(self):
        content = os.urandom(200_000)
        digest = hashlib.sha256(content).hexdigest()
        with Hub(HF_TOKEN=TOKEN) as hub, Daemon() as daemon:
            hub.put("model.bin", content, f"private={TOKEN}&cut=150000&gate=1")
            daemon.handler("m", READ_WEIGHT, scaling=weight("hf:org/name/model.bin"))
            daemon.start()
            # While curl runs, its command line and environment are there to be seen.
            part = next(iter(wait_until(lambda: list(daemon.root.rglob("*.part")), what="a part")))
            self.assertEqual(part.name, digest + ".part")
            mine = set(harness.processes_with("--config\0-"))
            self.assertTrue(mine, "curl runs")
            for pid in mine:
                with contextlib.suppress(OSError):
                    self.assertNotIn(
                        TOKEN, (pathlib.Path("/proc") / str(pid) / "cmdline").read_text()
                    )
                    self.assertNotIn(
                        TOKEN, (pathlib.Path("/proc") / str(pid) / "environ").read_text()
                    )
            hub.open_gate("model.bin")
            self.assertEqual(daemon.post("/ai/run/m", {}).json()["sha256"], digest)
            self.assertEqual(
                {entry["token"] for entry in hub.log() if entry["at"] == "cdn"}, {None}
            )
            self.assertEqual(
                {entry["token"] for entry in hub.log() if entry["at"] == "hub"}, {f"Bearer {TOKEN}"}
            )
            self.assertEqual(
                sum(entry["sent"] for entry in hub.log() if entry["at"] == "cdn"), len(content)
            )
            events = self.events_until(daemon, '"provisioned"')
            self.assertIn("fetching model.bin", events)
            self.assertNotIn(TOKEN, events)
            daemon.stop()
            for file in daemon.root.rglob("*"):
                if file.is_file():
                    self.assertNotIn(TOKEN.encode(), file.read_bytes(), file)
            hub.stop()
            daemon.start()
            self.assertEqual(daemon.post("/ai/run/m", {}).json()["sha256"], digest)

    def events_until(self, daemon, text):
        connection = harness.UnixConnection(daemon.admin_socket(), 20)
        with contextlib.closing(connection):
            connection.request("GET", "/admin/events?after=0")
            response = connection.getresponse()
            seen = ""
            while text not in seen:
                line = response.readline().decode()
                self.assertTrue(line, seen)
                seen += line
            return seen

    def test_an_error_of_the_hub_reaches_the_client(self):
        with Hub() as hub, Daemon() as daemon:
            hub.put("model.bin", b"x", f"private={TOKEN}")
            daemon.handler("closed", READ_WEIGHT, scaling=weight("hf:org/name/model.bin"))
            daemon.handler("absent", READ_WEIGHT, scaling=weight("hf:org/name@main/none.bin"))
            daemon.start()
            error = daemon.post("/ai/run/closed", {}).json()["error"]
            self.assertEqual(error["code"], "provision_failed")
            self.assertIn("set HF_TOKEN", error["message"])
            message = daemon.post("/ai/run/absent", {}).json()["error"]["message"]
            self.assertIn("no none.bin in repository org/name at revision main", message)


class Interpreter(unittest.TestCase):
    def test_a_handler_runs_in_the_interpreter_of_its_spec_even_in_a_closed_folder(self):
        with Daemon() as daemon:
            closed = daemon.root / "closed"
            closed.mkdir(mode=0o700)
            subprocess.run(
                ["/usr/bin/python3", "-m", "venv", "--without-pip", closed / "venv"], check=True
            )
            python = closed / "venv/bin/python"
            daemon.handler("own", READ_WEIGHT, engine=f'python = "{python}"')
            daemon.handler("missing", READ_WEIGHT, engine='python = "3.1"')
            daemon.start()
            answer = daemon.post("/ai/run/own", {}).json()
            self.assertEqual(answer["python"], str(python), answer)
            self.assertEqual(answer["prefix"], str(closed / "venv"))
            message = daemon.post("/ai/run/missing", {}).json()["error"]["message"]
            self.assertIn("Python 3.1 is not installed", message)
            self.assertIn("/usr/bin/python3.", message)


class Gc(unittest.TestCase):
    def test_leaves_a_running_daemon_what_it_uses_and_removes_it_later(self):
        kept, gone, fetched = (os.urandom(5000) for _ in range(3))
        place = lambda content: "weights/sha256/{0:.2}/{0}".format(
            hashlib.sha256(content).hexdigest()
        )
        with Hub() as hub, Daemon() as daemon:
            hub.put("kept.bin", kept)
            hub.put("gone.bin", gone)
            hub.put("slow.bin", fetched, "gate=1")
            daemon.handler("kept", READ_WEIGHT, scaling=weight("hf:org/name/kept.bin"))
            daemon.handler("gone", READ_WEIGHT, scaling=weight("hf:org/name/gone.bin"))
            daemon.handler("slow", READ_WEIGHT, scaling=weight("hf:org/name/slow.bin"))
            self.assertIn("no daemon has prepared", gc(daemon).stderr)
            daemon.start()
            for model in ("kept", "gone"):
                self.assertEqual(daemon.post(f"/ai/run/{model}", {}).status, 200)
            wait_until(lambda: list(daemon.root.rglob("*.part")), what="a part")

            shutil.rmtree(daemon.models / "gone")
            result = gc(daemon)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(removed(result), set(), "the daemon still serves it")
            self.assertEqual(daemon.post("/ai/run/gone", {}).status, 200)
            hub.open_gate("slow.bin")
            self.assertEqual(daemon.post("/ai/run/slow", {}).status, 200)

            daemon.stop()
            would = removed(gc(daemon, "--dry-run"))
            self.assertIn(place(gone), would)
            self.assertTrue((daemon.root / "state" / place(gone)).exists())
            result = gc(daemon)
            self.assertEqual(removed(result), would)
            self.assertGreater(json.loads(result.stdout)["freed"], 5000)
            self.assertFalse((daemon.root / "state" / place(gone)).exists())
            self.assertFalse((daemon.root / "state/cache/gone").exists())
            self.assertTrue((daemon.root / "state" / place(kept)).exists())
            self.assertEqual(removed(gc(daemon)), set())
            hub.stop()
            daemon.start()
            for model in ("kept", "slow"):
                self.assertEqual(daemon.post(f"/ai/run/{model}", {}).status, 200)


if __name__ == "__main__":
    harness.main()
