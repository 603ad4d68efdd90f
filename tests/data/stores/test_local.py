"""Local disks: what test_objects.py does not compare with object stores, against what the file system says."""

import errno
import fcntl
import importlib
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import zarr

from bigkpca.data.stores import LocalDisk, expanded, is_path, last_name, parent, store_of
from bigkpca.data.zarr_stores import zarr_store
from bigkpca.errors import IncompleteError, LockedError, SpecError
from tests.data.cases import refused
from tests.helpers.disks import mounted

DISK = LocalDisk()


def folder(path, **files):
    """A folder with these files."""
    path.mkdir(parents=True)
    for name, content in files.items():
        (path / name).write_bytes(content)
    return str(path)


def write(out, error=None):
    """As the only run, which an error may end."""
    with DISK.writer(str(out)):
        if error is not None:
            raise error


def test_names_in_a_path_and_two_points_behind_a_link_which_mean_the_folder_above_its_target(tmp_path):
    assert store_of("rows.zarr") == DISK
    assert last_name("a/b.zarr/") == "b.zarr"
    assert [parent(path) for path in ("a/b.zarr/", "b.zarr", "/b.zarr")] == ["a", ".", "/"]
    assert [is_path(each) for each in ("a", Path("a"), np.zeros(3))] == [True, True, False]
    assert expanded(Path("~/a")) == str(Path.home() / "a")
    refused(expanded, (b"a", TypeError, "paths must be strings, not bytes"))
    folder(tmp_path / "far" / "deep")
    (tmp_path / "near").symlink_to(tmp_path / "far" / "deep")
    assert DISK.absolute(f"{tmp_path}/near/../x.npy") == f"{tmp_path}/far/x.npy"
    assert DISK.absolute(f"{tmp_path}/near/x.npy") == f"{tmp_path}/near/x.npy"


def test_stamps_hold_size_and_time_and_links_do_not_lead_in_circles(tmp_path):
    root = folder(tmp_path / "a", x=b"123")
    status, before = (tmp_path / "a" / "x").stat(), DISK.file(f"{root}/x")
    assert before.stamp == f"{status.st_size} {status.st_mtime_ns}"
    (tmp_path / "a" / "circle").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "dangling").symlink_to(tmp_path / "gone")
    assert DISK.files(root)["x"] == before
    (tmp_path / "a" / "x").write_bytes(b"124")
    os.utime(tmp_path / "a" / "x", ns=(0, status.st_mtime_ns + 1))
    assert DISK.files(root)["x"] != before


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path, victim = tmp_path / "a.csv", tmp_path / "victim"
    victim.write_bytes(b"of somebody else")
    partial = tmp_path / "a.csv.partial"
    for left in (
        lambda: partial.write_bytes(b"of a killed write, and longer"),
        lambda: partial.symlink_to(victim),
        lambda: partial.hardlink_to(victim),
    ):
        left()
        with DISK.writing(str(path)) as file:
            file.write(b"one")
            assert not path.exists()
        assert path.read_bytes() == b"one"
        path.unlink()
    DISK.write(str(path), b"old")
    for step in ("replace", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, Mock(side_effect=OSError(errno.ENOSPC, "full")))
            refused(DISK.write, (str(path), b"three", OSError, "full"))
    with pytest.raises(TypeError, match="bytes-like"), DISK.writing(str(path)) as file:
        file.write("two")
    assert path.read_bytes() == b"old"
    assert victim.read_bytes() == b"of somebody else"
    assert sorted(DISK.names(str(tmp_path))) == ["a.csv", "victim"]


def test_sync_forces_everything_to_disk_and_removes_what_killed_writes_left(tmp_path, monkeypatch):
    root = folder(tmp_path / "a", x=b"1", y=b"2")
    folder(tmp_path / "a" / "mine.partial", y=b"3")
    for number in range(300):
        folder(tmp_path / "a" / "c" / str(number), **{"0": b"12", "0.partial": b"1"})
    synced, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle).st_ino), fsync(handle)))
    DISK.sync(root)
    assert sorted(synced) == sorted(path.stat().st_ino for path in (tmp_path / "a", *(tmp_path / "a").rglob("*")))
    assert [name for name in DISK.files(root) if "partial" in name] == ["mine.partial/y"]


def test_one_writer_at_a_time_and_what_ends_its_work(tmp_path):
    out = str(tmp_path / "deep" / "out.zarr")
    with DISK.writer(out):
        refused(write, (out, LockedError, r"another run is writing .*out\.zarr"))
    full, other = OSError(errno.ENOSPC, "other"), OSError(errno.EXDEV, "other")
    refused(write, (out, full, IncompleteError, "the disk is full"), (out, other, OSError, "other"))
    assert DISK.names(str(tmp_path / "deep")) == []


