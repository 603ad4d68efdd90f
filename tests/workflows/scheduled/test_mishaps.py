"""Versions and records when something went wrong: damage, kills between two writes, models that two jobs share."""

import errno
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import bigkpca
from bigkpca.data.stores.local import LocalDisk
from bigkpca.data.versions import read_versions
from bigkpca.errors import CorruptionError, IncompleteError, SpecError
from bigkpca.storage import job_output
from bigkpca.workflows.scheduled import intervals, new_rows
from tests.helpers.disks import Restored
from tests.helpers.nights import JOB, Night, some_rows


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One run, of 130 rows."""
    night = Night.made(tmp_path_factory.mktemp("made") / "job")
    night.append(some_rows(130))
    night.run()
    return Restored.made(Path(night.folder))


def cut_off(*_):
    raise KeyboardInterrupt


def test_jobs_that_share_a_model_fit_again_into_models_of_their_own(tmp_path):
    jobs = []
    for name, threshold in (("a", 0.2), ("b", 0.15)):
        job = Night.made(tmp_path / "job", on_drift="refit", drift_threshold=threshold)
        jobs.append(Path(tmp_path / "job" / f"{name}.toml"))
        jobs[-1].write_text(Path(job.job).read_text().replace("features.zarr", f"{name}.zarr"))
    night = Night.made(tmp_path / "job")
    night.append(some_rows(400))
    bigkpca.run(jobs[0])
    night.append(some_rows(400, 1) * 50)
    paths = [bigkpca.run(job)[-1]["model"]["path"] for job in reversed(jobs)]
    assert paths == [f"{night.root}/model-2.zarr", f"{night.root}/model-3.zarr"]
    night.append(some_rows(40, 1) * 50)
    assert [bigkpca.run(job)[-1]["status"] for job in jobs] == ["done", "done"]


def test_a_refit_that_was_cut_off_after_its_fit_takes_that_model_up(tmp_path, monkeypatch):
    night = Night.made(tmp_path / "job", on_drift="refit")
    night.append(some_rows(400))
    night.run()
    night.append(some_rows(400, 1) * 50)
    with monkeypatch.context() as patched:
        patched.setattr(job_output, "write_versions", cut_off)
        with pytest.raises(KeyboardInterrupt):
            night.run()
    (record,) = night.run()
    assert record["model"]["path"] == f"{night.root}/model-2.zarr"
    assert not Path(night.root, "model-3.zarr").exists()


def without_folder(path):
    shutil.rmtree(path)


def without_metadata(path):
    Path(path, "zarr.json").unlink()


def without_manifest(path):
    Path(path, "scores", "manifest.json").unlink()


def with_half_a_manifest(path):
    Path(path, "scores", "manifest.json").write_text("{")


HARMS = [without_folder, without_metadata, without_manifest, with_half_a_manifest]


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_version_is_named_and_all_rows_can_be_extracted_again(night, harm):
    harm(f"{night.out}/1")
    with pytest.raises(CorruptionError, match=r"features\.zarr/1.* restore it, or .* bigkpca run JOB\.toml --full"):
        night.run()
    assert bigkpca.history(night.out)[-1]["exit_code"] == 7
    (record,) = night.run(full=True)
    assert (record["version"], record["total_rows"]) == (2, 130)
    np.testing.assert_array_equal(night.scores(), night.wanted())


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_version_that_is_not_current_stops_no_run(night, harm):
    night.run(full=True)
    harm(f"{night.out}/1")
    night.append(some_rows(40, 1))
    assert night.run()[0]["total_rows"] == 170
    with pytest.raises(CorruptionError, match=r"features\.zarr/1"):
        bigkpca.rollback(night.out)
    assert night.scores().shape == (170, 3)


def test_a_damaged_version_can_be_left_for_the_one_before(night):
    night.run(full=True)
    with_half_a_manifest(f"{night.out}/2")
    assert bigkpca.rollback(night.out)["version"] == 1
    assert night.scores().shape == (130, 3)


@pytest.mark.parametrize("moment", ["set_current", "remove_pinned"])
def test_a_rollback_that_was_cut_off_is_finished_by_the_same_command_and_by_a_run(night, moment, monkeypatch):
    night.run(full=True)
    night.run(full=True)
    for finish in (lambda: bigkpca.rollback(night.out), night.run):
        with monkeypatch.context() as patched:
            patched.setattr(job_output, moment, cut_off)
            with pytest.raises(KeyboardInterrupt):
                bigkpca.rollback(night.out)
        finish()
        assert read_versions(night.out)["current"] == 2  # type: ignore[index]
        told = [each["message"] for each in bigkpca.history(night.out) if each["status"] == "rolled back"]
        assert told == ["from version 3 to version 2"]
        job_output.set_current(night.out, 3)
        records = Path(night.out, "runs.jsonl")
        kept = [line for line in records.read_text().splitlines() if "rolled back" not in line]
        records.write_text("".join(f"{line}\n" for line in kept))


def test_a_run_that_fails_before_it_begins_is_recorded_and_measured(night):
    night.set(metrics="bigkpca.prom")
    night.run()
    manifest = Path(night.out, "manifest.json")
    whole = manifest.read_text()
    manifest.write_text("{")
    with pytest.raises(CorruptionError):
        night.run()
    failed = bigkpca.history(night.out)[-1]
    assert (failed["run"], failed["status"], failed["exit_code"]) == (3, "failed", 7)
    assert f'exit_code{{output="{night.out}"}} 7.0' in Path(night.root, "bigkpca.prom").read_text()
    manifest.write_text(whole)
    assert night.run()[0]["run"] == 4


@pytest.mark.parametrize(("number", "kind", "code"), [(errno.EACCES, SpecError, 2), (errno.ENOSPC, IncompleteError, 6)])
def test_a_record_has_the_exit_code_of_the_command(night, number, kind, code, monkeypatch):
    def refused(*_):
        raise OSError(number, "no", "somewhere")

    with monkeypatch.context() as patched:
        patched.setattr(new_rows.input_rows, "open_input", refused)
        with pytest.raises(kind):
            night.run()
    assert bigkpca.history(night.out)[-1]["exit_code"] == code


def test_metrics_that_find_no_room_are_no_mistake_in_the_job(night, monkeypatch):
    night.set(metrics="bigkpca.prom")
    write = LocalDisk.write

    def full(self, path, content):
        if path.endswith(".prom"):
            raise OSError(errno.ENOSPC, "no space left")
        write(self, path, content)

    monkeypatch.setattr(LocalDisk, "write", full)
    with pytest.raises(IncompleteError, match="the disk is full"):
        night.run()


def test_rows_since_the_day_of_a_refit_are_all_rows(tmp_path):
    night = Night.made(tmp_path / "job", on_drift="refit")
    night.append(some_rows(400))
    night.run()
    records = Path(night.out, "runs.jsonl")
    today = datetime.now(UTC).date()
    records.write_text(records.read_text().replace(str(today), str(today - timedelta(days=3))))
    night.append(some_rows(400, 1) * 50)
    night.run()
    (record,) = night.run(since=str(today - timedelta(days=1)))
    assert record["extracted"] == [0, 800]
    assert intervals.Asked.parsed(None, datetime.now(UTC), False).since == datetime.now(UTC).date()


def test_what_a_run_began_that_was_asked_for_something_else_is_removed(night, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("bigkpca.storage.destination.Destination.put_in_place", cut_off)
        with pytest.raises(KeyboardInterrupt):
            night.run(rows="0:32")
    assert len(list(Path(night.out).iterdir())) == 6
    night.append(some_rows(40, 1))
    night.run()
    left = sorted(path.name for path in Path(night.out).iterdir())
    assert left == ["1", "manifest.json", "runs.jsonl", "zarr.json"]


def test_what_verify_advises_can_be_typed(night):
    shards = sorted(Path(night.out, "1", "scores", "c").glob("*/*"))
    for shard in (shards[0], shards[3]):
        shard.write_bytes(b"damaged")
    with pytest.raises(CorruptionError, match=r"with bigkpca run JOB\.toml --rows 0:128$") as raised:
        bigkpca.verify(night.out)
    night.run(rows=str(raised.value).split()[-1])
    np.testing.assert_array_equal(night.scores(), night.wanted())


@pytest.mark.parametrize(
    "change", [("block_rows = 32", f"block_rows = {10**400}"), ("[run]", f"[run]\nworkers = {10**30}")]
)
def test_numbers_that_nothing_has_are_refused(night, change):
    Path(night.job).write_text(JOB.replace(*change))
    with pytest.raises(SpecError, match=r"too large: give a whole number of at least 1$"):
        night.run()
