"""Output, model and metrics of a job that are gone: a volume that is not mounted is never taken for a first run."""

import json
import logging
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import bigkpca
from bigkpca.data.stores import local
from bigkpca.errors import BigKPCAError, SpecError
from bigkpca.spec.job import read_job
from bigkpca.workflows.scheduled.plan import plan_run
from tests.helpers.commands import run
from tests.helpers.disks import mounted, tree_bytes
from tests.helpers.nights import JOB, Night, some_rows
from tests.helpers.progress import Recorder

ELSEWHERE = JOB.replace('"features.zarr"', '"disk/features.zarr"').replace('"model.zarr"', '"models/model.zarr"')


def had_a_night(folder, text=ELSEWHERE, **options):
    """A job that ran once, whose output is on one volume and whose model is on another."""
    night = Night.made(folder)
    night.set(text, **options)
    night.append(some_rows(70))
    night.run()
    return night


def record_of(night):
    return Path(night.job + ".bigkpca-record")


def unmount(night, name):
    """Leave an empty folder, as a volume does that is not mounted."""
    Path(night.root, name).rename(Path(night.root, f"{name} unmounted"))
    Path(night.root, name).mkdir()


def metrics(path):
    families = text_string_to_metric_families(Path(path).read_text())
    return {sample.name.removeprefix("bigkpca_"): sample.value for family in families for sample in family.samples}


GONE = (
    r"disk/features\.zarr is gone, the output of earlier runs of this job: mount its volume or restore it; to start "
    r"anew, remove .*nightly\.toml\.bigkpca-record, or set output\.must_exist = false in the job"
)


@pytest.mark.parametrize("asked", [{}, {"full": True}, {"rows": ":"}])
def test_an_output_that_is_gone_is_no_first_run(tmp_path, asked):
    night = had_a_night(tmp_path / "job")
    unmount(night, "disk")
    night.append(some_rows(9))
    before = tree_bytes(Path(night.root))
    with pytest.raises(SpecError, match=GONE):
        night.run(**asked)
    with pytest.raises(SpecError, match=GONE):
        plan_run(read_job(night.job, {}))
    assert tree_bytes(Path(night.root)) == before
    Path(night.root, "disk").rmdir()
    with pytest.raises(SpecError, match=GONE):
        night.run()
    assert not Path(night.root, "disk").exists()
    Path(night.root, "disk unmounted").rename(Path(night.root, "disk"))
    assert night.run()[0]["total_rows"] == 79


def test_an_output_that_is_gone_with_a_real_volume_is_no_first_run(tmp_path):
    night = Night.made(tmp_path / "job")
    night.set(ELSEWHERE)
    night.append(some_rows(70))
    with mounted("size=8m", tmp_path / "job" / "disk"):
        night.run()
    with pytest.raises(SpecError, match=GONE):
        night.run()
    assert list((tmp_path / "job" / "disk").iterdir()) == []


def test_who_removes_the_record_or_says_so_starts_anew(tmp_path):
    night = had_a_night(tmp_path / "job")
    anew = ELSEWHERE.replace("[run]", "must_exist = false\n[run]")
    for number, start in enumerate((lambda: record_of(night).unlink(), lambda: night.set(anew))):
        Path(night.root, "disk").rename(Path(night.root, f"disk {number}"))
        with pytest.raises(SpecError, match=GONE):
            night.run()
        start()
        assert night.run()[0]["total_rows"] == 70
        assert json.loads(record_of(night).read_text())["places"][-1]["output"] == f"{night.root}/disk/features.zarr"


