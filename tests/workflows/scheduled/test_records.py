"""Records of runs, metrics, and what is told when something is wrong or gone."""

import errno
import json
import os
import shutil
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest

import bigkpca
from bigkpca.data.stores.local import LocalDisk
from bigkpca.errors import IncompleteError, LockedError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.storage import models
from bigkpca.workflows.scheduled import finding, records
from tests.helpers.commands import run
from tests.helpers.disks import Restored, tree_bytes
from tests.helpers.nights import JOB, Night, some_rows
from tests.helpers.progress import Recorder

FEWER_COMPONENTS = JOB.replace("n_components = 3", "n_components = 2")  # than the model of the job has
ELSEWHERE = JOB.replace('"features.zarr"', '"disk/features.zarr"')
MUST_EXIST = ELSEWHERE.replace("[run]", "must_exist = true\n[run]")


def writes_fail(ending, number):
    """While entered, no file whose name ends so can be written."""
    write = LocalDisk.write

    def failing(self, path, content):
        if path.endswith(ending):
            raise OSError(number, os.strerror(number))
        write(self, path, content)

    return mock.patch.object(LocalDisk, "write", failing)


def test_a_record_says_what_a_run_did(tmp_path):
    night, before = Night.made(tmp_path / "job"), datetime.now(UTC)
    night.append(some_rows(70))
    (record,) = night.run()
    model, spec = bigkpca.load(night.model), {"n_components": 3, "size": 20, "random_state": 3}  # which it fitted
    assert {key: model.provenance["spec"][key] for key in spec} == spec
    assert record["model"] == {"path": night.model, "digest": models.model_digest(model)}
    assert record["input"] == {"path": night.rows, "dtype": "<f4", "columns": 4}
    assert record["seconds"]["total"] >= record["seconds"]["fit"] + record["seconds"]["extract"] - 0.01 > 0
    assert record["packages"]["bigkpca"] == bigkpca.__version__
    assert before - timedelta(seconds=1) <= datetime.fromisoformat(record["started"]) <= datetime.now(UTC)
    assert bigkpca.history(night.out) == [record]


def test_metrics_tell_of_the_last_run_and_the_last_success(new):
    new.set(metrics="bigkpca.prom")
    new.append(some_rows(70))
    new.run()
    first = new.metrics()
    assert first["last_run_new_rows"] == first["rows"] == 70
    assert first["last_run_exit_code"] == first["failed_runs_total"] == 0
    new.append(some_rows(9))
    new.set(FEWER_COMPONENTS, metrics="bigkpca.prom")
    with pytest.raises(SpecError):
        new.run()
    found, success = new.metrics(), "last_success_timestamp_seconds"
    assert found[success] == first[success] <= found["last_run_timestamp_seconds"]
    assert (found["last_run_exit_code"], found["failed_runs_total"]) == (2, 1)
    assert (found["rows"], found["last_run_new_rows"]) == (70, 0)


def test_metrics_that_cannot_be_written_fail_the_command_before_anything_is_computed(night):
    night.append(some_rows(9))
    night.set(metrics="nowhere/bigkpca.prom")
    told = Recorder()
    night.refused(SpecError, r"metrics cannot be written to .*nowhere/bigkpca\.prom", told)
    assert told.started == []
    night.set(metrics="bigkpca.prom")
    with writes_fail(".prom", errno.ENOSPC):  # which is no mistake in the job
        night.refused(IncompleteError, "disk is full")
    assert bigkpca.history(night.out)[-1]["exit_code"] == 6
    assert night.run()[0]["total_rows"] == 99


def test_lines_of_the_records_that_no_run_wrote_are_kept_and_skipped(night):
    file = Path(night.out + ".runs.jsonl")
    whole = file.read_bytes() + b'{"ru\n\n[1]\n{"run": "2"}\n' + b"[" * 9999 + b'\n{"run": 2, "sta'
    file.write_bytes(whole)
    night.append(some_rows(9))
    night.run()
    assert file.read_bytes().startswith(whole + b'\n{"run": 2, ')
    assert [record["run"] for record in bigkpca.history(night.out)] == [1, 2]
    file.unlink()
    night.run()  # the manifest knows of the rows
    assert [(record["run"], record["rows"]) for record in bigkpca.history(night.out)] == [(1, [0, 99]), (2, [99, 99])]


@pytest.mark.parametrize(("number", "code"), [(errno.EACCES, 2), (errno.ENOSPC, 6)])
def test_a_record_has_the_exit_code_of_the_command(night, number, code):
    with mock.patch.object(finding, "_open_input", side_effect=OSError(number, "no", "somewhere")):
        done = run("run", night.job)
    assert done.exit_code == code == bigkpca.history(night.out)[-1]["exit_code"]


def test_commands_print_runs_and_their_history(new):
    new.append(some_rows(70))
    assert json.loads(run("run", new.job, "--json").stdout)["rows"] == [0, 70]
    assert "nothing new" in run("run", new.job).stdout
    new.append(some_rows(30))
    assert run("run", new.job, "--memory", "1 MB").exit_code == 4
    assert "70 to 99" in run("run", new.job, "--workers", "1").stdout
    table = run("history", new.out).stdout.splitlines()
    assert [line.split()[0] for line in table] == ["run", "1", "2", "3", "4"]
    assert [json.loads(line)["run"] for line in run("history", new.out, "--json").stdout.splitlines()] == [1, 2, 3, 4]
    for told, *command in (
        ("there is no job file", "run", f"{new.folder}/none.toml"),
        ("is not the output of a job", "history", new.folder),
    ):
        done = run(*command)
        assert (done.exit_code, told in done.stderr, len(done.stderr.splitlines()) <= 3) == (2, True, True), command


