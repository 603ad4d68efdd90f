"""Nights of a job that are killed at random moments end in the bytes of nights that nobody disturbed."""

from pathlib import Path

import numpy as np
import pytest

import bigkpca
from bigkpca.spec.job import read_job
from bigkpca.storage import output
from bigkpca.workflows.scheduled.finding import look
from tests.helpers import stops
from tests.helpers.nights import JOB, Night, some_rows

NIGHTS = (90, 6, 1, 195, 32, 40, 64)  # rows that arrive; blocks have 32
SEEDS = [(3, 0), pytest.param(7, 1, marks=pytest.mark.full)]
SEEDS += [pytest.param(7, seed, marks=pytest.mark.long) for seed in range(2, 20)]


@pytest.mark.parametrize(("nights", "seed"), SEEDS)
def test_nights_that_are_killed_at_random_moments(nights, seed, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    (here / "nightly.toml").write_text(JOB + 'metrics = "m.prom"\n')
    for number, rows in enumerate(NIGHTS[:nights]):
        np.save(here / f"{number}.npy", some_rows(rows, number))
    arrivals = [["ingest", f"{number}.npy", "rows.zarr", "--append", "-q"] for number in range(nights)]
    arrivals[0].remove("--append")
    given = {"arrivals": arrivals, "command": ["run", "nightly.toml", "-q"], "growing": "rows.zarr", "seed": seed}
    found = stops.found_by(stops.disturbed_nights, tmp_path, **given)
    print(f"{found['kills']} kills")
    assert found["bad"] == []
    assert found["kills"] >= nights


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.full)])
def test_every_night_that_published_is_recorded_once_wherever_it_was_killed(every, made, steps):
    """At its last steps: around the manifest, before it is recorded, and before its metrics are written."""

    def killed(most):
        night = Night(made.again())
        night.set(metrics="bigkpca.prom")
        night.append(some_rows(60, 7))
        with steps.cut(most):
            night.run()
        return night

    killed(10**6)
    last, published = steps.count, set()
    for before_the_end in range(1, 25, every):
        night = killed(last - before_the_end)
        rows = night.scores().shape[0]
        published.add(rows)
        assert look(read_job(night.job, {}), night.out).new == range(rows, 150)
        assert rows == 150 or output.claimed(night.out)["input"]["shape"][0] == 150
        night.run()
        assert night.scores().shape == (150, 3)
        assert not list(Path(night.folder).glob("features.zarr.*partial"))
        records = bigkpca.history(night.out)
        assert [each["run"] for each in records] == list(range(1, len(records) + 1))
        assert [each["rows"] for each in records if each["status"] == "done"] == [[0, 90], [90, 150]]
    assert published == {90, 150}
