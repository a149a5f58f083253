"""Reload: what changed is carried out, what did not is not touched, and a bad file changes nothing."""

import json
import signal
import threading
import time
import unittest

import harness
from harness import Daemon, wait_until

# Reads its answer when it is loaded, so that an answer tells which version gave it.
HANDLER = """
import time

def handle_request(request, context):
    time.sleep(request.parameters.get("seconds", 0))
    return {{"version": {version}}}
"""
MANUAL = "watch = false"


def version(daemon, model="m"):
    answer = daemon.post(f"/ai/run/{model}", {})
    return answer.json().get("version", answer)


def edit(folder, number):
    (folder / "handler.py").write_text(HANDLER.format(version=number))


def reload(daemon):
    """The report; fails unless the reload went well."""
    result = daemon.omni("reload", "--json")
    if result.returncode != 0:
        raise AssertionError(result)
    return json.loads(result.stdout)


def pids(daemon):
    """Of the models that are resident, once they are measured."""

    def look():
        found = {i["model"]: i["pid"] for i in daemon.instances() if i["state"] == "resident"}
        return [found] if all(found.values()) else None

    return wait_until(look, what="the process ids")[0]


class Reload(unittest.TestCase):
    def test_reload_with_one_changed_model_of_ten_nine_keep_process_ids_and_streams(self):
        with Daemon(extra=MANUAL) as daemon:
            names = [f"m{number}" for number in range(10)]
            for name in names:
                daemon.fake_engine(name, "--tokens", "60", "--token-delay", "0.05")
            daemon.start()
            streams = {name: daemon.stream(name, max_tokens=60) for name in names if name != "m3"}
            self.assertEqual(daemon.chat("m3", max_tokens=1).status, 200)
            before = pids(daemon)
            self.assertEqual(sorted(before), names)
            file = daemon.models / "m3/model.toml"
            file.write_text(file.read_text().replace('"60"', '"61"'))
            report = reload(daemon)
            self.assertEqual(report["changed"], ["m3"])
            self.assertEqual(report["unchanged"], 9)
            self.assertEqual(daemon.chat("m3", max_tokens=1).status, 200)
            wait_until(
                lambda: "m3" in pids(daemon) and pids(daemon)["m3"] != before["m3"],
                what="another process of the changed model",
            )
            for name, (connection, response) in streams.items():
                text = response.read().decode()
                self.assertTrue(text.endswith("data: [DONE]\n\n"), (name, text[-200:]))
                self.assertGreaterEqual(text.count('"content"'), 60, name)
                connection.close()
            after = pids(daemon)
            self.assertEqual(
                {name: after.get(name) for name in streams},
                {name: before[name] for name in streams},
            )

    def test_reload_of_a_broken_file_changes_nothing_and_names_line_key_and_suggestion(self):
        with Daemon(extra=MANUAL) as daemon:
            for name in ("a", "b"):
                daemon.handler(name, HANDLER.format(version=1))
            daemon.start()
            self.assertEqual([version(daemon, "a"), version(daemon, "b")], [1, 1])
            before = pids(daemon)
            edit(daemon.models / "a", 2)
            daemon.handler("c", HANDLER.format(version=1))
            good = daemon.config.read_text()
            spec = daemon.models / "b/model.toml"
            good_spec = spec.read_text()
            for file, text, wanted in (
                (daemon.config, good + "[limitz]\nqueue_total = 7\n", ["limitz", "limits"]),
                (daemon.config, good.replace("listen", "lissten"), [":1: lissten", "listen"]),
                (spec, good_spec.replace("[scaling]", "[scalling]"), ["scalling", "scaling"]),
                (spec, good_spec.replace('"other"', "7"), [":1: task", "must be"]),
            ):
                kept = file.read_text()
                file.write_text(text)
                result = daemon.omni("reload")
                file.write_text(kept)
                self.assertEqual(result.returncode, 78, result)
                for part in [str(file), *wanted]:
                    self.assertIn(part, result.stderr)
                self.assertIn(str(file), daemon.omni("status").stdout)
                self.assertEqual(pids(daemon), before, "nothing was touched")
                self.assertEqual([version(daemon, "a"), version(daemon, "b")], [1, 1])
                self.assertEqual(daemon.post("/ai/run/c", {}).status, 404)
            report = reload(daemon)
            self.assertEqual((report["added"], report["changed"]), (["c"], ["a"]))
            wait_until(lambda: version(daemon, "a") == 2, what="the new version of a")
            self.assertEqual(version(daemon, "c"), 1)
            self.assertEqual(pids(daemon)["b"], before["b"])
            self.assertNotIn("failed", daemon.omni("status").stdout)

    def test_no_request_is_lost_while_a_busy_model_changes_again_and_again(self):
        with Daemon(extra=MANUAL) as daemon:
            folder = daemon.handler("m", HANDLER.format(version=0), scaling="concurrency = 4")
            daemon.start()
            self.assertEqual(version(daemon), 0)
            done, problems, seen = threading.Event(), [], []

            def client():
                while not done.is_set():
                    answer = daemon.post("/ai/run/m", {"seconds": 0.01})
                    if answer.status != 200:
                        problems.append(answer)
                    else:
                        seen.append(answer.json()["version"])

            clients = [threading.Thread(target=client) for _ in range(6)]
            for thread in clients:
                thread.start()
            for number in range(1, 6):
                edit(folder, number)
                reload(daemon)
                wait_until(lambda n=number: seen and seen[-1] == n, what=f"version {number}")
            done.set()
            for thread in clients:
                thread.join(60)
            self.assertEqual(problems, [])
            wait_until(lambda: len(daemon.instances()) == 1, what="the old versions to be gone")

    def test_a_removed_model_finishes_what_it_has_and_another_takes_its_alias(self):
        with Daemon(extra=MANUAL) as daemon:
            old = daemon.handler("old", HANDLER.format(version=1))
            toml = old / "model.toml"
            toml.write_text('aliases = ["gpt"]\n' + toml.read_text())
            daemon.start()
            self.assertEqual(version(daemon, "gpt"), 1)
            answers = []
            request = threading.Thread(
                target=lambda: answers.append(daemon.post("/ai/run/old", {"seconds": 2}))
            )
            queued = threading.Thread(target=lambda: answers.append(daemon.post("/ai/run/old", {})))
            request.start()
            wait_until(lambda: daemon.instances()[0]["in_flight"] == 1)
            queued.start()
            wait_until(
                lambda: daemon.admin("GET", "/admin/models/old").json()["waiting"] == 1,
                what="a waiting request",
            )
            text = toml.read_text()
            old.rename(daemon.models / ".old")
            new = daemon.handler("new", HANDLER.format(version=2))
            (new / "model.toml").write_text(text)
            report = reload(daemon)
            self.assertEqual((report["removed"], report["added"]), (["old"], ["new"]))
            self.assertEqual(version(daemon, "gpt"), 2)
            self.assertEqual(daemon.post("/ai/run/old", {}).status, 404)
            request.join(30)
            queued.join(30)
            self.assertEqual([answer.status for answer in answers], [200, 200], answers)
            wait_until(lambda: list(pids(daemon)) == ["new"], what="the removed model to be gone")
            self.assertNotIn("old", daemon.omni("models").stdout)

    def test_policy_alone_keeps_the_process(self):
        with Daemon(extra=MANUAL) as daemon:
            folder = daemon.handler("m", HANDLER.format(version=1))
            daemon.start()
            self.assertEqual(version(daemon), 1)
            before = pids(daemon)
            toml = folder / "model.toml"
            toml.write_text('aliases = ["other-name"]\n' + toml.read_text() + "priority = 3\n")
            self.assertEqual(reload(daemon)["changed"], ["m"])
            self.assertEqual(version(daemon, "other-name"), 1)
            self.assertEqual(pids(daemon), before)
            toml.write_text(toml.read_text() + 'stop_after = "0s"\n')
            self.assertEqual(reload(daemon)["changed"], ["m"])
            wait_until(lambda: not daemon.instances(), what="the new stop_after to act")

    def test_a_change_that_cannot_be_provisioned_leaves_the_old_version(self):
        with Daemon(extra=MANUAL) as daemon:
            folder = daemon.handler("m", HANDLER.format(version=1))
            daemon.start()
            self.assertEqual(version(daemon), 1)
            edit(folder, 2)
            toml = folder / "model.toml"
            good = toml.read_text()
            (folder / "w.bin").write_text("x")
            toml.write_text(good + f'[[weights]]\nsource = "file:w.bin"\nsha256 = "{"0" * 64}"\n')
            reload(daemon)
            wait_until(
                lambda: "sha256" in daemon.admin("GET", "/admin/models/m").json()["last_error"],
                what="the error",
            )
            self.assertEqual(version(daemon), 1)
            toml.write_text(good)
            reload(daemon)
            wait_until(lambda: version(daemon) == 2, what="the corrected version")

    def test_a_change_that_cannot_be_loaded_leaves_the_old_version(self):
        with Daemon(extra=MANUAL) as daemon:
            folder = daemon.handler("m", HANDLER.format(version=1))
            daemon.start()
            self.assertEqual(version(daemon), 1)
            before = pids(daemon)
            (folder / "handler.py").write_text("def handle_request(request, context:\n")
            reload(daemon)
            wait_until(
                lambda: "SyntaxError"
                in daemon.admin("GET", "/admin/models/m").json()["last_error"],
                what="the error",
            )
            self.assertEqual(version(daemon), 1)
            self.assertEqual(pids(daemon), before)
            explained = daemon.omni("explain", "m").stdout
            self.assertIn("SyntaxError", explained)
            # Its log is the one that was written last.
            self.assertIn("SyntaxError", daemon.omni("logs", "m").stdout)
            edit(folder, 3)
            reload(daemon)
            wait_until(lambda: version(daemon) == 3, what="the corrected version")
            wait_until(lambda: len(daemon.instances()) == 1, what="the others to be gone")
            self.assertNotIn("SyntaxError", daemon.omni("explain", "m").stdout)

    def test_a_change_of_what_does_not_fit_twice(self):
        with Daemon(memory="100MiB", extra=MANUAL) as daemon:
            for name, pinned in (("a", "false"), ("b", "true")):
                folder = daemon.handler(name, HANDLER.format(version=1), memory="60MiB")
                toml = folder / "model.toml"
                toml.write_text(f"pinned = {pinned}\n" + toml.read_text())
                daemon.start() if name == "a" else reload(daemon)
                # Measured it would fit twice: this is about what is granted.
                wait_until(lambda n=name: version(daemon, n) == 1, what="the first version")
                edit(folder, 2)
                reload(daemon)
                wait_until(lambda n=name: version(daemon, n) == 2, what="the second version")
                daemon.omni("stop", name)

    def test_a_broken_model_works_once_it_is_corrected(self):
        with Daemon(extra=MANUAL) as daemon:
            folder = daemon.handler("m", HANDLER.format(version=1))
            toml = folder / "model.toml"
            good = toml.read_text()
            toml.write_text("taks" + good)
            daemon.start()
            self.assertEqual(daemon.state("m"), "failed")
            daemon.handler("new", HANDLER.format(version=1))
            self.assertEqual(reload(daemon)["added"], ["new"], "what was broken is no news")
            toml.write_text(good)
            self.assertEqual(reload(daemon)["changed"], ["m"])
            self.assertEqual(version(daemon), 1)

    def test_a_handler_becomes_a_program_and_a_program_a_handler(self):
        with Daemon(extra=MANUAL) as daemon:
            folder = daemon.handler("m", HANDLER.format(version=1), task="chat")
            engine = daemon.fake_engine("e")
            daemon.start()
            self.assertEqual(daemon.post("/ai/run/m", {"messages": []}).json(), {"version": 1})
            self.assertEqual(daemon.chat("e").status, 200)
            specs = [(folder / "model.toml"), (engine / "model.toml")]
            texts = [spec.read_text() for spec in specs]
            (folder / "engine.py").write_text((engine / "engine.py").read_text())
            (engine / "handler.py").write_text((folder / "handler.py").read_text())
            for spec, text in zip(specs, reversed(texts), strict=True):
                spec.write_text(text)
            reload(daemon)
            wait_until(lambda: daemon.chat("m").json().get("choices"), what="the program")
            wait_until(
                lambda: daemon.post("/ai/run/e", {"messages": []}).json() == {"version": 1},
                what="the handler",
            )

    def test_limits_change_and_what_waits_for_the_next_start_is_said(self):
        with Daemon(extra=MANUAL) as daemon:
            daemon.handler("m", HANDLER.format(version=1))
            daemon.start()
            body = {"text": "x" * 4096}
            self.assertEqual(daemon.post("/ai/run/m", body).status, 200)
            text = daemon.config.read_text()
            daemon.config.write_text(
                "io_threads = 1\n" + text + '[limits]\njson_body = "1KiB"\nidle_timeout = "1s"\n'
            )
            report = reload(daemon)
            self.assertEqual(report["at_next_start"], ["io_threads", "limits.idle_timeout"])
            answer = daemon.post("/ai/run/m", body)
            self.assertEqual(answer.status, 413, answer)

    def test_sighup_reloads(self):
        with Daemon(extra=MANUAL) as daemon:
            folder = daemon.handler("m", HANDLER.format(version=1))
            daemon.start()
            self.assertEqual(version(daemon), 1)
            edit(folder, 2)
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: version(daemon) == 2, what="the new version")


