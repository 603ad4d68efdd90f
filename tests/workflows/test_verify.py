"""Everything that can happen to stored output is found and named, and --overwrite makes it again."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca.errors import CorruptionError, IncompleteError, MemoryLimitError, SpecError
from bigkpca.ingesting import ingest
from bigkpca.workflows import verify
from bigkpca.workflows.verify import Verified
from tests.data.cases import refused
from tests.helpers.commands import run
from tests.helpers.disks import HARMS, Restored, tree_bytes
from tests.helpers.progress import Once

pytestmark = pytest.mark.usefixtures("quiet_signals")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A dataset with labels, a model, scores with residuals and reconstructed rows of three blocks."""
    folder, rng = tmp_path_factory.mktemp("made") / "home", np.random.default_rng(0)
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        np.savez("a.npz", x=rng.normal(size=(90, 4)), y=np.arange(90))
        ingest(["a.npz"], "d.zarr", member="x", labels="y", block_rows=32)
        bigkpca.fit("d.zarr", "m.zarr", n_components=3, size=10)
        scored()
        reconstructed()
    return Restored.made(folder)


@pytest.fixture
def home(made, monkeypatch):
    """The current folder, which holds all of that."""
    monkeypatch.chdir(made.again())
    return made.folder


def scored(**how):
    return bigkpca.transform("m.zarr", "d.zarr", "s.zarr", block_rows=32, residual=True, **how)


def reconstructed(**how):
    return bigkpca.reconstruct("m.zarr", "s.zarr", "x.zarr", block_rows=32, **how)


def test_what_is_whole_is_described(home):
    zarr.create_array("f.zarr", shape=(50, 7), chunks=(8, 3), dtype="f4")[:] = 1
    for each in (
        Verified("d.zarr", "dataset", (90, 4)),
        Verified("s.zarr", "features", (90, 3)),
        Verified("x.zarr", "reconstruction", (90, 4)),
        Verified("f.zarr", "zarr array", (50, 7)),
        Verified("s.zarr/scores", "zarr array", (90, 3)),
    ):
        assert bigkpca.verify(each.path) == each
    assert bigkpca.verify("m.zarr").kind == "model"


def test_the_command_prints_facts_and_ends_with_the_code_of_what_it_found(home):
    facts = {"path": "s.zarr", "kind": "features", "shape": [90, 3]}
    assert json.loads(run("verify", "s.zarr", "--json").stdout) == facts
    told = "path s.zarr kind features shape 90 × 3 all intact "
    assert re.sub(r"\s+", " ", run("verify", "s.zarr").stdout) == told
    HARMS["flipped"](home / "s.zarr" / "scores" / "c" / "1" / "0")
    broken = run("verify", "s.zarr", "--json")
    assert (broken.exit_code, broken.stdout) == (7, "")
    assert "s.zarr/scores: rows 32 to 63 cannot be read" in broken.stderr
    assert run("verify", "nowhere.zarr").exit_code == 2
    assert run("verify", "s.zarr", "--memory", "1 MB").exit_code == 4


@pytest.mark.parametrize(
    ("harm", "out", "chunk", "again"),
    [
        ("truncated", "s.zarr", "scores/c/1/0", scored),
        ("missing", "s.zarr", "residual/c/2", scored),
        ("flipped", "x.zarr", "far/c/1", reconstructed),
    ],
)
def test_a_damaged_block_is_named_and_made_again_with_overwrite(harm, out, chunk, again, home):
    before = tree_bytes(out)
    HARMS[harm](home / out / chunk)
    name, number = chunk.split("/")[::2][:2]
    where = rf"{chunk} is missing|{out}/{name}: rows {32 * int(number)} to \d+ cannot be read"
    refused(bigkpca.verify, (out, CorruptionError, rf"1 parts are damaged or missing\n.*({where})(.|\n)* --overwrite"))
    again(overwrite=True)
    assert tree_bytes(out) == before
    bigkpca.verify(out)
    assert [path.name for path in home.glob("?.zarr.*")] == []


