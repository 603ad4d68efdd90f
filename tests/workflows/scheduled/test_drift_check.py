"""New rows that are unlike those of the fit: warned of, or refused."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bigkpca
from benchmarks.drift import all_data, one_seed
from bigkpca.errors import DriftError
from bigkpca.workflows.fit import save
from tests.helpers.disks import Restored
from tests.helpers.files import shared_file
from tests.helpers.nights import JOB, Night, some_rows
from tests.helpers.progress import Recorder

LARGER_BLOCKS = JOB.replace("block_rows = 32", "block_rows = 256")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A job that ran on 1200 rows of one distribution."""
    night = Night.made(tmp_path_factory.mktemp("drift") / "job")
    night.set(LARGER_BLOCKS)
    night.append(some_rows(1200), chunk=256)
    night.run()
    return Restored.made(Path(night.folder))


def far_rows(count, seed=5):
    return some_rows(count, seed) * 3 + 2


def test_drift_is_warned_of_and_the_features_are_published(night):
    night.append(some_rows(300, 1))  # of the same distribution
    (record,) = night.run()
    assert (record["drift"]["figure"], record["drift"]["rows"], record["message"]) == (0, 300, None)
    night.append(far_rows(300))
    told = Recorder()
    (record,) = night.run(told)
    assert record["drift"]["figure"] > 0.2 == record["drift"]["threshold"]
    assert record["drift"]["outside"] > 30
    assert record["message"].startswith("drift 0.")
    assert any(note.startswith("warning: drift 0.") for note in told.notes)
    assert (record["status"], record["exit_code"], record["total_rows"]) == ("done", 0, 1800)
    np.testing.assert_array_equal(night.scores(), night.wanted(block_rows=256))


def test_drift_that_is_a_failure_publishes_nothing_until_the_job_is_changed(night):
    night.set(LARGER_BLOCKS, on_drift="fail")
    night.append(far_rows(300))
    for _ in range(2):
        with pytest.raises(DriftError, match=r"drift 0\.\d+ is above 0\.2: .*nothing was published"):
            night.run()
        assert night.scores().shape == (1200, 3)
    failed = bigkpca.history(night.out)[-1]
    assert (failed["status"], failed["exit_code"]) == ("failed", 3)
    assert failed["drift"]["figure"] > 0.2
    night.set(LARGER_BLOCKS, on_drift="fail", drift_threshold=0.99)
    assert night.run()[0]["total_rows"] == 1500
    np.testing.assert_array_equal(night.scores(), night.wanted(block_rows=256))


def test_a_model_without_a_reference_measures_no_drift_and_says_so(new):
    model = replace(bigkpca.load(new.model), reference=None)
    shutil.rmtree(new.model)
    save(model, new.model)
    new.append(far_rows(60))
    told = Recorder()
    (record,) = new.run(told)
    assert record["drift"] is None
    assert any("drift is not measured" in note for note in told.notes)


@pytest.mark.full
def test_a_report_draws_drift_over_time(night):
    for seed in (1, 2):
        night.append(far_rows(300, seed))
        night.run()
    page = Path(night.root, "report.html")
    bigkpca.report(night.model, page, scores=night.out)
    text = page.read_text()
    assert "Do new rows look like those of the fit?" in text
    assert "Drift of 3 runs, at most 0." in text
    assert "; 2 above the threshold." in text


@pytest.mark.long
def test_thirty_nights_of_digits_raise_no_alarm_and_the_first_of_others_does():
    shared_file("mnist", "train-images-idx3-ubyte.gz")
    _, digits = next(all_data())
    for seed in range(20):
        found = one_seed(digits, 2000, {"size": 300, "components": 20}, seed)
        assert len(found["same"]) == 30
        assert max(found["same"]) == 0, seed
        others = {name: found[name] for name in ("noisy", "shuffled", "scaled", "others")}
        assert min(others.values()) > 0.2, (seed, others)
