#!/usr/bin/env python3
"""Arrivals of requests for many models, from a seed and fitted parameters, or from a trace file.

    tests/load/arrivals.py --seed 1 --models 73 --hours 24 --speed 60 > arrivals.csv

Each model is asked for in sessions: runs of requests with short gaps. After one the next begins at
random, the sooner the busier the hour of the day is. So a model's gaps are of two kinds, as in the
trace that the parameters were fitted to: many short ones and a few long ones.

The same seed and options give the same bytes on every machine with this Python.
"""

import argparse
import bisect
import csv
import itertools
import json
import math
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

HERE = Path(__file__).resolve().parent
FITTED = HERE / "many_models.json"
LENGTHS = HERE / "lengths.json"
HEADER = "seconds,model,service_seconds"
HOUR = 3600.0


@dataclass(frozen=True, order=True)
class Arrival:
    seconds: float
    model: int  # rank: 0 is the most used
    service_seconds: float


@dataclass(frozen=True)
class LogNormal:
    mu: float
    sigma: float

    def sample(self, chance: random.Random) -> float:
        return math.exp(chance.gauss(self.mu, self.sigma))


@dataclass(frozen=True)
class Weibull:
    scale: float
    shape: float

    def sample(self, chance: random.Random) -> float:
        return chance.weibullvariate(self.scale, self.shape)


@dataclass(frozen=True)
class ModelLaw:
    per_day: float  # requests
    session_end: float  # probability that a request is the last of its session
    pause: float  # seconds between sessions, on average, if all hours were alike
    gap: Weibull  # seconds between requests of a session
    longest_gap: float  # a longer one would be the end of the session
    service: LogNormal
    longest_service: float


@dataclass(frozen=True)
class Law:
    """What fit.py found; load() reads it."""

    models: tuple[ModelLaw, ...]
    hours: tuple[float, ...]  # weight of each hour of the day, 1 on average
    tail_exponent: float  # popularity falls as rank to this power where there are no more models

    @staticmethod
    def load(path: Path = FITTED) -> "Law":
        fitted = json.loads(path.read_text(encoding="utf-8"))
        models = tuple(
            ModelLaw(
                per_day=model["per_day"],
                session_end=model["session_end"],
                pause=model["pause_seconds"],
                gap=Weibull(*model["gap_weibull"]),
                longest_gap=fitted["longest_gap_seconds"],
                service=LogNormal(*model["service_log"]),
                longest_service=fitted["longest_service_seconds"],
            )
            for model in fitted["models"]
        )
        return Law(models, tuple(fitted["hours"]), fitted["tail_exponent"])

    def of_rank(self, rank: int) -> ModelLaw:
        """Beyond the last model that was seen: as that one, and rarer."""
        if rank < len(self.models):
            return self.models[rank]
        last = self.models[-1]
        share = ((rank + 1) / len(self.models)) ** -self.tail_exponent
        return replace(last, per_day=last.per_day * share, pause=last.pause / share)


class Clock:
    """Turns time in which all hours are equal into time of the day, from `start_hour` on."""

    def __init__(self, hours: tuple[float, ...], start_hour: int) -> None:
        self._weights = hours[start_hour:] + hours[:start_hour]
        self._ends = list(itertools.accumulate(self._weights))

    def real(self, even: float) -> float:
        days, rest = divmod(even / HOUR, self._ends[-1])
        hour = min(bisect.bisect_right(self._ends, rest), len(self._ends) - 1)
        into = (rest - (self._ends[hour] - self._weights[hour])) / max(self._weights[hour], 1e-9)
        return (days * 24 + hour + min(into, 1.0)) * HOUR

    def even(self, real: float) -> float:
        days, rest = divmod(real / HOUR, 24)
        hour = int(rest)
        before = self._ends[hour] - self._weights[hour]
        return (days * self._ends[-1] + before + (rest - hour) * self._weights[hour]) * HOUR


