"""Where outputs go: things of others are never replaced, and at no moment is an output at no path."""

import contextlib
import itertools
import os
import re
import shutil
import subprocess

import pytest

import bigkpca
from bigkpca.data.stores import LocalDisk
from bigkpca.errors import IncompleteError, SpecError
from bigkpca.storage import destination
from bigkpca.workflows import checkpoints
from tests.data.cases import case
from tests.helpers.disks import mounted, tree_bytes
from tests.helpers.progress import Recorder
from tests.storage.outputs import FIT, OTHERS, WRITES


def stopped(write, out, at="block_arrays.write_block", **how):
    """A run that is stopped before its first block, or elsewhere."""

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"bigkpca.storage.{at}", stop)
        with pytest.raises(KeyboardInterrupt):
            write(out, **how)


def test_another_kind_of_thing_is_never_replaced(home):
    for name in ("d.zarr", "m.zarr"):
        shutil.copytree(name, f"other-{name}")
    before = tree_bytes(home)
    for write, there, kind in (
        ("transform", "other-d.zarr", "is a bigkpca dataset, which a feature store never replaces"),
        ("transform", "other-m.zarr", "is a bigkpca model"),
        ("fit", "s.zarr", "is a bigkpca feature store"),
        ("ingest", "s.zarr", "is a bigkpca feature store"),
        ("reconstruct", "other-m.zarr", "is a bigkpca model"),
    ):
        with case((write, there)), pytest.raises(SpecError, match=kind):
            WRITES[write](there, overwrite=True)
    assert tree_bytes(home) == before
    (home / "o.zarr").mkdir()
    for text in ("[]", '{"attributes": null}', '{"attributes": []}', "3"):
        (home / "o.zarr" / "zarr.json").write_text(text)
        with case(text), pytest.raises(SpecError, match="was not made by bigkpca, so it is never replaced"):
            WRITES["fit"]("o.zarr", overwrite=True)


def test_what_appeared_at_the_path_during_a_run_is_not_replaced(home):
    target = destination.open_destination("o.zarr", {"format": "dataset"}, overwrite=True, whole=True)
    with target.made():
        shutil.copytree("d.zarr", "o.zarr")
    with pytest.raises(IncompleteError, match=r"o\.zarr did not exist when this run began, but does now: run the"):
        target.put_in_place()
    assert tree_bytes("o.zarr") == tree_bytes("d.zarr")


@pytest.mark.full
def test_finished_work_that_waits_for_its_place_is_not_lost_by_another_command(home, monkeypatch):
    WRITES["transform"]("s.zarr", overwrite=True)
    stopped(OTHERS["transform"], "s.zarr", "destination.Destination.put_in_place", overwrite=True)
    WRITES["transform"]("s.zarr")  # which is there, and has nothing to do
    monkeypatch.setattr("bigkpca.storage.block_arrays.write_block", lambda *_: pytest.fail("a block was written again"))
    OTHERS["transform"]("s.zarr", overwrite=True)


def test_an_output_is_made_beside_its_path_and_other_runs_remove_what_is_unfinished(home):
    for write in (OTHERS["transform"], WRITES["fit"], WRITES["ingest"]):
        for _ in range(2):
            stopped(WRITES["transform"], "o.zarr")
        (first,) = home.glob("o.zarr.*")
        assert re.fullmatch(r"o\.zarr\.bigkpca-run-[0-9a-f]{12}", first.name)
        notes = Recorder()
        write("o.zarr", progress=notes)
        assert notes.notes[0] == f"removed unfinished output of other runs: {first.name}"
        assert [path.name for path in home.glob("o.zarr*")] == ["o.zarr"]
        shutil.rmtree("o.zarr")


