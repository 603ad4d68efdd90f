"""Runs the benchmarks about speed, memory and accuracy, or those that are named, and writes their tables and targets as
a page.

All of them at full size take half an hour on two cores, and need the machine for themselves.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.page import described, entry, markdown, same_machine
from benchmarks.suite import CENTRAL, FURTHER, outcome


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 if a benchmark failed."""
    known = {each.name: each for each in (*CENTRAL, *FURTHER)}
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these, of {', '.join(known)}")
    parser.add_argument("--all", action="store_true", help=f"also {', '.join(each.name for each in FURTHER)}")
    parser.add_argument("--quick", action="store_true", help="at toy size")
    parser.add_argument("--rows", type=int, help="rows, where a benchmark can have others than its own")
    parser.add_argument("--size", type=int, help="landmarks or random features, where it can have others")
    parser.add_argument("--repeats", type=int, help="runs or seeds, where there are several")
    parser.add_argument("--folder", type=Path, default=Path("build") / "benchmarks", help="where results and data are")
    given = parser.parse_args(argv)
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"no benchmark {', '.join(unknown)}: there are {', '.join(known)}")
    chosen = [known[name] for name in given.names] or [*CENTRAL, *(FURTHER if given.all else ())]
    given.folder.mkdir(parents=True, exist_ok=True)
    figures, machine = given.folder / "benchmarks.json", described()
    found: dict[str, Any] = {"toy": given.quick, "machine": machine, "benchmarks": {}}
    if given.names and figures.exists():
        kept = json.loads(figures.read_text(encoding="utf-8"))
        if kept["toy"] != given.quick or not same_machine(kept["machine"], machine):
            parser.error(
                f"{figures} holds figures of another machine, of other libraries, or of toy size: "
                "remove it, or choose another folder with --folder"
            )
        found["benchmarks"] = kept["benchmarks"]
    failed = []
    asked = {name: getattr(given, name) for name in ("rows", "size", "repeats") if getattr(given, name) is not None}
    for each in chosen:
        came = outcome(each.name, {**(each.toy if given.quick else {}), **asked, "folder": given.folder})
        failed += [each.name] if came.error else []
        found["benchmarks"][each.name] = entry(came, asked, machine["commit"])
        # Written after each, so that nothing is lost when the command is stopped.
        page = markdown(machine, found["benchmarks"], known, toy=given.quick)
        (given.folder / "benchmarks.md").write_text(page, encoding="utf-8")
        figures.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"\n{given.folder / 'benchmarks.md'}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
