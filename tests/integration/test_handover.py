"""A change or removal of a model at awkward moments: under load, in tight memory, while it is provisioned or stopped."""

import hashlib
import http.server
import os
import shutil
import socket
import threading
import time
import unittest

import harness
from harness import Daemon, wait_until
from test_reload import HANDLER, MANUAL, edit, pids, reload, version


class Files:
    """A server whose paths do what `serve(path, handler)` says."""

    def __init__(self, serve):
        self.hits = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(inner):
                self.hits.append((inner.command, inner.path))
                serve(inner.path, inner)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def weight(self, path, digest):
        url = f"http://127.0.0.1:{self.server.server_port}/{path}"
        return f'\n[[weights]]\nsource = "{url}"\nsha256 = "{digest}"\n'


def whole(handler, body):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


class Handover(unittest.TestCase):
    def test_a_changed_pinned_or_always_on_model_is_not_in_its_own_way(self):
        for pinned in (True, False):
            scaling = "concurrency = 4" + ("" if pinned else "\nmin_instances = 1")
            with self.subTest(pinned=pinned), Daemon(memory="1GiB", extra=MANUAL) as daemon:
                source = HANDLER.format(version=1)
                folder = daemon.handler("m", source, memory="700MiB", scaling=scaling)
                toml = folder / "model.toml"
                if pinned:
                    toml.write_text("pinned = true\n" + toml.read_text())
                daemon.start()
                self.assertEqual(version(daemon), 1)
                edit(folder, 2)
                reload(daemon)
                answers = []
                deadline = time.monotonic() + 10
                while time.monotonic() < deadline:
                    answers.append(daemon.post("/ai/run/m", {}))
                    if answers[-1].status == 200 and answers[-1].json()["version"] == 2:
                        break
                self.assertEqual({a.status for a in answers}, {200}, answers[-2:])

    def test_a_corrected_address_is_used_although_the_old_one_is_being_tried(self):
        body = b"abc" * 100
        digest = hashlib.sha256(body).hexdigest()

        def serve(path, handler):
            if path == "/bad":
                return handler.send_error(503)
            return whole(handler, body)

        files = Files(serve)
        with Daemon(extra=MANUAL) as daemon:
            folder = daemon.handler("m", HANDLER.format(version=1))
            toml = folder / "model.toml"
            base = toml.read_text()
            toml.write_text(base + files.weight("bad", digest))
            daemon.start()
            wait_until(lambda: ("GET", "/bad") in files.hits, what="the first try")
            toml.write_text(base + files.weight("good", digest))
            reload(daemon)
            wait_until(lambda: ("GET", "/good") in files.hits, 10, "a look at the new address")
            self.assertEqual(version(daemon), 1)

    def test_the_download_of_a_removed_model_ends(self):
        sent = []

        def serve(path, handler):
            handler.send_response(200)
            handler.send_header("Content-Length", "100000000")
            handler.end_headers()
            while handler.command != "HEAD":
                handler.wfile.write(bytes(1000))
                sent.append(1000)
                time.sleep(0.02)

        files = Files(serve)
        with Daemon(extra=MANUAL) as daemon:
            folder = daemon.handler("m", HANDLER.format(version=1))
            toml = folder / "model.toml"
            toml.write_text(toml.read_text() + files.weight("x", "0" * 64))
            daemon.start()
            wait_until(lambda: sent, what="the download to begin")
            shutil.rmtree(folder)
            reload(daemon)
            time.sleep(2)
            before = len(sent)
            time.sleep(1)
            self.assertEqual(len(sent), before, "curl goes on for a model that is gone")

    def test_a_body_longer_than_said_is_cut(self):
        sent = []

        def serve(path, handler):
            handler.send_response(200)
            if handler.command == "HEAD":
                handler.send_header("Content-Length", "5000")
            handler.end_headers()
            for _ in range(1000 if handler.command != "HEAD" else 0):
                handler.wfile.write(bytes(100_000))
                sent.append(100_000)

        files = Files(serve)
        with Daemon(extra=MANUAL) as daemon:
            folder = daemon.handler("m", HANDLER.format(version=1))
            toml = folder / "model.toml"
            toml.write_text(toml.read_text() + files.weight("x", "0" * 64))
            daemon.start()
            self.assertEqual(daemon.post("/ai/run/m", {}).status, 503)
            self.assertLess(sum(sent), 50_000_000, "of a file of 5000 bytes")

    def test_a_change_that_could_not_be_provisioned_is_tried_again_by_a_reload(self):
        up = []

        def serve(path, handler):
            return whole(handler, b"abc") if up else handler.send_error(404)

        files = Files(serve)
        with Daemon(extra=MANUAL) as daemon:
            folder = daemon.handler("m", HANDLER.format(version=1))
            daemon.start()
            self.assertEqual(version(daemon), 1)
            toml = folder / "model.toml"
            edit(folder, 2)
            digest = hashlib.sha256(b"abc").hexdigest()
            toml.write_text(toml.read_text() + files.weight("x", digest))
            reload(daemon)
            error = lambda: daemon.admin("GET", "/admin/models/m").json()["last_error"]
            wait_until(lambda: "404" in error(), what="the error")
            up.append(True)
            reload(daemon)
            wait_until(lambda: version(daemon) == 2, 10, "the new version")

    def test_another_gpu_is_chosen_when_more_of_one_is_declared(self):
        gpus = '\n[device.gpu0]\nmemory = "4GiB"\n[device.gpu1]\nmemory = "8GiB"'
        with Daemon(extra=MANUAL + gpus) as daemon:
            folder = daemon.handler("m", HANDLER.format(version=1))
            toml = folder / "model.toml"
            base = toml.read_text()

            def declare(size):
                line = f'[resources]\ngpu_memory = "{size}"\n'
                toml.write_text(base.replace("[resources]\n", line))

            declare("3GiB")
            daemon.start()
            self.assertEqual(version(daemon), 1)
            declare("6GiB")
            reload(daemon)
            daemon.omni("stop", "m")
            answer = daemon.post("/ai/run/m", {})
            self.assertEqual(answer.status, 200, answer)
            declare("60GiB")
            reload(daemon)
            error = daemon.admin("GET", "/admin/models/m").json()["last_error"]
            self.assertIn("GPU", error, "no device can hold it, and nothing says so")

    def test_models_that_come_and_go_leave_no_descriptors_and_no_gauge(self):
        with Daemon(extra=MANUAL) as daemon:
            daemon.start()
            reload(daemon)

            def descriptors():
                return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))

            before = descriptors()
            for number in range(30):
                folder = daemon.handler(f"x{number}", HANDLER.format(version=1))
                reload(daemon)
                if number == 0:
                    self.assertEqual(version(daemon, "x0"), 1)
                    time.sleep(1.5)  # the gauges are set once a second
                shutil.rmtree(folder)
                reload(daemon)
            wait_until(lambda: not daemon.instances(), what="the removed to be gone")
            time.sleep(2)
            metrics = daemon.get("/metrics").body.decode()
            with self.subTest("gauge"):
                self.assertNotIn('omni_instances_resident{model="x0"} 1', metrics)
            with self.subTest("descriptors"):
                self.assertLess(descriptors(), before + 15)

    def test_a_slow_upload_outlasts_a_change_of_its_model(self):
        with Daemon(extra=MANUAL) as daemon:
            folder = daemon.handler("m", HANDLER.format(version=1))
            daemon.start()
            self.assertEqual(version(daemon), 1)
            body = b'{"text": "' + b"x" * 3000 + b'"}'
            with socket.create_connection(("127.0.0.1", daemon.port)) as client:
                client.settimeout(20)
                client.sendall(
                    b"POST /ai/run/m HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
                )
                client.sendall(body[:1000])
                time.sleep(0.3)
                edit(folder, 2)
                reload(daemon)
                time.sleep(2)  # longer than the old version waits for requests on their way
                client.sendall(body[1000:])
                self.assertIn(b" 200 ", client.recv(65536).split(b"\r\n")[0])

    def test_an_operators_stop_is_not_undone_by_a_change(self):
        with Daemon(extra=MANUAL) as daemon:
            folder = daemon.handler("m", HANDLER.format(version=1))
            daemon.start()
            self.assertEqual(version(daemon), 1)
            slow = threading.Thread(target=daemon.post, args=("/ai/run/m", {"seconds": 4}))
            slow.start()
            wait_until(lambda: daemon.instances()[0]["in_flight"] == 1)
            stop = threading.Thread(target=daemon.omni, args=("stop", "m"))
            stop.start()
            wait_until(lambda: daemon.instances()[0]["state"] == "draining", what="the stop")
            edit(folder, 2)
            reload(daemon)
            slow.join()
            stop.join()
            time.sleep(1)
            self.assertEqual(pids(daemon), {}, "nobody asked for it since it was stopped")

    def test_what_is_left_of_a_removed_model_can_be_stopped(self):
        with Daemon(extra=MANUAL + '\n[limits]\nshutdown_timeout = "1s"') as daemon:
            folder = daemon.handler("m", HANDLER.format(version=1))
            daemon.start()
            self.assertEqual(version(daemon), 1)
            slow = threading.Thread(target=daemon.post, args=("/ai/run/m", {"seconds": 15}))
            slow.start()
            wait_until(lambda: daemon.instances()[0]["in_flight"] == 1)
            shutil.rmtree(folder)
            reload(daemon)
            self.assertEqual(daemon.omni("stop", "m").returncode, 0)
            wait_until(lambda: not daemon.instances(), 8, "the end of the removed model")
            slow.join()

    def test_a_folder_of_models_that_is_made_anew_is_watched(self):
        with Daemon() as daemon:
            models = daemon.root / "srv/models"
            models.mkdir(parents=True)
            text = daemon.config.read_text()
            daemon.config.write_text(text.replace(str(daemon.models), str(models)))
            daemon.models = models
            daemon.handler("m", HANDLER.format(version=1))
            daemon.start()
            self.assertEqual(version(daemon), 1)
            models.rename(daemon.root / "srv/old")
            time.sleep(1)
            shutil.copytree(daemon.root / "srv/old", models)
            edit(models / "m", 2)
            wait_until(lambda: version(daemon) == 2, 5, "the edit in the new folder")

    def test_an_idle_websocket_does_not_hold_up_the_shutdown(self):
        with Daemon(extra=MANUAL) as daemon:
            daemon.fake_engine("w", scaling='idle_connection = "100ms"')
            daemon.start()
            with socket.create_connection(("127.0.0.1", daemon.port)) as client:
                client.settimeout(20)
                client.sendall(
                    b"GET /upstream/w/upgrade HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                    b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
                )
                self.assertIn(b" 101 ", client.recv(4096))
                wait_until(lambda: daemon.instances()[0]["in_flight"] == 0, what="the pause")
                began = time.monotonic()
                daemon.stop()
                self.assertLess(time.monotonic() - began, 10)


if __name__ == "__main__":
    harness.main()
