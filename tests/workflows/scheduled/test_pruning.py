"""Old versions of features are removed: which, in which order, and what stays whole when that is cut off."""

import json
import shutil
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from bigkpca.data.retrying import retrying_for
from bigkpca.data.versions import check_not_pruned, read_versions

import bigkpca
from bigkpca.data.opening import open_rows
from bigkpca.data.stores import store_of
from bigkpca.data.stores.local import LocalDisk
from bigkpca.data.stores.objects import ObjectStore
from bigkpca.errors import CorruptionError, IncompleteError, SpecError
from bigkpca.storage import block_arrays, destination, jobs
from bigkpca.workflows.scheduled import records
from tests.helpers.commands import run
from tests.helpers.disks import Restored, tree_bytes
from tests.helpers.nights import JOB, Night, cut_off_at, some_rows
from tests.helpers.progress import Recorder
from tests.helpers.s3 import in_bucket


@pytest.fixture(scope="module")
def made(tmp_path_factory, fitted):
    """A job with four versions of 90 rows."""
    night = Night.made(tmp_path_factory.mktemp("made") / "job")
    shutil.copytree(fitted, night.model)
    night.append(some_rows(90))
    for number in range(4):
        night.run(full=number > 0)
    return Restored.made(Path(night.folder))


def fit_again_and_again(night):
    """Make three versions, each of a model of its own."""
    for scale in (1, 50, 9000):
        night.append(some_rows(96, scale) * scale)
        night.run()


@pytest.fixture(scope="module")
def refitted(tmp_path_factory):
    night = Night.made(tmp_path_factory.mktemp("refitted") / "job", on_drift="refit")
    fit_again_and_again(night)
    return Restored.made(Path(night.folder))


def numbers(night):
    """The current version and all that the manifest names, whose folders are those that are there."""
    versions = read_versions(night.out)
    named = [each["number"] for each in versions["versions"]]
    there = {name.partition("/")[0] for name in store_of(night.out).files(night.out)}
    assert {name for name in there if name[0].isdigit()} == {str(number) for number in named}
    return versions["current"], named


def test_the_current_version_and_the_newest_others_are_kept(night):
    kept = ((4, 1, [1, 2, 3]), (4, "2", [1, 2]), (4, 9, []), (2, 1, [1, 3, 4]), (2, 2, [1, 3]), (1, 3, [2]))
    for current, keep, gone in kept:
        jobs.set_current(night.out, current)
        before = tree_bytes(night.root)
        found = bigkpca.prune(night.out, keep, dry_run=True)
        assert (found["versions"], found["models"], found["scratch"]) == (gone, [], []), (current, keep)
        assert (found["bytes"] > 1000) == bool(gone)
        assert tree_bytes(night.root) == before
    scores, found = night.scores(), bigkpca.prune(night.out, 2, dry_run=True)
    assert bigkpca.prune(night.out) == {"versions": [], "models": [], "scratch": [], "bytes": 0}
    assert tree_bytes(night.root) == before
    assert bigkpca.prune(night.out, 2) == found
    assert numbers(night) == (1, [1, 4])
    np.testing.assert_array_equal(night.scores(), scores)
    assert bigkpca.verify(night.out).files == 6
    assert bigkpca.prune(night.out, 2)["versions"] == []


def test_history_tells_what_was_pruned_and_keeps_the_records_of_runs(night):
    before = bigkpca.history(night.out)
    bigkpca.prune(night.out, 2)
    *runs, told = bigkpca.history(night.out)
    assert runs == before
    assert (told["run"], told["status"], told["version"]) == (5, "pruned", 4)
    assert told["message"].startswith("removed versions 1, 2, 0.0 MB")
    assert told["pruned"]["versions"] == [1, 2]
    metrics = records.metrics_text(night.out, bigkpca.history(night.out)).decode()
    assert f'last_run_new_rows{{output="{night.out}"}} 90.0' in metrics  # of the last run
    night.append(some_rows(9))
    assert night.run()[0]["run"] == 6


def test_a_rollback_passes_over_pruned_versions_whose_numbers_are_not_given_again(night):
    bigkpca.rollback(night.out, to=2)
    bigkpca.prune(night.out, 2)  # 2 and 4 stay
    for to, message in ((3, r"version 3 was pruned \(see bigkpca history .*\)"), (9, "has no version 9")):
        with pytest.raises(SpecError, match=f"{message}; there are 2, 4"):
            bigkpca.rollback(night.out, to=to)
    bigkpca.rollback(night.out, to=4)
    assert bigkpca.rollback(night.out)["version"] == 2
    bigkpca.prune(night.out, 1)
    with pytest.raises(SpecError, match="has no version before the current one that was not pruned"):
        bigkpca.rollback(night.out)
    assert numbers(night) == (2, [2])
    assert night.run(full=True)[0]["version"] == 5
    assert numbers(night) == (5, [2, 5])


