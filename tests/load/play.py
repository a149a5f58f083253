#!/usr/bin/env python3
"""Sends arrivals to an OpenAI-like server at their times, whatever its answers do.

    tests/load/play.py http://127.0.0.1:8484 --hours 24 --speed 60 --output report.json
    tests/load/play.py http://127.0.0.1:8484 --trace many_models.csv --speed 60 --model tiny --model big

Open loop: a request is sent at its time even when earlier ones have no answer, and its latency counts
from the time at which it was due, so a slow server cannot slow down what measures it. At most
--in-flight requests are out at once; one that would be more is not sent, and counted. Ctrl-C ends
with the report so far.
"""

import argparse
import asyncio
import collections
import json
import random
import signal
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from arrivals import Arrival, Lengths, add_options, from_options

LATE = 0.05  # seconds after its time: a send that says that this machine, not the server, is slow
READ = 1 << 16


@dataclass(frozen=True)
class Request:
    path: str
    body: dict[str, object]


# One for each task: what to ask a model of this name, with a chance of the seed.
Factory = Callable[[str, random.Random], Request]


def chat(lengths: Lengths) -> Factory:
    def make(model: str, chance: random.Random) -> Request:
        prompt, generated = lengths.sample(chance)
        words = " ".join(["word"] * prompt)
        return Request(
            "/v1/chat/completions",
            {
                "model": model,
                "max_tokens": generated,
                "messages": [{"role": "user", "content": words}],
            },
        )

    return make


def embeddings(lengths: Lengths) -> Factory:
    def make(model: str, chance: random.Random) -> Request:
        prompt, _ = lengths.sample(chance)
        return Request("/v1/embeddings", {"model": model, "input": " ".join(["word"] * prompt)})

    return make


FACTORIES: dict[str, Callable[[Lengths], Factory]] = {"chat": chat, "embeddings": embeddings}


@dataclass
class Tally:
    """Of all requests, or of one model's."""

    sent: int = 0
    errors: collections.Counter[str] = field(default_factory=collections.Counter)
    latencies: list[float] = field(default_factory=list)  # of good answers, from when they were due
    late: int = 0
    not_sent: int = 0

    def report(self) -> dict[str, object]:
        ordered = sorted(self.latencies)
        shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
        return {
            "sent": self.sent,
            "ok": len(ordered),
            "errors": dict(sorted(self.errors.items())),
            "unfinished": self.sent - len(ordered) - self.errors.total(),
            "late_sends": self.late,
            "not_sent_over_limit": self.not_sent,
            "latency_seconds": {
                name: round(ordered[int(share * (len(ordered) - 1))], 4)
                for name, share in shares.items()
                if ordered
            },
        }


