"""Versions of features: rows extracted again, and the way back."""

from pathlib import Path

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca.data.opening import open_rows
from bigkpca.data.versions import read_versions
from bigkpca.errors import CorruptionError, IncompleteError, SpecError
from bigkpca.spec.job import read_job
from bigkpca.storage import describe, growing, job_output
from bigkpca.workflows.scheduled.plan import plan_run
from tests.helpers.disks import Restored, tree_bytes
from tests.helpers.nights import Night, some_rows


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A job that ran on 90 rows, and one that ran on 40 more."""
    night = Night.made(tmp_path_factory.mktemp("made") / "job")
    for number, count in enumerate((90, 40)):
        night.append(some_rows(count, number))
        night.run()
    return Restored.made(Path(night.folder))


def current(night):
    versions = read_versions(night.out)
    assert versions is not None
    return int(versions["current"])


@pytest.mark.parametrize(
    ("asked", "rows"),
    [({"rows": "33:60"}, [33, 60]), ({"rows": (100, 130)}, [100, 130]), ({"full": True}, [0, 130])],
    ids=["some", "the last", "all"],
)
def test_rows_that_are_extracted_again_make_a_version(night, asked, rows):
    before = tree_bytes(f"{night.out}/1")
    night.forget_digests()
    zarr.open_array(f"{night.rows}/x", mode="r+")[rows[0] : rows[1]] = some_rows(rows[1] - rows[0], 9)
    (record,) = night.run(**asked)
    assert (record["version"], record["rows"], record["total_rows"]) == (2, rows, 130)
    assert tree_bytes(f"{night.out}/1") == before
    np.testing.assert_array_equal(night.scores(), night.wanted())
    night.append(some_rows(20, 3))
    assert night.run()[0]["rows"] == [130, 150]
    assert bigkpca.verify(night.out).shape == (150, 3)


def test_rows_up_to_some_can_be_extracted_first(night):
    night.append(some_rows(100, 3))
    assert night.run(rows="130:170")[0]["rows"] == [130, 170]
    assert night.run(rows=":200")[0]["rows"] == [170, 200]
    assert night.run()[0]["rows"] == [200, 230]
    assert current(night) == 1
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_rows_of_runs_since_a_day_are_extracted_again(night):
    day = bigkpca.history(night.out)[0]["finished"][:10]
    assert night.run(since=day)[0]["rows"] == [0, 130]
    assert night.run(since="2999-01-01")[0]["status"] == "nothing new"
    assert current(night) == 2


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"rows": "140:150"}, "rows 130 to 139 are not extracted yet: start at row 130 or before"),
        ({"rows": "0:131"}, "rows up to 131 are asked for, and the input has 130"),
        ({"rows": "5"}, "rows '5': give the first row and the row after the last as A:B"),
        ({"rows": "9:9"}, "rows '9:9': give the first row and"),
        ({"rows": "a:b"}, "rows 'a:b': give the first row and"),
        ({"rows": "-1:9"}, "rows '-1:9': give the first row and"),
        ({"since": "yesterday"}, "since 'yesterday': give a date as YYYY-MM-DD"),
        ({"since": "2026-01-01", "full": True}, "exclude each other"),
    ],
)
def test_rows_that_cannot_be_extracted_are_refused(night, asked, message):
    before = tree_bytes(f"{night.out}/1")
    with pytest.raises(SpecError, match=message):
        night.run(**asked)
    assert tree_bytes(f"{night.out}/1") == before
    assert current(night) == 1


def test_an_earlier_version_can_be_made_the_current_one_again(night):
    night.run(full=True)
    night.append(some_rows(30, 4))
    night.run()
    newest = night.scores()
    record = bigkpca.rollback(night.out)
    assert (record["status"], record["version"], record["message"]) == ("rolled back", 1, "from version 2 to version 1")
    assert night.scores().shape == (130, 3)
    assert night.run()[0]["rows"] == [130, 160]  # that version lacks them
    np.testing.assert_array_equal(night.scores(), newest)
    with pytest.raises(SpecError, match="has no version before the current one"):
        bigkpca.rollback(night.out)
    with pytest.raises(SpecError, match="has no version 3"):
        bigkpca.rollback(night.out, to=3)
    bigkpca.rollback(night.out, to=2)
    assert current(night) == 2


def test_what_is_described_and_checked(night):
    night.run(rows="0:1")
    facts = describe.info(night.out)
    assert facts["kind"] == "job"
    assert facts["shape"] == [130, 3]
    assert [each["reason"] for each in facts["versions"]] == ["first run", "rows 0:1 extracted again"]
    assert facts["last_run"]["status"] == "done"
    assert bigkpca.verify(night.out).files == 10
    shard = Path(night.out) / "1" / "scores" / "c" / "1" / "0"
    shard.write_bytes(b"damage")
    with pytest.raises(CorruptionError, match=r"(?s)scores/c/1/0 .*--rows 32:64"):
        bigkpca.verify(night.out)


def test_a_damaged_version_is_mended_by_extracting_rows_again(night):
    wanted = night.scores()
    (Path(night.out) / "1" / "scores" / "c" / "1" / "0").write_bytes(b"damage")
    night.run(rows="64:65")
    np.testing.assert_array_equal(night.scores(), wanted)
    assert bigkpca.verify(f"{night.out}/2").files == 5


def test_output_without_a_version_is_not_finished(tmp_path):
    night = Night.made(tmp_path / "job")
    night.append(some_rows(1))  # of which no model can be fitted
    with pytest.raises(Exception, match="row"):
        night.run()
    assert describe.info(night.out)["finished"] is False
    with pytest.raises(IncompleteError, match="its first run was stopped"):
        open_rows(night.out)
    with pytest.raises(IncompleteError, match="its first run was stopped"):
        bigkpca.verify(night.out)


def test_files_of_the_output_that_are_damaged_are_named(night):
    manifest = Path(night.out) / "manifest.json"
    held = manifest.read_text()
    for text in (
        "{",
        "[]",
        '{"current": 1, "versions": []}',
        '{"current": 3, "versions": [1]}',
        held.replace("1", '"1"'),
    ):
        manifest.write_text(text)
        with pytest.raises(CorruptionError, match=r"features\.zarr/manifest\.json does not"):
            night.run()
    manifest.write_text(held)
    own = Path(night.out) / "1" / "scores" / "manifest.json"
    text = own.read_text()
    for old, new in (('"input_blocks"', '"other"'), ('"rows": 130', '"rows": "x"'), ('"run": {', '"ran": {')):
        own.write_text(text.replace(old, new, 1))
        with pytest.raises(CorruptionError, match=r"1/scores/manifest\.json"):
            night.run()
    own.unlink()
    with pytest.raises(CorruptionError, match="its manifest is gone; restore it"):
        night.run()


def test_a_run_that_was_cut_off_while_it_published_is_finished_first(night, monkeypatch):
    night.append(some_rows(60, 7))
    with monkeypatch.context() as patched:
        patched.setattr(growing, "_take_over", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            night.run()
    assert growing.is_publishing(growing.read(f"{night.out}/1"))
    assert night.scores().shape == (130, 3)
    assert bigkpca.verify(night.out).shape == (130, 3)
    plan = plan_run(read_job(night.job, {}))
    assert (plan["action"], plan["rows_extracted_already"], plan["resumed"]) == ("nothing new", 190, True)
    assert night.scores().shape == (130, 3)
    assert night.run()[0]["status"] == "nothing new"
    assert night.scores().shape == (190, 3)
    statuses = [(record["run"], record["status"]) for record in bigkpca.history(night.out)]
    assert statuses == [(1, "done"), (2, "done"), (3, "failed"), (3, "done"), (4, "nothing new")]


def test_all_rows_can_be_extracted_again_after_some_were_removed(tmp_path):
    night = Night.made(tmp_path / "job")
    array = zarr.create_array(night.rows, shape=(0, 4), dtype="f4", chunks=(10, 4))
    array.append(some_rows(70))
    night.run()
    array.resize((50, 4))
    (record,) = night.run(full=True)
    assert (record["version"], record["rows"], record["total_rows"]) == (2, [0, 50], 50)
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_a_version_whose_publication_was_cut_off_is_whole_after_the_way_back(night, monkeypatch):
    night.run(full=True)
    bigkpca.rollback(night.out)
    night.append(some_rows(60, 7))
    with monkeypatch.context() as patched:
        patched.setattr(growing, "_take_over", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            night.run()
    bigkpca.rollback(night.out, to=2)
    night.run(full=True)
    bigkpca.rollback(night.out, to=1)
    assert bigkpca.verify(f"{night.out}/1").shape == (190, 3)
    assert night.run()[0]["status"] == "nothing new"


def test_a_new_version_that_was_put_in_place_for_another_request_is_not_taken(night, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(job_output, "write_versions", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            night.run(rows="0:32")
    (record,) = night.run(full=True)
    assert record["rows"] == [0, 130]
    assert growing.read(f"{night.out}/2")["extracted"] == {"rows": [0, 130], "others": None}


def test_the_size_of_blocks_does_not_hang_on_the_rows_of_the_first_night(tmp_path):
    night = Night.made(tmp_path / "job")
    array = zarr.create_array(night.rows, shape=(0, 4), dtype="f4", chunks=(64, 4))
    array.append(some_rows(50))
    night.run()
    assert growing.read(f"{night.out}/1")["block_rows"] == 64
