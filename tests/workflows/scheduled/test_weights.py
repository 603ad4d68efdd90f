"""Jobs whose input has weights of rows: the fit uses them, and nothing else does."""

from pathlib import Path

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca.errors import IncompleteError, SpecError
from bigkpca.ingesting import ingest
from bigkpca.spec.job import read_job
from bigkpca.workflows.scheduled import plan_run
from tests.helpers.disks import tree_bytes
from tests.helpers.nights import JOB, Night, some_rows
from tests.helpers.progress import Once

WEIGHTED = JOB.replace('path = "rows.zarr"', 'path = "rows.zarr"\nsample_weight = "sample_weight"')


def weights(count, seed=0):
    return np.random.default_rng(seed).integers(0, 5, count) / 1024


def append(night, X, w):
    """Add rows with weights to the input, or make it."""
    source = Path(night.folder, "source.npz")
    np.savez(source, x=X, w=w)
    how = {"append": True} if Path(night.rows).exists() else {"block_rows": 16}
    ingest(source, night.rows, member="x", sample_weight="w", **how)


def fitted(night):
    """The model of one fit of the rows with the options of the job."""
    how = {"components": 3, "size": 20, "seed": 3, "overwrite": True}
    return bigkpca.fit(night.rows, f"{night.root}/own.zarr", sample_weight="sample_weight", **how)


@pytest.fixture
def weighted_night(tmp_path):
    """A job with weights, which did not run yet, and 90 rows."""
    night = Night.made(tmp_path / "job")
    night.set(WEIGHTED)
    append(night, some_rows(90), weights(90))
    return night


@pytest.mark.full
def test_the_fit_uses_the_weights_of_all_rows(weighted_night):
    night = weighted_night
    assert plan_run(read_job(night.job, {}))["action"].startswith("fit a model")
    night.run()
    found = bigkpca.load(night.model)
    np.testing.assert_array_equal(found.solution.eigenvalues, fitted(night).solution.eigenvalues)
    assert found.sums.weight == weights(90).sum()
    append(night, some_rows(60, 1), weights(60, 1))
    before = tree_bytes(night.model)
    assert night.run()[0]["rows"] == [90, 150]
    assert tree_bytes(night.model) == before
    np.testing.assert_array_equal(night.scores(), night.wanted())  # which have no weights


@pytest.mark.full
def test_a_fit_that_was_stopped_goes_on_with_its_weights_after_more_arrived(weighted_night):
    night = weighted_night
    with pytest.raises(KeyboardInterrupt):
        night.run(Once(title="fitting"))
    append(night, some_rows(33, 5), weights(33, 5))
    records = night.run(Once(what=lambda: append(night, some_rows(7, 6), weights(7, 6))))
    assert [record["rows"] for record in records] == [[0, 90], [90, 130]]
    assert bigkpca.load(night.model).sums.weight == weights(90).sum()
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_a_model_without_weights_and_a_wrong_name_are_refused(night):
    night.set(WEIGHTED)
    night.append(some_rows(10, 4))
    with pytest.raises(SpecError, match=r"model\.zarr was fitted without sample weights: remove input\.sample_weight"):
        night.run()
    assert bigkpca.history(night.out)[-1]["exit_code"] == 2
    for name in (night.model, night.out):
        Path(name).rename(f"{name}.away")
    Path(night.job + ".bigkpca-record").unlink()
    message = r"^input\.sample_weight: there is no array 'sample_weight'; .*rows\.zarr has no array with one"
    for action in (night.run, lambda: plan_run(read_job(night.job, {}))):
        with pytest.raises(SpecError, match=message):
            action()
    assert not Path(night.model).exists()
    zarr.open_group(night.rows).create_array("sample_weight", data=np.ones(99))
    with pytest.raises(IncompleteError, match="99 sample weights for the 100 rows"):
        night.run()
    zarr.open_array(f"{night.rows}/sample_weight", mode="r+").append(np.ones(1))
    assert night.run()[0]["total_rows"] == 100
