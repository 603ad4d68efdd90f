"""Links that somebody put where bigkpca writes: nothing is written to what they lead to, and outputs are what they are
without."""

import os
import shutil

import pytest

import bigkpca
from bigkpca.errors import SpecError
from bigkpca.storage import destination
from bigkpca.workflows.scheduled.records import write_metrics
from tests.helpers.disks import tree_bytes
from tests.storage.outputs import FIT, WRITES, every_write

IN_BLOCKS = ("transform", "reconstruct", "denoise")


@pytest.fixture
def elsewhere(home):
    """A folder of somebody else."""
    (home / "elsewhere").mkdir()
    (home / "elsewhere" / "mine.txt").write_text("mine")
    return home / "elsewhere"


@every_write
@pytest.mark.parametrize("ending", ["new", "old", "trash"])
def test_a_link_at_a_scratch_is_removed_and_not_followed(write, ending, home, elsewhere):
    WRITES[write]("wanted.zarr")
    (home / f"out.zarr.bigkpca-{ending}").symlink_to(elsewhere)
    WRITES[write]("out.zarr")
    assert not (home / "out.zarr").is_symlink()
    assert tree_bytes(home / "out.zarr") == tree_bytes(home / "wanted.zarr")
    assert tree_bytes(elsewhere) == {"mine.txt": b"mine"}
    assert not list(home.glob("out.zarr.*"))


@every_write
def test_a_link_to_output_of_the_same_kind_is_not_taken_for_what_was_replaced(write, home, elsewhere):
    WRITES[write](str(elsewhere / "theirs.zarr"))
    before = tree_bytes(elsewhere)
    (home / "out.zarr.bigkpca-old").symlink_to(elsewhere / "theirs.zarr")
    WRITES[write]("out.zarr")
    assert not (home / "out.zarr").is_symlink()
    assert tree_bytes(elsewhere) == before


@pytest.mark.parametrize("write", IN_BLOCKS)
@pytest.mark.parametrize("inside", [False, True])
def test_a_link_at_or_in_a_run_folder_is_not_followed(write, inside, home, elsewhere, monkeypatch):
    def cut_off(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(destination.Destination, "put_in_place", cut_off)
        with pytest.raises(KeyboardInterrupt):
            WRITES[write]("out.zarr")
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


@pytest.mark.parametrize("planted", ["link", "folder", "pipe"])
def test_anything_but_a_file_at_a_lock_is_refused(planted, home, elsewhere):
    lock = home / "out.zarr.bigkpca-lock"
    if planted == "link":
        lock.symlink_to(elsewhere / "new.txt")
    elif planted == "folder":
        lock.mkdir()
    else:
        os.mkfifo(lock)
    with pytest.raises(SpecError, match=r"out\.zarr\.bigkpca-lock is not a file, and bigkpca keeps a lock in"):
        WRITES["ingest"]("out.zarr")
    assert tree_bytes(elsewhere) == {"mine.txt": b"mine"}


def test_a_file_at_a_scratch_is_named(home):
    (home / "out.zarr.bigkpca-new").write_text("mine")
    with pytest.raises(SpecError, match=r"out\.zarr\.bigkpca-new exists, and this run writes its unfinished"):
        WRITES["ingest"]("out.zarr")
    assert (home / "out.zarr.bigkpca-new").read_text() == "mine"


@pytest.mark.parametrize("kind", ["symlink_to", "hardlink_to"])
def test_files_that_appear_whole_are_not_written_through_a_link(kind, home):
    victim = home / "victim"
    victim.write_text("mine")
    for name in ("report.html", "bigkpca.prom", "compare/compare.json"):
        (home / name).parent.mkdir(exist_ok=True)
        getattr(home / f"{name}.partial", kind)(victim)
    bigkpca.report("m.zarr", "report.html")
    write_metrics("bigkpca.prom", "features.zarr", [])
    bigkpca.compare("d.zarr", "compare", methods=["nystroem"], sizes=[5], components=2)
    assert victim.read_text() == "mine"
    assert not list(home.rglob("*.partial"))
    assert not (home / "report.html").is_symlink()


def test_a_link_at_the_saved_sums_is_removed(home, elsewhere, monkeypatch):
    from bigkpca.workflows import checkpoints

    monkeypatch.setattr(checkpoints, "_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "_SHORT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "_MOST_SHARE", 0.0)
    (home / "out.zarr.bigkpca-sums").symlink_to(elsewhere)
    bigkpca.fit("d.zarr", "out.zarr", **FIT, block_rows=8)
    assert tree_bytes(elsewhere) == {"mine.txt": b"mine"}
    assert not list(home.glob("out.zarr.*"))
