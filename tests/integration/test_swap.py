"""More models than the budget holds: nothing is lost, nobody starves, memory stays within the budget."""

import json
import random
import threading
import time
import unittest

import harness
from harness import Daemon

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
    def test_two_hundred_requests_over_four_models_of_which_two_fit(self):
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
