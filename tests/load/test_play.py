import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from arrivals import HERE, Arrival
from play import Player, Request, listed_models


class Server:
    """Answers /v1/models, and a POST after `answer(body)` has said with which status."""

    def __init__(self, answer):
        self.seen = []  # (model, time)
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.reply(200, {"data": [{"id": "a"}, {"id": "b"}]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.seen.append((body["model"], time.monotonic()))
                self.reply(answer(body), {})

            def reply(self, status, content):
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                try:
                    self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))
                except ConnectionError:  # given up meanwhile
                    pass

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()


def ask(model, _chance):
    return Request("/v1/chat/completions", {"model": model})


def play(server, arrivals, **options):
    player = Player(server.url, ["a", "b"], ask, **options)
    asyncio.run(player.play(arrivals))
    return player.report()


class Play(unittest.TestCase):
    def test_sends_every_arrival_to_the_model_of_its_rank(self):
        with Server(lambda _: 200) as server:
            report = play(server, [Arrival(0, 0, 1), Arrival(0.05, 1, 1), Arrival(0.1, 0, 1)])
        self.assertEqual((report["sent"], report["ok"]), (3, 3))
        self.assertEqual([model for model, _ in server.seen], ["a", "b", "a"])
        self.assertEqual(report["models"]["a"]["ok"], 2)
        self.assertEqual(report["errors"], {})

    def test_does_not_wait_for_earlier_answers(self):
        gate = threading.Event()
        with Server(lambda _: gate.wait(10) and 200) as server:
            threading.Timer(0.5, gate.set).start()
            report = play(server, [Arrival(i / 100, 0, 1) for i in range(20)])
        moments = [moment for _, moment in server.seen]
        self.assertLess(max(moments) - min(moments), 0.45)
        self.assertEqual(report["ok"], 20)

    def test_counts_latency_from_when_a_request_was_due(self):
        # Both are due at once; the loop is held up before it can send them.
        async def held_up(player):
            playing = asyncio.create_task(player.play([Arrival(0.05, 0, 1), Arrival(0.06, 0, 1)]))
            await asyncio.sleep(0.02)
            time.sleep(0.3)
            await playing

        with Server(lambda _: 200) as server:
            player = Player(server.url, ["a"], ask)
            asyncio.run(held_up(player))
        report = player.report()
        self.assertGreater(report["latency_seconds"]["p50"], 0.2)
        self.assertEqual(report["late_sends"], 2)

    def test_counts_errors_by_code(self):
        with Server(lambda body: 503 if body["model"] == "b" else 200) as server:
            report = play(server, [Arrival(0, 0, 1), Arrival(0, 1, 1), Arrival(0, 1, 1)])
        self.assertEqual(report["errors"], {"503": 2})
        self.assertEqual(report["ok"], 1)
        self.assertEqual(report["models"]["b"]["errors"], {"503": 2})

    def test_counts_a_server_that_is_not_there(self):
        with Server(lambda _: 200) as server:
            pass
        report = play(server, [Arrival(0, 0, 1)])
        self.assertEqual(report["errors"], {"ConnectionRefusedError": 1})

    def test_gives_up_after_the_timeout(self):
        gate = threading.Event()
        with Server(lambda _: gate.wait(10) and 200) as server:
            report = play(server, [Arrival(0, 0, 1)], timeout=0.2)
            gate.set()
        self.assertEqual(report["errors"], {"timeout": 1})

    def test_does_not_send_more_than_its_limit_and_says_so(self):
        gate = threading.Event()
        with Server(lambda _: gate.wait(10) and 200) as server:
            threading.Timer(0.3, gate.set).start()
            report = play(server, [Arrival(i / 100, 0, 1) for i in range(10)], in_flight=4)
        self.assertEqual((report["sent"], report["not_sent_over_limit"]), (4, 6))
        self.assertEqual(report["in_flight_limit"], 4)

    def test_asks_the_server_for_its_models(self):
        with Server(lambda _: 200) as server:
            self.assertEqual(listed_models(server.url), ["a", "b"])
            self.assertEqual(listed_models(server.url + "/v1"), ["a", "b"])


class Command(unittest.TestCase):
    def test_an_interrupt_ends_it_with_the_report_so_far(self):
        first = threading.Event()
        with Server(lambda _: first.set() or 200) as server:
            command = [sys.executable, HERE / "play.py", server.url, "--hours", "24"]
            command += ["--speed", "600", "--flat"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                self.assertTrue(first.wait(20))
                process.send_signal(signal.SIGINT)
                shown, _ = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 0)
        report = json.loads(shown)
        self.assertGreaterEqual(report["sent"], 1)
        self.assertIn("latency_seconds", report)


if __name__ == "__main__":
    unittest.main()