class Watch(unittest.TestCase):
    def test_files_that_change_are_read_by_themselves(self):
        with Daemon() as daemon:
            folder = daemon.handler("m", HANDLER.format(version=1))
            daemon.start()
            self.assertEqual(version(daemon), 1)
            edit(folder, 2)
            wait_until(lambda: version(daemon) == 2, what="the edited handler")
            new = daemon.handler("new", HANDLER.format(version=3))
            wait_until(lambda: daemon.post("/ai/run/new", {}).status == 200, what="a new folder")
            edit(new, 4)
            wait_until(lambda: version(daemon, "new") == 4, what="an edit in a new folder")
            folder.rename(daemon.models / ".m")
            wait_until(lambda: daemon.post("/ai/run/m", {}).status == 404, what="the removal")
            daemon.config.write_text(daemon.config.read_text() + "[limitz]\n")
            wait_until(
                lambda: "limitz" in daemon.omni("status").stdout, what="the error of omni.toml"
            )
            self.assertEqual(version(daemon, "new"), 4)

    def test_files_that_stand_still_cost_nothing(self):
        with Daemon() as daemon:
            daemon.handler("m", HANDLER.format(version=1))
            daemon.start()
            self.assertEqual(version(daemon), 1)
            time.sleep(0.5)  # long enough for a reload, had anything called for one
            self.assertNotIn("reload", daemon.log.read_text())


if __name__ == "__main__":
    harness.main()
