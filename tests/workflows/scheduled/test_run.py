"""A job that runs every night: rows are extracted once, whatever grew, and readers see whole nights."""

from pathlib import Path

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca.data.opening import open_rows
from bigkpca.data.stores import clients
from bigkpca.data.stores.objects import ObjectStore
from bigkpca.errors import CorruptionError, DataError, LockedError, SpecError
from bigkpca.storage import growing, job_output
from tests.helpers.disks import mounted, tree_bytes
from tests.helpers.nights import JOB, Night, some_rows
from tests.helpers.progress import Recorder
from tests.helpers.s3 import objects


@pytest.fixture
def night(tmp_path):
    return Night.made(tmp_path / "job")


def shards(path):
    """The stored scores of a feature store, and the metadata of the array."""
    return {name: held for name, held in tree_bytes(f"{path}/scores").items() if name != "manifest.json"}


def test_features_of_many_nights_are_those_of_one_transform_to_the_byte(night):
    for number, count in enumerate([50, 1, 31, 40, 7, 64, 0, 100]):  # blocks have 32 rows
        if count:
            night.append(some_rows(count, number))
        (record,) = night.run()
        assert record["status"] == ("done" if count else "nothing new")
        assert record["rows"][1] - record["rows"][0] == count
    night.wanted()
    assert shards(f"{night.out}/1") == shards(f"{night.root}/wanted.zarr")
    found = bigkpca.history(night.out)
    ranges = [record["rows"] for record in found if record["status"] == "done"]
    assert [first for first, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
    assert ranges[-1][1] == 293
    assert [record["run"] for record in found] == list(range(1, 9))
    assert bigkpca.verify(f"{night.out}/1").files == 10


def test_the_first_run_fits_and_later_runs_use_that_model(night):
    night.append(some_rows(90))
    night.run()
    before = tree_bytes(night.model)
    night.append(some_rows(90, 1))
    night.run()
    assert tree_bytes(night.model) == before
    spec = {"components": 3, "size": 20, "seed": 3}
    assert open_rows(night.rows).shape[0] == 180
    assert {key: bigkpca.load(night.model).provenance["spec"][key] for key in spec} == spec


def test_a_model_that_is_there_is_used(night):
    night.append(some_rows(90))
    bigkpca.fit(some_rows(70, 5), night.model, components=3, size=20, seed=3)
    before = tree_bytes(night.model)
    night.run()
    assert tree_bytes(night.model) == before
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_a_run_without_new_rows_changes_nothing_but_the_records(night):
    night.append(some_rows(90))
    night.run()
    before = tree_bytes(night.root)
    (record,) = night.run()
    assert record["status"] == "nothing new"
    after = tree_bytes(night.root)
    assert [name for name in after if after[name] != before.get(name)] == ["features.zarr/runs.jsonl"]


def test_readers_see_the_rows_of_the_manifest_alone(night):
    night.append(some_rows(40))
    night.run()
    path = f"{night.out}/1"
    zarr.open_array(f"{path}/scores", mode="r+").resize((77, 3))  # as a run does that is at work
    assert night.scores().shape == (40, 3)
    assert bigkpca.verify(path).shape == (40, 3)
    night.append(some_rows(30, 1))
    night.run()
    assert open_rows(night.out).shape == (70, 3)


def test_the_output_can_be_read_as_scores(night, tmp_path):
    night.append(some_rows(90))
    night.run()
    rows = bigkpca.reconstruct(night.model, night.out, tmp_path / "rows.zarr")
    assert rows.shape == (90, 4)
    assert np.asarray(zarr.open_array(f"{night.out}/1/scores", mode="r")).shape == (90, 3)


def test_rows_that_arrive_while_a_run_is_at_work_wait_for_the_next(night):
    night.append(some_rows(70))

    class Arriving(Recorder):
        def start(self, title, rows):
            super().start(title, rows)
            night.append(some_rows(9, len(self.started)))

    (record,) = night.run(Arriving())
    assert record["rows"] == [0, 70]
    arrived = open_rows(night.rows).shape[0]
    assert arrived > 70
    (record,) = night.run()
    assert record["rows"] == [70, arrived]
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_an_array_of_others_may_grow_by_any_number_of_rows(night):
    array = zarr.create_array(night.rows, shape=(0, 4), dtype="f4", chunks=(13, 3))
    for number, count in enumerate([20, 6, 40, 13]):
        array.append(some_rows(count, number))
        night.run()
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_rows_for_which_an_array_of_others_has_room_but_nothing_stored_wait(night):
    array = zarr.create_array(night.rows, shape=(0, 4), dtype="f4", chunks=(10, 4))
    array.append(some_rows(40))
    array.resize((75, 4))
    told = Recorder()
    (record,) = night.run(told)
    assert record["rows"] == [0, 40]
    assert "rows 40 to 74 are not stored yet: left to the next run" in told.notes
    array[40:] = some_rows(35, 1)
    (record,) = night.run()
    assert record["rows"] == [40, 75]


def test_a_dataset_whose_rows_were_written_over_is_damaged(night):
    night.append(some_rows(70))
    night.run()
    zarr.open_array(f"{night.rows}/x", mode="r+")[40] = 9
    night.append(some_rows(9, 1))
    with pytest.raises(CorruptionError, match=r"rows 32 to 47 are other values than were written there"):
        night.run()


@pytest.mark.parametrize("row", [0, 40, 65, 69])
def test_input_that_changed_is_refused_with_the_rows_to_extract_again(night, row):
    night.append(some_rows(70))
    night.run()
    night.forget_digests()
    before = tree_bytes(f"{night.out}/1")
    array = zarr.open_array(f"{night.rows}/x", mode="r+")
    array[row] = 9
    night.append(some_rows(9, 1))
    start = row // 32 * 32
    with pytest.raises(CorruptionError, match=rf"in the rows {start}:{min(start + 32, 70)}\. .*--rows {start}:"):
        night.run()
    assert tree_bytes(f"{night.out}/1") == before
    (record,) = night.run(rows=f"{start}:{min(start + 32, 70)}")
    assert record["version"] == 2
    night.run()
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_input_that_was_written_again_with_the_same_values_is_taken(night):
    X = some_rows(70)
    night.append(X)
    night.run()
    zarr.open_array(f"{night.rows}/x", mode="r+")[:] = X
    assert night.run()[0]["status"] == "nothing new"


def test_input_that_shrank_or_is_another_is_refused(night):
    array = zarr.create_array(night.rows, shape=(0, 4), dtype="f4", chunks=(10, 4))
    array.append(some_rows(40))
    night.run()
    array.resize((30, 4))
    with pytest.raises(CorruptionError, match="has 30 rows, and features of 40 were extracted: rows were removed"):
        night.run()
    zarr.create_array(night.rows, shape=(60, 4), dtype="f8", chunks=(10, 4), overwrite=True)[:] = some_rows(60)
    with pytest.raises(CorruptionError, match="holds <f8, and features were extracted from <f4"):
        night.run()
    zarr.create_array(night.rows, shape=(60, 5), dtype="f4", chunks=(10, 5), overwrite=True)[:] = 1
    with pytest.raises(SpecError, match="has 5 columns, the model was fitted on 4"):
        night.run()
    assert [record["exit_code"] for record in bigkpca.history(night.out)] == [0, 7, 7, 2]


def test_one_of_two_runs_at_once_is_refused(night):
    night.append(some_rows(70))
    refused = []

    class Twice(Recorder):
        def start(self, title, rows):
            super().start(title, rows)
            with pytest.raises(LockedError, match="another run is writing"):
                night.run()
            refused.append(title)

    night.run(Twice())
    assert refused
    assert len(bigkpca.history(night.out)) == 1


def test_outputs_and_models_that_belong_to_others_are_refused(night):
    night.append(some_rows(70))
    night.run()
    path = Path(night.model)
    kept = path.rename(path.with_name("kept"))
    with pytest.raises(SpecError, match=r"model\.zarr is gone, the model by which features"):
        night.run()
    bigkpca.fit(some_rows(70, 1), night.model, components=3, size=20, seed=3)
    with pytest.raises(SpecError, match=r"holds features of the model \w{12}, and .*model\.zarr is the model"):
        night.run()
    bigkpca.fit(some_rows(70, 1), night.model, components=2, size=20, seed=3, overwrite=True)
    Path(night.out).rename(Path(night.out).with_name("other.zarr"))
    Path(night.job + ".bigkpca-record").unlink()
    with pytest.raises(SpecError, match="was fitted with other options: components = 2 there and 3 in the job"):
        night.run()
    assert kept.exists()


@pytest.mark.parametrize("kind", ["file", "folder", "scores"])
def test_what_is_no_output_of_a_job_is_never_replaced(night, kind):
    night.append(some_rows(70))
    out = Path(night.out)
    if kind == "file":
        out.write_text("mine")
    elif kind == "folder":
        out.mkdir()
        (out / "mine.txt").write_text("mine")
    else:
        bigkpca.transform(bigkpca.fit(some_rows(50), night.model, components=3, size=20, seed=3), night.rows, out)
    before = tree_bytes(out) if out.is_dir() else out.read_bytes()
    with pytest.raises(SpecError, match=r"choose another path|is a file"):
        night.run()
    assert (tree_bytes(out) if out.is_dir() else out.read_bytes()) == before


def test_a_run_goes_on_where_one_was_stopped_and_then_takes_what_arrived(night, monkeypatch):
    night.append(some_rows(90))
    night.run()
    night.append(some_rows(200, 1))

    class Stopping(Recorder):
        def advance(self, rows):
            super().advance(rows)
            if self.started[-1][0] == "extracting features" and self.rows > 60:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        night.run(Stopping())
    assert job_output.read_pinned(night.out)["stop"] == 290
    night.append(some_rows(33, 2))
    told = Recorder()
    records = night.run(told)
    assert [record["rows"] for record in records] == [[90, 290], [290, 323]]
    assert any(note.startswith("continuing: ") for note in told.notes)
    np.testing.assert_array_equal(night.scores(), night.wanted())
    assert [record["status"] for record in bigkpca.history(night.out)] == ["done", "failed", "done", "done"]


def test_an_input_that_cannot_grow_is_refused(tmp_path):
    night = Night.made(tmp_path / "job")
    np.save(tmp_path / "job" / "rows.npy", some_rows(50))
    night.set(JOB.replace("rows.zarr", "rows.npy"))
    with pytest.raises(SpecError, match="a job reads what others append rows to"):
        night.run()


def test_the_manifest_names_the_run_that_published_it(night):
    night.append(some_rows(50))
    night.run()
    night.append(some_rows(50, 1))
    (record,) = night.run()
    manifest = growing.read(f"{night.out}/1")
    assert {key: value for key, value in manifest["run"].items() if key != "seconds"} == {
        key: value for key, value in record.items() if key != "seconds"
    }
    assert len(manifest["blocks"]) == len(manifest["input_blocks"]) == 4


def test_blocks_that_share_a_shard_with_new_rows_are_read_once_to_be_compared(night):
    night.append(some_rows(70), chunk=256)  # shards of 256 rows, blocks of 32
    night.run()
    night.append(some_rows(70, 1))
    compared = Recorder()
    night.run(compared)
    assert ("comparing rows", 70) in compared.started
    idle = Recorder()
    assert night.run(idle)[0]["status"] == "nothing new"
    assert idle.started == []


def test_input_that_was_touched_is_read_once_to_be_compared(night):
    X = some_rows(70)
    night.append(X)
    night.run()
    zarr.open_array(f"{night.rows}/x", mode="r+")[:] = X
    for passes in ([("comparing rows", 70)], []):
        told = Recorder()
        night.run(told)
        assert told.started == passes


def test_room_for_rows_that_are_not_stored_waits_whatever_the_fill_value_is(tmp_path):
    for fill in (0, np.nan):
        night = Night.made(tmp_path / f"job{fill}")
        array = zarr.create_array(night.rows, shape=(40, 4), dtype="f4", chunks=(10, 2), fill_value=fill)
        with pytest.raises(DataError, match="has room for 40 rows, and the first of them are not stored yet"):
            night.run()
        array[:20] = some_rows(20)
        array[20:30, :2] = 1  # half of a row of chunks
        night.run()
        assert night.scores().shape == (20, 3)


def test_a_model_that_was_cut_off_on_its_way_into_a_bucket_is_finished(tmp_path, bucket, monkeypatch):
    night, copied = Night.made(tmp_path / "job", bucket), []
    night.append(some_rows(90))

    def copy(self, source, target):
        copied.append(target)
        if len(copied) == 4:
            raise KeyboardInterrupt
        real(self, source, target)

    real = ObjectStore.copy_file
    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "copy_file", copy)
        with pytest.raises(KeyboardInterrupt):
            night.run()
    night.run()
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_a_write_that_arrives_after_another_run_took_over_replaces_nothing(tmp_path, bucket, monkeypatch):
    night, late = Night.made(tmp_path / "job", bucket), []
    night.append(some_rows(70))
    night.run()
    night.append(some_rows(10, 1))

    def delayed(url, content, mode):
        if url.endswith(("scores/c/2/0", "manifest.json", "runs.jsonl")) and "/features.zarr" in url:
            late.append((url, content, mode))
            raise KeyboardInterrupt
        return real(url, content, mode)

    real = clients.put
    with monkeypatch.context() as patched:
        patched.setattr(clients, "put", delayed)
        with pytest.raises(KeyboardInterrupt):
            night.run()
    night.run()
    night.append(some_rows(50, 2))
    night.run()
    wanted = objects(night.out)
    assert late
    for url, content, mode in late:
        with pytest.raises(clients.Conflict):
            real(url, content, mode)
    assert objects(night.out) == wanted


def test_a_folder_that_cannot_be_written_is_named(night, tmp_path):
    night.append(some_rows(70))
    with mounted("ro", tmp_path / "disk") as disk:
        night.set(JOB.replace('"features.zarr"', f'"{disk}/features.zarr"'))
        with pytest.raises(SpecError, match=r"features\.zarr.*: Read-only file system: this user must"):
            night.run()
