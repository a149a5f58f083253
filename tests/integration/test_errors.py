"""Every row of docs/errors.md, as a real daemon or command gives it: one test per code, test_<code>.

A test checks the row's HTTP status, exit code, origin and Retry-After, that the message names the thing and the way
out, and that other models serve on.
"""

import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

import harness
from harness import Answer, Daemon, wait_until

ROW = re.compile(
    r"^\| `(?P<code>\w+)` \| (?P<http>\d+) \| (?P<exit>\d+) \| `\w+` \| (?P<who>\w+) \| (?P<retry>yes|no) \|",
    re.MULTILINE,
)
ROWS = {
    row["code"]: row for row in ROW.finditer((harness.REPOSITORY / "docs/errors.md").read_text())
}
HEALTHY = "def handle_request(request, context):\n    return {'ok': True}\n"


class ErrorCase(unittest.TestCase):
    """Compares what comes with the row; the healthy model of a shared daemon must serve after each test."""

    daemon: Daemon

    @classmethod
    def start(cls, daemon, prepare):
        """A daemon for all tests of the class, with the models that `prepare` makes."""
        cls.daemon = cls.enterClassContext(daemon)
        daemon.handler("healthy", HEALTHY)
        prepare(daemon)
        daemon.start()
        # Limits of a test are short: what is only there to be healthy is loaded before.
        assert daemon.omni("load", "healthy").returncode == 0

    def tearDown(self):
        if hasattr(self, "daemon"):
            answer = self.daemon.post("/ai/run/healthy", {})
            self.assertEqual((answer.status, answer.json()), (200, {"ok": True}))

    def answered(self, answer, code, *parts, retry_after=None):
        """The error of an HTTP answer. With retry_after Retry-After must be there, or must not."""
        row = ROWS[code]
        self.assertEqual(answer.status, int(row["http"]), answer)
        error = answer.json()["error"]
        self.assertEqual((error["code"], error["origin"]), (code, row["who"]), answer)
        self.assertEqual(error["request_id"], answer.headers["x-request-id"])
        for part in parts:
            self.assertIn(part, error["message"])
        after = answer.headers["Retry-After"]
        if row["retry"] == "no" or retry_after is False:
            self.assertIsNone(after, answer)
        if retry_after:
            self.assertIsNotNone(after, answer)
        if after is not None:
            self.assertGreaterEqual(int(after), 1)
        return error

    def ended(self, result, code, *parts):
        """What a command said when it ended with the row's exit code."""
        self.assertEqual(result.returncode, int(ROWS[code]["exit"]), result)
        self.assertTrue(result.stderr.startswith("omni: "), result)
        for part in parts:
            self.assertIn(part, result.stderr)


class Table(unittest.TestCase):
    def test_every_row_has_its_test_and_every_test_its_row(self):
        tested = {
            name.removeprefix("test_")
            for case in ErrorCase.__subclasses__()
            for name in unittest.TestLoader().getTestCaseNames(case)
        }
        self.assertGreater(len(ROWS), 30, "the rows are found")
        self.assertEqual(tested, set(ROWS))


