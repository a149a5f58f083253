#!/usr/bin/env python3
"""A fake of the Hugging Face hub and of the server that it sends downloads to, with one misbehaviour per file.

    hub.py [CERTIFICATE]     prints "PORT CDN_PORT TLS_PORT" and serves on 127.0.0.1 until its input ends

The third is the download server behind TLS, if there is a certificate (with its key, PEM); else 0.

Files are PUT to /files/NAME?FLAG=VALUE&… and then found at /ORG/REPO/resolve/REVISION/NAME and at /plain/NAME. Requests
are listed, as JSON, at /log. Flags:

    small=1         told by git's digest and sent by the hub itself, as files outside of LFS are
    cut=N           the connection breaks after N bytes of each body
    cuts=N          … but only N times
    norange=1       Range is ignored
    noetag=1        no ETag, so that a file is not known to be the same
    stall=N         after N bytes nothing more comes, once
    busy=N          answers 503 so many times
    private=TOKEN   401 without "Authorization: Bearer TOKEN"
    wrong=1         the body is not that of the digest
    nodigest=1      the hub tells no digest
    nohead=1        405 to HEAD
    plain=1         the server behind TLS redirects to the one without
    moved=NAME      the hub says that the file is now at NAME
    gate=1          each body waits, after its first half, until /open/NAME is asked for

Python standard library only.
"""

import hashlib
import http.server
import json
import ssl
import sys
import threading
import urllib.parse

COMMIT = "c0ffee" + "0" * 34
FILES = {}
LOG = []
LOCK = threading.Lock()


class File:
    def __init__(self, body, flags):
        self.body, self.flags = body, flags
        self.sha256 = hashlib.sha256(body).hexdigest()
        self.git = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
        self.stalled = False
        self.cuts = int(flags.get("cuts", 1 << 30))
        self.busy = int(flags.get("busy", 0))
        self.gate = threading.Event()

    def sent(self):
        return bytes(len(self.body)) if "wrong" in self.flags else self.body


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cdn = None  # of the hub: where it sends downloads to
    plain = None  # of the server behind TLS: the port of the one without

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), str(value))
        if "Content_Length" not in fields:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PUT(self):
        url = urllib.parse.urlsplit(self.path)
        name = urllib.parse.unquote(url.path.removeprefix("/files/"))
        body = self.rfile.read(int(self.headers["Content-Length"]))
        FILES[name] = File(body, dict(urllib.parse.parse_qsl(url.query)))
        self.answer(200)

    def do_HEAD(self):
        self.serve()

    def do_GET(self):
        if self.path == "/log":
            self.answer(200, json.dumps(LOG).encode())
        elif self.path.startswith("/open/"):
            FILES[self.path.removeprefix("/open/")].gate.set()
            self.answer(200)
        else:
            self.serve()

    def serve(self):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.entry = {
            "method": self.command,
            "path": path,
            "at": "cdn" if self.cdn is None else "hub",
            "token": self.headers.get("Authorization"),
            "range": self.headers.get("Range"),
            "if_range": self.headers.get("If-Range"),
            "agent": self.headers.get("User-Agent"),
            "sent": 0,
        }
        with LOCK:
            LOG.append(self.entry)
        if "/resolve/" in path:
            repository, rest = path[1:].split("/resolve/", 1)
            revision, _, name = rest.partition("/")
            known = revision in ("main", COMMIT) and repository.count("/") == 1
            file = FILES.get(name) if known else None
        else:
            name = path.removeprefix("/plain/")
            file = FILES.get(name)
        if file is None:
            return self.answer(404, b"Entry not found")
        if file.flags.get("private") and self.cdn is not None:
            if self.headers.get("Authorization") != "Bearer " + file.flags["private"]:
                return self.answer(401, b"Invalid username or password.")
        if file.busy > 0:
            file.busy -= 1
            return self.answer(503)
        if "nohead" in file.flags and self.command == "HEAD":
            return self.answer(405)
        if self.cdn is not None and "/resolve/" in path:
            return self.resolve(path, name, file)
        if "plain" in file.flags and self.plain:
            return self.answer(302, Location=f"http://127.0.0.1:{self.plain}/plain/{name}")
        return self.send_file(file)

    def resolve(self, path, name, file):
        """The hub's own answer: the digest, and where the file is."""
        if "moved" in file.flags:
            place = path[: -len(name)] + file.flags["moved"]
            return self.answer(307, Location=place)
        told = {"X_Repo_Commit": COMMIT}
        if "small" in file.flags:
            return self.send_file(file, ETag=f'"{file.git}"', **told)
        if "nodigest" not in file.flags:
            told["X_Linked_ETag"] = f'"{file.sha256}"'
            told["X_Linked_Size"] = len(file.body)
        return self.answer(302, Location=f"http://127.0.0.1:{self.cdn}/plain/{name}", **told)

    def send_file(self, file, **told):
        body = file.sent()
        etag = told.pop("ETag", f'"{hashlib.md5(body).hexdigest()}"')
        if "noetag" not in file.flags:
            told["ETag"] = etag
        wanted = self.headers.get("Range")
        same = self.headers.get("If-Range") in (None, etag)
        status, first = 200, 0
        if wanted and same and "norange" not in file.flags:
            first = int(wanted.removeprefix("bytes=").split("-")[0])
            if first >= len(body):
                return self.answer(416, Content_Range=f"bytes */{len(body)}")
            status = 206
            told["Content_Range"] = f"bytes {first}-{len(body) - 1}/{len(body)}"
        self.send_response(status)
        for key, value in told.items():
            self.send_header(key.replace("_", "-"), str(value))
        self.send_header("Content-Length", str(len(body) - first))
        self.end_headers()
        if self.command != "HEAD":
            self.send_body(file, body[first:])

    def send_body(self, file, rest):
        if "gate" in file.flags:
            self.send(rest[: len(rest) // 2])
            file.gate.wait()
            rest = rest[len(rest) // 2 :]
        if "stall" in file.flags and not file.stalled:
            file.stalled = True
            self.send(rest[: int(file.flags["stall"])])
            while self.connection.recv(1):  # until the client has given up
                pass
            self.close_connection = True
            return
        if "cut" in file.flags and file.cuts > 0 and len(rest) > int(file.flags["cut"]):
            file.cuts -= 1
            self.send(rest[: int(file.flags["cut"])])
            self.close_connection = True
            return
        self.send(rest)

    def send(self, data):
        for start in range(0, len(data), 1 << 16):
            piece = data[start : start + (1 << 16)]
            self.wfile.write(piece)
            self.entry["sent"] += len(piece)
        self.wfile.flush()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # clients that break off are what this is for


def main():
    cdn = Server(("127.0.0.1", 0), type("Cdn", (Handler,), {}))
    hub = Server(("127.0.0.1", 0), type("Hub", (Handler,), {"cdn": cdn.server_port}))
    servers = [cdn, hub]
    if len(sys.argv) > 1:
        tls = Server(("127.0.0.1", 0), type("Tls", (Handler,), {"plain": cdn.server_port}))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[1])
        tls.socket = context.wrap_socket(tls.socket, server_side=True)
        servers.append(tls)
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    tls_port = servers[2].server_port if len(servers) > 2 else 0
    print(hub.server_port, cdn.server_port, tls_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
