"""The daemon itself: config errors, health, shutdown, two at once."""

import ctypes
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
import unittest

import harness
from harness import Daemon, processes_with, wait_until

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17


class HeldThread:
    """Stops one thread of another process, as a deadlock would; the others run on."""

    def __init__(self, tid):
        self.tid = tid
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self.libc.ptrace.restype = ctypes.c_long

    def _ptrace(self, request):
        if self.libc.ptrace(request, self.tid, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def __enter__(self):
        self._ptrace(PTRACE_SEIZE)
        self._ptrace(PTRACE_INTERRUPT)
        os.waitpid(self.tid, 0x40000000)  # __WALL

    def __exit__(self, *_):
        self._ptrace(PTRACE_DETACH)


class Config(unittest.TestCase):
    def test_unknown_or_misplaced_key_in_model_toml_fails_with_file_line_and_suggestion(self):
        with Daemon() as daemon:
            folder = daemon.model(
                "typo",
                'task = "other"\n[engine]\nkind = "python"\nhandlr = "handler.py"\n',
                {"handler.py": ""},
            )
            misplaced = daemon.model(
                "misplaced",
                'task = "other"\nstop_after = "30s"\n[engine]\nkind = "python"\n',
                {"handler.py": "def handle_request(request, context): return {}"},
            )
            result = subprocess.run(
                [harness.OMNI, "check", str(daemon.models)],
                capture_output=True,
                text=True,
                timeout=30,
            )
            self.assertEqual(result.returncode, 78, result)
            output = result.stdout + result.stderr
            self.assertIn(f"{folder}/model.toml:4", output)
            self.assertIn("handler", output.replace("handlr", ""))
            self.assertIn(f"{misplaced}/model.toml:2", output)
            self.assertIn("scaling", output)
            # The daemon serves the others, and says the same of these.
            daemon.handler(
                "good", "def handle_request(request, context):\n    return {'ok': True}\n"
            )
            daemon.start()
            self.assertEqual(daemon.post("/ai/run/good", {}).json(), {"ok": True})
            error = daemon.post("/ai/run/typo", {}).json()["error"]
            self.assertIn("model.toml:4", error["message"])

    def test_unknown_key_in_omni_toml_stops_the_start(self):
        with Daemon(extra='lissten = ["127.0.0.1:1"]') as daemon:
            daemon.start(wait=False)
            self.assertEqual(daemon.process.wait(20), 78)
            text = daemon.log.read_text()
            self.assertIn("omni.toml:3", text)
            self.assertIn("did you mean listen?", text)


class Health(unittest.TestCase):
    def test_readyz_turns_red_when_the_control_loop_has_not_ticked(self):
        with Daemon() as daemon:
            daemon.handler(
                "echo",
                "def handle_request(request, context):\n    return dict(request.parameters)\n",
            )
            daemon.start()
            self.assertEqual(daemon.post("/ai/run/echo", {"a": 1}).json(), {"a": 1})
            with HeldThread(daemon.process.pid):  # the main thread runs the control loop
                wait_until(lambda: daemon.get("/readyz").status == 503, what="/readyz to turn red")
                self.assertEqual(daemon.get("/livez").status, 200)
                self.assertEqual(
                    daemon.post("/ai/run/echo", {"a": 2}).json(),
                    {"a": 2},
                    "resident models serve on",
                )
            wait_until(lambda: daemon.get("/readyz").status == 200, what="/readyz to recover")

    def test_a_refused_head_is_answered_and_counted_like_other_errors(self):
        with Daemon() as daemon:
            daemon.start()
            with socket.create_connection(("127.0.0.1", daemon.port), timeout=10) as client:
                client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
                response = http.client.HTTPResponse(client)
                response.begin()
                error = json.loads(response.read())["error"]
            self.assertEqual(response.status, 400)
            self.assertEqual(error["origin"], "client")
            self.assertEqual(error["request_id"], response.headers["x-request-id"])
            metrics = daemon.get("/metrics").body.decode()
            self.assertIn('omni_request_errors_total{model="",code="invalid_request"} 1', metrics)

    def test_metrics_count_requests(self):
        with Daemon() as daemon:
            daemon.fake_engine("counted")
            daemon.start()
            for _ in range(3):
                self.assertEqual(daemon.chat("counted").status, 200)
            text = daemon.get("/metrics").body.decode()
            self.assertIn('omni_requests_total{model="counted"} 3', text)
            self.assertIn('omni_loads_total{model="counted"} 1', text)
            self.assertIn('omni_request_seconds_count{model="counted"} 3', text)


class Shutdown(unittest.TestCase):
    def test_term_lets_a_running_stream_finish_and_leaves_nothing(self):
        with Daemon() as daemon:
            folder = daemon.fake_engine("streams", "--tokens", "20", "--token-delay", "0.05")
            daemon.start()
            connection, response = daemon.stream("streams")
            response.readline()
            daemon.process.send_signal(signal.SIGTERM)
            text = response.read().decode()
            connection.close()
            self.assertTrue(text.rstrip().endswith("data: [DONE]"), text[-300:])
            self.assertEqual(daemon.process.wait(20), 0)
            self.assertEqual(processes_with(str(folder)), [])

    def test_a_second_signal_stops_at_once(self):
        with Daemon() as daemon:
            folder = daemon.fake_engine("endless", "--tokens", "100000", "--token-delay", "0.05")
            daemon.start()
            connection, response = daemon.stream("endless")
            response.readline()
            daemon.process.send_signal(signal.SIGINT)
            time.sleep(0.2)
            began = time.monotonic()
            daemon.process.send_signal(signal.SIGINT)
            daemon.process.wait(20)
            self.assertLess(time.monotonic() - began, 10)
            self.assertEqual(processes_with(str(folder)), [])
            connection.close()

    def test_at_the_deadline_each_request_gets_its_error(self):
        with Daemon(limits={"shutdown_timeout": "1s"}) as daemon:
            daemon.fake_engine("busy", "--tokens", "100000", "--token-delay", "0.05")
            daemon.start()
            connection, response = daemon.stream("busy")
            response.readline()
            answers = []
            waiting = threading.Thread(target=lambda: answers.append(daemon.chat("busy")))
            waiting.start()
            wait_until(lambda: daemon.admin("GET", "/admin/models/busy").json()["waiting"] == 1)
            daemon.process.send_signal(signal.SIGTERM)
            waiting.join(20)
            self.assertEqual(answers[0].status, 503, answers)
            self.assertEqual(answers[0].json()["error"]["code"], "shutting_down")
            text = response.read().decode()
            connection.close()
            self.assertIn('"error"', text)
            self.assertNotIn("[DONE]", text)
            self.assertEqual(daemon.process.wait(20), 0)

    def test_a_pipe_named_model_toml_stops_only_its_model(self):
        with Daemon() as daemon:
            (daemon.models / "pipe").mkdir()
            os.mkfifo(daemon.models / "pipe/model.toml")
            daemon.handler("good", "def handle_request(request, context):\n    return {}\n")
            daemon.start()
            self.assertEqual(daemon.post("/ai/run/good", {}).status, 200)
            self.assertIn("not a regular file", daemon.post("/ai/run/pipe", {}).body.decode())


class Waiting(unittest.TestCase):
    def test_a_client_that_leaves_the_queue_stops_the_load_it_alone_waited_for(self):
        with Daemon() as daemon:
            daemon.fake_engine("unwanted", "--slow-start", "60")
            daemon.start()
            connection = daemon.connection()
            body = json.dumps({"model": "unwanted", "messages": [{"role": "user", "content": "x"}]})
            connection.request(
                "POST", "/v1/chat/completions", body, {"Content-Type": "application/json"}
            )
            wait_until(lambda: daemon.state("unwanted") == "starting", what="the start")
            connection.close()
            wait_until(
                lambda: daemon.state("unwanted") == "stopped",
                seconds=10,
                what="the load to be called off",
            )
            self.assertEqual(daemon.instances(), [])

    def test_connections_that_break_while_another_model_is_busy_harm_nobody(self):
        with Daemon() as daemon:
            for name in ("busy", "breaks"):
                daemon.fake_engine(
                    name, transport="port", scaling="concurrency = 16\nmax_instances = 1"
                )
            daemon.start()
            for name in ("busy", "breaks"):
                self.assertEqual(daemon.post(f"/upstream/{name}/echo", {}).status, 200)
            ended = threading.Event()
            statuses = []

            def keep_busy():
                while not ended.is_set():
                    statuses.append(daemon.post("/upstream/busy/echo", {}).status)
                    time.sleep(0.01)

            def ask_slowly(seconds):
                answer = daemon.post(f"/upstream/breaks/slow?seconds={seconds}", {})
                statuses.append(answer.status)

            busy = threading.Thread(target=keep_busy)
            busy.start()
            for _ in range(3):
                slow = [
                    threading.Thread(target=ask_slowly, args=(0.05 + 0.02 * i,)) for i in range(10)
                ]
                for thread in slow:
                    thread.start()
                self.assertEqual(daemon.post("/upstream/breaks/reset", {}).status, 502)
                for thread in slow:
                    thread.join()
            ended.set()
            busy.join()
            self.assertEqual(set(statuses), {200})
            self.assertIsNone(daemon.process.poll())

    def test_one_of_two_streams_is_cancelled_and_the_other_is_unharmed(self):
        with Daemon() as daemon:
            daemon.fake_engine(
                "pair", "--tokens", "40", "--token-delay", "0.03", scaling="concurrency = 2"
            )
            daemon.start()
            first_connection, first = daemon.stream("pair")
            second_connection, second = daemon.stream("pair")
            first.readline()
            second.readline()
            first_connection.sock.close() if first_connection.sock else None
            first.close()
            first_connection.close()
            text = second.read().decode()
            second_connection.close()
            self.assertTrue(text.rstrip().endswith("data: [DONE]"))
            stats = daemon.get("/upstream/pair/stats").json()
            self.assertEqual(stats["active"], 0, stats)
            self.assertEqual(stats["cancelled"], 1, stats)


if __name__ == "__main__":
    harness.main()
