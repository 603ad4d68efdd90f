"""What a run judges: drift of new rows and flags of unusual ones."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import bigkpca
from bigkpca.errors import DriftError, SpecError
from bigkpca.ingesting import ingest
from bigkpca.workflows.fit import save
from tests.helpers import drift
from tests.helpers.commands import run
from tests.helpers.disks import Restored, tree_bytes
from tests.helpers.files import shared_file
from tests.helpers.nights import JOB, Night, some_rows
from tests.helpers.progress import Recorder

LARGER_BLOCKS = JOB.replace("block_rows = 32", "block_rows = 256")
FLAGGED = JOB.replace("size = 20\n", "size = 20\ncalibration_rows = 200\n").replace("= 32\n", "= 64\nflag = 0.05\n")


def restored(folder, X, text, **options):
    """A job that ran on these rows, which is there again for each test."""
    night = Night.made(folder / "job")
    night.set(text, **options)
    night.append(X, chunk=256 if text == LARGER_BLOCKS else 16)
    night.run()
    return Restored.made(Path(night.folder))


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    return restored(tmp_path_factory.mktemp("drift"), some_rows(1200), LARGER_BLOCKS)


@pytest.fixture(scope="module")
def flagging(tmp_path_factory):
    X = some_rows(500)
    X[495:] *= 4  # flagged, in the block that the next run writes again
    return restored(tmp_path_factory.mktemp("flags"), X, FLAGGED, metrics="bigkpca.prom")


def far_rows(count, seed=5):
    return some_rows(count, seed) * 3 + 2


def test_drift_is_warned_of_and_the_features_are_published(judged):
    night = Night(judged.again())
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


def test_the_columns_whose_means_moved_most_are_named(tmp_path):
    night = Night.made(tmp_path / "job")
    night.set(LARGER_BLOCKS)
    frame = pd.DataFrame(some_rows(1200), columns=[*"abcd"]).assign(kind=np.resize([*"xyz"], 1200))
    ingest(frame, night.rows, categorical="kind", block_rows=256)
    night.run()
    for changed, named in (
        ({"a": frame.a + 9, "b": frame.b + 12, "c": frame.c - 9, "kind": "z"}, "'a', 'b', 'c'"),
        ({"b": -8 - frame.b, "kind": "z"}, "'b', 'kind'"),
    ):
        ingest(frame.assign(**changed)[:300], night.rows, append=True)
        (record,) = night.run()
        assert record["message"].endswith(f"unlike those of the fit, most in the means of {named}")


def test_drift_that_is_a_failure_publishes_nothing_and_is_not_diluted_by_later_rows(judged):
    night = Night(judged.again())
    night.set(LARGER_BLOCKS, on_drift="fail")
    night.append(far_rows(300))
    before = tree_bytes(f"{night.out}/scores/c/4")
    for _ in range(2):
        night.refused(DriftError, r"drift 0\.\d+ is above 0\.2: .*nothing was published")
        assert night.scores().shape == (1200, 3)
        assert tree_bytes(f"{night.out}/scores/c/4") == before
        night.append(some_rows(3000, 7))
    failed = bigkpca.history(night.out)[-1]
    assert (failed["status"], failed["exit_code"]) == ("failed", 3)
    assert failed["drift"]["figure"] > 0.2
    night.set(LARGER_BLOCKS, on_drift="warn")
    assert [each["total_rows"] for each in night.run()] == [1500, 7500]
    np.testing.assert_array_equal(night.scores(), night.wanted(block_rows=256))


def test_a_model_without_calibration_rows_measures_no_drift_and_says_so(new):
    model = replace(bigkpca.load(new.model), calibration=None)
    shutil.rmtree(new.model)
    save(model, new.model)
    new.append(far_rows(60))
    told = Recorder()
    (record,) = new.run(told)
    assert record["drift"] is None
    assert any("drift is not measured" in note for note in told.notes)


@pytest.mark.full
def test_a_report_draws_drift_over_time(judged):
    night, page = Night(judged.again()), Path(judged.folder, "report.html")
    for seed in (1, 2):
        night.append(far_rows(300, seed))
        night.run()
    bigkpca.report(night.model, page, scores=night.out)
    text = page.read_text()
    assert re.search(r"<td>0\.\d+ in run 3; 2 of 3 runs above the threshold</td>", text)
    assert "<h2>Drift of each run</h2>" in text


@pytest.mark.long
def test_thirty_nights_of_digits_raise_no_alarm_and_the_first_of_others_does():
    shared_file("mnist", "train-images-idx3-ubyte.gz")
    for seed in range(20):
        same, others = drift.figures(seed, 2000, size=300, n_components=20)
        assert len(same) == 30
        assert max(same) == 0, seed
        assert min(others.values()) > 0.2, (seed, others)


# Flags


def check_as_transformed(night):
    """The arrays are those of one transform of all rows."""
    out = f"{night.root}/wanted.zarr"
    bigkpca.transform(night.model, night.rows, out, flag=0.05, block_rows=64, overwrite=True)
    found, wanted = xr.open_zarr(night.out), xr.open_zarr(out)
    for name in ("scores", "statistic", "flagged"):
        np.testing.assert_array_equal(found[name], wanted[name])
        assert found[name].attrs == wanted[name].attrs
    return found["flagged"].to_numpy()


@pytest.mark.filterwarnings("ignore::bigkpca.errors.FlaggedShareWarning")
def test_new_rows_are_flagged_counted_and_shown_and_warned_of_if_chance_does_not_explain_them(flagging):
    night, told = Night(flagging.again()), Recorder()
    night.append(some_rows(150, 1))
    (record,) = night.run()
    found = check_as_transformed(night)
    own = np.count_nonzero(found[500:])
    assert found[448:500].any()
    low, high = bigkpca.load(night.model).calibration.range(0.05, 150, 0.9999)
    assert record["flagged"] == {"alpha": 0.05, "rows": 150, "count": own, "share": own / 150, "range": [low, high]}
    assert record["message"] is None
    metrics = night.metrics()
    names = ("rows_flagged", "flagged_share", "flagged_share_threshold")
    assert [metrics[name] for name in names] == [own, own / 150, high]
    header, _, line = run("history", night.out).stdout.splitlines()
    assert line[: header.index("flagged") + len("flagged")].split()[-1] == str(own)
    night.append(some_rows(150, 1) * 2)
    (record,) = night.run(told)
    assert "of 150 rows flagged" in record["message"]
    assert any(note.startswith("warning: ") and "of 150 rows flagged" in note for note in told.notes)
    night.append(np.tile(some_rows(500)[:1] / 9, (400, 1)))  # equal rows: fewer flags than chance explains
    (record,) = night.run()
    assert (record["flagged"]["count"], record["flagged"]["range"][0] > 0) == (0, True)
    assert "rows flagged" not in record["message"]
    check_as_transformed(night)


@pytest.mark.full
def test_another_share_takes_another_output_and_a_model_that_can_flag_so_few(flagging):
    night = Night(flagging.again())
    for flag, message in (("flag = 0.1\n", "= 0.1 in the job, but = 0.05"), ("", "is not set in the job, but = 0.05")):
        night.set(FLAGGED.replace("flag = 0.05\n", flag))
        night.refused(SpecError, rf"output\.flag {message} in .*name another output\.path")
    elsewhere = FLAGGED.replace("features", "others")
    night.set(elsewhere.replace("0.05", "0.1"))
    assert night.run()[0]["flagged"]["alpha"] == 0.1
    elsewhere = elsewhere.replace("calibration_rows = 200\n", "").replace("others", "more")
    night.set(elsewhere.replace("0.05", "0.001"))
    night.refused(SpecError, r"output\.flag=0\.001: with 200 calibration rows")
    bigkpca.fit(night.rows, night.model, n_components=3, size=20, random_state=3, overwrite=True)
    night.set(elsewhere)
    night.refused(SpecError, "the model has no calibration rows, which limits need")