class Requests(ErrorCase):
    """What is wrong with the request itself: no model is troubled with it."""

    @classmethod
    def setUpClass(cls):
        limits = {"json_body": "2KiB", "file_body": "8MiB", "header_timeout": "300ms"}

        def prepare(daemon):
            daemon.fake_engine("talker")
            daemon.handler("listener", HEALTHY, task="speech-to-text")

        cls.start(Daemon(limits=limits), prepare)

    def raw(self, data, shut=False):
        """The answer to these bytes."""
        with socket.create_connection(("127.0.0.1", self.daemon.port), timeout=20) as client:
            client.sendall(data)
            if shut:
                client.shutdown(socket.SHUT_WR)
            response = http.client.HTTPResponse(client)
            response.begin()
            return Answer(response.status, response.headers, response.read())

    def test_invalid_request(self):
        answer = self.daemon.post("/v1/chat/completions", {"messages": []})
        error = self.answered(answer, "invalid_request", "`model`", "GET /v1/models")
        self.assertEqual(error["param"], "model")

    def test_invalid_json(self):
        answer = self.daemon.post("/ai/run/healthy", '{"a": nope}')
        self.answered(answer, "invalid_json", "at byte 6")

    def test_model_not_found(self):
        answer = self.daemon.chat("taker")
        error = self.answered(answer, "model_not_found", '"taker"', 'did you mean "talker"?')
        self.assertEqual(error["param"], "model")
        for verb in ("run", "load", "stop", "logs", "explain"):
            self.ended(self.daemon.omni(verb, "taker"), "model_not_found", 'did you mean "talker"?')

    def test_not_found(self):
        self.answered(
            self.daemon.post("/v1/chat/completion", {}), "not_found", "/v1/chat/completion"
        )
        self.answered(self.daemon.get("/admin/status"), "not_found", "Unix socket")

    def test_method_not_allowed(self):
        answer = self.daemon.get("/v1/chat/completions")
        self.answered(answer, "method_not_allowed", "/v1/chat/completions takes POST")
        self.assertIn("POST", answer.headers["Allow"])

    def test_forbidden_origin(self):
        answer = self.daemon.get("/v1/models", headers={"Origin": "https://elsewhere.example"})
        self.answered(answer, "forbidden_origin", "https://elsewhere.example", "cors_origins")
        answer = self.daemon.get("/v1/models", headers={"Host": "elsewhere.example"})
        self.answered(answer, "forbidden_origin", "elsewhere.example", "localhost")

    def test_invalid_api_key(self):
        made = json.loads(self.daemon.omni("key", "alice", "--json", socket=False).stdout)
        lines = f'[[keys]]\nname = "alice"\nsha256 = "{made["sha256"]}"\n'
        with Daemon(listen=None, keys=lines) as daemon:
            daemon.fake_engine("talker")
            daemon.start()
            for path in ("/v1/models", "/metrics", "/running", "/upstream/talker/echo"):
                answer = daemon.get(path)
                self.answered(answer, "invalid_api_key", "Authorization: Bearer")
                self.assertEqual(answer.headers["WWW-Authenticate"], "Bearer")
            answer = daemon.get("/v1/models", headers={"Authorization": f"Bearer {made['sha256']}"})
            self.answered(answer, "invalid_api_key", "not one that this server knows")
            for header in ({"Authorization": f"Bearer {made['key']}"}, {"x-api-key": made["key"]}):
                self.assertEqual(daemon.get("/v1/models", headers=header).status, 200)
                seen = daemon.get("/upstream/talker/echo", headers=header)
                self.assertEqual(seen.status, 200)
                self.assertNotIn(made["key"].encode(), seen.body, "the engine gets no key")
            self.assertEqual(daemon.get("/readyz").status, 200, "probes have no secrets")
            self.assertEqual(daemon.omni("run", "talker", "hello").returncode, 0, "nor the owner")
            log = daemon.log.read_text()
            self.assertIn("key=alice", log)
            self.assertNotIn(made["key"], log)

    def test_task_mismatch(self):
        body = {"model": "talker", "input": "a"}
        answer = self.daemon.post("/v1/embeddings", body)
        self.answered(answer, "task_mismatch", '"talker"', "chat", "/v1/chat/completions")
        answer = self.daemon.post("/upstream/healthy/path", {})
        self.answered(answer, "task_mismatch", '"healthy"', "/ai/run/healthy")

    def test_body_too_large(self):
        answer = self.daemon.post("/ai/run/healthy", {"text": "x" * 2048})
        self.answered(answer, "body_too_large", "2 KiB", "limits.json_body")
        headers = {"Content-Type": "audio/wav"}
        answer = self.daemon.post("/ai/run/listener", bytes(9 << 20), headers=headers)
        self.answered(answer, "body_too_large", "8 MiB", "limits.file_body")

    def test_head_too_large(self):
        answer = self.daemon.get("/v1/models", headers={"X-Long": "x" * 100_000})
        self.answered(answer, "head_too_large", "KiB")
        many = {f"X-{number}": "x" for number in range(500)}
        self.answered(self.daemon.get("/v1/models", headers=many), "head_too_large", "fields")

    def test_unsupported_media_type(self):
        answer = self.daemon.post(
            "/v1/chat/completions", b"a", headers={"Content-Type": "image/png"}
        )
        self.answered(answer, "unsupported_media_type", "application/json", "image/png")

    def test_length_required(self):
        for path in ("/v1/chat/completions", "/v1/audio/transcriptions", "/ai/run/healthy"):
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            answer = self.raw(head.encode())
            self.answered(answer, "length_required", path, "Content-Length")

    def test_request_timeout(self):
        answer = self.raw(b"GET /v1/models HTTP/1.1\r\nHost: local")
        self.answered(answer, "request_timeout", "300ms")

    def test_cancelled(self):
        connection = self.daemon.connection()
        connection.request("POST", "/upstream/talker/slow?seconds=60", "{}")
        wait_until(lambda: self.daemon.admin("GET", "/admin/models/talker").json()["in_flight"])
        connection.close()
        counter = 'omni_request_errors_total{model="talker",code="cancelled"} 1'
        wait_until(lambda: counter in self.daemon.get("/metrics").body.decode(), what=counter)
        # A command that is interrupted says so too.
        command = [harness.OMNI, "events", "--socket", self.daemon.admin_socket()]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        self.assertEqual(process.returncode, int(ROWS["cancelled"]["exit"]))

    def test_io_error(self):
        spool = self.daemon.root / "state/spool"
        spool.rename(spool.with_name("elsewhere"))
        try:
            headers = {"Content-Type": "audio/wav"}
            answer = self.daemon.post("/ai/run/listener", bytes(100), headers=headers)
        finally:
            spool.with_name("elsewhere").rename(spool)
        self.answered(answer, "io_error", str(spool), "No such file")
        result = self.daemon.omni("run", "listener", "/no/such/file.wav")
        self.ended(result, "io_error", "/no/such/file.wav")

    def test_disk_full(self):
        with open("/dev/full", "w") as full:
            command = [harness.OMNI, "models", "--socket", self.daemon.admin_socket()]
            result = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=20
            )
        self.ended(result, "disk_full", "No space left")
        spool = self.daemon.root / "state/spool"
        with harness.small_file_system(spool):
            headers = {"Content-Type": "audio/wav"}
            answer = self.daemon.post("/ai/run/listener", bytes(4 << 20), headers=headers)
            self.answered(answer, "disk_full", str(spool), "No space left")
            answer = self.daemon.post("/ai/run/listener", bytes(1 << 10), headers=headers)
            self.assertEqual(answer.status, 200, "what fits is served")


