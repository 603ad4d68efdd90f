"""Rows that change while a command reads them, or are damaged before: an error that names them, and nothing new."""

from pathlib import Path

import numpy as np
import pytest

import bigkpca
from bigkpca.errors import CorruptionError, IncompleteError
from bigkpca.ingesting.streaming import ingest
from tests.helpers.disks import tree_bytes
from tests.helpers.fits import OPTIONS
from tests.helpers.progress import Once

GIVEN = {**OPTIONS, "size": 60}


@pytest.fixture
def made(tmp_path, digits):
    """A dataset of six shards, and a model of it."""
    np.save(tmp_path / "x.npy", digits[:600])
    ingest([tmp_path / "x.npy"], tmp_path / "d.zarr", block_rows=100)
    bigkpca.fit(tmp_path / "d.zarr", tmp_path / "m.zarr", **GIVEN)
    return tmp_path


COMMANDS = {
    "fit": lambda at, **how: bigkpca.fit(at / "d.zarr", at / "out.zarr", block_rows=100, **GIVEN | {"seed": 4}, **how),
    "transform": lambda at, **how: bigkpca.transform(at / "m.zarr", at / "d.zarr", at / "out.zarr", **how),
}


def chunk(at):
    """The shard of rows 400 to 499."""
    return at / "d.zarr" / "x" / "c" / "4" / "0"


def append(at):
    ingest([at / "x.npy"], at / "d.zarr", append=True)


def rewrite(at):
    chunk(at).write_bytes((chunk(at).parents[1] / "3" / "0").read_bytes())


@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("transform", rewrite),
        *(pytest.param(*each, marks=pytest.mark.full) for each in (("fit", append), ("fit", rewrite))),
        pytest.param("transform", append, marks=pytest.mark.full),
    ],
)
def test_rows_that_change_while_they_are_read_are_refused(command, change, made):
    whole = chunk(made).read_bytes()
    meddling = Once(what=lambda: change(made), title="fitting" if command == "fit" else "")
    with pytest.raises(
        IncompleteError, match=r"d\.zarr changed while it was read: run again when nothing writes to it"
    ):
        COMMANDS[command](made, progress=meddling)
    if change is rewrite:
        with pytest.raises(CorruptionError, match="rows 400 to 499 are other values than were written there"):
            COMMANDS[command](made)
        chunk(made).write_bytes(whole)
    assert not (made / "out.zarr").exists()
    COMMANDS[command](made)
    bigkpca.verify(made / "out.zarr")
    assert sorted(path.name for path in made.iterdir()) == ["d.zarr", "m.zarr", "out.zarr", "x.npy"]


@pytest.mark.parametrize("command", ["fit", pytest.param("transform", marks=pytest.mark.full)])
def test_damaged_rows_are_named(command, made):
    COMMANDS[command](made)
    before, whole = tree_bytes(made / "out.zarr"), chunk(made).read_bytes()
    unreadable = r"d\.zarr: rows (0 to 599|400 to 499) cannot be read"
    for harm, message in (
        (lambda path: path.write_bytes(whole[:-40]), unreadable),
        (lambda path: path.write_bytes(whole[:900] + bytes([whole[900] ^ 4]) + whole[901:]), unreadable),
        (Path.unlink, r"d\.zarr: 1 stored chunks are missing, the first holds row 400"),
    ):
        harm(chunk(made))
        with pytest.raises(CorruptionError, match=message):
            COMMANDS[command](made, overwrite=True)
        assert tree_bytes(made / "out.zarr") == before
        chunk(made).write_bytes(whole)
    COMMANDS[command](made, overwrite=True)
    assert sorted(path.name for path in made.iterdir()) == ["d.zarr", "m.zarr", "out.zarr", "x.npy"]
