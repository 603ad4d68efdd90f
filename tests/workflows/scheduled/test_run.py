"""A job that runs every night: rows are extracted once, whatever grew, and readers see whole nights."""

import shutil
from pathlib import Path
from unittest import mock

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import bigkpca
from bigkpca.data.stores import store_of
from bigkpca.errors import DataError, LockedError, SpecError
from bigkpca.storage import groups
from bigkpca.storage.output import Output
from bigkpca.workflows.scheduled import night as night_of
from bigkpca.workflows.scheduled import records as records_of
from tests.helpers.disks import tree_bytes
from tests.helpers.nights import Night, some_rows
from tests.helpers.progress import Once


def test_features_of_many_nights_are_those_of_one_transform_to_the_byte(night):
    model = tree_bytes(night.model)
    for number, count in enumerate([6, 1, 0, 195]):  # blocks have 32 rows, and 90 are there
        if count:
            night.append(some_rows(count, 1 + number))
        (record,) = night.run()
        assert record["status"] == ("done" if count else "nothing new")
        assert record["rows"][1] - record["rows"][0] == count
    night.wanted()
    assert tree_bytes(f"{night.out}/scores") == tree_bytes(f"{night.root}/wanted.zarr/scores")
    np.testing.assert_array_equal(xr.open_zarr(night.out)["scores"], night.scores())
    assert bigkpca.verify(night.out).shape == (292, 3)
    told = [(each["run"], *each["rows"]) for each in bigkpca.history(night.out)]
    assert told == [(1, 0, 90), (2, 90, 96), (3, 96, 97), (4, 97, 97), (5, 97, 292)]
    assert len(groups.describe(night.out)["job"]["rows_sha256"]) == 10
    assert tree_bytes(night.model) == model
    before = tree_bytes(night.root)
    assert night.run()[0]["status"] == "nothing new"
    after = tree_bytes(night.root)
    assert [name for name in after if after[name] != before.get(name)] == ["features.zarr.runs.jsonl"]


def test_readers_see_the_rows_of_the_manifest_alone_until_a_run_has_published(night):
    before, seen = night.scores(), []

    def look(*given):
        seen.append((night.scores(), da.from_zarr(night.out, component="scores").compute()))
        write(*given)

    night.append(some_rows(130, 1))
    write = Output.write
    with mock.patch.object(Output, "write", look):
        night.run()
    assert len(seen) == 5  # three blocks that are full, written by tasks, and two that are not
    for each in seen:
        for scores in each:
            np.testing.assert_array_equal(scores, before)
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_rows_that_arrive_while_a_run_is_at_work_wait_for_the_next(night):
    night.append(some_rows(40, 9))
    (record,) = night.run(Once(what=lambda: night.append(some_rows(9))))
    assert record["rows"] == [90, 130]
    assert night.run()[0]["rows"] == [130, 139]
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_one_of_two_runs_at_once_is_refused(night):
    night.append(some_rows(40, 1))
    meanwhile = Once(what=lambda: night.refused(LockedError, "another run is writing"))
    night.run(meanwhile)
    assert meanwhile.what is None
    assert len(bigkpca.history(night.out)) == 2


def test_models_that_belong_to_others_are_refused(night):
    path = Path(night.model)
    path.rename(path.with_name("kept"))
    night.refused(SpecError, r"model\.zarr, the model that extracted the features")
    bigkpca.fit(some_rows(70, 1), night.model, n_components=2, size=20, random_state=3)
    night.refused(SpecError, r"holds features of the model \w{12}, but .*model\.zarr is the model")
    Path(night.out).rename(Path(night.out).with_name("other.zarr"))
    Path(night.job + ".bigkpca-record").unlink()
    night.refused(SpecError, "was fitted with other options: n_components = 2 there and 3 in the job")


def test_what_is_no_output_of_a_job_is_never_replaced(new):
    new.append(some_rows(70))
    out = Path(new.out)
    for make, message in (
        (lambda: bigkpca.transform(new.model, new.rows, out), "is a bigkpca feature store"),
        (lambda: shutil.copytree(new.model, out / "theirs"), "was not made by bigkpca"),
        (lambda: out.write_text("mine"), "was not made"),
    ):
        make()
        before = tree_bytes(new.root)
        new.refused(SpecError, f"{message}.*: choose another output path")
        Path(new.out + ".runs.jsonl").unlink()
        assert tree_bytes(new.root) == before
        shutil.rmtree(out) if out.is_dir() else out.unlink()