def generate(
    law: Law,
    seed: int,
    models: int,
    seconds: float,
    rate: float | None = None,
    start_hour: int = 0,
    flat: bool = False,
) -> list[Arrival]:
    """In order of time. `rate` is requests per hour, on average over a day; None: as fitted. Another
    rate means more or fewer users: sessions of the same kind, side by side."""
    chosen = [law.of_rank(rank) for rank in range(models)]
    factor = 1.0 if rate is None else rate * 24 / sum(model.per_day for model in chosen)
    clock = Clock((1.0,) * 24 if flat else law.hours, start_hour)
    arrivals: list[Arrival] = []
    for group in range(math.ceil(factor)):
        part = min(factor - group, 1.0)
        for rank, model in enumerate(chosen):
            # A stream of its own: more models change nothing of these.
            chance = random.Random(f"{seed}/{group}/{rank}")
            for moment in requests(model, seconds, part, clock, chance):
                service = min(model.service.sample(chance), model.longest_service)
                arrivals.append(Arrival(round(moment, 3), rank, round(service, 3)))
    return sorted(arrivals)


def requests(
    model: ModelLaw, seconds: float, part: float, clock: Clock, chance: random.Random
) -> Iterator[float]:
    """Of one group of users, and of its sessions only a part."""
    moment = 0.0
    while True:
        pause = chance.expovariate(1 / model.pause)
        moment = clock.real(clock.even(moment) + pause)
        if moment >= seconds:
            return
        wanted = chance.random() < part
        for moment in session(model, moment, chance):
            if wanted and moment < seconds:
                yield moment


def session(model: ModelLaw, begin: float, chance: random.Random) -> Iterator[float]:
    moment = begin
    while True:
        yield moment
        if chance.random() < model.session_end:
            return
        gap = model.gap.sample(chance)
        while gap > model.longest_gap:
            gap = model.gap.sample(chance)
        moment += gap


def compressed(arrivals: Iterable[Arrival], speed: float) -> list[Arrival]:
    """`speed` times as close together; what a request costs stays."""
    return [Arrival(round(a.seconds / speed, 3), a.model, a.service_seconds) for a in arrivals]


def read(path: Path) -> list[Arrival]:
    """A file of generated arrivals or a trace: three columns, a line of names first."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        next(rows)
        return sorted(Arrival(float(row[0]), int(row[1]), float(row[2])) for row in rows)


def write(arrivals: Iterable[Arrival], file: TextIO) -> None:
    print(HEADER, file=file)
    for arrival in arrivals:
        print(f"{arrival.seconds:.3f},{arrival.model},{arrival.service_seconds:.3f}", file=file)


class Lengths:
    """Prompt and generated tokens of a conversation's turns."""

    def __init__(self, path: Path = LENGTHS) -> None:
        fitted = json.loads(path.read_text(encoding="utf-8"))
        self._prompt: list[float] = fitted["prompt_quantiles"]
        self._generated: list[float] = fitted["generated_quantiles"]

    def sample(self, chance: random.Random) -> tuple[int, int]:
        return self._at(self._prompt, chance), self._at(self._generated, chance)

    @staticmethod
    def _at(quantiles: list[float], chance: random.Random) -> int:
        place = chance.random() * (len(quantiles) - 1)
        low = int(place)
        return round(quantiles[low] + (place - low) * (quantiles[low + 1] - quantiles[low]))


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the generator and the player both take."""
    parser.add_argument(
        "--trace", type=Path, help="arrivals of this file instead of generated ones"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--models", type=int, default=73, help="how many; ranks beyond are left out"
    )
    parser.add_argument("--hours", type=float, default=24, help="before compression (default 24)")
    parser.add_argument("--rate", type=float, help="requests per hour, on average over a day")
    parser.add_argument("--speed", type=float, default=1, help="time compression (default 1)")
    parser.add_argument("--start-hour", type=int, default=0, choices=range(24), metavar="0..23")
    parser.add_argument("--flat", action="store_true", help="all hours of the day alike")


def from_options(options: argparse.Namespace) -> list[Arrival]:
    if options.trace:
        end = options.hours * HOUR
        arrivals = [a for a in read(options.trace) if a.model < options.models and a.seconds < end]
    else:
        arrivals = generate(
            Law.load(),
            options.seed,
            options.models,
            options.hours * HOUR,
            options.rate,
            options.start_hour,
            options.flat,
        )
    return compressed(arrivals, options.speed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_options(parser)
    write(from_options(parser.parse_args()), sys.stdout)


if __name__ == "__main__":
    main()
