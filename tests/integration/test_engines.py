"""Engines that misbehave, and the ways an engine may listen."""

import os
import signal
import threading
import time
import unittest

import harness
from harness import Daemon, processes_with, wait_until


class Engines(unittest.TestCase):
    def test_engine_that_forks_twice_calls_setsid_and_ignores_term_is_gone_within_the_deadline(
        self,
    ):
        with Daemon() as daemon:
            folder = daemon.fake_engine(
                "stubborn", "--ignore-term", "--fork-setsid", engine='stop_grace = "1s"'
            )
            daemon.start()
            self.assertEqual(daemon.chat("stubborn").status, 200)
            wait_until(lambda: len(processes_with(str(folder))) >= 2, what="the grandchild")
            began = time.monotonic()
            self.assertEqual(daemon.admin("POST", "/admin/models/stubborn/stop").status, 200)
            self.assertLess(time.monotonic() - began, 5)
            self.assertEqual(processes_with(str(folder)), [], "stop answers when nothing is left")
            self.assertEqual(daemon.state("stubborn"), "stopped")
            self.assertEqual(
                daemon.chat("stubborn").status, 200, "and the next request starts it again"
            )

    def test_engine_that_crashes_at_start_backs_off_and_its_last_log_lines_are_in_the_error(self):
        with Daemon() as daemon:
            daemon.fake_engine("broken", "--die-at-start")
            daemon.start()
            answer = daemon.chat("broken")
            self.assertEqual(answer.status, 503, answer)
            error = answer.json()["error"]
            self.assertEqual(error["code"], "load_failed")
            self.assertEqual(error["origin"], "engine")
            self.assertIn("exit", error["message"])
            log = next(daemon.root.rglob("broken.log")).read_text().strip().splitlines()[-1]
            self.assertIn(log, error["message"])
            # Backing off: a request that follows at once does not start it again, and is told when to come back.
            for _ in range(3):
                answer = daemon.chat("broken")
            self.assertEqual(answer.status, 503)
            self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)
            self.assertEqual(daemon.state("broken"), "failed")

    def test_engine_that_crashes_at_a_request_is_restarted_and_the_request_poisons_two_at_most(
        self,
    ):
        with Daemon() as daemon:
            daemon.fake_engine("fragile", "--die-on-request", "poison")
            daemon.start()
            self.assertEqual(daemon.chat("fragile", "good").status, 200)
            answer = daemon.chat("fragile", "poison")
            self.assertEqual(answer.status, 502, answer)
            self.assertEqual(answer.json()["error"]["code"], "instance_crashed")
            self.assertEqual(
                daemon.chat("fragile", "good").status, 200, "others are served at once"
            )

    def test_engine_with_garbage_health_is_never_ready_and_is_cut_when_it_stalls(self):
        with Daemon() as daemon:
            daemon.fake_engine("garbage", "--garbage-health", engine='load_stall = "1s"')
            daemon.start()
            answer = daemon.chat("garbage")
            self.assertEqual(answer.status, 503, answer)
            self.assertEqual(answer.json()["error"]["code"], "load_stalled")

    def test_only_a_stalled_load_is_cut(self):
        with Daemon() as daemon:
            daemon.fake_engine("slow", "--slow-start", "3", engine='load_stall = "1s"')
            daemon.fake_engine(
                "stalled", "--slow-start", "60", "--stall", engine='load_stall = "1s"'
            )
            daemon.start()
            self.assertEqual(
                daemon.chat("slow").status, 200, "a slow load that makes progress goes on"
            )
            answer = daemon.chat("stalled")
            self.assertEqual(answer.status, 503, answer)
            self.assertEqual(answer.json()["error"]["code"], "load_stalled")

    def test_a_start_that_somebody_kills_is_made_once_more(self):
        with Daemon() as daemon:
            daemon.fake_engine("slow", "--slow-start", "2")
            daemon.start()
            answers = []
            client = threading.Thread(target=lambda: answers.append(daemon.chat("slow")))
            client.start()

            def starting():
                return [i for i in daemon.instances() if i["state"] == "starting"]

            for expected in (200, 503):
                kills = 1 if expected == 200 else 2
                seen = set()
                while len(seen) < kills:
                    instance = wait_until(
                        lambda: [i for i in starting() if i["id"] not in seen], what="a start"
                    )[0]
                    pids = wait_until(
                        lambda i=instance: processes_with(f"{daemon.root}/run/i/{i['id']}/")
                    )
                    seen.add(instance["id"])
                    os.kill(max(pids), signal.SIGKILL)
                client.join(30)
                self.assertEqual(answers[-1].status, expected, answers[-1])
                daemon.admin("POST", "/admin/models/slow/stop")
                client = threading.Thread(target=lambda: answers.append(daemon.chat("slow")))
                if expected == 200:
                    client.start()
            self.assertIn("SIGKILL", answers[-1].json()["error"]["message"])

    def test_ipv6_only_ipv4_only_and_unix_socket_engines(self):
        with Daemon() as daemon:
            for transport in ("v6", "port", "socket"):
                daemon.fake_engine(f"on-{transport}", transport=transport)
            daemon.start()
            for transport in ("v6", "port", "socket"):
                answer = daemon.chat(f"on-{transport}")
                self.assertEqual(answer.status, 200, (transport, answer))

    def test_log_flood_blocks_nobody_and_is_rotated(self):
        with Daemon() as daemon:
            daemon.fake_engine("noisy", "--flood-log")
            daemon.fake_engine("quiet")
            daemon.start()
            self.assertEqual(daemon.chat("noisy").status, 200)
            self.assertEqual(daemon.chat("quiet").status, 200)
            wait_until(lambda: len(list(daemon.root.rglob("noisy.log*"))) > 1, what="a rotated log")
            daemon.admin("POST", "/admin/models/noisy/stop")
            size = sum(path.stat().st_size for path in daemon.root.rglob("noisy.log*"))
            self.assertLess(size, 50 << 20)


