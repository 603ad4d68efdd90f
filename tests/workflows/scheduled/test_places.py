"""Output, model and metrics of a job that are gone: a volume that is not mounted is never taken for a first run."""

import json
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

import bigkpca
from bigkpca.data.stores.local import LocalDisk
from bigkpca.errors import BigKPCAError, SpecError
from bigkpca.spec.job import read_job
from bigkpca.workflows.scheduled import plan_run
from tests.helpers.commands import run
from tests.helpers.disks import Restored, tree_bytes
from tests.helpers.nights import JOB, Night, some_rows
from tests.helpers.progress import Recorder

ELSEWHERE = JOB.replace('"features.zarr"', '"disk/features.zarr"').replace('"model.zarr"', '"models/model.zarr"')
MUST_EXIST = ELSEWHERE.replace("[run]", "must_exist = true\n[run]")


@pytest.fixture(scope="module")
def made(tmp_path_factory, fitted):
    """A job that ran once, whose output is on one volume and whose model is on another."""
    night = Night.made(tmp_path_factory.mktemp("made") / "job")
    night.set(ELSEWHERE, metrics="bigkpca.prom")
    shutil.copytree(fitted, f"{night.root}/models/model.zarr")
    night.append(some_rows(70))
    night.run()
    return Restored.made(Path(night.folder))


@pytest.fixture
def out(night):
    return f"{night.root}/disk/features.zarr"


def record_of(night):
    return Path(night.job + ".bigkpca-record")


def outputs(night):
    return [each["output"] for each in json.loads(record_of(night).read_text())["places"]]


@contextmanager
def unmounted(night, name):
    """While entered, there is an empty folder, as where a volume is not mounted."""
    Path(night.root, name).rename(Path(night.root, f"{name} unmounted"))
    Path(night.root, name).mkdir()
    yield
    Path(night.root, name).rmdir()  # it is still empty
    Path(night.root, f"{name} unmounted").rename(Path(night.root, name))


GONE = (
    r"disk/features\.zarr, the output of earlier runs of this job, is gone: mount its volume or restore it; to start "
    r"anew, remove .*nightly\.toml\.bigkpca-record, or set output\.must_exist = false in the job"
)


def test_an_output_that_is_gone_is_no_first_run_and_told_in_the_metrics(night):
    night.append(some_rows(9))
    with unmounted(night, "disk"):
        before = tree_bytes(night.root)
        with pytest.raises(SpecError, match=GONE):
            plan_run(read_job(night.job, {}))
        assert tree_bytes(night.root) == before
        with pytest.raises(SpecError, match=GONE):
            night.run()
        assert night.metrics()["last_run_exit_code"] == 2
        Path(night.root, "disk").rmdir()
        with pytest.raises(SpecError, match=GONE):
            night.run()
        Path(night.root, "disk").mkdir()
    assert night.run()[0]["total_rows"] == 79


def test_who_removes_the_record_or_says_so_starts_anew(night, out):
    anew = ELSEWHERE.replace("[run]", "must_exist = false\n[run]")
    for number, start in enumerate((lambda: record_of(night).unlink(), lambda: night.set(anew))):
        Path(night.root, "disk").rename(Path(night.root, f"disk {number}"))
        with pytest.raises(SpecError, match=GONE):
            night.run()
        start()
        assert night.run()[0]["total_rows"] == 70
        assert outputs(night)[-1] == out


def test_another_output_is_a_first_run_and_its_model_must_be_there(night, out):
    night.set(ELSEWHERE.replace("disk/", "other/"))
    message = r"models/model\.zarr, the model of earlier runs of this job, is gone: mount its"
    with unmounted(night, "models"), pytest.raises(SpecError, match=message):
        night.run()
    assert night.run()[0]["run"] == 1
    assert outputs(night) == [out, f"{night.root}/other/features.zarr"]


def test_a_job_may_say_that_there_must_be_output(night):
    night.set(MUST_EXIST)
    assert night.run()[0]["status"] == "nothing new"
    Path(night.root, "disk").rename(Path(night.root, "gone"))
    record_of(night).unlink()
    with pytest.raises(SpecError, match=r"features\.zarr holds no features, but the job sets output\.must_exist = tr"):
        night.run()
    assert not Path(night.root, "disk").exists()


def test_a_record_that_cannot_be_written_beside_the_job_lies_in_the_state_folder_or_is_missed(night, monkeypatch):
    told = Recorder()
    record_of(night).unlink()
    record_of(night).mkdir()  # as little a file to write as one in a read-only folder
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    night.run(told)
    assert [note for note in told.notes if "bigkpca-record" in note] == [
        f"{night.job}.bigkpca-record cannot be written, so a later run could take an unmounted volume for a first "
        "run: set output.must_exist = true in the job"
    ]
    night.set(MUST_EXIST)
    told.notes.clear()
    night.run(told)
    assert not [note for note in told.notes if "bigkpca-record" in note]
    state = Path(night.root, "state")
    state.mkdir()
    monkeypatch.setenv("STATE_DIRECTORY", f"{state}:/other")
    night.set(ELSEWHERE)
    night.run(told)
    assert [path.name for path in state.iterdir()] == ["nightly.toml.bigkpca-record"]
    message = r"is gone: .* remove .*/state/nightly\.toml\.bigkpca-record"
    with unmounted(night, "disk"), pytest.raises(SpecError, match=message):
        night.run()


def test_a_damaged_record_stops_a_first_run_alone(night):
    message = "bigkpca-record is not a valid record of the paths of a job: remove it once"
    for content in ("{", "[]", '{"places": [1]}', '{"places": [{"output": 1}]}'):
        record_of(night).write_text(content)
        with unmounted(night, "disk"), pytest.raises(SpecError, match=message):
            night.run()
    night.run()
    assert len(outputs(night)) == 1


def test_a_job_file_with_a_mistake_is_a_failed_run(night, out):
    success = night.metrics()["last_success_timestamp_seconds"]
    mistakes = [
        (ELSEWHERE + 'metrics = "bigkpca.prom"\nworkers = "four"', "valid integer"),  # in another key
        (ELSEWHERE.replace("disk/features.zarr", "${NOWHERE}"), "NOWHERE is not set"),  # in the path of the output
        (ELSEWHERE + "workers =", "not valid TOML"),
        ("", "input: Field required"),
    ]
    for number, (text, message) in enumerate(mistakes, 1):
        Path(night.job).write_text(text)
        assert run("run", night.job).exit_code == 2
        found = night.metrics()
        assert (found["last_run_exit_code"], found["failed_runs_total"]) == (2, number), message
        assert found["last_success_timestamp_seconds"] == success
        last = bigkpca.history(out)[-1]
        assert (last["run"], last["status"], last["exit_code"]) == (1 + number, "failed", 2)
        assert message in last["message"]


def test_a_run_that_finds_the_lock_taken_changes_no_metrics(night, out):
    before = Path(night.folder, "bigkpca.prom").read_bytes()
    with LocalDisk().writer(out):
        with pytest.raises(BigKPCAError, match="another run is writing"):
            night.run()
        Path(night.job).write_text("")
        with pytest.raises(SpecError, match="Field required"):
            night.run()
    assert Path(night.folder, "bigkpca.prom").read_bytes() == before
