"""Runs the benchmarks about speed, memory and accuracy, and writes their tables and targets as Markdown and JSON.

All of them at full size take about two hours on two cores, and want the machine for themselves.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.machine import described
from benchmarks.page import as_json, earlier, markdown
from benchmarks.suite import CENTRAL, FURTHER, Outcome, outcomes


def in_order(names: Iterable[str], ran: Sequence[Outcome], kept: Sequence[Outcome]) -> list[Outcome]:
    """What ran, and in place of what did not what is kept, in the order of the names."""
    found = {outcome.name: outcome for outcome in (*kept, *ran)}
    return [found[name] for name in names if name in found]


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
    machine, kept, ran = described(), list[Outcome](), list[Outcome]()
    figures = given.out / "benchmarks.json"
    if given.names and figures.exists():
        try:
            kept = earlier(figures.read_text(encoding="utf-8"), machine, toy=given.quick)
        except ValueError as error:
            parser.error(f"{figures}: {error}: remove it, or choose another folder with --out")
    for outcome in outcomes(chosen, lambda each: [*(each.toy if given.quick else ()), "--folder", str(given.out)]):
        ran.append(outcome)  # written at once, so that what ends the command loses nothing
        finished = in_order(known, ran, kept)
        (given.out / "benchmarks.md").write_text(markdown(machine, finished, toy=given.quick), encoding="utf-8")
        (given.out / "benchmarks.json").write_text(as_json(machine, finished, toy=given.quick), encoding="utf-8")
    failed = [outcome.name for outcome in ran if outcome.error]
    print(f"\n{given.out / 'benchmarks.md'}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
