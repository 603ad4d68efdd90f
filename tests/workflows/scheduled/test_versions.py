"""Versions of features: rows extracted again, the way back, and versions that are damaged."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import zarr
from bigkpca.data.versions import read_versions

import bigkpca
from bigkpca.data.opening import open_rows
from bigkpca.errors import CorruptionError, IncompleteError, SpecError
from bigkpca.storage import block_arrays, describe, jobs
from bigkpca.workflows.scheduled import input_rows
from tests.helpers.commands import run
from tests.helpers.disks import tree_bytes
from tests.helpers.nights import Night, cut_off_at, some_rows


@pytest.mark.parametrize(
    ("asked", "rows", "reason"),
    [
        ({"rows": (33, 60)}, [33, 60], "rows 33:60 extracted again"),
        ({"full": True}, [0, 90], "all rows extracted again"),
    ],
)
def test_rows_that_are_extracted_again_make_a_version(night, asked, rows, reason):
    before = tree_bytes(f"{night.out}/1")
    night.forget_digests()
    zarr.open_array(f"{night.rows}/x", mode="r+")[rows[0] : rows[1]] = some_rows(rows[1] - rows[0], 9)
    (record,) = night.run(**asked)
    assert (record["version"], record["rows"], record["total_rows"]) == (2, rows, 90)
    assert tree_bytes(f"{night.out}/1") == before
    facts = describe.info(night.out)
    assert (facts["kind"], facts["shape"], facts["last_run"]["status"]) == ("job", [90, 3], "done")
    assert [each["reason"] for each in facts["versions"]] == ["first run", reason]
    np.testing.assert_array_equal(night.scores(), night.wanted())
    night.append(some_rows(20, 3))
    assert night.run()[0]["rows"] == [90, 110]
    assert bigkpca.verify(night.out).shape == (110, 3)


def test_rows_up_to_some_can_be_extracted_first(night):
    night.append(some_rows(100, 3))
    assert night.run(rows="90:130")[0]["rows"] == [90, 130]
    assert night.run(rows=":160")[0]["rows"] == [130, 160]
    assert night.run()[0]["rows"] == [160, 190]
    assert read_versions(night.out)["current"] == 1
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_rows_of_runs_since_a_day_are_extracted_again(night):
    night.age(timedelta(days=3))
    night.append(some_rows(40, 1))
    night.run()
    first, second = (datetime.fromisoformat(each["finished"]).date() for each in bigkpca.history(night.out))
    assert night.run(since=second)[0]["rows"] == [90, 130]
    assert night.run(since=str(first))[0]["rows"] == [0, 130]
    assert night.run(since="2999-01-01")[0]["status"] == "nothing new"
    assert read_versions(night.out)["current"] == 3
    assert input_rows.Asked.parsed(None, datetime.now(UTC), False).since == datetime.now(UTC).date()


REFUSED = [
    ({"rows": "95:99"}, "rows 90 to 94 are not extracted yet: start at row 90 or earlier"),
    ({"rows": "0:91"}, "rows up to 91 are requested, but the input has only 90"),
    ({"rows": "5"}, "rows '5': give the first row and the row after the last one as A:B"),
    ({"rows": "9:9"}, "rows '9:9': give the first row and"),
    ({"rows": "a:b"}, "rows 'a:b': give the first row and"),
    ({"rows": "-1:9"}, "rows '-1:9': give the first row and"),
    ({"since": "yesterday"}, "since 'yesterday': give a date as YYYY-MM-DD"),
    ({"since": "2026-01-01", "full": True}, "exclude each other"),
]


def test_rows_that_cannot_be_extracted_are_refused_which_is_no_failure_of_the_job(night):
    before = tree_bytes(night.out)
    for asked, message in REFUSED:
        with pytest.raises(SpecError, match=message):
            night.run(**asked)
    assert tree_bytes(night.out) == before


def test_an_earlier_version_can_be_made_the_current_one_again(night):
    night.run(full=True)
    night.append(some_rows(30, 4))
    night.run()
    newest = night.scores()
    record = bigkpca.rollback(night.out)
    assert (record["status"], record["version"], record["message"]) == ("rolled back", 1, "from version 2 to version 1")
    assert night.scores().shape == (90, 3)
    assert night.run()[0]["rows"] == [90, 120]  # that version lacks them
    np.testing.assert_array_equal(night.scores(), newest)
    with pytest.raises(SpecError, match="has no version before the current one"):
        bigkpca.rollback(night.out)
    assert bigkpca.rollback(night.out, to=2)["version"] == 2


def test_damaged_blocks_are_repaired_by_what_verify_advises(night):
    first, second = (Path(night.out, "1", "scores", "c", str(number), "0") for number in range(2))
    wanted = night.scores()
    second.write_bytes(b"damage")
    with pytest.raises(CorruptionError, match=r"(?s)scores/c/1/0 .*--rows 32:64$"):
        bigkpca.verify(night.out)
    first.write_bytes(b"damage")
    with pytest.raises(CorruptionError, match=r"with bigkpca run JOB\.toml --rows 0:64$") as raised:
        bigkpca.verify(night.out)
    night.run(rows=str(raised.value).split()[-1])
    np.testing.assert_array_equal(night.scores(), wanted)
    Path(night.out, "2", "scores", "c", "0", "0").write_bytes(b"damage")
    night.run(rows="64:65")  # which mends others, too
    np.testing.assert_array_equal(night.scores(), wanted)
    assert bigkpca.verify(f"{night.out}/3").files == 3


def test_output_without_a_version_is_not_finished(tmp_path):
    night = Night.made(tmp_path / "job")
    jobs.prepare(night.out)
    assert run("history", night.out).stdout == "no run has ended yet\n"
    assert bigkpca.prune(night.out, 1)["versions"] == []
    assert describe.info(night.out)["finished"] is False
    for read in (open_rows, bigkpca.verify):
        with pytest.raises(IncompleteError, match="its first run was stopped"):
            read(night.out)


def test_files_of_the_output_that_are_damaged_are_named(night):
    manifest = Path(night.out) / "manifest.json"
    held = manifest.read_text()
    of_none, of_others = '{"current": 1, "versions": []}', '{"current": 3, "versions": [1]}'
    for text in ("{", "[]", of_none, of_others, held.replace("1", '"1"')):
        manifest.write_text(text)
        with pytest.raises(CorruptionError, match=r"features\.zarr/manifest\.json does not"):
            night.run()
    manifest.write_text(held)
    own = Path(night.out) / "1" / "scores" / "manifest.json"
    whole = json.loads(own.read_text())
    for damage in ({"input_blocks": None}, {"input_blocks": []}, {"rows": "x"}, {"run": None}):
        own.write_text(json.dumps(whole | damage))
        with pytest.raises(CorruptionError, match=r"1/scores/manifest\.json"):
            night.run()
    own.unlink()
    with pytest.raises(CorruptionError, match="its manifest is missing; restore it"):
        night.run()


@pytest.mark.full
def test_a_version_whose_publication_was_cut_off_is_whole_after_the_way_back(night):
    night.run(full=True)
    bigkpca.rollback(night.out)
    night.append(some_rows(60, 7))
    with cut_off_at(block_arrays, "replace_block"):
        night.run()
    bigkpca.rollback(night.out, to=2)
    night.run(full=True)
    bigkpca.rollback(night.out, to=1)
    assert bigkpca.verify(f"{night.out}/1").shape == (150, 3)
    assert night.run()[0]["status"] == "nothing new"


HARMS = {
    "no folder": shutil.rmtree,
    "no metadata": lambda path: Path(path, "zarr.json").unlink(),
    "no manifest": lambda path: Path(path, "scores", "manifest.json").unlink(),
    "half a manifest": lambda path: Path(path, "scores", "manifest.json").write_text("{"),
}


def test_a_damaged_version_is_named_and_all_rows_can_be_extracted_again(night):
    kept = shutil.copytree(f"{night.out}/1", f"{night.root}/kept")
    for harm in HARMS.values():
        harm(f"{night.out}/1")
        with pytest.raises(CorruptionError, match=r"features\.zarr/1.* restore it, or .* bigkpca run JOB\.toml --full"):
            night.run()
        assert bigkpca.history(night.out)[-1]["exit_code"] == 7
        shutil.copytree(kept, f"{night.out}/1", dirs_exist_ok=True)
    shutil.rmtree(f"{night.out}/1")
    (record,) = night.run(full=True)
    assert (record["version"], record["total_rows"]) == (2, 90)
    np.testing.assert_array_equal(night.scores(), night.wanted())


@pytest.mark.parametrize(
    "harm", [name if name == "half a manifest" else pytest.param(name, marks=pytest.mark.full) for name in HARMS]
)
def test_a_damaged_version_that_is_not_current_stops_no_run_and_one_that_is_can_be_left(night, harm):
    night.run(full=True)
    whole = shutil.copytree(f"{night.out}/1", f"{night.root}/whole")
    HARMS[harm](f"{night.out}/1")
    night.append(some_rows(40, 1))
    assert night.run()[0]["total_rows"] == 130
    with pytest.raises(CorruptionError, match=r"features\.zarr/1"):
        bigkpca.rollback(night.out)
    assert night.scores().shape == (130, 3)
    shutil.copytree(whole, f"{night.out}/1", dirs_exist_ok=True)
    HARMS[harm](f"{night.out}/2")
    assert bigkpca.rollback(night.out)["version"] == 1
    assert night.scores().shape == (90, 3)


@pytest.mark.parametrize("moment", ["set_current", pytest.param("remove_pinned", marks=pytest.mark.full)])
def test_a_rollback_that_was_cut_off_is_finished_by_the_same_command_and_by_a_run(night, moment):
    night.run(full=True)
    jobs.set_current(night.out, 2)
    before = shutil.copytree(night.out, f"{night.root}/kept")
    for finish in (lambda: bigkpca.rollback(night.out), night.run):
        with cut_off_at(jobs, moment):
            bigkpca.rollback(night.out)
        finish()
        assert read_versions(night.out)["current"] == 1
        told = [each["message"] for each in bigkpca.history(night.out) if each["status"] == "rolled back"]
        assert told == ["from version 2 to version 1"]
        shutil.rmtree(night.out)
        shutil.copytree(before, night.out)
