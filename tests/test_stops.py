"""Whenever a command is killed, the same command finishes it, and nothing is left behind (`helpers/stops.py`).

Two stops of one command are tried by default, a few of others with `-m full`, and all with `-m long`, in 15 minutes.
"""

import numpy as np
import pytest

from tests.helpers import stops

COLUMNS = ["--member", "x", "--labels", "y", "--sample-weight", "w"]
INGEST = ["ingest", "a.npz", "d.zarr", *COLUMNS, "-q"]
APPEND = ["ingest", "b.npz", "d.zarr", *COLUMNS, "--append", "-q"]
FIT = ["fit", "d.zarr", "m.zarr", "--components", "3", "--size", "10", "--seed", "0", "-q"]
OTHER_FIT = ["fit", "d.zarr", "m2.zarr", "--components", "2", "--size", "10", "--seed", "0", "-q"]
TRANSFORM = ["transform", "m.zarr", "d.zarr", "s.zarr", "--block-rows", "32", "--residual", "-q"]
RECONSTRUCT = ["reconstruct", "m.zarr", "s.zarr", "x.zarr", "--block-rows", "32", "-q"]
DENOISE = ["denoise", "m.zarr", "d.zarr", "x.zarr", "--block-rows", "32", "-q"]
REPORT = ["report", "m.zarr", "r.html", "-q"]
RUN = ["run", "nightly.toml", "-q"]
JOB = """
[input]
path = "d.zarr"
[model]
path = "m.zarr"
n_components = 3
size = 10
[output]
path = "f.zarr"
block_rows = 32
"""
COMPARE = ["compare", "d.zarr", "c", "--methods", "rff", "--sizes", "8,10", "--seeds", "1", "--components", "2", "-q"]


def other(command, **changed):
    """The command with other values of options or arguments, by what stood there, over what it made before."""
    return [changed.get(word.strip("-").replace(".", "_"), word) for word in command] + ["--overwrite"]


# What is swept, after which commands, and what must be whole after every stop, or absent if it is to be replaced.
SWEEPS = {
    "ingest": (INGEST, [], ["d.zarr"]),
    "ingest, overwrite": ([*INGEST, "--dtype", "float32", "--overwrite"], [INGEST], ["d.zarr"]),
    "ingest, append": (APPEND, [INGEST], []),
    "fit": (FIT, [INGEST], ["d.zarr", "m.zarr"]),
    "fit, overwrite": ([*FIT, "--center", "--overwrite", "--sigma", "2"], [INGEST, FIT], ["m.zarr"]),
    "transform": (TRANSFORM, [INGEST, FIT], ["d.zarr", "m.zarr", "s.zarr"]),
    "transform, again": ([*TRANSFORM, "--overwrite"], [INGEST, FIT, TRANSFORM], ["m.zarr", "s.zarr"]),
    "transform, overwrite": (other(TRANSFORM, m_zarr="m2.zarr"), [INGEST, FIT, OTHER_FIT, TRANSFORM], ["s.zarr"]),
    "reconstruct": (RECONSTRUCT, [INGEST, FIT, TRANSFORM], ["s.zarr", "x.zarr"]),
    "reconstruct, overwrite": (
        other(RECONSTRUCT, s_zarr="s.zarr/scores"),
        [INGEST, FIT, TRANSFORM, DENOISE],
        ["x.zarr", "s.zarr"],
    ),
    "denoise": (DENOISE, [INGEST, FIT], ["m.zarr", "x.zarr"]),
    "denoise, overwrite": (other(DENOISE), [INGEST, FIT, TRANSFORM, RECONSTRUCT], ["x.zarr"]),
    "run": (RUN, [INGEST], ["d.zarr", "m.zarr"]),
    "run, append": (RUN, [INGEST, RUN, APPEND], ["d.zarr", "m.zarr"]),
    "report": (REPORT, [INGEST, FIT], ["m.zarr", "r.html"]),
    "report, overwrite": (other(REPORT, m_zarr="m2.zarr"), [INGEST, FIT, OTHER_FIT, REPORT], ["r.html"]),
    "compare": (COMPARE, [INGEST], ["d.zarr"]),
    "compare, overwrite": ([*COMPARE, "--sigma", "2", "--overwrite"], [INGEST, COMPARE], ["d.zarr"]),
}
# How many stops are tried of these with `-m full`.
FEW = {"fit, overwrite": 2, "transform, overwrite": 2, "reconstruct": 2, "run, append": 2}


TRIED = [("ingest, append", 2), *(pytest.param(name, most, marks=pytest.mark.full) for name, most in FEW.items())]
TRIED += [pytest.param(name, None, marks=[pytest.mark.long, pytest.mark.timeout(1600)]) for name in SWEEPS]


@pytest.mark.parametrize(("name", "most"), TRIED)
def test_a_killed_command_is_finished_by_the_same_command(name, most, tmp_path):
    command, before, kept = SWEEPS[name]
    here, rng = tmp_path / "here", np.random.default_rng(0)
    here.mkdir()
    for file, rows in (("a.npz", 90), ("b.npz", 40)):
        np.savez(here / file, x=rng.normal(size=(rows, 4)), y=rng.integers(0, 3, rows), w=rng.random(rows))
    (here / "nightly.toml").write_text(JOB)
    kind = name.partition(",")[0]
    timed = {"compare": [""], "run": ["runs.jsonl"]}.get(kind, [])
    found = stops.found_by(stops.swept, tmp_path, command=command, before=before, kept=kept, timed=timed, most=most)
    print(f"{name}: {found['stops']} stops")
    assert found["bad"] == []
    # Several threads of Zarr make the same folder or not, so that a run has a few steps more than another one.
    assert found["stops"] == most if most else found["stops"] >= 0.9 * found["steps"]
