# A thin face on tools/: every line here can be typed by hand.

.PHONY: setup build test demo check fuzz soak bench format clean

setup:
	tools/setup

build: setup
	cmake --preset release
	cmake --build --preset release

test: setup
	tools/check

# CHECK=1 make demo: ends after the table, with status 1 when an answer is wrong.
demo: setup
	tools/demo

check:
	tools/check

# FUZZ_SECONDS=3600 make fuzz
fuzz: setup
	FUZZ_SECONDS=$${FUZZ_SECONDS:-600} tools/check --here --only fuzz

# 500 requests over the real models, or HOURS=2 make soak
soak: build
	tests/clients/run --only test_mix --requests 500 --hours $${HOURS:-0}

bench:
	tools/setup --bench
	benchmarks/gateway/run

format:
	git ls-files '*.h' '*.cpp' | xargs clang-format-19 -i
	.cache/tools/python/bin/black --quiet $$(git ls-files '*.py'; git grep -lE '^#!/usr/bin/env python3')

clean:
	rm -rf build .omni