def test_what_late_workers_and_others_left_beside_an_output(home):
    """Any run removes blocks that belong to nothing. Unfinished output stays while no other run writes there, and what
    the user put there always does, also with names that come to mind."""
    WRITES["transform"]("o.zarr")
    stopped(OTHERS["transform"], "o.zarr", overwrite=True)
    (other,) = home.glob("o.zarr.*")
    stray = home / "o.zarr.bigkpca-run-0123456789ab" / "scores" / "c" / "1"
    users = [home / f"o.zarr.{name}" for name in ("bigkpca-run-of-mine", "lock", "new", "old")]
    for folder in (stray, *users):
        folder.mkdir(parents=True)
    notes = Recorder()
    WRITES["transform"]("o.zarr", progress=notes)
    assert notes.notes == ["o.zarr already exists, from the same model and rows: nothing to do"]
    assert sorted(home.glob("o.zarr.*")) == sorted([other, *users])
    with pytest.raises(SpecError, match="already holds"):
        bigkpca.fit("d.zarr", "o.zarr", **FIT)
    bigkpca.transform("m.zarr", "d.zarr", "o.zarr", block_rows=90, overwrite=True)
    assert sorted(home.glob("o.zarr.*")) == users


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        ({"path": "a.npy", "shape": [5000, 2]}, "a model of other rows (a.npy, 5,000 rows)"),
        ({"path": None, "shape": [5000, 2]}, "a model of other rows (5,000 rows)"),
        ({"path": "b.npy", "shape": [9, 2], "stamp": "1"}, "a model of b.npy before it changed"),
        ({"path": "b.npy", "shape": [9, 2], "weights": "1"}, "a model of b.npy with other sample weights"),
        ({"shape": "many"}, "a model of other rows"),  # a damaged record
    ],
)
def test_other_output_is_described_in_words(identity, expected):
    wanted = {"format": "model", "identity": {"path": "b.npy", "shape": [9, 2], "stamp": "2"}}
    assert destination.other({"format": "model", "identity": identity}, wanted) == expected


def test_unfinished_output_at_a_path_is_moved_beside_it_and_gone_on_with(home):
    """As versions before this one left it."""
    WRITES["transform"]("o.zarr")
    wanted = tree_bytes("o.zarr")
    (home / "o.zarr" / "scores" / "manifest.json").unlink()
    (home / "o.zarr" / "scores" / "c" / "1" / "0").unlink()
    stopped(WRITES["transform"], "o.zarr")
    assert not (home / "o.zarr").exists()
    WRITES["transform"]("o.zarr")
    assert tree_bytes("o.zarr") == wanted
    assert not list(home.glob("o.zarr.*"))


def test_an_estimator_makes_the_model_of_the_command(home):
    bigkpca.KernelPCA(3, size=10, random_state=0).fit("d.zarr").save("k.zarr")
    bigkpca.fit("d.zarr", "c.zarr", **FIT)
    assert tree_bytes("k.zarr") == tree_bytes("c.zarr")
    assert len(bigkpca.evaluate("c.zarr", "d.zarr").eigenvalues) == 3  # of all rows, where there are few


@pytest.mark.parametrize(
    ("write", "can", "step"),
    [*itertools.product(["transform"], [True, False], [1, 2, 3]), ("ingest", True, 2), ("ingest", False, 3)],
)
def test_an_exchange_that_stops_at_any_rename_is_finished_by_the_same_command(write, step, can, home):
    """Also where the system cannot exchange two folders at once, and renames them one after the other."""
    WRITES[write]("o.zarr")
    with pytest.MonkeyPatch.context() as patch:
        if not can:
            patch.setattr(LocalDisk, "exchange", lambda *_: False)
        rename, calls = os.rename, []

        def stopping(*paths):
            if paths[0].startswith("o.zarr") or str(home / "o.zarr") in paths[0]:
                calls.append(paths)
            if len(calls) == step:
                raise KeyboardInterrupt
            rename(*paths)

        patch.setattr(os, "rename", stopping)
        with contextlib.suppress(KeyboardInterrupt):
            OTHERS[write]("o.zarr", overwrite=True)
        assert not can or (home / "o.zarr" / "zarr.json").exists()
    OTHERS[write]("o.zarr", overwrite=True)
    OTHERS[write]("wanted.zarr")
    assert tree_bytes("o.zarr") == tree_bytes("wanted.zarr")
    assert not list(home.glob("o.zarr.*"))


PLACES = [*((write, "size") for write in WRITES), ("transform", "nr_inodes")]
MARKS = {5: pytest.mark.full, 1: pytest.mark.long}