class Hung(unittest.TestCase):
    """Processes that live and do not serve any more are replaced, and the model with them."""

    def test_handler_that_closes_its_sockets(self):
        source = (
            "import os\n"
            "def handle_request(request, context):\n"
            "    if request.parameters.get('break'):\n"
            "        os.closerange(3, 1000)\n"
            "    return {'ok': True}\n"
        )
        with Daemon() as daemon:
            daemon.handler("deaf", source)
            daemon.start()
            daemon.post("/ai/run/deaf", {"break": True})
            wait_until(
                lambda: daemon.post("/ai/run/deaf", {}).status == 200, what="a good instance"
            )

    def test_handler_that_blocks_for_ever(self):
        source = (
            "import time\n"
            "def handle_request(request, context):\n"
            "    time.sleep(request.parameters.get('seconds', 0))\n"
            "    return {'ok': True}\n"
        )
        with Daemon(limits={"request_timeout": "1s"}) as daemon:
            daemon.handler("stuck", source, engine='stop_grace = "1s"')
            daemon.start()
            answer = daemon.post("/ai/run/stuck", {"seconds": 1000})
            self.assertEqual(answer.status, 504, answer)
            began = time.monotonic()
            self.assertEqual(daemon.post("/ai/run/stuck", {}).status, 200)
            self.assertLess(time.monotonic() - began, 20)

    def test_engine_that_is_stopped_by_a_signal(self):
        with Daemon(limits={"request_timeout": "1s"}) as daemon:
            daemon.fake_engine("frozen", engine='stop_grace = "1s"')
            daemon.start()
            self.assertEqual(daemon.chat("frozen").status, 200)
            pid = wait_until(lambda: daemon.instances()[0]["pid"])
            os.kill(pid, signal.SIGSTOP)
            self.assertEqual(daemon.chat("frozen").status, 504)
            self.assertEqual(daemon.chat("frozen").status, 200, "by a new instance")

    def test_spawner_that_was_killed(self):
        with Daemon() as daemon:
            daemon.fake_engine("later")
            daemon.start()
            for pid in processes_with("omni-shim"):
                command = open(f"/proc/{pid}/cmdline").read().split("\0")
                parent = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1]
                if "--spawner" in command and int(parent) == daemon.process.pid:
                    os.kill(pid, signal.SIGKILL)
            self.assertEqual(daemon.chat("later").status, 200)


class Crashes(unittest.TestCase):
    def test_kill_dash_nine_of_an_engine_loses_no_waiting_request(self):
        with Daemon() as daemon:
            daemon.fake_engine("victim", "--token-delay", "0.05")
            daemon.start()
            self.assertEqual(daemon.chat("victim").status, 200)
            pid = wait_until(lambda: daemon.instances()[0]["pid"])
            answers = []
            thread = threading.Thread(
                target=lambda: answers.append(daemon.chat("victim", max_tokens=20))
            )
            thread.start()
            wait_until(lambda: daemon.instances()[0]["in_flight"] == 1)
            os.kill(pid, signal.SIGKILL)
            thread.join(30)
            self.assertEqual(answers[0].status, 200, "it was sent again to a new instance")

    def test_kill_dash_nine_of_the_daemon_leaves_no_process(self):
        with Daemon() as daemon:
            folder = daemon.fake_engine("orphan", "--fork-setsid", "--ignore-term")
            daemon.start()
            self.assertEqual(daemon.chat("orphan").status, 200)
            self.assertTrue(processes_with(str(folder)))
            daemon.process.kill()
            daemon.process.wait()
            wait_until(
                lambda: not processes_with(str(folder)), what="the tree to end with its daemon"
            )
            daemon.start()
            self.assertEqual(daemon.chat("orphan").status, 200)

    def test_a_stream_that_breaks_ends_with_an_error_event_and_without_done(self):
        with Daemon() as daemon:
            daemon.fake_engine("breaks", "--die-mid-stream")
            daemon.start()
            connection, response = daemon.stream("breaks")
            text = response.read().decode()
            connection.close()
            self.assertIn('"error"', text)
            self.assertNotIn("[DONE]", text)


if __name__ == "__main__":
    harness.main()