@pytest.mark.parametrize("rows", [60, pytest.param(170, marks=pytest.mark.full)])
def test_a_run_goes_on_where_one_was_stopped_and_then_takes_what_arrived(new, rows):
    for count in (200, 200):
        new.append(some_rows(count, 1))
        new.stopped(rows)
        new.append(some_rows(33, 2))
        with mock.patch.object(night_of, "tile_scores", side_effect=night_of.tile_scores) as computed:
            records = new.run()
        assert [record["rows"][1] - record["rows"][0] for record in records] == [count, 33]
        assert computed.call_count < 9
        np.testing.assert_array_equal(new.scores(), new.wanted())
    assert [record["status"] for record in bigkpca.history(new.out)] == ["failed", "done", "done"] * 2


def test_blocks_that_other_packages_made_are_made_again(new, monkeypatch):
    new.append(some_rows(200))
    new.stopped(170)
    real = records_of.version
    monkeypatch.setattr(records_of, "version", lambda name: "9.9" if name == "numpy" else real(name))
    with mock.patch.object(night_of, "tile_scores", side_effect=night_of.tile_scores) as computed:
        new.run()
    assert computed.call_count == 7
    assert groups.describe(new.out)["made_by"]["numpy"] == "9.9"


def test_a_claim_of_rows_that_changed_since_is_given_up(new):
    array = zarr.create_array(new.rows, shape=(0, 4), dtype="f4", chunks=(16, 4))
    array.append(some_rows(80))
    for more in (0, 80):
        if more:
            array.append(some_rows(more, 1))
        new.stopped(40)
        array[array.shape[0] - 1] = 9  # in a block that was written already, or not
        array[array.shape[0] - 48] = 9
        assert new.run()[0]["rows"] == [more and 80, 80 + more]
        np.testing.assert_array_equal(new.scores(), new.wanted())


def test_a_first_night_with_too_few_rows_does_not_hold_up_the_next(tmp_path):
    night = Night.made(tmp_path / "job")
    night.append(some_rows(1))
    night.refused(SpecError, r"calibration_rows=2000: .* too few rows to set some aside")
    night.append(some_rows(99, 1))
    assert night.run()[0]["rows"] == [0, 100]


def test_rows_that_cannot_be_used_do_not_hold_up_those_that_replace_them(new):
    array = zarr.create_array(new.rows, shape=(0, 4), dtype="f4", chunks=(16, 4))
    array.append(some_rows(90))
    new.run()
    array.append(some_rows(9, 1))
    array[94, 2] = float("nan")
    new.refused(DataError, "row 94, column 2")
    failed = bigkpca.history(new.out)[-1]
    assert (failed["status"], failed["exit_code"], failed["rows"]) == ("failed", 3, None)
    assert new.scores().shape == (90, 3)
    array[94, 2] = 1
    array.append(some_rows(7, 2))
    assert new.run()[0]["rows"] == [90, 106]
    np.testing.assert_array_equal(new.scores(), new.wanted())


# On object stores


@pytest.mark.full
def test_killed_runs_in_a_bucket_are_finished_though_more_rows_arrived(tmp_path, bucket):
    night = Night.made(tmp_path / "job", bucket)
    for number, title in enumerate(("fitting", "extracting features", "extracting features")):
        night.append(some_rows(150, number))
        night.stopped(title=title)
        night.append(some_rows(20, 9 + number))
        made = [150, 20] if number else [170]  # of the fit nothing was made yet
        assert [each["rows"][1] - each["rows"][0] for each in night.run()] == made
        np.testing.assert_array_equal(night.scores(), night.wanted())
        assert {name.partition("/")[0] for name in store_of(night.root).files(night.root)} == {
            *("rows.zarr", "model.zarr", "features.zarr", "features.zarr.runs.jsonl", "wanted.zarr")
        }


@pytest.mark.full
def test_a_run_that_finds_another_at_work_on_more_rows_writes_nothing(tmp_path, bucket):
    night = Night.made(tmp_path / "job", bucket)
    night.append(some_rows(90))
    night.run()
    night.append(some_rows(100, 1))

    def other_run():
        night.append(some_rows(50, 2))
        assert [each["rows"] for each in night.run()] == [[90, 190], [190, 240]]

    meanwhile = Once(what=other_run, after=95, title="extracting")
    night.refused(LockedError, r"another run took over|no longer names the request", meanwhile)
    np.testing.assert_array_equal(night.scores(), night.wanted())
    assert night.run()[0]["status"] == "nothing new"
