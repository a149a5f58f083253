#!/usr/bin/env python3
"""Fits the parameters of arrivals.py to a trace, and says how good the fit is.

    tests/load/fit.py many_models.csv [--lengths llm_conversation.csv] [--compare]

Writes many_models.json (and lengths.json) beside itself; --compare writes nothing. Prints a table of
the trace beside generated arrivals of the same length.
"""

import argparse
import collections
import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from arrivals import FITTED, HERE, HOUR, LENGTHS, Arrival, Clock, Law, generate, read

CREDIT = "Alibaba clusterdata, cluster-trace-v2026-GenAI"
LENGTHS_CREDIT = (
    "Azure Public Dataset, LLM inference trace 2023, conversation "
    "(Patel et al., Splitwise, ISCA 2024), CC-BY"
)
DAY = 24 * HOUR
SESSION_GAP = 150.0  # seconds: a longer gap begins another session
ENOUGH = 20  # values for a law of a model's own; with fewer it has that of all such models
TAIL_FROM = 11  # rank from which popularity falls as a power
SEEDS = range(1, 6)


def log_normal(values: Sequence[float]) -> list[float]:
    """Of values in whole seconds: each stands for those from it to the next."""
    logs = [math.log(value + 0.5) for value in values]
    return [round(statistics.fmean(logs), 4), round(max(statistics.pstdev(logs), 0.05), 4)]


def weibull(gaps: Sequence[float]) -> list[float]:
    """Scale and shape, cut off at SESSION_GAP, that make the gaps, in whole seconds, most likely."""
    counts = collections.Counter(int(gap) for gap in gaps)
    best = (-math.inf, 1.0, 1.0)
    for scale in (10 * 1.05**i for i in range(80)):
        for shape in (0.4 * 1.04**i for i in range(42)):
            left = [
                math.exp(-((second / scale) ** shape)) for second in range(int(SESSION_GAP) + 2)
            ]
            total = 1 - left[-1]
            likelihood = sum(
                n * math.log(max(left[gap] - left[gap + 1], 1e-12) / total)
                for gap, n in counts.items()
            )
            best = max(best, (likelihood, scale, shape))
    return [round(best[1], 3), round(best[2], 3)]


def by_model(arrivals: Sequence[Arrival]) -> list[list[Arrival]]:
    models: dict[int, list[Arrival]] = collections.defaultdict(list)
    for arrival in arrivals:
        models[arrival.model].append(arrival)
    return [models[rank] for rank in sorted(models)]


def gaps_of(arrivals: Sequence[Arrival]) -> list[float]:
    return [b.seconds - a.seconds for a, b in zip(arrivals, arrivals[1:])]


def short_gaps(arrivals: Sequence[Arrival]) -> list[float]:
    return [gap for gap in gaps_of(arrivals) if gap <= SESSION_GAP]


def pause(arrivals: Sequence[Arrival], clock: Clock, days: int) -> float:
    """Between sessions, with the hours of the day made alike. What lies before the first session and
    after the last belongs to them: a rare model is not taken for one that is asked for at once."""
    idle = clock.even(days * DAY)
    sessions = 1
    for before, after in zip(arrivals, arrivals[1:]):
        if after.seconds - before.seconds > SESSION_GAP:
            sessions += 1
        else:
            idle -= clock.even(after.seconds) - clock.even(before.seconds)
    return round(idle / sessions, 1)


