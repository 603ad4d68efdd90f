"""Runs the benchmarks about speed, memory and accuracy, and writes their tables and targets as Markdown and JSON.

All of them at full size take about two hours on two cores, and want the machine for themselves.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import described
from benchmarks.page import as_json, markdown
from benchmarks.suite import CENTRAL, FURTHER, Outcome, outcomes


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 if a benchmark failed."""
    known = {each.name: each for each in (*CENTRAL, *FURTHER)}
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these, of {', '.join(known)}")
    parser.add_argument("--all", action="store_true", help=f"also {', '.join(each.name for each in FURTHER)}")
    parser.add_argument("--quick", action="store_true", help="at toy size")
    parser.add_argument("--out", type=Path, default=Path("build") / "benchmarks", help="folder of results and data")
    given = parser.parse_args(argv)
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"no benchmark {', '.join(unknown)}: there are {', '.join(known)}")
    chosen = [known[name] for name in given.names] or [*CENTRAL, *(FURTHER if given.all else ())]
    given.out.mkdir(parents=True, exist_ok=True)
    machine, finished = described(), list[Outcome]()
    for outcome in outcomes(chosen, lambda each: [*(each.toy if given.quick else ()), "--folder", str(given.out)]):
        finished.append(outcome)  # written at once, so that what ends the command loses nothing
        (given.out / "benchmarks.md").write_text(markdown(machine, finished, toy=given.quick), encoding="utf-8")
        (given.out / "benchmarks.json").write_text(as_json(machine, finished, toy=given.quick), encoding="utf-8")
    failed = [outcome.name for outcome in finished if outcome.error]
    print(f"\n{given.out / 'benchmarks.md'}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