def test_versions_are_kept_for_a_time_after_they_were_current(night):
    night.age(*(timedelta(days=days, minutes=1) for days in (400, 90, 30, 10)))
    assert bigkpca.prune(night.out, "90 days", dry_run=True)["versions"] == [1, 2]
    assert bigkpca.prune(night.out, "91 days", dry_run=True)["versions"] == [1]
    assert bigkpca.prune(night.out, "1 s", dry_run=True)["versions"] == [1, 2, 3]  # never the current one
    bigkpca.rollback(night.out, to=1)  # today
    assert bigkpca.prune(night.out, "20 days", dry_run=True)["versions"] == [2, 3]
    assert bigkpca.prune(night.out, "5 days")["versions"] == [2, 3, 4]


def test_a_version_without_a_record_is_as_old_as_its_manifest_says_and_stays_where_that_is_damaged(night):
    Path(night.out, "runs.jsonl").unlink()
    for version, year in (("1", "2001"), ("3", "2999")):
        file = Path(night.out, version, "scores", "manifest.json")
        manifest = json.loads(file.read_text())
        manifest["run"]["finished"] = year + manifest["run"]["finished"][4:]
        file.write_text(json.dumps(manifest))
    Path(night.out, "2", "scores", "manifest.json").write_text("{")
    assert bigkpca.prune(night.out, "101 days", dry_run=True)["versions"] == [1]


def test_what_is_no_number_of_versions_and_no_time_is_refused(night):
    for keep in (0, -1, "0", "5 versions", "", "days", "-3 days", True, 2.5, "1e999 days", 10**30):
        with pytest.raises(SpecError, match="give a number of versions such as 5, or a time such as '90 days'"):
            bigkpca.prune(night.out, keep)
    with pytest.raises(SpecError, match="is a bigkpca model, not an output of scheduled runs"):
        bigkpca.prune(night.model, 1)
    assert numbers(night) == (4, [1, 2, 3, 4])


def test_who_reads_a_version_that_is_pruned_meanwhile_is_told_so(night, tmp_path):
    rows = open_rows(f"{night.out}/2")
    bigkpca.prune(night.out, 1)
    pruned = r"features\.zarr/2 was pruned while it was being read: run the same command"
    with retrying_for(0.0), pytest.raises(IncompleteError, match=pruned):
        rows.block(0, 90)
    assert open_rows(night.out).shape == (90, 3)
    for path in (f"{night.out}/4", f"{night.out}/9", f"{tmp_path}/7", f"{night.out}/x"):
        check_not_pruned(path)  # what such a version lacks is something else
    Path(night.out, "manifest.json").write_text("{")
    check_not_pruned(f"{night.out}/1")


@pytest.mark.full
def test_models_of_refits_go_with_the_last_version_that_they_made(refitted):
    night = Night(refitted.again())
    paths = [Path(night.root, name) for name in ("model.zarr", "model-2.zarr", "model-3.zarr")]
    night.set(on_drift="warn")
    night.run(full=True)  # a second version by the third model
    assert numbers(night) == (4, [1, 2, 3, 4])
    assert bigkpca.prune(night.out, 1, dry_run=True)["models"] == [str(paths[1])]
    bigkpca.rollback(night.out, to=2)
    assert bigkpca.prune(night.out, 2)["models"] == []  # 4 is kept, and of the third model
    assert all(path.exists() for path in paths)
    found = bigkpca.prune(night.out, 1)
    assert found["models"] == [str(paths[2])]
    assert [path.exists() for path in paths] == [True, True, False]  # the first is the job's
    assert f"and the model {paths[2]}" in bigkpca.history(night.out)[-1]["message"]
    assert night.run()[0]["total_rows"] == 288


@pytest.mark.full
def test_what_is_another_model_now_or_is_being_replaced_stays(refitted, fitted):
    night = Night(refitted.again())
    path = Path(night.root, "model-2.zarr")
    with store_of(str(path)).writer(str(path)):
        bigkpca.prune(night.out, 1)
    assert path.exists()
    for cut_off in (True, False):
        refitted.again()
        if cut_off:
            with cut_off_at(LocalDisk, "move"):
                bigkpca.prune(night.out, 1)
        shutil.rmtree(path)
        shutil.copytree(fitted, path)
        assert bigkpca.prune(night.out, 1)["models"] == []
        assert path.exists()


def test_a_run_prunes_by_its_job_and_spares_the_version_that_was_current_when_it_began(night):
    night.set(JOB.replace("[run]", "keep = 1\n[run]"))
    night.run(full=True)
    assert numbers(night) == (5, [4, 5])
    assert bigkpca.history(night.out)[-1]["message"].endswith("MB (keep = 1)")
    assert night.run()[0]["status"] == "nothing new"  # nobody reads the one before any more
    assert numbers(night) == (5, [5])
    night.set(JOB.replace("[run]", 'keep = "90 days"\n[run]'))
    night.run(full=True)
    assert numbers(night) == (6, [5, 6])