class Models(ErrorCase):
    """One model is at fault; the answer says which, and the command says the same."""

    @classmethod
    def setUpClass(cls):
        def prepare(daemon):
            cls.typo = daemon.model(
                "typo", 'task = "other"\n[engine]\nkind = "python"\nhandlr = "a"\n'
            )
            daemon.handler("huge", HEALTHY, memory="8GiB")
            unbuilt = daemon.handler("unbuilt", HEALTHY)
            (unbuilt / "net.bin").write_text("x")
            toml = unbuilt / "model.toml"
            weights = f'[[weights]]\nsource = "file:net.bin"\nsha256 = "{"0" * 64}"\n'
            toml.write_text(toml.read_text() + weights)
            daemon.fake_engine("dies", "--die-at-start", "7", task="completion")
            daemon.fake_engine("stalls", "--stall", engine='load_stall = "1s"')
            daemon.fake_engine("fragile", "--die-on-request")
            daemon.fake_engine("babbles", "--garbage-answer")
            daemon.handler(
                "slow",
                "import time\ndef handle_request(request, context):\n    time.sleep(request['seconds'])\n",
                engine='stop_grace = "1s"',
            )
            daemon.handler(
                "raises",
                "def handle_request(request, context):\n    raise ValueError('seven is odd')\n",
            )

        cls.start(Daemon(limits={"request_timeout": "1s"}), prepare)

    def test_invalid_config(self):
        place = f"{self.typo}/model.toml:4: engine.handlr"
        answer = self.daemon.post("/ai/run/typo", {})
        self.answered(answer, "invalid_config", place, "did you mean handler?")
        self.ended(self.daemon.omni("load", "typo"), "invalid_config", place)
        result = subprocess.run(
            [harness.OMNI, "check", str(self.daemon.models)], capture_output=True, text=True
        )
        self.ended(result, "invalid_config")
        self.assertIn(place, result.stdout + result.stderr)

    def test_model_too_large(self):
        answer = self.daemon.post("/ai/run/huge", {})
        self.answered(
            answer, "model_too_large", '"huge"', "8 GiB", "4 GiB", "raise", "smaller model"
        )
        for verb in (["run", "huge", "{}"], ["load", "huge"]):
            self.ended(self.daemon.omni(*verb), "model_too_large", '"huge"')

    def test_provision_failed(self):
        answer = self.daemon.post("/ai/run/unbuilt", {})
        self.answered(answer, "provision_failed", "unbuilt/net.bin", "0" * 64)
        self.ended(self.daemon.omni("load", "unbuilt"), "provision_failed", "unbuilt/net.bin")

    def test_load_failed(self):
        answer = self.daemon.post("/v1/completions", {"model": "dies", "prompt": "a"})
        self.answered(answer, "load_failed", '"dies"', "7", "dies at start")
        self.ended(self.daemon.omni("load", "dies"), "load_failed", '"dies"', "dies at start")
        for _ in range(5):  # by then it backs off
            answer = self.daemon.post("/v1/completions", {"model": "dies", "prompt": "a"})
        self.answered(answer, "load_failed", '"dies"', "tried again in", retry_after=True)

    def test_load_stalled(self):
        answer = self.daemon.chat("stalls")
        self.answered(answer, "load_stalled", '"stalls"', "1s", "engine.load_stall")
        answer = self.daemon.admin("POST", "/admin/models/stalls/load")
        self.assertEqual(answer.json()["error"]["code"], "load_stalled")

    def test_instance_crashed(self):
        answer = self.daemon.chat("fragile")
        self.answered(answer, "instance_crashed", '"fragile"', "no third try")
        self.ended(self.daemon.omni("run", "fragile", "a"), "instance_crashed", '"fragile"')

    def test_engine_protocol(self):
        answer = self.daemon.chat("babbles")
        self.answered(answer, "engine_protocol", '"babbles"', "not HTTP/1.1", "log")
        self.ended(self.daemon.omni("run", "babbles", "a"), "engine_protocol", '"babbles"')

    def test_engine_timeout(self):
        answer = self.daemon.post("/ai/run/slow", {"seconds": 60})
        self.answered(answer, "engine_timeout", '"slow"', "1s", "limits.request_timeout")
        result = self.daemon.omni("run", "slow", '{"seconds": 60}')
        self.ended(result, "engine_timeout", '"slow"')

    def test_handler_failed(self):
        answer = self.daemon.post("/ai/run/raises", {})
        self.answered(answer, "handler_failed", "ValueError", "seven is odd")
        result = self.daemon.omni("run", "raises", "{}")
        self.ended(result, "handler_failed", "ValueError", "seven is odd")
        self.assertIn("Traceback", self.daemon.omni("logs", "raises").stdout)


