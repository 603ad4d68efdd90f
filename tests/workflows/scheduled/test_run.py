"""A job that runs every night: rows are extracted once, whatever grew, and readers see whole nights."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca.data.opening import open_rows
from bigkpca.data.stores import clients, store_of
from bigkpca.errors import LockedError, SpecError
from bigkpca.spec.job import read_job
from bigkpca.storage import block_arrays, jobs
from bigkpca.workflows.scheduled import plan_run
from tests.helpers.disks import mounted, tree_bytes
from tests.helpers.nights import JOB, Night, cut_off_at, some_rows, stops_after
from tests.helpers.progress import Once, Recorder
from tests.helpers.s3 import in_bucket


def test_features_of_many_nights_are_those_of_one_transform_to_the_byte(night):
    model = tree_bytes(night.model)
    for number, count in enumerate([6, 1, 0, 195]):  # blocks have 32 rows, and 90 are there
        if count:
            night.append(some_rows(count, 1 + number))
        (record,) = night.run()
        assert record["status"] == ("done" if count else "nothing new")
        assert record["rows"][1] - record["rows"][0] == count
    night.wanted()
    found, wanted = tree_bytes(f"{night.out}/1/scores"), tree_bytes(f"{night.root}/wanted.zarr/scores")
    assert {name for name in found if found[name] != wanted.get(name)} == {"manifest.json"}
    assert found.keys() == wanted.keys()
    assert bigkpca.verify(f"{night.out}/1").files == 10
    told = [(each["run"], *each["rows"]) for each in bigkpca.history(night.out)]
    assert told == [(1, 0, 90), (2, 90, 96), (3, 96, 97), (4, 97, 97), (5, 97, 292)]
    manifest = block_arrays.read_grown(f"{night.out}/1")
    assert manifest["run"] | {"seconds": None} == record | {"seconds": None}  # it names the run that published it
    assert len(manifest["blocks"]) == len(manifest["input_blocks"]) == 10
    assert tree_bytes(night.model) == model
    before = tree_bytes(night.root)
    assert night.run()[0]["status"] == "nothing new"
    after = tree_bytes(night.root)
    assert [name for name in after if after[name] != before.get(name)] == ["features.zarr/runs.jsonl"]


def test_readers_see_the_rows_of_the_manifest_alone(night, tmp_path):
    path = f"{night.out}/1"
    zarr.open_array(f"{path}/scores", mode="r+").resize((127, 3))  # as a run does that is at work
    assert night.scores().shape == (90, 3)
    assert bigkpca.verify(path).shape == (90, 3)
    night.append(some_rows(30, 1))
    night.run()
    assert open_rows(night.out).shape == (120, 3)
    assert bigkpca.reconstruct(night.model, night.out, tmp_path / "rows.zarr").shape == (120, 4)
    assert np.asarray(zarr.open_array(f"{path}/scores", mode="r")).shape == (120, 3)


def test_rows_that_arrive_while_a_run_is_at_work_wait_for_the_next(night):
    night.append(some_rows(40, 9))
    (record,) = night.run(Once(what=lambda: night.append(some_rows(9))))
    assert record["rows"] == [90, 130]
    assert night.run()[0]["rows"] == [130, 139]
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_one_of_two_runs_at_once_is_refused(night):
    def others():
        with pytest.raises(LockedError, match="another run is writing"):
            night.run()

    night.append(some_rows(40, 1))
    meanwhile = Once(what=others)
    night.run(meanwhile)
    assert meanwhile.what is None
    assert len(bigkpca.history(night.out)) == 2


def test_models_that_belong_to_others_are_refused(night):
    path = Path(night.model)
    path.rename(path.with_name("kept"))
    with pytest.raises(SpecError, match=r"model\.zarr, the model that extracted the features"):
        night.run()
    bigkpca.fit(some_rows(70, 1), night.model, components=2, size=20, seed=3)
    with pytest.raises(SpecError, match=r"holds features of the model \w{12}, but .*model\.zarr is the model"):
        night.run()
    Path(night.out).rename(Path(night.out).with_name("other.zarr"))
    Path(night.job + ".bigkpca-record").unlink()
    with pytest.raises(SpecError, match="was fitted with other options: components = 2 there and 3 in the job"):
        night.run()


def test_what_is_no_output_of_a_job_is_never_replaced_and_told_in_the_metrics(new):
    new.set(metrics="bigkpca.prom")
    new.append(some_rows(70))
    out = Path(new.out)
    for make, message in (
        (lambda: bigkpca.transform(new.model, new.rows, out), "is a bigkpca feature store"),
        (lambda: shutil.copytree(new.model, out / "theirs"), "was not made by bigkpca"),
        (lambda: out.write_text("mine"), "was not made"),
    ):
        make()
        before = tree_bytes(new.root)
        with pytest.raises(SpecError, match=f"{message}.*: choose another output path"):
            new.run()
        assert new.metrics()["last_run_exit_code"] == 2
        Path(new.folder, "bigkpca.prom").unlink()
        assert tree_bytes(new.root) == before
        shutil.rmtree(out) if out.is_dir() else out.unlink()


def test_a_run_goes_on_where_one_was_stopped_and_then_takes_what_arrived(night):
    night.append(some_rows(200, 1))
    with pytest.raises(KeyboardInterrupt):
        night.run(stops_after())
    assert jobs.read_pinned(night.out)["stop"] == 290
    night.append(some_rows(33, 2))
    told = Recorder()
    records = night.run(told)
    assert [record["rows"] for record in records] == [[90, 290], [290, 323]]
    assert any(note.startswith("continuing: ") for note in told.notes)
    np.testing.assert_array_equal(night.scores(), night.wanted())
    assert [record["status"] for record in bigkpca.history(night.out)] == ["done", "failed", "done", "done"]


def test_a_run_that_was_cut_off_while_it_published_is_finished_first(night):
    night.append(some_rows(60, 7))
    with cut_off_at(block_arrays, "replace_block"):
        night.run()
    assert block_arrays.is_publishing(block_arrays.read_grown(f"{night.out}/1"))
    assert night.scores().shape == (90, 3)
    assert bigkpca.verify(night.out).shape == (90, 3)
    plan = plan_run(read_job(night.job, {}))
    assert (plan["action"], plan["rows_extracted_already"], plan["resumed"]) == ("nothing new", 150, True)
    assert night.scores().shape == (90, 3)
    assert night.run()[0]["status"] == "nothing new"
    assert night.scores().shape == (150, 3)
    statuses = [(record["run"], record["status"]) for record in bigkpca.history(night.out)]
    assert statuses == [(1, "done"), (2, "failed"), (2, "done"), (3, "nothing new")]


def test_a_folder_that_cannot_be_written_is_named(new, tmp_path):
    new.append(some_rows(70))
    with mounted("ro", tmp_path / "disk") as disk:
        new.set(JOB.replace('"features.zarr"', f'"{disk}/features.zarr"'))
        with pytest.raises(SpecError, match=r"features\.zarr cannot be written, since .*\(Read-only file system\)"):
            new.run()


# On object stores


@pytest.mark.full
def test_a_job_on_an_object_store(tmp_path, bucket):
    night = Night.made(tmp_path / "job", bucket)
    for number, count in enumerate((90, 53)):
        night.append(some_rows(count, number))
        (record,) = night.run()
        assert record["rows"][1] - record["rows"][0] == count
    assert night.run()[0]["status"] == "nothing new"
    np.testing.assert_array_equal(night.scores(), night.wanted())
    assert bigkpca.verify(night.out).shape == (143, 3)
    night.append(some_rows(9))
    with store_of(night.out).writer(night.out), pytest.raises(LockedError, match="another run is writing"):
        night.run()


@pytest.mark.full
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
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):  # noqa: PT012
        patched.setattr(clients, "put", delayed)
        night.run()
    night.run()
    night.append(some_rows(50, 2))
    night.run()
    wanted = in_bucket(night.out)
    assert late
    for url, content, mode in late:
        with pytest.raises(clients.Conflict):
            real(url, content, mode)
    assert in_bucket(night.out) == wanted
