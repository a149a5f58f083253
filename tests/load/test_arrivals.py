import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import fit
from arrivals import (
    HERE,
    HOUR,
    Arrival,
    Clock,
    Law,
    Lengths,
    compressed,
    generate,
    random,
    read,
    write,
)


def text(arrivals):
    file = io.StringIO()
    write(arrivals, file)
    return file.getvalue()


class Generator(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.law = Law.load()
        cls.days = generate(cls.law, 1, 73, 5 * 24 * HOUR)

    def test_the_same_seed_gives_the_same_bytes(self):
        again = generate(self.law, 1, 73, 5 * 24 * HOUR)
        self.assertEqual(text(self.days), text(again))

    def test_another_seed_gives_others(self):
        self.assertNotEqual(text(self.days), text(generate(self.law, 2, 73, 5 * 24 * HOUR)))

    def test_arrivals_are_in_order_and_within_the_time(self):
        times = [arrival.seconds for arrival in self.days]
        self.assertEqual(times, sorted(times))
        self.assertGreaterEqual(times[0], 0)
        self.assertLess(times[-1], 5 * 24 * HOUR)

    def test_as_many_as_in_the_trace(self):
        self.assertAlmostEqual(len(self.days), 10534, delta=1000)

    def test_rank_is_popularity(self):
        counts = [sum(a.model == rank for a in self.days) for rank in (0, 3, 10)]
        self.assertEqual(counts, sorted(counts, reverse=True))
        self.assertAlmostEqual(counts[0] / len(self.days), 0.31, delta=0.05)

    def test_locality_is_that_of_the_trace(self):
        self.assertAlmostEqual(fit.lru_hits(self.days, 8), 0.865, delta=0.03)

    def test_nobody_is_there_at_night(self):
        hours = [int(a.seconds % (24 * HOUR) // HOUR) for a in self.days]
        self.assertLess(sum(10 <= hour < 15 for hour in hours), len(hours) // 50)
        flat = generate(self.law, 1, 73, 5 * 24 * HOUR, flat=True)
        night = sum(10 <= a.seconds % (24 * HOUR) / HOUR < 15 for a in flat)
        self.assertGreater(night, len(flat) // 8)

    def test_the_rate_is_what_is_asked_for(self):
        for rate in (20, 250):
            day = generate(self.law, 1, 73, 5 * 24 * HOUR, rate=rate)
            self.assertAlmostEqual(len(day) / (5 * 24) / rate, 1, delta=0.2)

    def test_more_models_change_nothing_of_the_first(self):
        few = generate(self.law, 1, 5, 24 * HOUR)
        many = generate(self.law, 1, 73, 24 * HOUR)
        self.assertEqual(few, [a for a in many if a.model < 5])

    def test_ranks_beyond_the_trace_are_rarer_still(self):
        self.assertLess(self.law.of_rank(500).per_day, self.law.of_rank(100).per_day)
        self.assertLess(self.law.of_rank(100).per_day, self.law.of_rank(72).per_day)

    def test_compression_leaves_service_times(self):
        twice = compressed(self.days[:10], 2)
        self.assertEqual(twice[9].service_seconds, self.days[9].service_seconds)
        self.assertAlmostEqual(twice[9].seconds, self.days[9].seconds / 2, places=2)

    def test_what_is_written_is_read_as_a_trace_is(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "arrivals.csv"
            path.write_text(text(self.days), encoding="utf-8")
            self.assertEqual(read(path), self.days)
            path.write_text("seconds,model,run_seconds\n12,1,30\n3,0,7\n", encoding="utf-8")
            self.assertEqual(read(path), [Arrival(3, 0, 7), Arrival(12, 1, 30)])

    def test_the_command_prints_the_same(self):
        command = [sys.executable, HERE / "arrivals.py", "--hours", "120"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self.assertEqual(shown, text(self.days))


class Fit(unittest.TestCase):
    def test_finds_the_law_that_made_the_arrivals(self):
        law = Law.load()
        found = fit.fit(generate(law, 3, 73, 20 * 24 * HOUR))
        first, known = found["models"][0], law.models[0]
        self.assertAlmostEqual(first["per_day"] / known.per_day, 1, delta=0.15)
        self.assertAlmostEqual(first["gap_weibull"][0] / known.gap.scale, 1, delta=0.15)
        self.assertAlmostEqual(first["service_log"][0], known.service.mu, delta=0.1)

    def test_the_clock_goes_both_ways(self):
        clock = Clock(Law.load().hours, 5)
        for even in (0.0, 1800.0, 50000.0, 300000.0):
            self.assertAlmostEqual(clock.even(clock.real(even)), even, places=3)


class TokenLengths(unittest.TestCase):
    def test_are_within_what_was_seen_and_mostly_short(self):
        chance = random.Random(1)
        drawn = [Lengths().sample(chance) for _ in range(2000)]
        prompts = sorted(prompt for prompt, _ in drawn)
        self.assertGreaterEqual(prompts[0], 1)
        self.assertLessEqual(prompts[-1], 14050)
        self.assertAlmostEqual(prompts[1000], 1042, delta=60)


if __name__ == "__main__":
    unittest.main()