def prune_again(night):
    told = Recorder()
    bigkpca.prune(night.out, progress=told)
    assert told.notes[0].startswith("finished an earlier prune that was interrupted: it removed versions 1, 2")


@pytest.mark.parametrize(
    ("place", "moment", "call", "finish"),
    [
        (LocalDisk, "move", 1, prune_again),
        (LocalDisk, "remove_folder", 1, Night.run),
        (jobs, "append_record", 1, lambda night: bigkpca.rollback(night.out, to=3)),
        (jobs, "write_versions", 2, prune_again),
    ],
)
def test_a_prune_that_was_cut_off_is_finished_by_whatever_comes_next(night, place, moment, call, finish):
    with cut_off_at(place, moment, call):
        bigkpca.prune(night.out, 2)
    assert [each["number"] for each in read_versions(night.out)["versions"]] == [3, 4]
    assert night.scores().shape == (90, 3)
    finish(night)
    assert numbers(night)[1] == [3, 4]
    assert [record["status"] for record in bigkpca.history(night.out)].count("pruned") == 1
    assert "pruning" not in read_versions(night.out)
    assert not list(Path(night.out).glob("*.bigkpca-*"))


def test_a_manifest_that_does_not_say_what_is_being_pruned_is_damaged(night):
    versions = read_versions(night.out)
    for pruned in ([], {"versions": ["x"]}, {"versions": [1], "models": [{"path": 1}]}, 1):
        jobs.write_versions(night.out, {**versions, "pruning": pruned})
        with pytest.raises(CorruptionError, match=r"manifest\.json does not list what is being pruned: restore it"):
            bigkpca.prune(night.out, 1)
    whole = {"versions": [4], "models": [], "record": {"run": 9}}
    jobs.write_versions(night.out, {**versions, "pruning": whole})
    bigkpca.prune(night.out)
    assert night.scores().shape == (90, 3)  # what the manifest still names stays


def test_what_killed_runs_left_goes_unless_the_same_command_goes_on_with_it(night):
    with cut_off_at(destination.Destination, "put_in_place"):
        night.run(rows="0:32")
    (left,) = Path(night.out).glob("5.bigkpca-run-*")
    assert bigkpca.prune(night.out)["scratch"] == []
    jobs.remove_pinned(night.out)
    shutil.copytree(f"{night.out}/4", f"{night.out}/6")  # put in place, and never published
    Path(night.out, "manifest.json.partial").write_text("{")
    for name in ("7", "notes.txt", "8"):
        Path(night.out, name).mkdir()
    found = bigkpca.prune(night.out)
    assert [Path(path).name for path in found["scratch"]] == [left.name, "6", "manifest.json.partial"]
    assert bigkpca.history(night.out)[-1]["message"].startswith("removed 3 unfinished items, ")
    assert sorted(path.name for path in Path(night.out).iterdir() if path.name[0].isdigit()) == list("123478")
    assert Path(night.out, "notes.txt").exists()


def test_the_folder_from_which_a_run_publishes_stays(night):
    night.append(some_rows(40, 1))
    with cut_off_at(block_arrays, "replace_block"):
        night.run()
    jobs.remove_pinned(night.out)
    assert bigkpca.prune(night.out, 1)["scratch"] == []
    assert night.run()[0]["status"] == "nothing new"
    assert night.scores().shape == (130, 3)


def test_the_command_prints_what_goes(night):
    shown = run("prune", night.out, "--keep", "3", "--dry-run").stdout.splitlines()
    assert [line.split() for line in shown][:3] == [["versions", "1"], ["models", "none"], ["scratch", "none"]]
    assert json.loads(run("prune", night.out, "--keep", "2", "--json").stdout)["versions"] == [1, 2]
    assert "5  " in run("history", night.out).stdout.splitlines()[-1]
    assert run("prune", night.out, "--keep", "none").exit_code == 2


@pytest.mark.full
def test_versions_and_models_in_a_bucket_are_pruned_also_after_a_stop(tmp_path, bucket):
    night, store = Night.made(tmp_path / "job", bucket, on_drift="refit"), store_of(bucket)
    fit_again_and_again(night)
    scores, before = night.scores(), in_bucket(night.root)
    for call in (1, 2, 4):
        with cut_off_at(ObjectStore, "remove_files", call):
            bigkpca.prune(night.out, 1)
        assert bigkpca.prune(night.out, 1)["versions"] == []
        left = in_bucket(night.root)  # and no lock
        assert {name.split("/")[0] for name in left} == {"features.zarr", "model.zarr", "model-3.zarr", "rows.zarr"}
        assert numbers(night) == (3, [3])
        np.testing.assert_array_equal(night.scores(), scores)
        for name, content in before.items():  # as it was
            if left.get(name) != content:
                store.write(f"{night.root}/{name}", content)
