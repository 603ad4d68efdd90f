"""Paths of outputs are meant as they are, and inputs, mount points and things of others are no places for one."""

import os
from pathlib import Path

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca.errors import SpecError
from bigkpca.ingesting import ingest
from tests.data.cases import case, refused
from tests.helpers.commands import run
from tests.helpers.disks import mounted, tree_bytes
from tests.storage.outputs import OTHERS, WRITES, X


def test_the_current_folder_and_those_around_it_are_refused(home, monkeypatch):
    (home / "empty").mkdir()
    before = tree_bytes(home)
    monkeypatch.chdir(home / "empty")
    a, d, m, s = (home / name for name in ("a.npy", "d.zarr", "m.zarr", "s.zarr"))
    for path, write in (
        *((path, lambda path: bigkpca.fit(d, path, overwrite=True)) for path in (".", "..", "/", "./.")),
        (".", lambda path: ingest([a], path, overwrite=True)),
        (".", lambda path: bigkpca.transform(m, d, path, overwrite=True)),
        (".", lambda path: bigkpca.reconstruct(m, s, path, overwrite=True)),
        (".", lambda path: bigkpca.denoise(m, d, path, overwrite=True)),
    ):
        refused(write, (path, SpecError, "is the current folder or contains it: name a new folder"))
    assert tree_bytes(home) == before


def test_what_is_read_is_never_replaced(home):
    (home / "link").symlink_to("d.zarr")
    before = tree_bytes(home)
    at, within = "is an input", "lie inside each other"
    for write, out, match in (
        *((WRITES["transform"], out, at) for out in ("d.zarr", "./d.zarr/", "link", "m.zarr")),
        (WRITES["transform"], "m.zarr/s", within),
        (lambda out, **how: bigkpca.transform("m.zarr", zarr.open_array("d.zarr/x"), out, **how), "d.zarr", within),
        (WRITES["fit"], "d.zarr", at),
        (WRITES["fit"], "d.zarr/model", within),
        (WRITES["reconstruct"], "s.zarr", at),
        (lambda out, **how: bigkpca.denoise("m.zarr", "a.npy", out, **how), "a.npy/x", within),
        (lambda out, **how: bigkpca.compare("d.zarr", out), "d.zarr/cmp", within),
        (lambda out, **how: ingest([Path("a.npy").absolute()], out, **how), "a.npy/", at),
    ):
        with case(out), pytest.raises(SpecError, match=match):
            write(out, overwrite=True)
    assert tree_bytes(home) == before


def test_what_is_no_path_or_no_place_for_an_output_is_refused(home):
    (home / "notes").write_text("of the user")
    there = {entry.name for entry in home.iterdir()}
    arrays = r"a folder of Zarr arrays, not a \.\S+ file: choose another name"
    for name, write in WRITES.items():
        with case(name):
            refused(
                write,
                (None, TypeError, "NoneType"),
                ("notes/sub/o.zarr", SpecError, "cannot be written: .*notes is a file, not a folder"),
                ("o.npy", SpecError, rf"{arrays}, e\.g\. o\.zarr"),
            )
    for path in ("o.csv", "O.CSV.GZ", "o.parquet/", "o.h5", "o.html"):
        refused(WRITES["transform"], (path, SpecError, arrays))
    assert {entry.name for entry in home.iterdir()} == there


def test_the_folder_where_a_disk_is_mounted_is_refused(home):
    with mounted("size=8m", home / "disk") as disk:
        for name, write in WRITES.items():
            with case(name):
                refused(write, (disk, SpecError, r"is a mount point, .* name a folder in it"))
        assert not list(home.glob("disk.*"))


@pytest.mark.parametrize(
    ("write", "path"),
    [
        ("ingest", "o.zarr/"),
        ("transform", "~/o.zarr"),
        ("transform", "x/../o.zarr//"),
        ("transform", "link"),
        ("fit", "dangling"),
    ],
)
def test_paths_are_meant_as_they_are(write, path, home):
    WRITES[write]("plain.zarr")
    wanted, there = tree_bytes(home / "plain.zarr"), {entry.name for entry in home.iterdir()}
    (home / "elsewhere").mkdir()
    linked = path in ("link", "dangling")
    if path == "link":
        (home / "elsewhere" / "o.zarr").mkdir()
    if linked:
        (home / path).symlink_to(home / "elsewhere" / "o.zarr")
    WRITES[write](path)
    WRITES[write](path)  # which finds that there is nothing to do
    target = home / "elsewhere" if linked else home
    assert tree_bytes(target / "o.zarr") == wanted
    OTHERS[write](path, overwrite=True)
    assert tree_bytes(target / "o.zarr") != wanted
    assert {entry.name for entry in home.iterdir()} == there | {path if linked else "o.zarr", "elsewhere"}
    assert [entry.name for entry in (home / "elsewhere").iterdir()] == (["o.zarr"] if linked else [])
    assert (home / path).is_symlink() == linked


@pytest.mark.usefixtures("quiet_signals")
def test_the_home_folder_is_meant_by_its_sign_everywhere(home):
    np.save("y.npy", np.arange(90))
    np.save("own.npy", X[:9])
    ingest(["~/a.npy"], "~/sub/d.zarr", labels="~/y.npy")
    for command in (
        ("fit", "~/sub/d.zarr", "~/sub/m.zarr", "--components", "2", "--landmarks", "~/own.npy", "-q"),
        ("transform", "~/sub/m.zarr", "~/sub/d.zarr", "~/sub/s.zarr", "-q"),
        ("info", "~/sub/s.zarr"),
    ):
        done = run(*command)
        assert done.exit_code == 0, done.output
    assert bigkpca.load("~/sub/m.zarr").components == 2
    assert sorted(os.listdir("sub")) == ["d.zarr", "m.zarr", "s.zarr"]
    assert not (home / "~").exists()
