"""Hours of use in half a minute: thirteen fakes on a third of their memory, and all that goes wrong in a day.

Clients that leave, instances that are killed, models that are edited, streams beside it all. The same as `make soak`
without its models. OMNI_SOAK_REQUESTS makes it longer.
"""

import contextlib
import os
import random
import signal
import socket
import threading
import time
import unittest

import harness
from harness import Daemon, processes_with, wait_until

REQUESTS = int(os.environ.get("OMNI_SOAK_REQUESTS", "300"))
CLIENTS, SEED, LONGEST_WAIT = 8, 11, 30
# MiB of ballast of each; a Python handler itself has about ten.
BALLAST = [4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 36, 40, 44]
BUDGET_MIB = 150

HANDLER = """
import time

BALLAST = bytearray({mib} << 20)
BALLAST[::4096] = b"x" * len(BALLAST[::4096])


def handle_request(request, context):
    n = request.parameters["n"]
    if request.parameters.get("stream"):
        return (f"{{i}} " for i in range(n))
    time.sleep(n % 7 / 100)
    return {{"model": context.model, "square": n * n, "version": {version}}}
"""


def write_handler(folder, mib, version):
    (folder / "handler.py").write_text(HANDLER.format(mib=mib, version=version))


class Soak(unittest.TestCase):
    def test_a_day_of_use_leaves_nothing_behind_and_loses_nothing(self):
        choose = random.Random(SEED)
        with Daemon(memory=f"{BUDGET_MIB}MiB") as daemon:
            sizes = {f"m{i}": mib for i, mib in enumerate(BALLAST)}
            folders = {}
            for name, mib in sizes.items():
                folders[name] = daemon.handler(name, "", memory=f"{mib + 14}MiB")
                write_handler(folders[name], mib, 0)
            daemon.start()
            names = list(sizes)
            numbers = iter(range(REQUESTS))
            lock = threading.Lock()
            problems, waits, memory, killed, broken = [], [], [], [], []
            done = threading.Event()

            def next_request():
                with lock:
                    number = next(numbers, None)
                    return None if number is None else (number, choose.choice(names))

            def leave_early(name, number):
                """A client that sends its request and goes."""
                with socket.create_connection(("127.0.0.1", daemon.port)) as client:
                    body = f'{{"n": {number}}}'
                    client.sendall(
                        f"POST /ai/run/{name} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
                        f"\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
                    )

            def ask(name, number):
                if number % 9 == 4:
                    return leave_early(name, number)
                if number % 5 == 3:
                    answer = daemon.post(f"/ai/run/{name}", {"n": number, "stream": True})
                    events = [f'data: {{"response":"{i} "}}' for i in range(number)]
                    body = answer.body.decode().replace(": waiting\n\n", "")
                    right = body.split("\n\n") == [*events, "data: [DONE]", ""]
                    if b'"instance_crashed"' in answer.body:
                        # Its instance was killed after the first byte: it is told so.
                        broken.append(number)
                        return
                else:
                    answer = daemon.post(f"/ai/run/{name}", {"n": number})
                    right = answer.status == 200 and answer.json()["square"] == number * number
                if answer.status != 200 or not right:
                    problems.append((name, number, answer))

            def client():
                while request := next_request():
                    number, name = request
                    sent = time.monotonic()
                    try:
                        ask(name, number)
                    except OSError as error:
                        problems.append((name, number, repr(error)))
                    waits.append(time.monotonic() - sent)

            def measure():
                while not done.wait(0.25):
                    memory.append(sum(i["pss_bytes"] for i in daemon.instances(pss=True)))

            def disturb():
                """Kills an instance that serves, and edits a model, again and again."""
                version = 0
                while not done.wait(2):
                    version += 1
                    name = choose.choice(names)
                    write_handler(folders[name], sizes[name], version)
                    ready = [i for i in daemon.instances() if i["state"] == "resident" and i["pid"]]
                    if ready:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(choose.choice(ready)["pid"], signal.SIGKILL)
                            killed.append(1)

            self.warm_up(daemon, names)
            before = self.held(daemon)
            threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
            watchers = [threading.Thread(target=measure), threading.Thread(target=disturb)]
            for thread in threads + watchers:
                thread.start()
            for thread in threads:
                thread.join()
            done.set()
            for thread in watchers:
                thread.join()

            self.assertEqual(problems, [])
            self.assertEqual(len(waits), REQUESTS)
            self.assertLess(max(waits), LONGEST_WAIT)
            self.assertLessEqual(max(memory), BUDGET_MIB * 1.1 * (1 << 20))
            self.assertTrue(killed)
            self.assertLessEqual(len(broken), len(killed))
            for name in names:
                self.assertEqual(daemon.omni("stop", name).returncode, 0)
            wait_until(lambda: not daemon.instances(), what="the last instance to be gone")
            after = self.held(daemon)
            self.assertLessEqual(after["descriptors"], before["descriptors"] + 8, (before, after))
            # AddressSanitizer's allocator keeps what is freed.
            if "ASAN_OPTIONS" not in os.environ:
                self.assertLessEqual(after["rss"], before["rss"] + (16 << 20), (before, after))
            daemon.stop()
            self.assertEqual(processes_with(str(daemon.root)), [], "nothing is left behind")

    def warm_up(self, daemon, names):
        for name in names:
            self.assertEqual(daemon.post(f"/ai/run/{name}", {"n": 1}).status, 200)
            self.assertEqual(daemon.omni("stop", name).returncode, 0)

    def held(self, daemon):
        """What the daemon holds when no model runs."""
        return {
            "descriptors": len(os.listdir(f"/proc/{daemon.process.pid}/fd")),
            "rss": daemon.admin("GET", "/admin/status").json()["rss_bytes"],
        }


if __name__ == "__main__":
    harness.main()