class Player:
    def __init__(
        self,
        base_url: str,
        names: Sequence[str],
        factory: Factory,
        in_flight: int = 1024,
        timeout: float = 600,
        seed: int = 1,
    ) -> None:
        url = urllib.parse.urlsplit(base_url)
        if url.scheme != "http" or url.hostname is None:
            raise ValueError(f"{base_url}: an http:// address is wanted")
        self._host, self._port = url.hostname, url.port or 80
        self._prefix = url.path.rstrip("/").removesuffix("/v1")
        self._names = names
        self._factory = factory
        self._limit = in_flight
        self._timeout = timeout
        self._chance = random.Random(seed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._began = 0.0
        self.all = Tally()
        self.models: dict[str, Tally] = collections.defaultdict(Tally)

    async def play(self, arrivals: Sequence[Arrival], stop: asyncio.Event | None = None) -> None:
        """Until all are answered or timed out, or `stop` is set: then what is out is given up."""
        stop = stop or asyncio.Event()
        stopped = asyncio.ensure_future(stop.wait())
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        for arrival in arrivals:
            pause = self._began + arrival.seconds - loop.time()
            if pause > 0:
                await asyncio.wait([stopped], timeout=pause)
            if stop.is_set():
                break
            self._begin(arrival)
            await asyncio.sleep(0)  # arrivals that are due together must not hold up the answers
        while self._tasks and not stop.is_set():
            await asyncio.wait([stopped, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        stopped.cancel()

    def report(self) -> dict[str, object]:
        return self.all.report() | {
            "in_flight_limit": self._limit,
            "models": {name: tally.report() for name, tally in sorted(self.models.items())},
        }

    def _begin(self, arrival: Arrival) -> None:
        name = self._names[arrival.model]
        request = self._factory(name, self._chance)
        tallies = self.all, self.models[name]
        if len(self._tasks) >= self._limit:
            for tally in tallies:
                tally.not_sent += 1
            return
        due = self._began + arrival.seconds
        late = asyncio.get_running_loop().time() - due > LATE
        for tally in tallies:
            tally.sent += 1
            tally.late += late
        task = asyncio.create_task(self._send(request, arrival, due, tallies))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(
        self, request: Request, arrival: Arrival, due: float, tallies: tuple[Tally, Tally]
    ) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                outcome = await self._exchange(request, arrival)
        except TimeoutError:
            outcome = "timeout"
        except (OSError, EOFError, ValueError) as error:
            outcome = type(error).__name__
        latency = asyncio.get_running_loop().time() - due
        for tally in tallies:
            if outcome == "200":
                tally.latencies.append(latency)
            else:
                tally.errors[outcome] += 1

    async def _exchange(self, request: Request, arrival: Arrival) -> str:
        """The status, after the last byte of the answer: a connection of its own ends with it."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            body = json.dumps(request.body).encode()
            # What the trace says that it takes: an engine that only pretends may obey it.
            head = (
                f"POST {self._prefix}{request.path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                f"X-Service-Seconds: {arrival.service_seconds}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await writer.drain()
            status = (await reader.readline()).split(b" ")
            if len(status) < 2 or not status[0].startswith(b"HTTP/1."):
                raise EOFError("no answer")
            length, chunked = await self._read_head(reader)
            await self._read_body(reader, length, chunked)
            return status[1].decode()
        finally:
            writer.close()

    @staticmethod
    async def _read_head(reader: asyncio.StreamReader) -> tuple[int | None, bool]:
        length, chunked = None, False
        while line := (await reader.readline()).strip().lower():
            name, _, value = line.partition(b":")
            if name == b"content-length":
                length = int(value)
            chunked = chunked or (name == b"transfer-encoding" and b"chunked" in value)
        return length, chunked

    @staticmethod
    async def _read_body(reader: asyncio.StreamReader, length: int | None, chunked: bool) -> None:
        if chunked:
            while size := int((await reader.readline()).partition(b";")[0], 16):
                await reader.readexactly(size + 2)
        elif length is not None:
            await reader.readexactly(length)
        else:
            while await reader.read(READ):
                pass


def listed_models(base_url: str) -> list[str]:
    url = base_url.rstrip("/").removesuffix("/v1") + "/v1/models"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return [str(model["id"]) for model in json.load(answer)["data"]]


async def run(player: Player, arrivals: Sequence[Arrival]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await player.play(arrivals, stop)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base_url")
    add_options(parser)
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME",
        help="of rank 0, 1, ...: the most used first; without any, those of /v1/models in its order",
    )  # fmt: skip
    parser.add_argument("--task", choices=sorted(FACTORIES), default="chat")
    parser.add_argument("--in-flight", type=int, default=1024, help="most requests out at once")
    parser.add_argument("--timeout", type=float, default=600, help="seconds until one is given up")
    parser.add_argument("--output", type=Path, help="write the report there as well")
    options = parser.parse_args()
    names = options.model or listed_models(options.base_url)
    options.models = min(options.models, len(names))  # arrivals of other ranks are left out
    arrivals = from_options(options)
    factory = FACTORIES[options.task](Lengths())
    player = Player(
        options.base_url, names, factory, options.in_flight, options.timeout, options.seed
    )
    print(f"{len(arrivals)} requests for {options.models} models", file=sys.stderr)
    asyncio.run(run(player, arrivals))
    text = json.dumps(player.report(), indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
