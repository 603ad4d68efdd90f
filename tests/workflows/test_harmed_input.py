"""Rows that change while a command reads them, or are damaged before: an error that names them, and nothing new."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import bigkpca
from bigkpca.errors import CorruptionError, IncompleteError
from bigkpca.ingesting.streaming import ingest
from tests.helpers.disks import tree_bytes
from tests.helpers.fits import OPTIONS
from tests.helpers.progress import Recorder

BLOCK = 100
GIVEN = {**OPTIONS, "size": 60}


@pytest.fixture
def made(tmp_path, digits):
    """A dataset of six shards, and a model of it."""
    np.save(tmp_path / "x.npy", digits[:600])
    np.save(tmp_path / "more.npy", digits[:30])
    ingest([tmp_path / "x.npy"], tmp_path / "d.zarr", block_rows=BLOCK)
    bigkpca.fit(tmp_path / "d.zarr", tmp_path / "m.zarr", **GIVEN)
    return tmp_path


COMMANDS = {
    "fit": lambda at, **how: bigkpca.fit(at / "d.zarr", at / "out.zarr", **{**GIVEN, "seed": 4}, **how),
    "transform": lambda at, **how: bigkpca.transform(at / "m.zarr", at / "d.zarr", at / "out.zarr", **how),
}


def chunk(at):
    """The shard of rows 400 to 499."""
    return at / "d.zarr" / "x" / "c" / "4" / "0"


def append(at):
    ingest([at / "more.npy"], at / "d.zarr", append=True)


def rewrite(at):
    chunk(at).write_bytes((chunk(at).parents[1] / "3" / "0").read_bytes())


@dataclass
class Meddling(Recorder):
    """Changes the rows as soon as the first of the last pass are done."""

    change: Callable[[], None] | None = None

    def advance(self, rows):
        super().advance(rows)
        if self.change and self.started[-1][0] != "sampling rows":
            self.change()
            self.change = None


@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("transform", rewrite),
        pytest.param("fit", append, marks=pytest.mark.full),
        pytest.param("fit", rewrite, marks=pytest.mark.full),
        pytest.param("transform", append, marks=pytest.mark.full),
    ],
)
def test_rows_that_change_while_they_are_read_are_refused(command, change, made):
    whole = chunk(made).read_bytes()
    with pytest.raises(
        IncompleteError, match=r"d\.zarr changed while it was read: run again when nothing writes to it"
    ):
        COMMANDS[command](made, progress=Meddling(change=lambda: change(made)), block_rows=BLOCK)
    assert not (made / "out.zarr").exists()
    if change is rewrite:
        with pytest.raises(CorruptionError, match="rows 400 to 499 are other values than were written there"):
            COMMANDS[command](made, block_rows=BLOCK)
        assert not (made / "out.zarr").exists()
        chunk(made).write_bytes(whole)
    COMMANDS[command](made, block_rows=BLOCK)
    bigkpca.verify(made / "out.zarr")
    assert sorted(path.name for path in made.iterdir()) == ["d.zarr", "m.zarr", "more.npy", "out.zarr", "x.npy"]


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("command", ["fit", pytest.param("transform", marks=pytest.mark.full)])
def test_damaged_rows_are_named(command, made):
    COMMANDS[command](made, block_rows=BLOCK)
    before, whole = tree_bytes(made / "out.zarr"), chunk(made).read_bytes()
    unreadable = r"d\.zarr: rows (0 to 599|400 to 499) cannot be read"
    for harm, message in (
        (lambda path: path.write_bytes(whole[:-40]), unreadable),
        (flip, unreadable),
        (Path.unlink, r"d\.zarr: 1 stored chunks are missing, the first holds row 400"),
    ):
        harm(chunk(made))
        with pytest.raises(CorruptionError, match=message):
            COMMANDS[command](made, block_rows=BLOCK, overwrite=True)
        assert tree_bytes(made / "out.zarr") == before
        chunk(made).write_bytes(whole)
    COMMANDS[command](made, block_rows=BLOCK, overwrite=True)
    assert sorted(path.name for path in made.iterdir()) == ["d.zarr", "m.zarr", "more.npy", "out.zarr", "x.npy"]
