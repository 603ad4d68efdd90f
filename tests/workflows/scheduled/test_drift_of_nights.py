"""New rows that are unlike those of the fit: warned of, refused, or fitted again."""

from dataclasses import replace

import numpy as np
import pytest

import bigkpca
from benchmarks.drift import all_data, one_seed
from bigkpca.data.versions import read_versions
from bigkpca.errors import DriftError
from bigkpca.storage import growing, models
from tests.helpers.files import shared_file
from tests.helpers.nights import Night, some_rows
from tests.helpers.progress import Recorder


def begun(folder, **options):
    """A job that ran on rows of one distribution."""
    night = Night.made(folder, **options)
    night.append(some_rows(1200), chunk=64)
    night.run()
    return night


def far_rows(count, seed=5):
    return some_rows(count, seed) * 3 + 2


def test_rows_of_the_same_distribution_are_no_drift(tmp_path):
    night = begun(tmp_path / "job", on_drift="fail")
    for seed in range(1, 6):
        night.append(some_rows(300, seed))
        (record,) = night.run()
        assert record["drift"]["figure"] == 0
        assert record["drift"]["rows"] == 300
        assert record["message"] is None


def test_drift_is_warned_of_and_the_features_are_published(tmp_path):
    night = begun(tmp_path / "job")
    night.append(far_rows(300))
    told = Recorder()
    (record,) = night.run(told)
    assert record["drift"]["figure"] > 0.2 == record["drift"]["threshold"]
    assert record["drift"]["outside"] > 30
    assert record["message"].startswith("drift 0.")
    assert any(note.startswith("warning: drift 0.") for note in told.notes)
    assert (record["status"], record["exit_code"], record["total_rows"]) == ("done", 0, 1500)
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_drift_that_is_a_failure_publishes_nothing_until_the_job_is_changed(tmp_path):
    night = begun(tmp_path / "job", on_drift="fail")
    night.append(far_rows(300))
    for _ in range(2):
        with pytest.raises(DriftError, match=r"drift 0\.\d+ is above 0\.2: .*nothing was published"):
            night.run()
        assert night.scores().shape == (1200, 3)
    failed = bigkpca.history(night.out)[-1]
    assert (failed["status"], failed["exit_code"]) == ("failed", 3)
    assert failed["drift"]["figure"] > 0.2
    night.set(on_drift="fail", drift_threshold=0.99)
    assert night.run()[0]["total_rows"] == 1500
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_drift_may_fit_a_new_model_and_version_and_keeps_the_old_ones(tmp_path):
    night = begun(tmp_path / "job", on_drift="refit")
    night.append(far_rows(300))
    (record,) = night.run()
    assert (record["version"], record["rows"], record["total_rows"]) == (2, [1200, 1500], 1500)
    assert record["model"]["path"] == f"{night.root}/model-2.zarr"
    assert record["drift"]["figure"] > 0.2
    assert record["seconds"]["fit"] > 0
    versions = read_versions(night.out)
    assert versions is not None
    assert [each["reason"][:12] for each in versions["versions"]] == ["first run", "fitted again"]
    wanted = bigkpca.transform(f"{night.root}/model-2.zarr", night.rows, tmp_path / "w.zarr", block_rows=32)
    np.testing.assert_array_equal(night.scores(), np.asarray(wanted[...]))
    night.append(far_rows(300, 6))
    (record,) = night.run()
    assert (record["version"], record["drift"]["figure"]) == (2, 0)
    bigkpca.rollback(night.out)
    assert night.scores().shape == (1200, 3)
    assert growing.read(f"{night.out}/1")["model"] == models.model_digest(bigkpca.load(night.model))
    night.set(on_drift="warn")
    assert night.run()[0]["rows"] == [1200, 1800]
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_a_model_of_the_user_that_does_not_fit_the_first_rows_is_seen_at_once(tmp_path):
    night = Night.made(tmp_path / "job", on_drift="refit")
    bigkpca.fit(far_rows(900), night.model, components=3, size=20, seed=3)
    night.append(some_rows(900))
    (record,) = night.run()
    assert (record["version"], record["model"]["path"]) == (1, f"{night.root}/model-2.zarr")
    night.append(some_rows(300, 1))
    assert night.run()[0]["drift"]["figure"] == 0


def test_a_model_without_a_reference_measures_no_drift_and_says_so(tmp_path):
    night = Night.made(tmp_path / "job")
    fitted = bigkpca.fit(some_rows(900), tmp_path / "fitted.zarr", components=3, size=20, seed=3)
    from bigkpca.workflows.fit import save

    save(replace(fitted, reference=None), night.model)
    night.append(far_rows(300))
    told = Recorder()
    (record,) = night.run(told)
    assert record["drift"] is None
    assert any("drift is not measured" in note for note in told.notes)


def test_the_drift_of_a_stopped_run_is_that_of_one_that_was_not(tmp_path):
    night = begun(tmp_path / "job")
    night.append(far_rows(300))

    class Stopping(Recorder):
        def advance(self, rows):
            super().advance(rows)
            if self.started[-1][0] == "extracting features" and self.rows > 150:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        night.run(Stopping())
    (stopped,) = night.run()
    other = begun(tmp_path / "other")
    other.append(far_rows(300))
    assert stopped["drift"] == other.run()[0]["drift"]


def test_a_report_draws_drift_over_time(tmp_path):
    night = begun(tmp_path / "job")
    for seed in (1, 2):
        night.append(far_rows(300, seed))
        night.run()
    bigkpca.report(night.model, tmp_path / "a.html", scores=night.out)
    page = (tmp_path / "a.html").read_text()
    assert "Do new rows look like those of the fit?" in page
    assert "Drift of 3 runs, at most 0." in page
    assert "; 2 above the threshold." in page
    bigkpca.report(night.model, tmp_path / "b.html", scores=f"{night.out}/1")
    assert "Drift of" not in (tmp_path / "b.html").read_text()


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
