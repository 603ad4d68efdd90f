"""Whenever a command is killed, the same command finishes it, and nothing is left behind (`stops.py`).

By default some of the stops of each command are tried; `-m slow` tries all, of which `docs/reliability.md` has the
number.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stops

INGEST = ["ingest", "a.npz", "d.zarr", "--member", "x", "--labels", "y", "--block-rows", "32", "-q"]
APPEND = ["ingest", "b.npz", "d.zarr", "--member", "x", "--labels", "y", "--append", "-q"]
FIT = ["fit", "d.zarr", "m.zarr", "--components", "3", "--size", "10", "--seed", "0", "-q"]
OTHER_FIT = ["fit", "d.zarr", "m2.zarr", "--components", "2", "--size", "10", "--seed", "0", "-q"]
TRANSFORM = ["transform", "m.zarr", "d.zarr", "s.zarr", "--block-rows", "32", "--residual", "-q"]
RECONSTRUCT = ["reconstruct", "m.zarr", "s.zarr", "x.zarr", "--block-rows", "32", "-q"]
DENOISE = ["denoise", "m.zarr", "d.zarr", "x.zarr", "--block-rows", "32", "-q"]
REPORT = ["report", "m.zarr", "r.html", "-q"]
COMPARE = ["compare", "d.zarr", "c", "--methods", "rff", "--sizes", "8,10", "--seeds", "1", "--components", "2", "-q"]


def other(command: list[str], **changed: str) -> list[str]:
    """The command with other values of options or arguments, by what stood there, over what it made before."""
    return [changed.get(word.strip("-").replace(".", "_"), word) for word in command] + ["--overwrite"]


# What is swept, after which commands, what must be whole after every stop, and of how many stops one is tried.
SWEEPS: dict[str, tuple[list[str], list[list[str]], list[str], int]] = {
    "ingest": (INGEST, [], ["d.zarr"], 9),
    "ingest, overwrite": ([*INGEST, "--dtype", "float32", "--overwrite"], [INGEST], ["d.zarr"], 11),
    "ingest, append": (APPEND, [INGEST], [], 7),
    "fit": (FIT, [INGEST], ["d.zarr", "m.zarr"], 47),
    "fit, overwrite": ([*FIT, "--center", "--overwrite", "--sigma", "2"], [INGEST, FIT], ["m.zarr"], 53),
    "transform": (TRANSFORM, [INGEST, FIT], ["d.zarr", "m.zarr"], 9),
    "transform, overwrite": (other(TRANSFORM, m_zarr="m2.zarr"), [INGEST, FIT, OTHER_FIT, TRANSFORM], ["s.zarr"], 9),
    "reconstruct": (RECONSTRUCT, [INGEST, FIT, TRANSFORM], ["s.zarr"], 13),
    "reconstruct, overwrite": (
        other(RECONSTRUCT, s_zarr="s.zarr/scores"),
        [INGEST, FIT, TRANSFORM, DENOISE],
        ["x.zarr", "s.zarr"],
        17,
    ),
    "denoise": (DENOISE, [INGEST, FIT], ["m.zarr"], 16),
    "denoise, overwrite": (other(DENOISE), [INGEST, FIT, TRANSFORM, RECONSTRUCT], ["x.zarr"], 19),
    "report": (REPORT, [INGEST, FIT], ["m.zarr", "r.html"], 4),
    "report, overwrite": (
        ["report", "m2.zarr", "r.html", "--overwrite", "-q"],
        [INGEST, FIT, OTHER_FIT, REPORT],
        ["r.html"],
        4,
    ),
    "compare": (COMPARE, [INGEST], ["d.zarr"], 15),
    "compare, overwrite": ([*COMPARE, "--sigma", "2", "--overwrite"], [INGEST, COMPARE], ["d.zarr"], 17),
}


def swept(name: str, folder: Path, every: int) -> dict[str, Any]:
    command, before, kept, _ = SWEEPS[name]
    here, rng = folder / "here", np.random.default_rng(0)
    here.mkdir()
    for file, rows in (("a.npz", 90), ("b.npz", 40)):
        np.savez(here / file, x=rng.normal(size=(rows, 4)), y=rng.integers(0, 3, rows))
    sweep = {"command": command, "before": before, "kept": kept, "bytes": "compare" not in name, "every": every}
    run = [sys.executable, stops.__file__, str(folder)]
    done = subprocess.run(run, input=json.dumps(sweep), capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", SWEEPS)
def test_a_killed_command_is_finished_by_the_same_command(name: str, tmp_path: Path) -> None:
    found = swept(name, tmp_path, every=SWEEPS[name][-1])
    assert found["stops"] >= 2
    assert found["bad"] == []


@pytest.mark.slow
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("name", SWEEPS)
def test_every_stop_of_a_command_can_be_gone_on_from(name: str, tmp_path: Path) -> None:
    found = swept(name, tmp_path, every=1)
    print(f"{name}: {found['stops']} stops")
    assert found["stops"] >= found["steps"] - 3  # threads may share a few otherwise
    assert found["bad"] == []