def hour_weights(arrivals: Sequence[Arrival], days: float) -> list[float]:
    counts = collections.Counter(int(a.seconds % DAY // HOUR) for a in arrivals)
    return [round(counts[hour] * 24 / len(arrivals), 4) for hour in range(24)]


def tail_exponent(counts: Sequence[int]) -> float:
    """By least squares over the logarithms of rank and count."""
    points = [(math.log(rank + 1), math.log(n)) for rank, n in enumerate(counts)][TAIL_FROM:]
    mean_x = statistics.fmean(x for x, _ in points)
    mean_y = statistics.fmean(y for _, y in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return round(-slope / sum((x - mean_x) ** 2 for x, _ in points), 3)


def fit(arrivals: Sequence[Arrival]) -> dict[str, object]:
    days = math.ceil(arrivals[-1].seconds / DAY)
    models = by_model(arrivals)
    rare_gaps = [gap for model in models[TAIL_FROM:] for gap in short_gaps(model)]
    rare_services = [a.service_seconds for model in models[TAIL_FROM:] for a in model]
    hours = hour_weights(arrivals, days)
    clock = Clock(tuple(hours), 0)
    rare_gap_law = weibull(rare_gaps)
    laws = []
    for model in models:
        short = short_gaps(model)
        services = [a.service_seconds for a in model]
        laws.append(
            {
                "per_day": len(model) / days,
                "pause_seconds": pause(model, clock, days),
                "session_end": round((len(model) - len(short)) / len(model), 4),
                "gap_weibull": weibull(short) if len(short) >= ENOUGH else rare_gap_law,
                "service_log": log_normal(services if len(services) >= ENOUGH else rare_services),
            }
        )
    return {
        "credit": CREDIT,
        "fitted_to": f"{len(arrivals)} requests for {len(models)} models in {days} days",
        "longest_gap_seconds": SESSION_GAP,
        "longest_service_seconds": max(a.service_seconds for a in arrivals),
        "tail_exponent": tail_exponent([len(model) for model in models]),
        "hours": hours,
        "models": laws,
    }


def fit_lengths(path: Path) -> dict[str, object]:
    rows = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    prompt = [int(row[1]) for row in rows]
    generated = [int(row[2]) for row in rows]
    steps = [i / 20 for i in range(21)]
    return {
        "credit": LENGTHS_CREDIT,
        "fitted_to": f"{len(rows)} requests",
        "correlation": round(statistics.correlation(prompt, generated), 3),
        "prompt_quantiles": [quantile(sorted(prompt), p) for p in steps],
        "generated_quantiles": [quantile(sorted(generated), p) for p in steps],
    }


# ---- comparison ----------------------------------------------------------------------------------


def quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def lru_hits(arrivals: Sequence[Arrival], size: int) -> float:
    cache: collections.OrderedDict[int, None] = collections.OrderedDict()
    hits = 0
    for arrival in arrivals:
        hits += arrival.model in cache
        cache[arrival.model] = None
        cache.move_to_end(arrival.model)
        if len(cache) > size:
            cache.popitem(last=False)
    return hits / len(arrivals)


def variation(values: Sequence[float]) -> float:
    return statistics.pstdev(values) / statistics.fmean(values)


Measure = Callable[[Sequence[Arrival]], float]


def share_of(rank: int) -> Measure:
    return lambda arrivals: 100 * sum(a.model == rank for a in arrivals) / len(arrivals)


def gap_quantile(share: float, rank: int | None = None) -> Measure:
    return lambda arrivals: quantile(sorted(gaps_of(only(arrivals, rank))), share)


def gap_variation(rank: int) -> Measure:
    return lambda arrivals: variation(gaps_of(only(arrivals, rank)))


def service_quantile(share: float) -> Measure:
    return lambda arrivals: quantile(sorted(a.service_seconds for a in arrivals), share)


def lru(size: int) -> Measure:
    return lambda arrivals: 100 * lru_hits(arrivals, size)


def only(arrivals: Sequence[Arrival], rank: int | None) -> list[Arrival]:
    return [a for a in arrivals if rank is None or a.model == rank]


def measures() -> dict[str, Measure]:
    table: dict[str, Measure] = {"requests": len}
    for rank in (0, 3, 10):
        table[f"share of rank {rank}, %"] = share_of(rank)
    table["models seen"] = lambda arrivals: len({a.model for a in arrivals})
    for share in (0.25, 0.5, 0.9, 0.99):
        table[f"gap of all, p{share * 100:.0f}, s"] = gap_quantile(share)
    for rank in (0, 2, 5, 10):
        for share in (0.25, 0.5, 0.9):
            table[f"gap of rank {rank}, p{share * 100:.0f}, s"] = gap_quantile(share, rank)
        table[f"gap of rank {rank}, variation"] = gap_variation(rank)
    for share in (0.5, 0.9, 0.99):
        table[f"service, p{share * 100:.0f}, s"] = service_quantile(share)
    for size in (4, 8, 16):
        table[f"LRU hits, {size} models, %"] = lru(size)
    return table


def shown_as(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def compare(arrivals: Sequence[Arrival]) -> str:
    seconds = math.ceil(arrivals[-1].seconds / DAY) * DAY
    law = Law.load()
    generated = [generate(law, seed, len(law.models), seconds) for seed in SEEDS]
    lines = [
        f"| | trace | generated, {len(generated)} seeds | lowest | highest |",
        "| --- | --: | --: | --: | --: |",
    ]
    for name, measure in measures().items():
        values = sorted(measure(each) for each in generated)
        shown = [measure(arrivals), statistics.median(values), values[0], values[-1]]
        lines.append(f"| {name} | " + " | ".join(map(shown_as, shown)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--lengths", type=Path, help="the trace of tokens")
    parser.add_argument("--compare", action="store_true", help="with what is fitted; write nothing")
    options = parser.parse_args()
    arrivals = read(options.trace)
    if not options.compare:
        store(FITTED, fit(arrivals))
        if options.lengths:
            store(LENGTHS, fit_lengths(options.lengths))
    print(compare(arrivals))


def store(path: Path, fitted: dict[str, object]) -> None:
    text = json.dumps(fitted, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
    print(f"wrote {path.relative_to(HERE.parents[1])}")


if __name__ == "__main__":
    main()
