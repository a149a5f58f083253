"""Whatever is wrong with a file, a handler, a body or the machine: a clear error, and every other model serves on."""

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import unittest

import harness
from harness import Answer, Daemon, wait_until

HEALTHY = "def handle_request(request, context):\n    return {'ok': True}\n"
CALL = "def handle_request(request, context):\n    "
SPEC = 'task = "other"\n[engine]\nkind = "python"\n[resources]\nmemory = "32MiB"\n'


class Case(unittest.TestCase):
    def serves(self, daemon, model="healthy"):
        answer = daemon.post(f"/ai/run/{model}", {})
        self.assertEqual((answer.status, answer.json()), (200, {"ok": True}))

    def refused(self, answer, status, code, *parts):
        self.assertEqual(answer.status, status, answer)
        error = answer.json()["error"]
        self.assertEqual(error["code"], code, answer)
        for part in parts:
            self.assertIn(part, error["message"])


class Shared(Case):
    """One daemon for the class, with a healthy model that must serve after each test."""

    limits: dict[str, object] = {}
    daemon: Daemon

    @classmethod
    def prepare(cls, daemon):
        """Makes the models."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = cls.enterClassContext(Daemon(limits=cls.limits))
        cls.daemon.handler("healthy", HEALTHY)
        cls.prepare(cls.daemon)
        cls.daemon.start()

    def tearDown(self):
        self.serves(self.daemon)


def folder(daemon, name, spec, handler=HEALTHY):
    path = daemon.models / name
    path.mkdir()
    (path / "model.toml").write_bytes(spec if isinstance(spec, bytes) else spec.encode())
    (path / "handler.py").write_text(handler)
    return path


class Files(Shared):
    """What lies in a models folder."""

    # model.toml, and what the error says.
    REFUSED = {
        "wrong-type": (SPEC.replace('"32MiB"', "true"), ":5: resources.memory: must be a size"),
        "wrong-table": ('task = "other"\nengine = 3\n', ":2: engine: must be a table, [engine]"),
        "nul": (SPEC + "\0\0", ":6:"),
        "nul-in-text": (SPEC + '[env]\nA = "\\u0000"\n', ":6: env: A must not hold a NUL"),
        "garbage": (random.Random(1).randbytes(1 << 20), ":1:"),
        "too-long": (b"#" * ((1 << 20) + 1), "is larger than 1 MiB"),
        "brackets": (b"a = " + b"[" * 1_000_000, ":1:"),
        "deep-key": (SPEC.encode() + b"a" + b".a" * 400_000 + b" = 1", ":6: a key has more than"),
        "deep-table": (b"[a" + b".a" * 400_000 + b"]", ":1: a key has more than"),
        "deep-default": (
            SPEC + "[request.defaults]\nx = " + "[" * 99 + "]" * 99,
            ":6: request.defaults: x is nested deeper than",
        ),
        "duplicate-key": ('task = "chat"\n' + SPEC, ":2:"),
        "duplicate-table": (SPEC + "[engine]\n", ":6:"),
        "latin": (SPEC.encode() + b"# caf\xe9", ":6:"),
        "utf-16": (SPEC.encode("utf-16"), ":1:"),
        "empty": ("", ":1: task: is missing"),
        "no-handler": (
            SPEC.replace('"python"', '"python"\nhandler = "gone.py"'),
            ":4: engine.handler: ",
        ),
        "elsewhere": (
            SPEC.replace('"python"', '"python"\nhandler = "../healthy/handler.py"'),
            "must be a file inside the model's folder",
        ),
        "Capital": (SPEC, "rename the folder"),
    }

    @classmethod
    def prepare(cls, daemon):
        for name, (spec, _) in cls.REFUSED.items():
            folder(daemon, name, spec)
        folder(daemon, "bom", b"\xef\xbb\xbf" + SPEC.encode())
        folder(daemon, "crlf", SPEC.replace("\n", "\r\n"), HEALTHY.replace("\n", "\r\n"))
        looped = folder(daemon, "looped", SPEC)
        for link, target in {"self": ".", "up": "..", "a": "b", "b": "a"}.items():
            (looped / link).symlink_to(target)
        os.mkfifo(looped / "pipe")
        for name, target in {"loop-spec": "model.toml", "no-spec": "gone"}.items():
            spec = folder(daemon, name, "") / "model.toml"
            spec.unlink()
            spec.symlink_to(target)
        handler = folder(daemon, "loop-handler", SPEC) / "handler.py"
        handler.unlink()
        handler.symlink_to("handler.py")
        (daemon.models / "above").symlink_to("..")
        (daemon.models / "round").symlink_to("round")
        folder(daemon, os.fsdecode(b"no-utf8-\xff"), SPEC)
        cls.private = folder(daemon, "private", SPEC)
        cls.private.chmod(0)

    def test_a_spec_that_is_wrong_is_refused_by_file_and_line(self):
        for name, (_, wanted) in self.REFUSED.items():
            with self.subTest(name):
                answer = self.daemon.post(f"/ai/run/{name}", {})
                spec = str(self.daemon.models / name / "model.toml")
                self.refused(answer, 500, "invalid_config", spec, wanted)

    def test_check_tells_of_all_of_them_at_once(self):
        command = [harness.OMNI, "check", str(self.daemon.models)]
        result = subprocess.run(command, capture_output=True, timeout=60)
        self.assertEqual(result.returncode, 78, result.stderr[-2000:])
        said = (result.stdout + result.stderr).decode(errors="replace")
        for name in [*self.REFUSED, "loop-spec", "no-spec"]:
            self.assertIn(str(self.daemon.models / name), said)

    def test_a_byte_order_mark_and_line_ends_of_windows_are_no_fault(self):
        for name in ("bom", "crlf"):
            self.serves(self.daemon, name)

    def test_links_that_go_round_and_pipes_beside_a_handler_are_no_fault(self):
        self.serves(self.daemon, "looped")

    def test_a_spec_or_handler_that_is_a_broken_link_is_said_to_be_one(self):
        for name, wanted in {
            "loop-spec": "Too many levels of symbolic links",
            "no-spec": "No such file",
            "loop-handler": ":2: engine.handler: ",
        }.items():
            answer = self.daemon.post(f"/ai/run/{name}", {})
            self.refused(answer, 500, "invalid_config", str(self.daemon.models / name), wanted)

    def test_a_folder_whose_name_is_not_utf8_leaves_all_answers_json(self):
        self.assertIn("no-utf8-?", [m["id"] for m in self.daemon.get("/v1/models").json()["data"]])
        names = [
            model["name"] for model in self.daemon.admin("GET", "/admin/models").json()["models"]
        ]
        self.assertIn("no-utf8-?", names)
        self.daemon.get("/metrics").body.decode()

    def test_a_folder_that_may_not_be_read_is_said_to_be_one(self):
        # Root reads the files, but the user that the model runs as does not.
        answer = self.daemon.post("/ai/run/private", {})
        self.assertGreaterEqual(answer.status, 500, answer)
        self.assertIn(str(self.private), answer.json()["error"]["message"])
        self.assertIn("Permission denied", answer.json()["error"]["message"])


class Configs(Case):
    def test_a_config_that_is_wrong_stops_the_start_by_file_line_and_key(self):
        for text, wanted in {
            'queue_timeout = "1s"': ":3: queue_timeout: unknown key: queue_timeout belongs in [limits]",
            'io_threads = "two"': ":3: io_threads: must be an integer",
            "[limits]\nqueue_timeout = 5": ":4: limits.queue_timeout: must be a duration",
            '[limits]\nqueue_timeout = "5 parsecs"': ":4: limits.queue_timeout: ",
            "cors_origins = [1]": ":3: cors_origins: must be a string",
            "watch = true\nwatch = true": ":4:",
            'io_threads = 1\n"' + "a" * 1000: ":4:",
            "a" + ".a" * 400_000 + " = 1": ":3: a key has more than",
            "[device.gpu99]\nmemory = 1": ":3: device.gpu99: unknown key",
        }.items():
            with self.subTest(text[:40]), Daemon(extra=text) as daemon:
                daemon.start(wait=False)
                self.assertEqual(daemon.process.wait(20), 78)
                self.assertIn(f"{daemon.config}{wanted}", daemon.log.read_text())

    def test_a_models_folder_that_is_none_stops_the_start(self):
        with Daemon() as daemon:
            daemon.models.rmdir()
            daemon.models.write_text("")
            daemon.start(wait=False)
            self.assertEqual(daemon.process.wait(20), 78)
            self.assertIn(f":2: models: {daemon.models} is no folder", daemon.log.read_text())

    def test_two_hundred_models(self):
        with Daemon() as daemon:
            names = [f"m{number:03}" for number in range(200)]
            for name in names:
                daemon.handler(name, HEALTHY)
            daemon.start()
            listed = [model["id"] for model in daemon.get("/v1/models").json()["data"]]
            self.assertEqual(sorted(listed), names)
            for name in names[::40]:
                self.serves(daemon, name)
            result = daemon.omni("reload", "--json")
            self.assertEqual(json.loads(result.stdout)["unchanged"], 200)


class Handlers(Shared):
    """A handler of a model's own making."""

    limits = {"request_timeout": "2s"}
    # The handler, the code, and what the message says.
    LOAD_FAILS = {
        "at-import": ("raise RuntimeError('not today')\n", "RuntimeError: not today"),
        "at-syntax": ("def handle_request(request, context)\n", "handler.py, line 1"),
        "no-module": ("import no_such_module\n" + HEALTHY, "No module named 'no_such_module'"),
        "leaves-at-import": ("import os\nos._exit(0)\n", "exit code 0"),
        "no-function": ("x = 1\n", "no function handle_request"),
        "in-load": ("def load(context):\n    raise ValueError('no net')\n" + HEALTHY, "no net"),
        "leaves-in-load": (
            "import sys\ndef load(context):\n    sys.exit('bye')\n" + HEALTHY,
            "bye",
        ),
        "bytes-in-log": (
            "import os\nos.write(1, b'caf\\xe9 \\xff\\n')\nraise ValueError('\\udcff')\n",
            "cannot load model",
        ),
    }
    CALL_FAILS = {
        "raises": (CALL + "raise ValueError('seven')", "ValueError: seven"),
        "exits": (CALL + "raise SystemExit(3)", "SystemExit: 3"),
        "recurses": (CALL + "return handle_request(request, context)", "RecursionError"),
        "half-a-character": (CALL + "raise ValueError('\\udcff')", "ValueError"),
        "long-message": (CALL + "raise ValueError('x' * 10_000_000)", "ValueError: xxx"),
        "arguments": ("def handle_request(): pass\n", "TypeError"),
        "object": (CALL + "return object()", "the handler gave an object"),
        "nothing": (CALL + "return None", "the handler gave None"),
        "set-inside": (CALL + "return {'a': [{1, 2}]}", "answer['a'][0] is a set"),
        "nan-inside": (CALL + "return {'a': float('nan')}", "answer['a'] is nan"),
        "text-inside": (CALL + "return {'a': '\\udcff'}", "answer['a'] holds U+DCFF"),
        "circular": (CALL + "a = {}; a['a'] = a; return a", "Circular reference"),
        "deep": (
            CALL + "a = []\n    for _ in range(100_000): a = [a]\n    return a",
            "RecursionError",
        ),
        "large": (CALL + "return 'x' * (65 << 20)", "the limit is 67108864"),
        "bad-header": (
            "from omni import Response\n"
            + CALL
            + "return Response('', headers={'a': 'b\\r\\nc: d'})",
            "header 'a'",
        ),
    }
    DIES = {
        "leaves": "import os\n" + CALL + "os._exit(0)",
        "aborts": "import os\n" + CALL + "os.abort()",
        "kills": "import os\n" + CALL + "os.kill(os.getpid(), 9)",
    }

    @classmethod
    def prepare(cls, daemon):
        for name, (source, _) in {**cls.LOAD_FAILS, **cls.CALL_FAILS}.items():
            daemon.handler(name, source)
        for name, source in cls.DIES.items():
            daemon.handler(name, source)
        daemon.handler(
            "midway",
            "def handle_request(request, context):\n    yield 'a'\n    raise ValueError('b')\n",
        )
        # Neither a signal nor another thread gets a turn in it.
        daemon.handler(
            "hogs",
            "import re\n"
            + CALL
            + "if 'hog' in request: re.match(r'(a+)+$', 'a' * 64 + 'b')\n    return {'ok': True}\n",
            engine='stop_grace = "500ms"',
        )
        daemon.handler(
            "blocks",
            "import time\n" + CALL + "yield 'a'\n    time.sleep(1000)\n",
            engine='stop_grace = "500ms"',
        )
        daemon.handler(
            "blocks-in-load",
            "import time\ndef load(context):\n    time.sleep(1000)\n" + HEALTHY,
            engine='load_stall = "1s"',
        )
        daemon.handler(
            "prints",
            "import os, subprocess, sys\nprint('at import')\ndef load(context):\n    print('in load')\n"
            + CALL
            + "print('in a call')\n    os.write(1, b'raw \\xff\\n')\n    sys.stderr.write('errors\\n')\n"
            "    subprocess.run(['echo', 'of a child'])\n    sys.stdout.write('no end')\n"
            "    return {'ok': True}\n",
        )
        daemon.handler(
            "closes",
            "import os, sys\n"
            + CALL
            + "if not sys.stdout.closed:\n        sys.stdout.close()\n        os.closerange(0, 3)\n    return {'ok': True}\n",
        )

    def test_a_handler_that_cannot_be_loaded(self):
        for name, (_, wanted) in self.LOAD_FAILS.items():
            with self.subTest(name):
                answer = self.daemon.post(f"/ai/run/{name}", {})
                self.refused(answer, 503, "load_failed", f'"{name}"', wanted)
        # What a model printed is in it, whatever bytes that were.
        models = self.daemon.admin("GET", "/admin/models").json()["models"]
        failed = {model["name"] for model in models if model["last_error"]}
        self.assertLessEqual(set(self.LOAD_FAILS), failed)

    def test_a_handler_that_fails_in_a_call_is_asked_again(self):
        for name, (_, wanted) in self.CALL_FAILS.items():
            with self.subTest(name):
                for _ in range(2):
                    answer = self.daemon.post(f"/ai/run/{name}", {})
                    self.refused(answer, 500, "handler_failed", wanted)
        loads = self.daemon.get("/metrics").body.decode()
        for name in self.CALL_FAILS:
            self.assertIn(f'omni_loads_total{{model="{name}"}} 1', loads, "it is not loaded again")

    def test_a_handler_that_ends_its_process(self):
        for name in self.DIES:
            with self.subTest(name):
                answer = self.daemon.post(f"/ai/run/{name}", {})
                self.refused(answer, 502, "instance_crashed", f'"{name}"')

    def test_a_handler_that_raises_midway_ends_the_answer_without_its_end(self):
        answer = self.daemon.post("/ai/run/midway", {"stream": True})
        self.assertIn("ValueError: b", answer.body.decode())
        self.assertNotIn("[DONE]", answer.body.decode())
        with self.assertRaises(http.client.IncompleteRead):
            self.daemon.post("/ai/run/midway", {})

    def test_a_handler_that_gives_up_no_turn_is_replaced(self):
        answer = self.daemon.post("/ai/run/hogs", {"hog": True})
        self.refused(answer, 504, "engine_timeout", '"hogs"', "limits.request_timeout")
        self.serves(self.daemon, "hogs")

    def test_a_handler_that_blocks_in_an_answer_or_in_load(self):
        answer = self.daemon.post("/ai/run/blocks", {"stream": True})
        self.assertIn('"code":"engine_timeout"', answer.body.decode())
        self.assertNotIn("[DONE]", answer.body.decode())
        answer = self.daemon.post("/ai/run/blocks-in-load", {})
        self.refused(answer, 503, "load_stalled", '"blocks-in-load"', "engine.load_stall")

    def test_what_a_handler_prints_is_in_its_log_and_not_in_its_answer(self):
        self.serves(self.daemon, "prints")

        def log():
            return self.daemon.admin("GET", "/admin/models/prints/logs").body

        wait_until(lambda: b"no end" in log(), what="the last words in the log")
        for line in (b"at import", b"in load", b"in a call", b"raw \xff", b"errors", b"of a child"):
            self.assertIn(line + b"\n", log())
        for _ in range(2):
            self.serves(self.daemon, "closes")


