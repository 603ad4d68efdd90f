"""New rows that are unlike those of the fit: warned of, refused, or fitted again."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bigkpca.data.versions import read_versions

import bigkpca
from benchmarks.drift import all_data, one_seed
from bigkpca.errors import DriftError
from bigkpca.storage import block_arrays, models
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


def test_drift_may_fit_a_new_model_and_version_and_keeps_the_old_ones(night):
    night.set(LARGER_BLOCKS, on_drift="refit")
    night.append(far_rows(300))
    (record,) = night.run()
    assert (record["version"], record["rows"], record["total_rows"]) == (2, [1200, 1500], 1500)
    assert record["extracted"] == [0, 1500]  # as `since` the day of this run finds it
    assert record["model"]["path"] == f"{night.root}/model-2.zarr"
    assert record["drift"]["figure"] > 0.2
    assert record["seconds"]["fit"] > 0
    assert [each["reason"][:12] for each in read_versions(night.out)["versions"]] == ["first run", "fitted again"]
    np.testing.assert_array_equal(night.scores(), night.wanted(f"{night.root}/model-2.zarr", 256))
    night.append(far_rows(300, 6))
    (record,) = night.run()
    assert (record["version"], record["drift"]["figure"]) == (2, 0)
    bigkpca.rollback(night.out)
    assert night.scores().shape == (1200, 3)
    assert block_arrays.read_grown(f"{night.out}/1")["model"] == models.model_digest(bigkpca.load(night.model))
    night.set(LARGER_BLOCKS, on_drift="warn")
    assert night.run()[0]["rows"] == [1200, 1800]
    np.testing.assert_array_equal(night.scores(), night.wanted(block_rows=256))


@pytest.mark.full
def test_after_a_noisy_batch_rows_as_before_it_and_more_noise_make_no_second_refit(night):
    night.set(LARGER_BLOCKS, on_drift="refit")
    night.append(far_rows(300))
    assert night.run()[0]["version"] == 2
    for rows in (some_rows(300, 1), far_rows(300, 6), some_rows(300, 2)):
        night.append(rows)
        (record,) = night.run()
        assert (record["version"], record["drift"]["figure"]) == (2, 0)
    night.append(some_rows(300, 3) - 20)  # unlike both
    (record,) = night.run()
    assert (record["version"], record["drift"]["figure"] > 0.2) == (3, True)


@pytest.mark.full
def test_jobs_that_share_a_model_fit_again_into_models_of_their_own(night):
    jobs = []
    for name, threshold in (("a", 0.2), ("b", 0.15)):
        night.set(LARGER_BLOCKS, on_drift="refit", drift_threshold=threshold)
        jobs.append(Path(night.folder, f"{name}.toml"))
        jobs[-1].write_text(Path(night.job).read_text().replace("features.zarr", f"{name}.zarr"))
    bigkpca.run(jobs[0])
    night.append(far_rows(1200))
    paths = [bigkpca.run(job)[-1]["model"]["path"] for job in reversed(jobs)]
    assert paths == [f"{night.root}/model-2.zarr", f"{night.root}/model-3.zarr"]
    night.append(far_rows(40, 1))
    assert [bigkpca.run(job)[-1]["status"] for job in jobs] == ["done", "done"]


@pytest.mark.full
def test_a_model_of_the_user_that_does_not_fit_the_first_rows_is_seen_at_once(tmp_path):
    night = Night.made(tmp_path / "job", on_drift="refit")
    bigkpca.fit(far_rows(900), night.model, components=3, size=20, seed=3)
    night.append(some_rows(900))
    (record,) = night.run()
    assert (record["version"], record["model"]["path"]) == (1, f"{night.root}/model-2.zarr")


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
    bigkpca.report(night.model, page, scores=f"{night.out}/1", overwrite=True)
    assert "Drift of" not in page.read_text()


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
