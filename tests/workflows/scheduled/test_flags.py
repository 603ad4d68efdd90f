"""Flags of unusual rows in a job: beside the scores, in the record, the metrics and the history, and as a warning."""

from pathlib import Path

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca.errors import SpecError
from bigkpca.workflows.scheduled import publishing
from tests.helpers.commands import run
from tests.helpers.disks import Restored
from tests.helpers.nights import JOB, Night, some_rows, stops_after
from tests.helpers.progress import Recorder

FLAGGED = JOB.replace("size = 20\n", "size = 20\ncalibration_rows = 200\n").replace("= 32\n", "= 64\nflag = 0.05\n")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A job with flags that ran on 500 rows."""
    night = Night.made(tmp_path_factory.mktemp("flags") / "job")
    night.set(FLAGGED, metrics="bigkpca.prom")
    X = some_rows(500)
    X[495:] *= 4  # flagged, in the block that the next run writes again
    night.append(X)
    night.run()
    return Restored.made(Path(night.folder))


@pytest.fixture
def night(made):
    return Night(made.again())


def flags(path):
    group = zarr.open_group(path)
    return {name: group[name][:] for name in ("scores", "statistic", "flagged")}


def check_as_transformed(night):
    """The arrays are those of one transform of all rows."""
    out = f"{night.root}/wanted.zarr"
    bigkpca.transform(night.model, night.rows, out, flag=0.05, block_rows=64, overwrite=True)
    wanted = flags(out)
    for name, values in flags(f"{night.out}/1").items():
        np.testing.assert_array_equal(values, wanted[name])
    return wanted["flagged"]


@pytest.mark.filterwarnings("ignore::bigkpca.errors.FlaggedShareWarning")
def test_new_rows_are_flagged_counted_and_shown(night):
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
    assert bigkpca.verify(night.out).shape == (650, 3)
    header, _, line = run("history", night.out).stdout.splitlines()
    assert line[: header.index("flagged") + len("flagged")].split()[-1] == str(own)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::bigkpca.errors.FlaggedShareWarning")
def test_a_share_that_contradicts_the_one_of_ordinary_rows_is_warned_of(night):
    told = Recorder()
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
@pytest.mark.filterwarnings("ignore::bigkpca.errors.FlaggedShareWarning")
def test_a_run_that_was_stopped_goes_on_with_the_flags_that_are_stored(night, monkeypatch):
    night.append(some_rows(300, 1) * 2)
    stop = stops_after(100)
    with pytest.raises(KeyboardInterrupt):
        night.run(stop)
    computed, real = [], publishing._computed
    monkeypatch.setattr(publishing, "_computed", lambda *given: computed.append(1) or real(*given))
    (record,) = night.run()
    assert 0 < len(computed) < len(range(448, 800, 64))
    assert record["flagged"]["count"] == np.count_nonzero(check_as_transformed(night)[500:])


@pytest.mark.full
def test_another_share_takes_another_output(night):
    night.set(FLAGGED.replace("0.05", "0.1"))
    with pytest.raises(SpecError, match=r"output\.flag = 0\.1 in the job, but = 0\.05 in .*name another output\.path"):
        night.run()
    night.set(FLAGGED.replace("flag = 0.05\n", ""))
    with pytest.raises(SpecError, match=r"output\.flag is not set in the job, but = 0\.05 in"):
        night.run()
    night.set(FLAGGED.replace("0.05", "0.1").replace("features", "others"))
    assert night.run()[0]["flagged"]["alpha"] == 0.1


@pytest.mark.full
def test_a_model_that_cannot_flag_so_few_rows_is_refused(night, tmp_path):
    again = FLAGGED.replace("calibration_rows = 200\n", "").replace("features", "others")
    night.set(again.replace("0.05", "0.001"))
    with pytest.raises(SpecError, match=r"output\.flag=0\.001: with 200 calibration rows"):
        night.run()
    bigkpca.fit(night.rows, night.model, n_components=3, size=20, seed=3, overwrite=True)
    night.set(again)
    with pytest.raises(SpecError, match=r"fitted without calibration rows, which flags need: remove output\.flag"):
        night.run()