class Programs(Shared):
    """A command that is no engine."""

    # The command, the code, and what the message says.
    FAILS = {
        "absent": (["/no/such/program"], "load_failed", "cannot run /no/such/program"),
        "not-on-path": (["no-such-program"], "load_failed", "cannot run no-such-program"),
        "not-executable": (["{model_dir}/handler.py"], "load_failed", "Permission denied"),
        "a-folder": (["/tmp"], "load_failed", "cannot run /tmp"),
        "ends": (["/bin/true"], "load_failed", "exit code 0"),
        "many-arguments": (["/bin/true", *["x"] * 5000], "invalid_config", "5002 arguments"),
        "long-argument": (["/bin/true", "x" * 200_000], "load_failed", "Argument list too long"),
        "speaks-latin": (
            ["/bin/sh", "-c", "printf 'caf\\351 \\377\\n'; exit 4"],
            "load_failed",
            "exit code 4; its log ends:\ncaf\ufffd \ufffd",
        ),
        "speaks-long": (
            ["/bin/sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; exit 4"],
            "load_failed",
            "exit code 4; its log ends:\nxxx",
        ),
    }

    @classmethod
    def prepare(cls, daemon):
        for name, (command, _, _) in cls.FAILS.items():
            words = json.dumps([*command, "{socket}"])
            spec = SPEC.replace('"python"', f'"command"\ncommand = {words}')
            folder(daemon, name, spec)

    def test_a_command_that_cannot_be_run_or_ends_at_once(self):
        for name, (_, code, wanted) in self.FAILS.items():
            with self.subTest(name):
                answer = self.daemon.post(f"/upstream/{name}/health", {})
                status = 503 if code == "load_failed" else 500
                self.refused(answer, status, code, f'"{name}"', wanted)
                self.assertLess(len(answer.body), 5000)
        listed = self.daemon.omni("models", "--json")
        self.assertEqual(len(json.loads(listed.stdout)["models"]), 1 + len(self.FAILS))