@pytest.mark.parametrize(
    ("write", "limit", "every"),
    [
        ("transform", "size", 98),
        *(pytest.param(*place, every, marks=mark) for every, mark in MARKS.items() for place in PLACES),
    ],
)
def test_a_disk_that_fills_up_at_any_moment_stops_a_command_that_then_goes_on(write, limit, every, home):
    """One of `every` sizes of it, or numbers of files, is tried."""
    WRITES[write]("wanted.zarr")
    wanted, messages = tree_bytes(home / "wanted.zarr"), []
    for many in range(2, 100, every):
        amount = f"{4 * many}k" if limit == "size" else str(many)
        with mounted(f"{limit}={amount}", home / f"disk{many}") as disk:
            try:
                WRITES[write](disk / "o.zarr")
            except IncompleteError as error:
                messages.append(str(error))
            else:
                break
            subprocess.run(["mount", "-o", "remount,size=8m,nr_inodes=1000", disk], check=True)
            WRITES[write](disk / "o.zarr")
            assert tree_bytes(disk / "o.zarr") == wanted
            assert [entry.name for entry in disk.iterdir()] == ["o.zarr"]
    assert messages
    told = re.compile(r"the disk is full while writing .*make room and run the same command")
    assert all(told.search(message) for message in messages)


@pytest.fixture
def elsewhere(home):
    """A folder of somebody else, to which links lead where runs write: nothing is written to it."""
    (home / "elsewhere").mkdir()
    (home / "elsewhere" / "mine.txt").write_text("mine")
    return home / "elsewhere"


@pytest.mark.parametrize("write", ["ingest", "fit", "transform"])
def test_links_beside_an_output_are_removed_and_not_followed(write, home, elsewhere):
    """Nor is one to output of the same kind taken for what was replaced."""
    WRITES[write](str(elsewhere / "theirs.zarr"))
    before = tree_bytes(elsewhere)
    for ending, target in (("new", elsewhere), ("old", elsewhere / "theirs.zarr"), ("trash", elsewhere)):
        (home / f"out.zarr.bigkpca-{ending}").symlink_to(target)
    WRITES[write]("out.zarr")
    assert not (home / "out.zarr").is_symlink()
    assert tree_bytes(home / "out.zarr") == tree_bytes(elsewhere / "theirs.zarr")
    assert tree_bytes(elsewhere) == before
    assert not list(home.glob("out.zarr.*"))


@pytest.mark.parametrize(("write", "inside"), [("transform", False), ("reconstruct", True)])
def test_a_link_at_or_in_a_run_folder_is_not_followed(write, inside, home, elsewhere):
    stopped(WRITES[write], "out.zarr", "destination.Destination.put_in_place")
    (unfinished,) = home.glob("out.zarr.bigkpca-run-*")
    main = unfinished / ("scores" if write == "transform" else "x") / "c"
    (unfinished / main.parent / "manifest.json").unlink()
    planted = main if inside else unfinished
    shutil.move(planted, elsewhere / "theirs")
    for block in (elsewhere / "theirs").rglob("[1-9]"):
        shutil.rmtree(block, ignore_errors=True)
    planted.symlink_to(elsewhere / "theirs")
    before = tree_bytes(elsewhere)
    WRITES[write]("wanted.zarr")
    WRITES[write]("out.zarr")
    assert tree_bytes(home / "out.zarr") == tree_bytes(home / "wanted.zarr")
    assert tree_bytes(elsewhere) == before


def test_a_file_at_a_scratch_is_named(home):
    (home / "out.zarr.bigkpca-new").write_text("mine")
    with pytest.raises(SpecError, match=r"out\.zarr\.bigkpca-new exists, where this run writes its unfinished"):
        WRITES["ingest"]("out.zarr")
    assert (home / "out.zarr.bigkpca-new").read_text() == "mine"


def test_a_link_at_the_saved_sums_is_removed(home, elsewhere, monkeypatch):
    # Sums are saved every few minutes of a long fit: here after each block.
    monkeypatch.setattr(checkpoints, "_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "_SHORT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "_MOST_SHARE", 0.0)
    (home / "out.zarr.bigkpca-sums").symlink_to(elsewhere)
    bigkpca.fit("d.zarr", "out.zarr", **FIT, block_rows=32)
    assert tree_bytes(elsewhere) == {"mine.txt": b"mine"}
    assert not list(home.glob("out.zarr.*"))
