"""The outcomes of benchmarks as a Markdown page and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

from benchmarks.results import Measured, Results, Table, Target, as_cell, markdown_rows
from benchmarks.suite import Outcome

_INTRODUCTION = """# Benchmarks

`python -m benchmarks` runs all benchmarks on this page and writes it to `build/benchmarks/benchmarks.md`, in about two
hours. `python -m benchmarks peers exact` reruns only those, and keeps the figures of the others; `--quick` runs all at
toy size, to check that they work.

Seconds are medians. Compared programs run in turn, A B C A B C ..., and ratios are medians of the ratios of
neighbouring runs, since the speed of a machine drifts; "least to most" is their range. Each benchmark states how many
cores other programs kept busy meanwhile. Peak memory is the resident memory of a separate process. Data are MNIST,
USPS, covertype and the digits of scikit-learn. `benchmarks.json`, beside the page, contains the same figures."""
_CHANGES = ("commit", "date", "memory")  # of the machine's description, from one run to the next
_TOY = """**At toy size (`--quick`): these figures say nothing about speed.**"""


def markdown(machine: Mapping[str, str], outcomes: Sequence[Outcome], *, toy: bool) -> str:
    """The page: how to read it, the machine, the targets, and every table."""
    measured = [each for outcome in outcomes if outcome.results for each in outcome.results.measured]
    parts = [_INTRODUCTION, *([_TOY] if toy else []), "## Machine", markdown_rows(("", ""), *machine.items())]
    if measured:
        parts += ["## Targets", markdown_rows(("what", "target", "measured", "reached"), *map(_target, measured))]
    for outcome in outcomes:
        parts += _section(outcome)
    return "\n\n".join(parts) + "\n"


def as_json(machine: Mapping[str, str], outcomes: Sequence[Outcome], *, toy: bool) -> str:
    """The same as JSON."""
    found = {"machine": dict(machine), "toy": toy, "benchmarks": [_plain(outcome) for outcome in outcomes]}
    return json.dumps(found, indent=1, default=lambda value: value.item()) + "\n"  # NumPy's numbers


def earlier(text: str, machine: Mapping[str, str], *, toy: bool) -> list[Outcome]:
    """The outcomes in a file of JSON of the same machine, with the commit that each is of.

    Raises ValueError where they are of another machine or size, beside which new figures would mislead.
    """
    found = json.loads(text)
    own = {key: value for key, value in machine.items() if key not in _CHANGES}
    if found["toy"] != toy or any(found["machine"].get(key) != value for key, value in own.items()):
        raise ValueError("it holds figures of another machine, of other libraries, or of toy size")
    return [_outcome(each, found["machine"]["commit"]) for each in found["benchmarks"]]


def _outcome(found: Mapping[str, Any], commit: str) -> Outcome:
    """An outcome from its JSON; `commit` is that of the page."""
    results = found["results"] and Results(
        tuple(Table(each["title"], each["header"], each["rows"]) for each in found["results"]["tables"]),
        tuple(Measured(Target(**each["target"]), each["value"]) for each in found["results"]["measured"]),
    )
    commit = found.get("commit") or commit
    return Outcome(found["name"], found["seconds"], results, found["error"], commit, found.get("others"))


def _plain(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON takes it, with whether targets are reached."""
    found = asdict(outcome)
    if outcome.results:
        found["results"]["measured"] = [{**asdict(each), "reached": each.reached} for each in outcome.results.measured]
    return found


def _section(outcome: Outcome) -> list[str]:
    about = (import_module(f"benchmarks.{outcome.name}").__doc__ or "").strip()
    commit = f" At commit {outcome.commit[:10]}." if outcome.commit else ""
    others = "" if outcome.others is None else f", other programs kept {outcome.others:.2f} cores busy"
    run = f"`python -m benchmarks.{outcome.name}`, {outcome.seconds:.0f} s{others}.{commit}"
    parts = [f"## {outcome.name}", run, about]
    if outcome.results is None:
        return [*parts, f"It failed: `{outcome.error}`"]
    return [*parts, *(table.markdown() for table in outcome.results.tables)]


def _target(each: Measured) -> tuple[str, ...]:
    bound = f"{'at most' if each.target.better == 'less' else 'at least'} {each.target.bound:g} {each.target.unit}"
    value = "none" if each.value is None else f"{as_cell(each.value)} {each.target.unit}"
    return each.target.what, bound, value, "yes" if each.reached else "no"
