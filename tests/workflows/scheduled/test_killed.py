"""Seven nights of a job that are killed at random moments end in the bytes of seven that nobody disturbed."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.helpers import stops
from tests.helpers.nights import JOB, some_rows

NIGHTS = (90, 6, 1, 195, 32, 40, 64)  # rows that arrive; blocks have 32


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2))]
SEEDS += [pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 20)]


@pytest.mark.parametrize("seed", SEEDS)
def test_seven_nights_that_are_killed_at_random_moments(seed, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    (here / "nightly.toml").write_text(JOB + 'metrics = "m.prom"\n')
    for number, rows in enumerate(NIGHTS):
        np.save(here / f"{number}.npy", some_rows(rows, number))
    arrivals = [["ingest", f"{number}.npy", "rows.zarr", "--append", "-q"] for number in range(len(NIGHTS))]
    arrivals[0][3:4] = ["--block-rows", "16"]
    given = {"arrivals": arrivals, "command": ["run", "nightly.toml", "-q"], "growing": "rows.zarr", "seed": seed}
    command = [sys.executable, stops.__file__, str(tmp_path), "nights"]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(f"{found['kills']} kills")
    assert found["bad"] == []
    assert found["kills"] >= len(NIGHTS)