def test_metadata_and_arrays_that_are_gone_are_named(home):
    before = tree_bytes("s.zarr")
    for gone in ("residual/zarr.json", "scores", "zarr.json"):
        path = home / "s.zarr" / gone
        (shutil.rmtree if path.is_dir() else Path.unlink)(path)
        refused(bigkpca.verify, ("s.zarr", (CorruptionError, SpecError), r"s\.zarr"))
        if gone == "zarr.json":  # without which nothing tells whose folder it is
            with pytest.raises(SpecError, match="was not made by bigkpca, so it is never replaced"):
                scored(overwrite=True)
            shutil.rmtree(home / "s.zarr")
        scored(overwrite=True)
        assert tree_bytes("s.zarr") == before


def test_output_that_is_replaced_during_the_check_is_not_called_damaged(home, monkeypatch):
    bigkpca.fit("d.zarr", "m2.zarr", n_components=2, size=12)
    damaged, first = verify._damaged, iter([True])

    def meddle(*arguments):
        if next(first, False):
            bigkpca.transform("m2.zarr", "d.zarr", "s.zarr", block_rows=32, overwrite=True)
        return damaged(*arguments)

    monkeypatch.setattr(verify, "_damaged", meddle)
    refused(bigkpca.verify, ("s.zarr", IncompleteError, r"s\.zarr was replaced during the check: run the same command"))


def test_unfinished_output_is_described_and_not_read(home):
    with pytest.raises(KeyboardInterrupt):
        bigkpca.transform("m.zarr", "d.zarr", "o.zarr", block_rows=32, progress=Once())
    facts = json.loads(run("info", "o.zarr", "--json").stdout)
    assert facts == {"kind": "features", "path": "o.zarr", "finished": False}
    for work in (
        lambda: bigkpca.verify("o.zarr"),
        lambda: bigkpca.fit("o.zarr", "n.zarr"),
        lambda: bigkpca.reconstruct("m.zarr", "o.zarr", "y.zarr"),
    ):
        refused(work, (IncompleteError, "is not finished: run the command that makes it again"))
    bigkpca.transform("m.zarr", "d.zarr", "o.zarr", block_rows=32)
    assert bigkpca.verify("o.zarr").shape == (90, 3)


def test_damage_of_datasets_and_other_arrays_is_named(home):
    zarr.create_array("f.zarr", shape=(50, 7), chunks=(8, 3), dtype="f4")[:] = 1
    zarr.open_group("d.zarr").create_array("theirs", shape=(90, 2), chunks=(32, 2), dtype="f4")[:32] = 1
    HARMS["truncated"](home / "d.zarr" / "theirs" / "c" / "0" / "0")
    assert bigkpca.verify("d.zarr").kind == "dataset"
    HARMS["truncated"](home / "d.zarr" / "x" / "c" / "1" / "0")
    (home / "d.zarr" / "y" / "c" / "2").unlink()
    HARMS["empty"](home / "d.zarr" / "y" / "c" / "0")
    HARMS["truncated"](home / "f.zarr" / "c" / "6" / "2")
    with pytest.raises(CorruptionError, match=r"d\.zarr: 3 parts are damaged or missing") as error:
        bigkpca.verify("d.zarr")
    assert "x: rows 32 to 63 cannot be read" in str(error.value)
    assert "y/c/0 is missing" in str(error.value)
    assert "y/c/2 is missing" in str(error.value)
    refused(bigkpca.verify, ("f.zarr", CorruptionError, r"\n  .*f\.zarr: rows 48 to 49 cannot be read"))
    bigkpca.transform("m.zarr", np.load("a.npz")["x"], "many.zarr", block_rows=4)
    for path in Path("many.zarr/scores").glob("c/*/0"):
        HARMS["truncated"](path)
    with pytest.raises(CorruptionError, match=r"many\.zarr: 23 parts are damaged or missing") as error:
        bigkpca.verify("many.zarr")
    assert str(error.value).count("cannot be read") == 10
    assert "\n  and 13 more\n" in str(error.value)


def test_damaged_models_and_what_cannot_be_checked_are_refused(home):
    HARMS["flipped"](home / "m.zarr" / "mean" / "c" / "0")
    refused(bigkpca.verify, ("m.zarr", CorruptionError, r"m\.zarr/mean: rows 0 to 9 cannot be read"))
    np.save("a.npy", np.ones((5, 2)))
    refused(bigkpca.verify, ("a.npy", SpecError, r"a\.npy is not stored as Zarr, whose chunks are checked"))
    with pytest.raises(MemoryLimitError, match="1 MB are allowed: allow more with --memory"):
        bigkpca.verify("d.zarr", memory=10**6)