class Queues(ErrorCase):
    """There is no room, or no time."""

    @classmethod
    def setUpClass(cls):
        limits = {
            "queue_per_model": 1,
            "queue_timeout": "3s",
            "body_memory": "1MiB",
        }

        def prepare(daemon):
            pinned = daemon.handler("pinned", HEALTHY, memory="128MiB")
            toml = pinned / "model.toml"
            toml.write_text("pinned = true\n" + toml.read_text())
            daemon.handler("wide", HEALTHY, memory="200MiB")
            daemon.fake_engine("loading", "--slow-start", "60")

        cls.start(Daemon(memory="256MiB", limits=limits), prepare)

    def ask_and_wait(self, daemon):
        """A request that waits for a model: where its answer will be, and the thread to join."""
        answers = []
        thread = threading.Thread(target=lambda: answers.append(daemon.chat("loading")))
        thread.start()
        wait_until(
            lambda: daemon.admin("GET", "/admin/models/loading").json()["waiting"] == 1,
            what="a waiting request",
        )
        return answers, thread

    def other_than_200(self, path, body):
        answer = self.daemon.post(path, body)
        return answer if answer.status != 200 else None

    def test_queue_full(self):
        _, first = self.ask_and_wait(self.daemon)
        answer = self.daemon.chat("loading")
        self.answered(answer, "queue_full", '"loading"', "limits.queue_per_model", retry_after=True)
        self.ended(self.daemon.omni("run", "loading", "a"), "queue_full", '"loading"')
        first.join(20)

    def test_queue_timeout(self):
        answer = self.daemon.chat("loading")
        self.answered(
            answer, "queue_timeout", '"loading"', "limits.queue_timeout", retry_after=True
        )

    def test_overloaded(self):
        headers = (
            b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n"
        )
        with socket.create_connection(("127.0.0.1", self.daemon.port), timeout=20) as slow:
            slow.sendall(b"POST /ai/run/healthy HTTP/1.1\r\n" + headers + b"\r\n" + b" " * 900_000)
            body = {"text": "x" * 900_000}
            answer = wait_until(lambda: self.other_than_200("/ai/run/healthy", body))
        self.answered(answer, "overloaded", "1 MiB", "limits.body_memory", retry_after=True)

    def test_out_of_memory(self):
        self.assertEqual(self.daemon.omni("load", "pinned").returncode, 0)
        answer = self.daemon.post("/ai/run/wide", {})
        self.answered(answer, "out_of_memory", '"wide"', "200 MiB", "unpin one or raise")
        for verb in (["run", "wide", "{}"], ["load", "wide"]):
            self.ended(self.daemon.omni(*verb), "out_of_memory", '"wide"', "unpin one or raise")

    def test_model_stopped(self):
        answers, thread = self.ask_and_wait(self.daemon)
        self.assertEqual(self.daemon.omni("stop", "loading").returncode, 0)
        thread.join(20)
        self.answered(answers[0], "model_stopped", '"loading"', "stopped by an operator")
        # So is a command that waits for it.
        command = [harness.OMNI, "load", "loading", "--socket", self.daemon.admin_socket()]
        load = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: self.daemon.state("loading") == "starting", what="the load")
        self.assertEqual(self.daemon.omni("stop", "loading").returncode, 0)
        _, said = load.communicate(timeout=20)
        result = subprocess.CompletedProcess(command, load.returncode, "", said)
        self.ended(result, "model_stopped", '"loading"', "stopped by an operator")

    def test_shutting_down(self):
        with Daemon(limits={"shutdown_timeout": "0ms"}) as daemon:
            daemon.fake_engine("loading", "--slow-start", "60")
            daemon.start()
            answers, thread = self.ask_and_wait(daemon)
            daemon.process.send_signal(signal.SIGTERM)
            thread.join(20)
            self.answered(answers[0], "shutting_down", "the daemon is shutting down")
            self.assertEqual(daemon.process.wait(20), 0)