def test_another_output_is_a_first_run_and_its_model_must_be_there(tmp_path):
    night = had_a_night(tmp_path / "job")
    night.set(ELSEWHERE.replace("disk/", "other/"))
    unmount(night, "models")
    with pytest.raises(
        SpecError, match=r"models/model\.zarr is gone, the model of earlier runs of this job: mount its"
    ):
        night.run()
    assert list(Path(night.root, "models").iterdir()) == []
    Path(night.root, "models").rmdir()
    Path(night.root, "models unmounted").rename(Path(night.root, "models"))
    assert night.run()[0]["run"] == 1
    assert [each["output"] for each in json.loads(record_of(night).read_text())["places"]] == [
        f"{night.root}/{name}/features.zarr" for name in ("disk", "other")
    ]


def test_a_job_may_say_that_there_must_be_output(tmp_path):
    night = Night.made(tmp_path / "job")
    night.set(ELSEWHERE.replace("[run]", "must_exist = true\n[run]"))
    night.append(some_rows(70))
    with pytest.raises(
        SpecError, match=r"features\.zarr holds no features, and the job says output\.must_exist = true"
    ):
        night.run()
    assert not Path(night.root, "disk").exists()
    night.set(ELSEWHERE)
    night.run()
    night.set(ELSEWHERE.replace("[run]", "must_exist = true\n[run]"))
    assert night.run()[0]["status"] == "nothing new"


def full(path, *_):
    raise OSError(30, "Read-only file system", path)


def test_a_job_file_in_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    night, told, usual = Night.made(tmp_path / "job"), Recorder(), local._new_file
    monkeypatch.setattr(local, "_new_file", lambda path: (full if ".bigkpca-record" in path else usual)(path))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    night.set(ELSEWHERE)
    night.append(some_rows(70))
    night.run(told)
    assert [note for note in told.notes if "bigkpca-record" in note] == [
        f"{night.job}.bigkpca-record cannot be written, which would tell a later run that there was output: set "
        "output.must_exist = true in the job, so that a volume that is not mounted is not taken for a first run"
    ]
    night.set(ELSEWHERE.replace("[run]", "must_exist = true\n[run]"))
    told.notes.clear()
    night.run(told)
    assert not [note for note in told.notes if "bigkpca-record" in note]
    beside = str(record_of(night))
    monkeypatch.setattr(local, "_new_file", lambda path: (full if path.startswith(beside) else usual)(path))
    monkeypatch.setenv("STATE_DIRECTORY", f"{tmp_path}/state:/other")
    (tmp_path / "state").mkdir()
    night.set(ELSEWHERE)
    night.run(told)
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["nightly.toml.bigkpca-record"]
    unmount(night, "disk")
    with pytest.raises(SpecError, match=r"is gone, .* remove .*/state/nightly\.toml\.bigkpca-record"):
        night.run()


@pytest.mark.parametrize("content", ["{", "[]", '{"places": [1]}', '{"places": [{"output": 1}]}'])
def test_a_damaged_record_stops_a_first_run_alone(tmp_path, content):
    night = had_a_night(tmp_path / "job")
    record_of(night).write_text(content)
    unmount(night, "disk")
    with pytest.raises(SpecError, match=r"bigkpca-record is not the record of the places of a job: remove it once"):
        night.run()
    Path(night.root, "disk").rmdir()
    Path(night.root, "disk unmounted").rename(Path(night.root, "disk"))
    night.run()
    assert len(json.loads(record_of(night).read_text())["places"]) == 1


def test_metrics_tell_of_an_output_that_is_gone(tmp_path):
    night = had_a_night(tmp_path / "job", metrics="bigkpca.prom")
    unmount(night, "disk")
    with pytest.raises(SpecError, match=GONE):
        night.run()
    assert metrics(f"{night.folder}/bigkpca.prom")["last_run_exit_code"] == 2
    assert list(Path(night.root, "disk").iterdir()) == []


MISTAKES = {
    "a key": (ELSEWHERE + 'metrics = "bigkpca.prom"\nworkers = "four"', "give a whole number"),
    "the path of the output": (ELSEWHERE.replace("disk/features.zarr", "${NOWHERE}"), "NOWHERE is not set"),
    "the syntax": (ELSEWHERE + "workers =", "not valid TOML"),
    "nothing": ("", "is empty"),
}