class Bodies(Shared):
    """Bodies that clients send; no model may see one that is broken."""

    # The body, and what the error says.
    NO_JSON = {
        "empty": (b"", "at byte 0"),
        "spaces": (b"  \n ", "at byte"),
        "text": (b"hello", "at byte 0"),
        "cut": (b'{"model": "healthy"', "at byte 19"),
        "after": (b'{"model": "healthy"} {}', "at byte 21"),
        "array": (b"[1, 2]", "must be a JSON object"),
        "digit": (b"7", "must be a JSON object"),
        "null": (b"null", "must be a JSON object"),
        "string": (b'"x"', "must be a JSON object"),
        "deep": (b'{"a": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", "deeper than 128 levels"),
        "deep-and-cut": (b'{"a": ' + b'{"a": ' * 10_000, "too deep at byte"),
        "half-a-pair": (b'{"a": "\\ud800"}', "half a surrogate pair at byte 7"),
        "halves-turned": (b'{"a": "\\udc00\\ud800"}', "half a surrogate pair at byte 7"),
        "half-in-a-key": (b'{"\\udfff": 1}', "half a surrogate pair at byte 2"),
        "latin": (b'{"a": "caf\xe9"}', "byte"),
        "encoded-half": (b'{"a": "\xed\xa0\x80"}', "byte"),
        "overlong": (b'{"a": "\xc0\xaf"}', "byte"),
        "nan": (b'{"a": NaN}', "at byte 6"),
        "nul": (b'{"a": 1}\0', "at byte 8"),
        "control": (b'{"a": "\x01"}', "at byte 7"),
        "twice": (b'{"model": "healthy", "model": "other"}', "`model` is given twice"),
        "utf-16": ('{"a": 1}'.encode("utf-16"), "at byte 0"),
        "byte-order-mark": (b'\xef\xbb\xbf{"a": 1}', "at byte 0"),
        "number": (b'{"a": 123456789012345678901234567890}', "a number"),
    }

    limits = {"file_body": "8MiB"}

    @classmethod
    def prepare(cls, daemon):
        daemon.fake_engine("engine")
        daemon.handler("listener", HEALTHY, task="speech-to-text")
        daemon.handler(
            "counts", CALL + "return {'files': sum(len(f.read()) for f in request.files)}\n"
        )

    def raw(self, *pieces, shut=False):
        """The answer to these bytes, which may not all be read."""
        with socket.create_connection(("127.0.0.1", self.daemon.port), timeout=20) as client:
            with contextlib.suppress(ConnectionError):
                for piece in pieces:
                    client.sendall(piece)
                if shut:
                    client.shutdown(socket.SHUT_WR)
            response = http.client.HTTPResponse(client)
            response.begin()
            return Answer(response.status, response.headers, response.read())

    def test_a_body_that_is_not_a_json_object_is_refused_by_the_byte(self):
        headers = {"Content-Type": "application/json"}
        paths = ("/ai/run/healthy", "/ai/run/engine", "/v1/chat/completions", "/v1/embeddings")
        for name, (body, wanted) in self.NO_JSON.items():
            for path in paths:
                with self.subTest(name, path=path):
                    answer = self.daemon.post(path, body, headers=headers)
                    self.refused(answer, 400, "invalid_json", wanted)
        stats = self.daemon.post("/upstream/engine/stats", {}).json()
        self.assertEqual(stats["requests"], 0, "the engine saw none of them")

    def test_json_that_is_only_unusual_is_taken(self):
        for body in (
            b' {"a": "\\ud83d\\ude00 \\u0000"}\r\n',
            b'{"": 1e308, "b": -0, "c": 1e-400}',
            b'{"a": 1, "a": 2}',
            b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}",
        ):
            with self.subTest(body[:40]):
                self.assertEqual(self.daemon.post("/ai/run/healthy", body).status, 200)

    def test_fifty_megabytes_are_refused_before_they_are_read(self):
        head = b"POST /ai/run/healthy HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        megabytes = [b" " * (1 << 20)] * 50
        answer = self.raw(head + b"Content-Length: %d\r\n\r\n" % (50 << 20), *megabytes)
        self.refused(answer, 413, "body_too_large", "1 MiB", "limits.json_body")
        chunks = [b"100000\r\n" + megabytes[0] + b"\r\n"] * 50
        answer = self.raw(head + b"Transfer-Encoding: chunked\r\n\r\n", *chunks, b"0\r\n\r\n")
        self.refused(answer, 413, "body_too_large", "1 MiB", "limits.json_body")

    def test_a_body_that_ends_before_its_length_reaches_no_model(self):
        counter = 'omni_request_errors_total{model="engine",code="cancelled"} '
        for path, kind, start in (
            ("/ai/run/engine", "application/json", b'{"messages": ['),
            ("/ai/run/listener", "audio/wav", b"RIFF"),
            ("/upstream/engine/echo", "application/json", b"{}"),
        ):
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: 1000\r\n\r\n"
            with socket.create_connection(("127.0.0.1", self.daemon.port)) as client:
                client.sendall(head.encode() + start)

        def counted():
            lines = self.daemon.get("/metrics").body.decode().splitlines()
            return [line for line in lines if 'code="cancelled"' in line]

        wait_until(lambda: len(counted()) == 2, what="the cancelled requests to be counted")
        self.assertIn(counter + "2", counted())
        wait_until(lambda: self.daemon.state("listener") != "provisioning")
        self.assertEqual(self.daemon.state("listener"), "stopped", "nothing was loaded for it")

    def test_chunks_that_are_none_are_refused(self):
        head = (
            b"POST /ai/run/healthy HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for chunk in (b"xyz\r\n{}", b"-1\r\n{}\r\n", b"2\r\n{}garbage", b"f" * 20 + b"\r\n{}"):
            with self.subTest(chunk):
                self.refused(self.raw(head, chunk), 400, "invalid_request", "chunk")

    def test_forms_that_are_none_are_refused(self):
        part = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nlistener\r\n'
        for kind, body in (
            ("multipart/form-data", part + b"--x--\r\n"),
            ("multipart/form-data; boundary=y", part + b"--x--\r\n"),
            ("multipart/form-data; boundary=x", part),
            ("multipart/form-data; boundary=x", b""),
            ("multipart/form-data; boundary=x", part + part + b"--x--\r\n"),
            ("multipart/form-data; boundary=x", part + b"--x\r\n\r\nno head\r\n--x--\r\n"),
            ("multipart/form-data; boundary=x", part.replace(b"listener", b"\xff") + b"--x--\r\n"),
            ("multipart/form-data; boundary=x", part + b"--x--\r\n"),  # and no file
        ):
            with self.subTest(kind, body=body):
                headers = {"Content-Type": kind}
                answer = self.daemon.post("/v1/audio/transcriptions", body, headers=headers)
                self.assertIn(answer.status, (400, 415), answer)
                self.assertEqual(answer.json()["error"]["origin"], "client")

    def test_a_form_of_very_many_files_is_served_or_refused(self):
        part = b'--x\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n1\r\n'
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        for count in (10, 300, 5000):
            answer = self.daemon.post(
                "/ai/run/counts", part * count + b"--x--\r\n", headers=headers
            )
            if answer.status == 200:
                self.assertEqual(answer.json(), {"files": count})
            else:
                self.refused(answer, 400, "invalid_request", "parts")
            self.assertTrue(answer.status == 200 or count > 100, answer)


class FullDisk(Case):
    """A file system of a megabyte in the place of one of the daemon's folders."""

    def fill(self, path):
        with open(path / "fill", "wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 65536):
                pass

    def test_the_log_of_a_model(self):
        with Daemon() as daemon:
            daemon.handler("healthy", HEALTHY)
            daemon.handler("chatty", CALL + "print('x' * 1_000_000)\n    return {'ok': True}\n")
            (daemon.root / "logs").mkdir()
            with harness.small_file_system(daemon.root / "logs"):
                daemon.start()
                for _ in range(3):
                    self.serves(daemon, "chatty")
                self.fill(daemon.root / "logs")
                self.serves(daemon, "chatty")
                self.serves(daemon)
                daemon.stop()

    def test_the_state_folder_at_the_start(self):
        with Daemon() as daemon:
            state = daemon.root / "state"
            state.mkdir()
            with harness.small_file_system(state):
                self.fill(state)
                daemon.handler("healthy", HEALTHY)
                daemon.start()
                answer = daemon.post("/ai/run/healthy", {})
                self.refused(answer, 507, "disk_full", str(state), "No space left")
                (state / "fill").unlink()
                wait_until(lambda: daemon.post("/ai/run/healthy", {}).status == 200)
                daemon.stop()
            with harness.small_file_system(state, "nr_inodes=2"):
                daemon.log.unlink()
                daemon.start(wait=False)
                self.assertEqual(daemon.process.wait(20), 74)
                said = daemon.log.read_text()
                self.assertIn(str(state), said)
                self.assertIn("No space left", said)

    def test_the_state_folder_while_the_daemon_runs(self):
        with Daemon() as daemon:
            daemon.handler("healthy", HEALTHY)
            daemon.handler("later", HEALTHY)
            state = daemon.root / "state"
            state.mkdir()
            with harness.small_file_system(state):
                daemon.start()
                self.serves(daemon)
                self.fill(state)
                self.serves(daemon)
                headers = {"Content-Type": "application/octet-stream"}
                answer = daemon.post("/ai/run/healthy", bytes(2 << 20), headers=headers)
                self.refused(answer, 507, "disk_full", str(state / "spool"))
                self.serves(daemon)
                (state / "fill").unlink()
                self.serves(daemon, "later")
                daemon.stop()
                self.assertEqual(daemon.process.returncode, 0)


class Environments(Case):
    """Environments that cannot be built, are broken, or were never finished. Nothing is fetched."""

    UV = os.environ.get("OMNI_UV") or shutil.which("uv")

    def setUp(self):
        if not self.UV or not os.access(self.UV, os.X_OK):
            self.skipTest("there is no uv: name one in OMNI_UV, or put it on PATH")

    def daemon(self, uv=None):
        offline = {"OMNI_UV": str(uv or self.UV), "UV_NO_INDEX": "1", "UV_OFFLINE": "1"}
        daemon = Daemon(environment=offline)
        daemon.handler("healthy", HEALTHY)
        return daemon

    def model(self, daemon, name, requirements):
        source = "import sys\n" + CALL + "return {'ok': sys.prefix != sys.base_prefix}\n"
        path = daemon.handler(name, source, engine='requirements = "requirements.txt"')
        (path / "requirements.txt").write_text(requirements)

    def environment(self, daemon):
        return next(marker.parent for marker in daemon.root.glob("state/environments/*/.complete"))

    def test_requirements_that_cannot_be_met_are_told_in_the_words_of_uv(self):
        with self.daemon() as daemon:
            for name, requirements in {
                "absent": "no-such-package-at-all==1.0\n",
                "no-line": "this is = no requirement\n",
                "includes": "# one\n-r other.txt\n",
                "bytes": "\0\1\2",
            }.items():
                self.model(daemon, name, requirements)
            daemon.start()
            for name, wanted in {
                "absent": ["no-such-package-at-all", "uv pip install failed"],
                "no-line": ["uv pip install failed", "this is = no requirement"],
                "includes": ["requirements.txt:2: -r is not allowed"],
                "bytes": ["uv pip install failed"],
            }.items():
                with self.subTest(name):
                    answer = daemon.post(f"/ai/run/{name}", {})
                    self.refused(answer, 503, "provision_failed", *wanted)
            self.serves(daemon)

    def test_an_index_that_does_not_answer(self):
        port = harness.free_port()
        index = {"UV_DEFAULT_INDEX": f"http://127.0.0.1:{port}/simple", "UV_HTTP_RETRIES": "0"}
        with Daemon(environment={"OMNI_UV": str(self.UV), **index}) as daemon:
            daemon.handler("healthy", HEALTHY)
            self.model(daemon, "far", "no-such-package-at-all==1.0\n")
            daemon.start()
            self.serves(daemon)
            answer = daemon.post("/ai/run/far", {})
            self.refused(answer, 503, "provision_failed", f"127.0.0.1:{port}")

    def test_a_uv_that_is_none(self):
        with self.daemon(uv="/nowhere/uv") as daemon:
            self.model(daemon, "built", "")
            daemon.start()
            answer = daemon.post("/ai/run/built", {})
            self.refused(answer, 503, "provision_failed", "OMNI_UV", "/nowhere/uv")
            self.serves(daemon)

    def test_an_environment_that_is_broken_is_built_again(self):
        with self.daemon() as daemon:
            self.model(daemon, "built", "# nothing\n")
            daemon.start()
            self.serves(daemon, "built")
            path = self.environment(daemon)
            for breaks in (
                lambda: (path / ".complete").write_text("not this one\n"),
                lambda: (path / ".complete").write_bytes(b""),
                lambda: (path / ".complete").unlink(),
                lambda: (path / "bin/python").unlink(),
                lambda: shutil.rmtree(path / "bin"),
            ):
                daemon.stop()
                breaks()
                (path / "left-over").touch()
                daemon.start()
                self.serves(daemon, "built")
                self.serves(daemon)
                self.assertFalse((path / "left-over").exists(), "it is built from nothing")
                self.assertEqual((path / ".complete").read_text(), path.name + "\n")

    def test_a_build_in_which_the_daemon_is_killed_is_done_whole_at_the_next_start(self):
        for builder_too in (True, False):
            with self.subTest(builder_too=builder_too), self.daemon() as daemon:
                go, halted, uv = (daemon.root / name for name in ("go", "halted", "uv"))
                uv.write_text(
                    f"#!/bin/sh\nif [ $1 = pip ]; then\n  echo $$ > {halted}\n"
                    f'  while [ ! -e {go} ]; do sleep 0.05; done\nfi\nexec {self.UV} "$@"\n'
                )
                uv.chmod(0o755)
                daemon.environment["OMNI_UV"] = str(uv)
                self.model(daemon, "built", "# nothing\n")
                daemon.start()
                self.serves(daemon)
                wait_until(lambda: halted.exists() and halted.read_text(), what="the build")
                self.assertEqual(daemon.state("built"), "provisioning")
                daemon.process.kill()
                daemon.process.wait()
                builder = int(halted.read_text())
                if builder_too:
                    os.kill(builder, signal.SIGKILL)
                self.assertEqual(list(daemon.root.glob("state/environments/*/.complete")), [])
                daemon.start()
                self.serves(daemon)
                # A builder that lives on is waited for.
                self.assertEqual(daemon.state("built"), "provisioning")
                go.touch()
                self.serves(daemon, "built")
                self.assertTrue(self.environment(daemon))

    def test_a_full_disk_under_a_build(self):
        with self.daemon() as daemon:
            self.model(daemon, "built", "# nothing\n")
            state = daemon.root / "state"
            state.mkdir()
            with harness.small_file_system(state, "size=48k"):
                daemon.start()
                answer = daemon.post("/ai/run/built", {})
                self.assertIn(answer.json()["error"]["code"], ("provision_failed", "disk_full"))
                self.assertIn("No space left", answer.json()["error"]["message"])
                self.serves(daemon)
                daemon.stop()


if __name__ == "__main__":
    harness.main()
