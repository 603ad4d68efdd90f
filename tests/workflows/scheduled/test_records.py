"""Records of runs, metrics, and what is told when something is wrong."""

import errno
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca.data.stores.local import LocalDisk
from bigkpca.errors import CorruptionError, DataError, IncompleteError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.storage import models
from bigkpca.workflows import scheduled
from bigkpca.workflows.scheduled import records
from tests.helpers.commands import run
from tests.helpers.nights import JOB, Night, some_rows, stops_after
from tests.helpers.progress import Recorder

FEWER_COMPONENTS = JOB.replace("components = 3", "components = 2")  # than the model of the job has


def test_a_record_says_what_a_run_did(tmp_path):
    night, before = Night.made(tmp_path / "job"), datetime.now(UTC)
    night.append(some_rows(70))
    (record,) = night.run()
    model, spec = bigkpca.load(night.model), {"components": 3, "size": 20, "seed": 3}  # which it fitted
    assert {key: model.provenance["spec"][key] for key in spec} == spec
    assert record["model"] == {"path": night.model, "digest": models.model_digest(model)}
    assert len(record["input"].pop("tail")) == 1  # the stamp of the last chunk
    assert record["input"] == {"path": night.rows, "dtype": "<f4", "columns": 4, "gaps": []}
    assert record["bytes"] == {"read": 70 * 16, "written": 70 * 12}
    assert record["seconds"]["total"] >= record["seconds"]["fit"] + record["seconds"]["extract"] - 0.01 > 0
    assert record["packages"]["bigkpca"] == bigkpca.__version__
    assert before - timedelta(seconds=1) <= datetime.fromisoformat(record["started"]) <= datetime.now(UTC)
    (kept,) = bigkpca.history(night.out)
    del kept["input"]["tail"]
    assert kept == record
    again = Night.made(tmp_path / "again")
    again.append(some_rows(70))
    assert again.run()[0]["features_digest"] == record["features_digest"]  # equal rows, equal features
    assert again.run()[0]["features_digest"] is None


def test_metrics_tell_of_the_last_run_and_the_last_success(new):
    new.set(metrics="bigkpca.prom")
    new.append(some_rows(70))
    new.run()
    found = new.metrics()
    assert found["last_run_new_rows"] == found["rows"] == 70
    assert found["last_run_exit_code"] == found["failed_runs_total"] == 0
    success = found["last_success_timestamp_seconds"]
    new.append(some_rows(9))
    new.set(FEWER_COMPONENTS, metrics="bigkpca.prom")
    with pytest.raises(SpecError):
        new.run()
    found = new.metrics()
    assert found["last_success_timestamp_seconds"] == success <= found["last_run_timestamp_seconds"]
    assert (found["last_run_exit_code"], found["failed_runs_total"]) == (2, 1)
    assert (found["rows"], found["last_run_new_rows"]) == (70, 0)


def test_metrics_that_cannot_be_written_fail_the_command_before_anything_is_computed(night):
    night.append(some_rows(9))
    night.set(metrics="nowhere/bigkpca.prom")
    told = Recorder()
    with pytest.raises(SpecError, match=r"metrics cannot be written to .*nowhere/bigkpca\.prom"):
        night.run(told)
    assert told.started == []
    night.set(metrics="bigkpca.prom")
    write = LocalDisk.write

    def full(self, path, content):
        if path.endswith(".prom"):
            raise OSError(errno.ENOSPC, "no space left")
        write(self, path, content)

    full_disk = mock.patch.object(LocalDisk, "write", full)
    with full_disk, pytest.raises(IncompleteError, match="the disk is full"):  # which is no mistake in the job
        night.run()
    assert night.run()[0]["total_rows"] == 99


def test_lines_of_the_records_that_do_not_parse_are_kept_and_told(night):
    file = Path(night.out, "runs.jsonl")
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"run": 2, "sta')  # as a full disk may leave it
    night.append(some_rows(9))
    night.run()
    assert file.read_bytes().startswith(whole + b'{"run": 2, "sta\n{"run": 2, ')
    told = Recorder()
    assert [record["run"] for record in bigkpca.history(night.out, progress=told)] == [1, 2]
    assert told.notes == [f"{night.out}/runs.jsonl: skipping lines that do not parse: 2"]
    file.write_bytes(b"\xff\x00[1]\n\n7\n")
    assert night.run()[0]["run"] == 3  # the manifest knows of the run before
    file.unlink()
    night.run()
    assert [record["rows"] for record in bigkpca.history(night.out)] == [[90, 99], [99, 99]]


def test_a_clock_that_went_backwards_is_told(night):
    night.age(timedelta(days=-9))
    (record,) = night.run()
    assert record["status"] == "nothing new"
    assert record["message"].startswith(f"the clock of this machine shows {record['started'][:13]}")
    assert "but an earlier run ended at " in record["message"]
    assert night.run()[0]["run"] == 3


@pytest.mark.parametrize(("number", "kind", "code"), [(errno.EACCES, SpecError, 2), (errno.ENOSPC, IncompleteError, 6)])
def test_a_record_has_the_exit_code_of_the_command(night, number, kind, code):
    failing = mock.patch.object(scheduled.input_rows, "open_input", side_effect=OSError(number, "no", "somewhere"))
    with failing, pytest.raises(kind):
        night.run()
    assert bigkpca.history(night.out)[-1]["exit_code"] == code