@pytest.mark.usefixtures("quiet_signals")
@pytest.mark.parametrize("by_command", [False, True])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_job_file_with_a_mistake_is_a_failed_run(tmp_path, mistake, by_command):
    night = had_a_night(tmp_path / "job", metrics="bigkpca.prom")
    out, file = f"{night.root}/disk/features.zarr", f"{night.folder}/bigkpca.prom"
    success = metrics(file)["last_success_timestamp_seconds"]
    text, match = MISTAKES[mistake]
    Path(night.job).write_text(text)
    if by_command:
        assert run("run", night.job).exit_code == 2
    else:
        with pytest.raises(SpecError, match=match):
            night.run()
    found = metrics(file)
    assert (found["last_run_exit_code"], found["failed_runs_total"]) == (2, 1)
    assert found["last_success_timestamp_seconds"] == success
    last = bigkpca.history(out)[-1]
    assert (last["run"], last["status"], last["exit_code"]) == (2, "failed", 2)
    assert match in last["message"]


def test_a_mistake_of_a_job_that_never_ran_is_told_in_its_metrics(tmp_path):
    night = Night.made(tmp_path / "job", metrics="bigkpca.prom", workers=0)
    with pytest.raises(SpecError, match="workers = 0"):
        night.run()
    assert metrics(f"{night.folder}/bigkpca.prom")["last_run_exit_code"] == 2
    assert not Path(night.out).exists()


def test_a_command_by_hand_that_cannot_be_done_is_no_failed_run(tmp_path):
    night = had_a_night(tmp_path / "job", metrics="bigkpca.prom")
    Path(night.job).write_text("")
    with pytest.raises(SpecError, match="is empty"):
        night.run(full=True)
    assert metrics(f"{night.folder}/bigkpca.prom")["last_run_exit_code"] == 0


def test_something_else_at_the_output_is_told_in_the_metrics(tmp_path):
    night = Night.made(tmp_path / "job", metrics="bigkpca.prom")
    night.append(some_rows(70))
    Path(night.out).mkdir()
    Path(night.out, "mine.txt").write_text("mine")
    with pytest.raises(SpecError, match="was not made by bigkpca"):
        night.run()
    assert metrics(f"{night.folder}/bigkpca.prom")["last_run_exit_code"] == 2
    assert [path.name for path in Path(night.out).iterdir()] == ["mine.txt"]


def test_a_run_that_finds_the_lock_taken_changes_no_metrics(tmp_path):
    night = had_a_night(tmp_path / "job", metrics="bigkpca.prom")
    before = Path(night.folder, "bigkpca.prom").read_bytes()
    with local.LocalDisk().writer(f"{night.root}/disk/features.zarr"):
        with pytest.raises(BigKPCAError, match="another run is writing"):
            night.run()
        Path(night.job).write_text("")
        with pytest.raises(SpecError, match="is empty"):
            night.run()
    assert Path(night.folder, "bigkpca.prom").read_bytes() == before


def test_a_rollback_writes_the_metrics_anew(tmp_path, caplog):
    night = had_a_night(tmp_path / "job", JOB, metrics="bigkpca.prom")
    file = Path(night.folder, "bigkpca.prom")
    night.append(some_rows(9))
    night.run(full=True)
    assert (metrics(file)["features_version"], metrics(file)["rows"]) == (2, 79)
    bigkpca.rollback(night.out)
    assert (metrics(file)["features_version"], metrics(file)["rows"]) == (1, 70)
    file.write_text("mine")  # a record may come from anybody, and name any file
    bigkpca.rollback(night.out, to=2)
    assert file.read_text() == "mine"
    file.unlink()
    bigkpca.rollback(night.out, to=1)
    assert not file.exists()
    file.mkdir()
    with caplog.at_level(logging.WARNING, "bigkpca"):
        bigkpca.rollback(night.out, to=2)
    assert "are those of before the rollback" in caplog.text
