"""Counts of problems over many cases: `python -m tests.helpers.adversarial --cases 5000 --seed 0 --jobs 2`."""

from __future__ import annotations

import argparse
import multiprocessing

from tests.helpers.adversarial.cases import case
from tests.helpers.adversarial.outcomes import outcome, total


def main() -> None:
    parser = argparse.ArgumentParser(description="Fits of hard data, held against the truth.")
    for name, default in (("--cases", 300), ("--seed", 0), ("--jobs", 1)):
        parser.add_argument(name, type=int, default=default)
    chosen = parser.parse_args()
    seeds = range(chosen.seed, chosen.seed + chosen.cases)
    with multiprocessing.Pool(chosen.jobs) as pool:
        outcomes = pool.map(outcome, map(case, seeds), chunksize=5)
    print("\n".join(f"{name:32} {count}" for name, count in total(outcomes).items()))
    for seed, each in [pair for pair in zip(seeds, outcomes, strict=True) if pair[1].problems][:30]:
        print(f"{': '.join(each.problems[0])[:120]} ({len(each.problems)} in all): {case(seed)!r}")


if __name__ == "__main__":
    main()
