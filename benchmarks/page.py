"""The page of the benchmarks, and what a reader has to know of the machine behind it."""

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import scipy.linalg  # noqa: F401  with NumPy it loads the BLAS that threadpoolctl asks
from threadpoolctl import threadpool_info

from benchmarks.results import markdown_rows
from benchmarks.suite import Outcome

_INTRODUCTION = """# Benchmarks

`python -m benchmarks` runs all benchmarks on this page in half an hour, and `python -m benchmarks peers exact` only
those of two sections.

Seconds are medians. Compared programs run in turn, A B C A B C ..., and ratios are medians of the ratios of
neighbouring runs, since the speed of a machine drifts. "Least to most" is their range. Peak memory is the resident
memory of a separate process. Other programs kept at most {others:.2f} cores busy."""
_TOY = "**At toy size (`--quick`): these figures say nothing about speed.**"
_LIBRARIES = ("numpy", "scipy", "zarr", "dask", "scikit-learn", "bigkpca")
_CHANGES = ("commit", "date", "memory")  # parts of the description of one machine that differ between runs


def described() -> dict[str, str]:
    """The machine, the libraries and the commit."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    loaded = (each for each in threadpool_info() if each["user_api"] == "blas")
    blas = {f"{each['internal_api']} {each['version']}, for {each.get('architecture', 'any')}" for each in loaded}
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory / 1e9:.0f} GB",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": platform.python_version(),
        "libraries": ", ".join(f"{library} {version(library)}" for library in _LIBRARIES),
        "BLAS": "; ".join(sorted(blas)),
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def same_machine(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether figures of two machines can stand on one page."""
    return all(one.get(key) == other.get(key) for key in {*one, *other} - {*_CHANGES})


def entry(outcome: Outcome, asked: Mapping[str, int], commit: str) -> dict[str, Any]:
    """What the page shows of one benchmark: its command, what else ran, its section, and the lines of its targets."""
    words = [outcome.name, *(f"--{name} {value}" for name, value in asked.items())]
    section, targets = [(import_module(f"benchmarks.{outcome.name}").__doc__ or "").strip()], []
    if outcome.results is None:
        section.append(f"It failed: `{outcome.error}`")
    else:
        section += [table.markdown() for table in outcome.results.tables]
        targets = [target.cells() for target in outcome.results.targets]
    return {
        "ran": f"`python -m benchmarks {' '.join(words)}`, {outcome.seconds:.0f} s.",
        "others": outcome.others,
        "commit": commit,
        "section": section,
        "targets": targets,
    }


def markdown(machine: Mapping[str, str], entries: Mapping[str, Any], names: Iterable[str], *, toy: bool) -> str:
    """The page: how to read it, the machine, the targets, and a section for each benchmark in the order of names, with
    its commit if that is not the one of the machine."""
    shown = {name: entries[name] for name in names if name in entries}
    parts = [_INTRODUCTION.format(others=max(each["others"] for each in shown.values())), *([_TOY] if toy else [])]
    parts += ["## Machine", markdown_rows(("", ""), *machine.items())]
    targets = [line for each in shown.values() for line in each["targets"]]
    if targets:
        parts += ["## Targets", markdown_rows(("what", "target", "measured", "reached"), *targets)]
    for name, each in shown.items():
        commit = "" if each["commit"] == machine["commit"] else f" Commit {each['commit'][:10]}."
        parts += [f"## {name}", each["ran"] + commit, *each["section"]]
    return "\n\n".join(parts) + "\n"


def _processor() -> str:
    """The model of the processor, as the system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str:
    """The commit of the code, and whether it has changed since."""
    root = Path(__file__).resolve().parents[1]
    try:
        commit, changes = (
            subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain"))
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + (" + changes" if changes else "")