def test_a_run_that_fails_is_recorded_and_the_next_one_goes_on(night):
    night.append(some_rows(9))
    night.forget_digests()
    array = zarr.open_array(f"{night.rows}/x", mode="r+")
    array[94, 2] = float("nan")
    with pytest.raises(DataError, match="row 94, column 2"):
        night.run()
    assert night.scores().shape == (90, 3)
    failed = bigkpca.history(night.out)[-1]
    assert (failed["status"], failed["exit_code"], failed["rows"]) == ("failed", 3, None)
    assert "row 94, column 2" in failed["message"]
    array[94, 2] = 1
    night.run()
    assert night.scores().shape == (99, 3)
    night.set(metrics="bigkpca.prom")
    Path(night.out, "manifest.json").write_text("{")
    with pytest.raises(CorruptionError):  # before the run begins
        night.run()
    assert bigkpca.history(night.out)[-1]["exit_code"] == 7
    assert night.metrics()["last_run_exit_code"] == 7


def test_commands_print_runs_plans_and_their_history(new):
    new.append(some_rows(70))
    plan = json.loads(run("run", new.job, "--plan", "--json").stdout)
    assert (plan["action"], Path(new.out).exists()) == ("extract features", False)
    assert json.loads(run("run", new.job, "--json").stdout)["rows"] == [0, 70]
    assert "nothing new" in run("run", new.job).stdout
    new.append(some_rows(30))
    plan = json.loads(run("run", new.job, "--plan", "--json").stdout)
    assert (plan["action"], plan["rows"]) == ("extract features", [70, 100])
    assert "70 to 99" in run("run", new.job).stdout
    table = run("history", new.out).stdout.splitlines()
    assert [line.split()[0] for line in table] == ["run", "1", "2", "3"]
    assert [json.loads(line)["run"] for line in run("history", new.out, "--json").stdout.splitlines()] == [1, 2, 3]
    assert "last run" in run("info", new.out).stdout
    Path(new.model).rename(f"{new.root}/kept.zarr")
    Path(new.out).rename(f"{new.root}/other.zarr")
    Path(f"{new.job}.bigkpca-record").unlink()
    assert "fit a model, and extract features" in run("run", new.job, "--plan").stdout


def test_a_command_says_what_is_wrong_in_a_few_lines(night):
    for told, *command in (
        ("there is no job file", "run", f"{night.folder}/none.toml"),
        ("bigkpca: ", "history", night.folder),
        ("does not exist", "history", f"{night.folder}/none"),
    ):
        done = run(*command)
        assert (done.exit_code, told in done.stderr) == (2, True), command
        assert len(done.stderr.splitlines()) <= 3


def test_warnings_are_shown_also_when_quiet_and_lines_and_errors_can_be_json(night):
    night.append(some_rows(300, 5) * 30)
    night.set(log="json", on_drift="fail")
    failed = run("run", night.job)
    *lines, last = [json.loads(line) for line in failed.stderr.splitlines()]
    assert any(line["message"].startswith("extracting features: ") for line in lines)
    assert all(datetime.fromisoformat(line["time"]).tzinfo for line in lines)
    assert (last["exit_code"], failed.exit_code, last["message"][:8]) == (3, 3, "drift 0.")
    night.set()
    done = run("run", night.job, "-q")
    assert done.exit_code == 0
    assert done.stderr.startswith("warning: drift 0.")
    assert done.stderr.count("\n") == 1


def test_a_run_says_once_that_other_packages_made_the_features_that_are_there(night, monkeypatch):
    real, other = records.version, {"scipy": "9.9", "zarr": "9.9"}  # the latter decides no byte
    monkeypatch.setattr(records, "version", lambda name: other.get(name) or real(name))
    told = Recorder()
    night.append(some_rows(40, 1))
    (record,) = night.run(told)
    before = records.makers(bigkpca.history(night.out)[0])["scipy"]
    assert record["message"] == (
        f"{night.out}/1 holds features made with scipy {before}, but this run has scipy 9.9: last digits can differ; "
        "to make all features again, name another output.path"
    )
    assert told.notes == [f"warning: {record['message']}"]
    assert record["packages"]["scipy"] == "9.9"
    night.append(some_rows(9))
    assert night.run()[0]["message"] is None
    monkeypatch.setattr(Engine, "core_types", lambda _: ["Zen", "Haswell"])
    night.append(some_rows(9))
    assert "but this run has processors Zen, Haswell: " in night.run()[0]["message"]


@pytest.mark.full
def test_blocks_of_a_run_that_was_cut_off_before_an_upgrade_are_made_again(night, monkeypatch):
    night.append(some_rows(200, 2))
    with pytest.raises(KeyboardInterrupt):
        night.run(stops_after())
    real = records.version
    monkeypatch.setattr(records, "version", lambda name: "9.9" if name == "numpy" else real(name))
    told, stopped = Recorder(), stops_after()
    with pytest.raises(KeyboardInterrupt):
        night.run(stopped)
    assert not any(note.startswith("continuing: ") for note in stopped.notes)
    night.run(told)
    assert any(note.startswith("continuing: ") for note in told.notes)
    np.testing.assert_array_equal(night.scores(), night.wanted())


@pytest.mark.full
def test_a_model_keeps_its_digest_under_a_later_bigkpca(night, monkeypatch):
    before = models.model_digest(bigkpca.load(night.model))
    monkeypatch.setattr(models, "version", lambda _: "99.0")
    assert models.model_digest(bigkpca.load(night.model)) == before
    night.append(some_rows(9))
    assert night.run()[0]["rows"] == [90, 99]
    assert bigkpca.reconstruct(night.model, night.out, f"{night.root}/again.zarr").shape == (99, 4)
