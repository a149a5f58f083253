"""More models than the budget holds: nothing is lost, nobody starves, memory stays within the budget."""

import contextlib
import json
import random
import socket
import threading
import time
import unittest

import harness
from harness import Daemon, wait_until

HANDLER = """
import time

BALLAST = bytearray({mib} << 20)
BALLAST[::4096] = b"x" * len(BALLAST[::4096])


def load(context):
    time.sleep({load})


def handle_request(request, context):
    return {{"model": context.model, "n": request.parameters["n"]}}
"""


class Swap(unittest.TestCase):
    def test_swap_under_load_has_no_error_a_bounded_wait_and_no_starvation(self):
        # Two hundred requests over four models of which two fit.
        with Daemon(memory="200MiB") as daemon:
            names = ["ant", "bee", "cat", "dog"]
            for name in names:
                daemon.handler(name, HANDLER.format(mib=60, load=0.1), memory="90MiB")
            daemon.start()
            order = [random.Random(7).choice(names) for _ in range(200)]
            work = list(enumerate(order))
            problems, waits, pss = [], [], []
            lock = threading.Lock()

            def client():
                while True:
                    with lock:
                        if not work:
                            return
                        number, name = work.pop()
                    began = time.monotonic()
                    answer = daemon.post(f"/ai/run/{name}", {"n": number})
                    with lock:
                        waits.append(time.monotonic() - began)
                        if answer.status != 200 or answer.json() != {"model": name, "n": number}:
                            problems.append((name, answer))

            def sampler():
                while work:
                    pss.append(
                        sum(instance["pss_bytes"] for instance in daemon.instances(pss=True))
                    )
                    time.sleep(0.2)

            threads = [threading.Thread(target=client) for _ in range(8)] + [
                threading.Thread(target=sampler)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(200)
            self.assertEqual(problems, [])
            self.assertEqual(len(waits), 200)
            self.assertLess(max(waits), 30)
            self.assertLessEqual(
                max(pss), 1.1 * 200 * (1 << 20), "sum of PSS within the budget and a tenth"
            )

    def test_polling_neither_loads_a_model_nor_keeps_one(self):
        with Daemon() as daemon:
            daemon.handler("used", HANDLER.format(mib=1, load=0), scaling='stop_after = "500ms"')
            daemon.handler("never", HANDLER.format(mib=1, load=0))
            daemon.start()
            self.assertEqual(daemon.post("/ai/run/used", {"n": 1}).status, 200)

            def poll():
                for path in ("/v1/models", "/v1/models/used", "/running", "/metrics", "/readyz"):
                    self.assertEqual(daemon.get(path).status, 200, path)
                for command in ("ps", "models", "status"):
                    self.assertEqual(daemon.omni(command).returncode, 0)
                self.assertEqual(daemon.omni("explain", "used").returncode, 0)
                return daemon.state("used") == "stopped"

            wait_until(poll, what="the stop of a model that is only looked at")
            self.assertEqual(daemon.state("never"), "stopped")
            self.assertNotIn(
                'omni_loads_total{model="never"} 1', daemon.get("/metrics").body.decode()
            )

    def test_a_websocket_that_only_pings_keeps_no_model(self):
        with Daemon() as daemon:
            daemon.fake_engine(
                "ws", scaling='stop_after = "200ms"\nidle_connection = "1s"\nconcurrency = 2'
            )
            daemon.start()
            with socket.create_connection(("127.0.0.1", daemon.port), timeout=30) as client:
                client.sendall(
                    b"GET /upstream/ws/upgrade HTTP/1.1\r\nHost: localhost\r\n"
                    b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
                )
                answer = b""
                while b"\r\n\r\n" not in answer:
                    answer += client.recv(4096)
                self.assertIn(b"101", answer.split(b"\r\n")[0])
                data, ping = b"\x81\x02hi", b"\x89\x00"
                # The engine sends back what it gets.
                for _ in range(8):
                    client.sendall(data)
                    self.assertEqual(client.recv(4096), data)
                    time.sleep(0.25)
                self.assertEqual(daemon.state("ws"), "resident", "work keeps it")
                ended = []

                def ping_until_it_ends():
                    with contextlib.suppress(OSError):
                        client.sendall(ping)
                        ended.append(client.recv(4096) == b"")
                    return daemon.state("ws") == "stopped"

                wait_until(ping_until_it_ends, what="the stop under a connection that only pings")

    def test_models_on_declared_gpus_share_them_and_see_no_other(self):
        source = (
            "import os\n"
            "def handle_request(request, context):\n"
            "    return {'gpus': os.environ.get('CUDA_VISIBLE_DEVICES')}\n"
        )
        gpus = '[device.gpu0]\nmemory = "10GiB"\n[device.gpu2]\nmemory = "24GiB"'
        with Daemon(extra=gpus) as daemon:
            for name, need in (("big", "20GiB"), ("a", "6GiB"), ("b", "6GiB"), ("huge", "30GiB")):
                folder = daemon.handler(name, source)
                toml = folder / "model.toml"
                toml.write_text(
                    toml.read_text().replace("[resources]", f'[resources]\ngpu_memory = "{need}"')
                )
            daemon.handler("cpu", source)
            daemon.start()
            seen = {}
            for name in ("big", "a", "b", "a", "b", "cpu"):
                answer = daemon.post(f"/ai/run/{name}", {})
                self.assertEqual(answer.status, 200, answer)
                seen[name] = answer.json()["gpus"]
            self.assertEqual(seen["cpu"], "", "a model without GPU memory sees no GPU")
            self.assertEqual(seen["big"], "2", "it fits on one alone")
            self.assertEqual({seen["a"], seen["b"]}, {"0", "2"}, "both are used")
            devices = {d["name"]: d for d in daemon.admin("GET", "/admin/status").json()["devices"]}
            self.assertEqual(sorted(devices), ["gpu0", "gpu2", "host"])
            for device in devices.values():
                self.assertLessEqual(device["granted_bytes"], device["budget_bytes"])
            error = daemon.post("/ai/run/huge", {}).json()["error"]
            self.assertEqual(error["code"], "invalid_config")
            self.assertIn("30 GiB of a GPU", error["message"])

    def test_a_request_at_any_moment_of_a_stop_is_served(self):
        with Daemon() as daemon:
            daemon.handler("blink", HANDLER.format(mib=1, load=0), scaling='stop_after = "0s"')
            daemon.start()
            moments = random.Random(3)
            for number in range(40):
                answer = daemon.post("/ai/run/blink", {"n": number})
                self.assertEqual(answer.status, 200, answer)
                time.sleep(moments.uniform(0, 0.4))
            loads = daemon.get("/metrics").body.decode()
            count = int(loads.split('omni_loads_total{model="blink"} ')[1].split("\n")[0])
            self.assertGreater(count, 3, "the model was really stopped in between")


if __name__ == "__main__":
    harness.main()