def test_a_lock_holds_until_its_process_ends_even_if_that_is_killed(tmp_path):
    out = str(tmp_path / "out.zarr")
    code = (
        "import sys; from bigkpca.data.stores import LocalDisk\n"
        "with LocalDisk().writer(sys.argv[1]): print('held', flush=True); sys.stdin.readline()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code, out], **pipes) as process:
        assert process.stdout.readline()
        refused(write, (out, LockedError, "another run is writing"))
        process.kill()
    assert (tmp_path / "out.zarr.bigkpca-lock").exists()
    write(out)
    assert not (tmp_path / "out.zarr.bigkpca-lock").exists()


def test_a_lock_that_its_holder_removes_meanwhile_is_not_taken(tmp_path, monkeypatch):
    out, lock = str(tmp_path / "out.zarr"), fcntl.flock
    for replace in (lambda name: None, lambda name: name.write_bytes(b"")):

        def late(file, how, replace=replace):
            (tmp_path / "out.zarr.bigkpca-lock").unlink()
            replace(tmp_path / "out.zarr.bigkpca-lock")
            lock(file, how)

        monkeypatch.setattr(fcntl, "flock", late)
        refused(write, (out, LockedError, "another run is writing"))


def test_a_system_or_a_file_system_without_locks_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    message = r"bigkpca-lock cannot be locked \(No locks available\): choose an output path on another file system"
    refused(write, (tmp_path / "out.zarr", SpecError, message))
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.delitem(sys.modules, "bigkpca.data.stores.local")
    with pytest.raises(ImportError, match="runs on Linux and macOS: it locks outputs with flock, which this system"):
        importlib.import_module("bigkpca.data.stores.local")


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder in which nobody can make anything")
def test_an_output_that_cannot_be_made_is_refused_with_its_path_and_what_cannot_be_created(tmp_path):
    def not_created(path, lost, why):
        message = rf"^{path} cannot be written, since {lost} cannot be created [(]{why}.*[)]: choose another path"
        refused(write, (path, SpecError, message))

    not_created("/proc/out.zarr", "/proc/out.zarr.bigkpca-lock", "No such file or directory")
    not_created("/proc/new/out.zarr", "/proc/new", "No such file or directory")
    not_created(f"{tmp_path}/{'x' * 300}/out.zarr", f"{tmp_path}/{'x' * 300}", "File name too long")
    elsewhere, lock = folder(tmp_path / "elsewhere"), tmp_path / "out.zarr.bigkpca-lock"
    lock.symlink_to(f"{elsewhere}/new.txt")
    not_created(f"{tmp_path}/out.zarr", lock, "Too many levels of symbolic links")
    lock.unlink()
    lock.mkdir()
    not_created(f"{tmp_path}/out.zarr", lock, "Is a directory")
    assert DISK.names(elsewhere) == []
    with mounted("ro", tmp_path / "disk") as disk:
        not_created(f"{disk}/out.zarr", f"{disk}/out.zarr.bigkpca-lock", "Read-only")


def test_a_folder_is_put_in_the_place_of_another_which_is_kept_aside(tmp_path):
    aside, target = str(tmp_path / "beside" / "old"), str(tmp_path / "a")
    folder(tmp_path / "beside" / "old", left=b"by a run that was killed")
    for name in ("x", "y", "z"):
        DISK.move(folder(tmp_path / "new", **{name: b"1"}), target, aside)
        assert DISK.names(target) == [name]
    assert (DISK.names(aside), sorted(DISK.names(str(tmp_path)))) == (["y"], ["a", "beside"])


def test_of_a_folder_metadata_are_removed_first_and_of_a_link_not_what_it_leads_to(tmp_path, monkeypatch):
    kept = folder(tmp_path / "kept", x=b"1")
    for remove in (DISK.remove_folder, DISK.remove_file):
        (tmp_path / "link").symlink_to(kept)
        remove(str(tmp_path / "link"))
        assert not (tmp_path / "link").is_symlink()
    assert DISK.files(kept).keys() == {"x"}
    root, removed = folder(tmp_path / "a", **{"x": b"1", "zarr.json": b"{}"}), []
    DISK.remove_empty(root)  # which it is not
    DISK.remove_empty(f"{root}/nothing")
    assert sorted(DISK.names(root)) == ["x", "zarr.json"]
    monkeypatch.setattr("shutil.rmtree", lambda path: removed.append(DISK.names(path)))
    DISK.remove_folder(root)
    assert removed == [["x"]]


def test_what_is_replaced_in_an_array_is_on_the_disk_before(tmp_path, monkeypatch):
    """New chunks are not: they are forced to it many at once."""
    array = zarr.create_array(zarr_store(str(tmp_path / "x")), shape=(4, 2), chunks=(2, 2), dtype="f4")
    steps, fsync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (steps.append("fsync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda *paths: (steps.append("replace"), replace(*paths)))
    array[:] = 1
    assert steps == ["replace", "replace"]
    array[:2] = 2
    assert steps[2:] == ["fsync", "replace", "fsync"]  # the last one of the folder
    with pytest.raises(ValueError, match="read-only"):
        zarr.open_array(zarr_store(str(tmp_path / "x")), mode="r")[:2] = 3
    np.testing.assert_array_equal(array[:], [[2, 2]] * 2 + [[1, 1]] * 2)
    assert sorted(DISK.files(str(tmp_path / "x"))) == ["c/0/0", "c/1/0", "zarr.json"]
