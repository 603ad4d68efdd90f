"""Where outputs go: inputs and things of others are never replaced, and at no moment is an output at no path."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bigkpca
from bigkpca.data.stores import LocalDisk
from bigkpca.errors import IncompleteError, SpecError
from bigkpca.ingesting.streaming import ingest
from bigkpca.storage import destination
from tests.helpers.disks import tree_bytes
from tests.helpers.progress import Recorder
from tests.storage.outputs import FIT, OTHERS, WRITES, bigkpca_array, every_write


@every_write
@pytest.mark.parametrize("path", [".", "..", "/", "./."])
def test_the_current_folder_and_those_around_it_are_refused(write, path, home):
    before = tree_bytes(home)
    (home / "empty").mkdir()
    os.chdir(home / "empty")
    absolute = {name: str(home / name) for name in ("a.npy", "d.zarr", "m.zarr", "s.zarr")}
    runs = {
        "ingest": lambda: ingest([absolute["a.npy"]], path, overwrite=True),
        "fit": lambda: bigkpca.fit(absolute["d.zarr"], path, overwrite=True, **FIT),
        "transform": lambda: bigkpca.transform(absolute["m.zarr"], absolute["d.zarr"], path, overwrite=True),
        "reconstruct": lambda: bigkpca.reconstruct(absolute["m.zarr"], absolute["s.zarr"], path, overwrite=True),
        "denoise": lambda: bigkpca.denoise(absolute["m.zarr"], absolute["d.zarr"], path, overwrite=True),
    }
    with pytest.raises(SpecError, match="is the current folder, or holds it: name a new folder"):
        runs[write]()
    assert tree_bytes(home) == before


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("run", "match"),
    [
        (lambda **how: bigkpca.transform("m.zarr", "d.zarr", "d.zarr", **how), "is an input"),
        (lambda **how: bigkpca.transform("m.zarr", "d.zarr", "./d.zarr/", **how), "is an input"),
        (lambda **how: bigkpca.transform("m.zarr", "d.zarr", "link", **how), "is an input"),
        (lambda **how: bigkpca.transform("m.zarr", "d.zarr", "m.zarr", **how), "is an input"),
        (lambda **how: bigkpca.transform("m.zarr", "d.zarr", "d.zarr/s", **how), "lie inside each other"),
        (lambda **how: bigkpca.transform("m.zarr", "d.zarr", "m.zarr/s", **how), "lie inside each other"),
        (lambda **how: bigkpca.transform("m.zarr", "d.zarr/x", "d.zarr", **how), "lie inside each other"),
        (lambda **how: bigkpca.transform("m.zarr", bigkpca_array(), "d.zarr", **how), "lie inside each other"),
        (lambda **how: bigkpca.fit("d.zarr", "d.zarr", **how), "is an input"),
        (lambda **how: bigkpca.fit("d.zarr", "d.zarr/model", **how), "lie inside each other"),
        (lambda **how: bigkpca.reconstruct("m.zarr", "s.zarr", "s.zarr", **how), "is an input"),
        (lambda **how: bigkpca.denoise("m.zarr", "d.zarr", "d.zarr", **how), "is an input"),
        (lambda **how: bigkpca.denoise("m.zarr", "a.npy", "a.npy/x", **how), "lie inside each other"),
        (lambda **how: ingest([Path("a.npy").absolute()], "a.npy/", **how), "is an input"),
    ],
)
def test_what_is_read_is_never_replaced(run, match, overwrite, home):
    (home / "link").symlink_to("d.zarr")
    before = tree_bytes(home)
    with pytest.raises(SpecError, match=match):
        run(overwrite=overwrite)
    assert tree_bytes(home) == before


@pytest.mark.parametrize(
    ("write", "there", "kinds"),
    [
        ("transform", "other.zarr", "is a bigkpca dataset, which a feature store never replaces"),
        ("transform", "m2.zarr", "is a bigkpca model"),
        ("fit", "s.zarr", "is a bigkpca feature store"),
        ("ingest", "s.zarr", "is a bigkpca feature store"),
        ("reconstruct", "m2.zarr", "is a bigkpca model"),
    ],
)
def test_another_kind_of_thing_is_never_replaced(write, there, kinds, home):
    ingest(["a.npy"], "other.zarr")
    bigkpca.fit("d.zarr", "m2.zarr", **FIT)
    before = tree_bytes(home)
    with pytest.raises(SpecError, match=kinds):
        WRITES[write](there, overwrite=True)
    assert tree_bytes(home) == before


@every_write
@pytest.mark.parametrize("name", ["o.npy", "o.csv", "O.CSV.GZ", "o.parquet/", "o.h5", "o.html"])
def test_names_that_promise_another_format_are_refused(write, name, home):
    with pytest.raises(
        SpecError, match=r"a folder of Zarr arrays, not a \.\S+ file: take another name, e\.g\. [oO]\.zarr"
    ):
        WRITES[write](name)
    assert not (home / name).exists()


def test_folders_of_the_user_beside_an_output_stay(home):
    """Also those with names that come to mind, as of an output of another model."""
    bigkpca.fit("d.zarr", "m2.zarr", components=2, size=12)
    for name in ("s.zarr.new", "s.zarr.old"):
        bigkpca.transform("m2.zarr", "d.zarr", name)
    (home / "s.zarr.lock").write_text("of another program")
    before = {name: value for name, value in tree_bytes(home).items() if name.startswith("s.zarr.")}
    WRITES["transform"]("s.zarr", overwrite=True)
    OTHERS["transform"]("s.zarr", overwrite=True)
    assert {name: value for name, value in tree_bytes(home).items() if name.startswith("s.zarr.")} == before


def test_finished_work_that_waits_for_its_place_is_not_lost_by_another_command(home, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    WRITES["transform"]("s.zarr", overwrite=True)
    with monkeypatch.context() as patch:
        patch.setattr(destination.Destination, "put_in_place", stop)
        with pytest.raises(KeyboardInterrupt):
            OTHERS["transform"]("s.zarr", overwrite=True)
    WRITES["transform"]("s.zarr")  # which is there, and has nothing to do
    monkeypatch.setattr("bigkpca.storage.block_arrays.write_block", lambda *_: pytest.fail("a block was written again"))
    OTHERS["transform"]("s.zarr", overwrite=True)


def test_what_was_replaced_goes_also_where_it_was_not_finished(home, monkeypatch):
    (home / "s.zarr" / "scores" / "manifest.json").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(destination, "_discard", lambda *_: None)  # killed right after the exchange
        OTHERS["transform"]("s.zarr", overwrite=True)
    assert list(home.glob("s.zarr.bigkpca-run-*"))
    OTHERS["transform"]("s.zarr", overwrite=True)
    OTHERS["transform"]("wanted.zarr")
    assert tree_bytes(home / "s.zarr") == tree_bytes(home / "wanted.zarr")
    assert not list(home.glob("s.zarr.*"))


def stopped(write, out, monkeypatch, **how):
    """A run that is stopped before its first block."""

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("bigkpca.storage.block_arrays.write_block", stop)
        with pytest.raises(KeyboardInterrupt):
            write(out, **how)


def test_an_output_is_made_beside_its_path_in_a_folder_named_after_it(home, monkeypatch):
    stopped(WRITES["transform"], "o.zarr", monkeypatch)
    stopped(WRITES["transform"], "o.zarr", monkeypatch)
    (first,) = home.glob("o.zarr.*")
    assert re.fullmatch(r"o\.zarr\.bigkpca-run-[0-9a-f]{12}", first.name)
    notes = Recorder()
    with monkeypatch.context() as patch:
        patch.setattr("bigkpca.storage.block_arrays.write_block", lambda *_: pytest.fail("it begins with its note"))
        patch.setattr(destination.Destination, "made", lambda *_: pytest.fail("it begins with its note"))
        with pytest.raises(BaseException, match="it begins with its note"):
            OTHERS["transform"]("o.zarr", progress=notes)
    assert notes.notes == [f"removed unfinished output of other runs: {first.name}"]
    assert not list(home.glob("o.zarr*"))


def test_what_late_workers_and_others_left_beside_an_output(home, monkeypatch):
    """Any run removes blocks that belong to nothing. Unfinished output stays while no other run writes there."""
    WRITES["transform"]("o.zarr")
    stopped(OTHERS["transform"], "o.zarr", monkeypatch, overwrite=True)
    (other,) = home.glob("o.zarr.*")
    stray = home / "o.zarr.bigkpca-run-0123456789ab" / "scores" / "c" / "1"
    users = home / "o.zarr.bigkpca-run-of-mine"
    for folder in (stray, users):
        folder.mkdir(parents=True)
    notes = Recorder()
    WRITES["transform"]("o.zarr", progress=notes)
    assert notes.notes == ["o.zarr exists already, from the same model and rows: nothing to do"]
    assert sorted(home.glob("o.zarr.*")) == sorted([other, users])
    with pytest.raises(SpecError, match="is in the way"):
        bigkpca.fit("d.zarr", "o.zarr", **FIT)
    bigkpca.transform("m.zarr", "d.zarr", "o.zarr", block_rows=90, overwrite=True)
    assert list(home.glob("o.zarr.*")) == [users]


def test_a_fit_and_an_ingest_say_what_they_remove(home, monkeypatch):
    for name in ("fit", "ingest"):
        stopped(WRITES["transform"], "o.zarr", monkeypatch)
        notes = Recorder()
        WRITES[name]("o.zarr", progress=notes)
        assert notes.notes[0].startswith("removed unfinished output of other runs: o.zarr.bigkpca-run-")
        assert [path.name for path in home.glob("o.zarr*")] == ["o.zarr"]
        shutil.rmtree("o.zarr")


def test_unfinished_output_at_a_path_is_moved_beside_it_and_gone_on_with(home, monkeypatch):
    """As versions before this one left it."""
    WRITES["transform"]("o.zarr")
    wanted = tree_bytes("o.zarr")
    (home / "o.zarr" / "scores" / "manifest.json").unlink()
    (home / "o.zarr" / "scores" / "c" / "1" / "0").unlink()
    stopped(WRITES["transform"], "o.zarr", monkeypatch)
    assert not (home / "o.zarr").exists()
    WRITES["transform"]("o.zarr")
    assert tree_bytes("o.zarr") == wanted
    assert not list(home.glob("o.zarr.*"))


@pytest.mark.parametrize("spelled", ["s2.zarr/scores/", "~/s2.zarr", "link"])
def test_scores_of_another_model_are_known_however_their_path_is_spelled(spelled, home):
    bigkpca.fit("d.zarr", "m2.zarr", **FIT | {"sigma": 9.0})
    bigkpca.transform("m2.zarr", "d.zarr", "s2.zarr")
    (home / "link").symlink_to("s2.zarr/scores")
    with pytest.raises(SpecError, match="scores belong to the model that made them"):
        bigkpca.reconstruct("m.zarr", spelled, "o.zarr")


@every_write
def test_a_file_where_a_folder_is_needed_is_named(write, home):
    (home / "notes").write_text("of the user")
    with pytest.raises(SpecError, match=r"cannot be written: .*notes is a file, not a folder"):
        WRITES[write]("notes/sub/o.zarr")


def test_what_is_no_rows_is_not_read_as_rows(home):
    with pytest.raises(SpecError, match=r"m\.zarr is a bigkpca model, not rows"):
        bigkpca.fit("m.zarr", "o.zarr")
    (home / "s.zarr" / "scores" / "manifest.json").unlink()
    with pytest.raises(IncompleteError, match=r"s\.zarr is not finished: run the command that makes it again"):
        bigkpca.fit("s.zarr", "o.zarr")


def test_an_estimator_makes_the_model_of_the_command(home):
    bigkpca.KernelPCA(3, size=10, random_state=0).fit("d.zarr").save("k.zarr")
    bigkpca.fit("d.zarr", "c.zarr", **FIT)
    assert tree_bytes(home / "k.zarr") == tree_bytes(home / "c.zarr")


def test_evaluations_of_few_rows_take_all_of_them(home):
    assert len(bigkpca.evaluate("m.zarr", "d.zarr").eigenvalues) == 3


@pytest.mark.parametrize("text", ["[]", '{"attributes": null}', '{"attributes": []}', "3"])
def test_metadata_that_say_nothing_are_those_of_somebody_else(text, home):
    (home / "o.zarr").mkdir()
    (home / "o.zarr" / "zarr.json").write_text(text)
    with pytest.raises(SpecError, match="was not made by bigkpca, so it is never replaced"):
        WRITES["fit"]("o.zarr", overwrite=True)


@pytest.mark.parametrize("can", [True, False])
@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("write", ["transform", "fit", "ingest"])
def test_an_exchange_that_stops_at_any_rename_is_finished_by_the_same_command(write, step, can, home, monkeypatch):
    """Also where the system cannot exchange two folders at once, and renames them one after the other."""

    class Stop(BaseException):
        pass

    OTHERS[write]("wanted.zarr")
    WRITES[write]("o.zarr")
    wanted = tree_bytes(home / "wanted.zarr")
    with pytest.MonkeyPatch.context() as patch:
        if not can:
            patch.setattr(LocalDisk, "exchange", lambda *_: False)
        rename, calls = os.rename, []

        def stopping(*paths):
            if paths[0].startswith("o.zarr") or str(home / "o.zarr") in paths[0]:
                calls.append(paths)
            if len(calls) == step:
                raise Stop
            rename(*paths)

        patch.setattr(os, "rename", stopping)
        try:
            OTHERS[write]("o.zarr", overwrite=True)
        except Stop:
            assert not can or (home / "o.zarr" / "zarr.json").exists()
    OTHERS[write]("o.zarr", overwrite=True)
    assert tree_bytes(home / "o.zarr") == wanted
    assert not list(home.glob("o.zarr.*"))


def test_two_folders_are_exchanged_at_once(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert LocalDisk().exchange(str(tmp_path / "a"), str(tmp_path / "b"))
    assert [entry.name for entry in (tmp_path / "a").iterdir()] == ["b"]
    with pytest.raises(FileNotFoundError, match="No such file"):
        LocalDisk().exchange(str(tmp_path / "a"), str(tmp_path / "c"))


def test_a_system_without_locks_is_told_so():
    code = "import sys; sys.modules['fcntl'] = None; import bigkpca.data.stores.local_locks"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert (
        "ImportError: bigkpca runs on Linux and macOS: it locks outputs with flock, which this system lacks"
        in run.stderr
    )


@pytest.mark.parametrize("write", WRITES)
def test_the_folder_where_a_disk_is_mounted_is_refused(write, home, mounted):
    with pytest.raises(SpecError, match=r"is a mount point, .* name a folder in it"):
        WRITES[write](mounted("size=8m"))
    assert not list(home.glob("disk.*"))
