"""Requests over real models of which less than a third fits, from eight clients in random order.

No error, no wrong answer, nobody starves, and memory stays within the budget, also while a stream of
a minute runs beside them. Against the running
daemon of OMNI_ROOT and OMNI_PORT, whose budget is OMNI_BUDGET bytes.
"""

import collections
import http.client
import json
import os
import random
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from omni_daemon import Daemon  # noqa: E402
from real_models import TASKS  # noqa: E402

REQUESTS = int(os.environ.get("OMNI_MIX_REQUESTS", "200"))
HOURS = float(os.environ.get("OMNI_MIX_HOURS", "0"))  # and then for as long as this
CLIENTS, SEED = 8, 1
LONGEST_WAIT = 30  # seconds
STREAM_SECONDS = 60
BUDGET = int(os.environ["OMNI_BUDGET"])


class LongStream(threading.Thread):
    """One streamed answer that its client reads for a minute, as slowly as that takes."""

    TOKENS = 900  # of the 1024 that one of the engine's two slots holds

    def __init__(self, port):
        super().__init__()
        self.port = port
        self.events, self.seconds, self.ended = 0, 0.0, False

    def run(self):
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        body = {
            "model": "smollm2-135m",
            "messages": [{"role": "user", "content": "Tell a story without an end."}],
            "stream": True,
            "max_tokens": self.TOKENS,
            "ignore_eos": True,
        }
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        with connection.getresponse() as response:
            for line in response:
                self.events += line.startswith(b"data: {")
                self.ended = self.ended or line.startswith(b"data: [DONE]")
                # The engine is faster on a good day: then the reader is what is slow.
                ahead = self.events / self.TOKENS * STREAM_SECONDS - (time.monotonic() - began)
                if ahead > 0:
                    time.sleep(ahead)
        self.seconds = time.monotonic() - began


class Mix(unittest.TestCase):
    def test_more_models_than_fit_answer_all_requests_right(self):
        root = Path(os.environ["OMNI_ROOT"])
        daemon = Daemon(Path("omni"), root, int(os.environ["OMNI_PORT"]))
        speech = next(task for task in TASKS if task.model == "tts").ask(daemon, b"").audio
        choose = random.Random(SEED)
        began = time.monotonic()
        asked = iter(range(REQUESTS))
        lock = threading.Lock()

        def next_task():
            with lock:
                if next(asked, None) is None and time.monotonic() > began + 3600 * HOURS:
                    return None
                return choose.choice(TASKS)

        problems, waits, memory, served = [], [], [], collections.Counter()
        done = threading.Event()

        def client():
            while (task := next_task()) is not None:
                sent = time.monotonic()
                try:
                    answer = task.ask(daemon, speech)
                    if not answer.right:
                        problems.append(f"{task.model}: {answer.shown}")
                except Exception as error:  # whatever goes wrong is the finding
                    problems.append(f"{task.model}: {type(error).__name__}: {error}")
                waits.append((time.monotonic() - sent, task.model))
                served[task.model] += 1

        def measure():
            while not done.wait(0.3):
                memory.append(sum(i["pss_bytes"] for i in daemon.instances()))

        meter = threading.Thread(target=measure)
        stream = LongStream(daemon.port)
        clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
        for thread in [meter, stream, *clients]:
            thread.start()
        for thread in clients:
            thread.join()
        stream.join()
        done.set()
        meter.join()
        waits.sort()
        print(
            f"mix: {len(waits)} requests, seed {SEED}, in {time.monotonic() - began:.0f} s; wait p50"
            f" {waits[len(waits) // 2][0]:.1f} s, p99 {waits[len(waits) * 99 // 100][0]:.1f} s;"
            f" longest {', '.join(f'{wait:.1f} s for {model}' for wait, model in waits[-3:])}; memory at most {max(memory) / 2**20:.0f} of"
            f" {BUDGET / 2**20:.0f} MiB; beside a stream of {stream.seconds:.0f} s;"
            f" {dict(served)}"
        )
        self.assertTrue(stream.ended, "the stream came to its end")
        self.assertGreaterEqual(stream.events, LongStream.TOKENS)
        self.assertGreaterEqual(stream.seconds, STREAM_SECONDS - 1)
        self.assertEqual(problems, [])
        self.assertGreaterEqual(sum(served.values()), REQUESTS)
        self.assertLess(waits[-1][0], LONGEST_WAIT)
        self.assertLessEqual(max(memory), BUDGET * 1.1)


if __name__ == "__main__":
    unittest.main()