class Commands(ErrorCase):
    """What a command meets before, or instead of, a daemon's answer."""

    @classmethod
    def setUpClass(cls):
        cls.start(Daemon(), lambda daemon: None)

    def run_omni(self, *arguments, program=harness.OMNI, **options):
        command = [program, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, **options)

    def test_usage(self):
        self.ended(self.run_omni("lod", "healthy"), "usage", "lod", "did you mean `omni load`?")
        self.ended(self.run_omni("load", "--jsn", "healthy"), "usage", "--jsn", "load --help")
        self.ended(self.run_omni("load"), "usage", "model is required", "load --help")

    def test_daemon_unreachable(self):
        with tempfile.TemporaryDirectory() as root:
            result = self.run_omni("ps", "--root", root)
            self.ended(result, "daemon_unreachable", f"{root}/run/admin.sock", "omni serve")

    def test_already_running(self):
        daemon = self.daemon
        result = self.run_omni("serve", "--root", daemon.root, "--config", daemon.config)
        self.ended(result, "already_running", str(daemon.root / "run/lock"), "--root")
        with Daemon(listen=[f"127.0.0.1:{daemon.port}"]) as other:
            result = self.run_omni("serve", "--root", other.root)
            self.ended(result, "already_running", f"127.0.0.1:{daemon.port}", "listen")

    def test_permission_denied(self):
        path = pathlib.Path(self.daemon.admin_socket())
        program = shutil.copy(harness.OMNI, self.daemon.root)  # where another user reaches it
        options = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        path.chmod(0o600 if options else 0)
        try:
            result = self.run_omni("status", "--socket", path, program=program, **options)
        finally:
            path.chmod(0o600)
        self.ended(result, "permission_denied", str(path), "call as the user", "Permission denied")

    def test_internal(self):
        """A request cannot bring it about; an installation whose parts do not belong together does."""
        with Daemon() as daemon:
            for part in ("bin/omni", "lib/omni/omni-shim"):
                (daemon.root / part).parent.mkdir(parents=True)
            program = shutil.copy(harness.OMNI, daemon.root / "bin/omni")
            shim = shutil.copy("/bin/true", daemon.root / "lib/omni/omni-shim")
            result = self.run_omni("serve", "--root", daemon.root, program=program)
            self.ended(result, "internal", str(shim), "does not answer")


if __name__ == "__main__":
    harness.main()