def test_warnings_are_shown_also_when_quiet(night):
    night.append(some_rows(300, 5) * 30)
    night.set(on_drift="fail")
    failed = run("run", night.job)
    assert failed.stderr.startswith("extracting features: ")
    assert (failed.exit_code, failed.stderr.splitlines()[-1][:17]) == (3, "bigkpca: drift 0.")
    night.set()
    done = run("run", night.job, "-q")
    assert done.exit_code == 0
    assert done.stderr.startswith("warning: drift 0.")
    assert done.stderr.count("\n") == 1


def test_a_run_says_once_that_other_packages_made_the_features_that_are_there(night, monkeypatch):
    real, other = records.version, {"scipy": "9.9", "zarr": "9.9"}  # the latter decides no byte
    before = bigkpca.history(night.out)[0]["packages"]["scipy"]
    monkeypatch.setattr(records, "version", lambda name: other.get(name) or real(name))
    told = Recorder()
    night.append(some_rows(40, 1))
    (record,) = night.run(told)
    assert record["message"] == (
        f"{night.out} holds features made with scipy {before}, but this run has scipy 9.9: last digits can differ; for "
        "the same bits in all rows, name another output.path, where all rows are extracted"
    )
    assert told.notes == [f"warning: {record['message']}"]
    night.append(some_rows(9))
    assert night.run()[0]["message"] is None
    monkeypatch.setattr(Engine, "core_types", lambda _: ["Zen", "Haswell"])
    night.append(some_rows(9))
    assert "but this run has processors Zen, Haswell: " in night.run()[0]["message"]


@pytest.mark.full
def test_a_model_keeps_its_digest_under_a_later_bigkpca(night, monkeypatch):
    before = models.model_digest(bigkpca.load(night.model))
    monkeypatch.setattr(models, "version", lambda _: "99.0")
    assert models.model_digest(bigkpca.load(night.model)) == before
    night.append(some_rows(9))
    assert night.run()[0]["rows"] == [90, 99]
    assert bigkpca.reconstruct(night.model, night.out, f"{night.root}/again.zarr").shape == (99, 4)


# Volumes that are not mounted


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory, fitted):
    """A job that ran once, whose output is on another volume."""
    night = Night.made(tmp_path_factory.mktemp("made") / "job")
    night.set(ELSEWHERE, metrics="bigkpca.prom")
    shutil.copytree(fitted, night.model)
    night.append(some_rows(70))
    night.run()
    return Restored.made(Path(night.folder))


@pytest.fixture
def mounted(elsewhere):
    night = Night(elsewhere.again())
    night.out, night.record = f"{night.root}/disk/features.zarr", Path(night.job + ".bigkpca-record")
    return night


@contextmanager
def unmounted(night):
    """While entered, there is an empty folder, as where a volume is not mounted."""
    disk, away = Path(night.root, "disk"), Path(night.root, "away")
    disk.rename(away)
    disk.mkdir()
    yield
    disk.rmdir()  # it is still empty
    away.rename(disk)


GONE = (
    r"disk/features\.zarr, which earlier runs of this job wrote, is gone: mount its volume or restore it; to start "
    r"anew, remove .*nightly\.toml\.bigkpca-record"
)


def test_an_output_that_is_gone_is_no_first_run(mounted):
    mounted.append(some_rows(9))
    with unmounted(mounted):
        before = tree_bytes(mounted.root)
        mounted.refused(SpecError, GONE)
        assert tree_bytes(mounted.root) == before
    assert mounted.run()[0]["total_rows"] == 79


def test_who_removes_the_record_says_so_or_names_another_output_starts_anew(mounted):
    other = ELSEWHERE.replace("disk/", "other/")
    for number, start in enumerate((mounted.record.unlink, lambda: mounted.set(other))):
        Path(mounted.root, "disk").rename(Path(mounted.root, f"disk {number}"))
        mounted.refused(SpecError, GONE)
        start()
        record = mounted.run()[0]
        assert (record["run"], record["total_rows"]) == (1, 70)
        mounted.set(ELSEWHERE)
    assert mounted.record.read_text() == f"{mounted.root}/other/features.zarr"


def test_a_job_may_say_that_there_must_be_output_where_no_record_can_be_written(mounted):
    mounted.record.unlink()
    missed = (
        f"{mounted.record} cannot be written, so a later run could take an unmounted volume for a first run: set "
        "output.must_exist = true in the job"
    )
    for text, notes in ((ELSEWHERE, [missed]), (MUST_EXIST, [])):
        told = Recorder()
        mounted.set(text)
        with writes_fail(mounted.record.name, errno.EROFS):
            assert mounted.run(told)[0]["status"] == "nothing new"
        assert [note for note in told.notes if "bigkpca-record" in note] == notes
    message = r"features\.zarr holds no features, but the job sets output\.must_exist = tr"
    with unmounted(mounted):
        mounted.refused(SpecError, message)


def test_a_run_that_finds_the_lock_taken_changes_no_metrics(mounted):
    before = Path(mounted.folder, "bigkpca.prom").read_bytes()
    with LocalDisk().writer(mounted.out + ".runs.jsonl"):
        mounted.refused(LockedError, "another run is writing")
    assert Path(mounted.folder, "bigkpca.prom").read_bytes() == before


def test_features_that_no_job_made_get_no_record(night):
    scores = Path(night.folder) / "scores.zarr"
    bigkpca.transform(night.model, night.rows, scores)
    records.complete(str(scores))
    with pytest.raises(SpecError, match="is not the output of a job"):
        bigkpca.history(scores)
