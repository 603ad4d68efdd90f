"""Everything that can happen to stored output is found and named; the command that made scores makes them whole."""

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
from bigkpca.storage import block_arrays
from bigkpca.workflows import block_writer
from bigkpca.workflows.verify import Verified
from tests.helpers.commands import run
from tests.helpers.disks import Restored, tree_bytes
from tests.helpers.nights import cut_off_at
from tests.helpers.progress import Recorder

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
        bigkpca.fit("d.zarr", "m.zarr", components=3, size=10)
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


def truncate(path):
    path.write_bytes(path.read_bytes()[:-5])


def empty(path):
    path.write_bytes(b"")


def flip(path):
    held = path.read_bytes()
    path.write_bytes(held[:7] + bytes([held[7] ^ 4]) + held[8:])


def exchange(path):
    """Whole shards that decode, in each other's place."""
    other = path.parents[1] / "0" / "0"
    mine = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(mine)


def test_what_is_whole_is_described(home):
    zarr.create_array("f.zarr", shape=(50, 7), chunks=(8, 3), dtype="f4")[:8] = 1  # the rest are fill values
    np.save("a.npy", np.ones((5, 2)))
    for each in (
        Verified("d.zarr", "dataset", (90, 4), 6),
        Verified("s.zarr", "features", (90, 3), 6),
        Verified("x.zarr", "reconstruction", (90, 4), 12),
        Verified("f.zarr", "zarr array", (50, 7), 21),
        Verified("a.npy", "npy", (5, 2), 1),
        Verified("s.zarr/scores", "zarr array", (90, 3), 3),
    ):
        assert bigkpca.verify(each.path) == each
    assert bigkpca.verify("m.zarr").kind == "model"


def test_the_command_prints_facts_and_ends_with_the_code_of_what_it_found(home):
    facts = {"path": "s.zarr", "kind": "features", "shape": [90, 3], "files": 6}
    assert json.loads(run("verify", "s.zarr", "--json").stdout) == facts
    told = "path s.zarr kind features shape 90 × 3 files 6 checked 6 files: intact "
    assert re.sub(r"\s+", " ", run("verify", "s.zarr").stdout) == told
    flip(home / "s.zarr" / "scores" / "c" / "1" / "0")
    broken = run("verify", "s.zarr", "--json")
    assert (broken.exit_code, broken.stdout) == (7, "")
    assert "scores/c/1/0 (block 1, rows 32 to 63) does not decode" in broken.stderr
    assert run("verify", "nowhere.zarr").exit_code == 2
    assert run("verify", "s.zarr", "--memory", "1 MB").exit_code == 4


@pytest.mark.parametrize(
    ("harm", "out", "shard", "again"),
    [
        (truncate, "s.zarr", "scores/c/1/0", scored),
        (exchange, "s.zarr", "scores/c/1/0", scored),
        (Path.unlink, "s.zarr", "residual/c/2", scored),
        (flip, "x.zarr", "far/c/1", reconstructed),
        pytest.param(empty, "s.zarr", "residual/c/2", scored, marks=pytest.mark.full),
        pytest.param(Path.unlink, "x.zarr", "x/c/1/0", reconstructed, marks=pytest.mark.full),
    ],
)
def test_a_damaged_block_is_named_and_made_again(harm, out, shard, again, home):
    before, notes = tree_bytes(out), Recorder()
    harm(home / out / shard)
    with pytest.raises(CorruptionError, match=rf"{shard} \(block \d, rows \d+ to \d+\) (is missing|does not|holds)"):
        bigkpca.verify(out)
    stamps = {path: path.stat().st_mtime_ns for path in Path(out).rglob("c/0/0")}
    again(progress=notes)
    assert tree_bytes(out) == before
    assert f"{out} is damaged; the blocks of these files are made again:\n  " in notes.notes[0]
    assert sum(rows for title, rows in notes.started if title != "checking finished blocks") <= 64
    if harm is not exchange:
        assert {path: path.stat().st_mtime_ns for path in Path(out).rglob("c/0/0")} == stamps
    bigkpca.verify(out)
    assert [path.name for path in home.glob("?.zarr.*")] == []


def test_all_damage_is_named_up_to_a_number(home):
    bigkpca.transform("m.zarr", np.load("a.npz")["x"], "many.zarr", block_rows=4)
    for path in Path("many.zarr/scores").glob("c/*/0"):
        truncate(path)
    with pytest.raises(CorruptionError, match=r"many\.zarr: 23 of its files") as error:
        bigkpca.verify("many.zarr")
    assert str(error.value).count("does not decode") == 10
    assert "\n  and 13 more\n" in str(error.value)


def test_files_that_do_not_belong_to_an_output_are_named_and_kept(home):
    Path("s.zarr/scores/c/7").mkdir()
    for name in ("notes.txt", "scores/c/7/0", ".DS_Store", "scores/c/1/0.1234.partial"):  # the last two are usual
        Path("s.zarr", name).write_text("of the user")
    with pytest.raises(CorruptionError, match=r"2 of its files(.|\n)*notes\.txt does not(.|\n)*scores/c/7/0 does not"):
        bigkpca.verify("s.zarr")
    notes = Recorder()
    scored(progress=notes)
    assert "notes.txt does not belong to it: move it away" in notes.notes[0]
    assert "nothing to do" in notes.notes[1]
    assert (home / "s.zarr" / "notes.txt").read_text() == "of the user"


def test_a_damaged_manifest_is_named_and_the_output_made_again_with_overwrite(home):
    before, notes = tree_bytes("s.zarr"), Recorder()
    truncate(home / "s.zarr" / "scores" / "manifest.json")
    for work in (scored, lambda: bigkpca.verify("s.zarr"), lambda: bigkpca.reconstruct("m.zarr", "s.zarr", "y.zarr")):
        with pytest.raises(CorruptionError, match=r"manifest\.json does not parse .* again, with --overwrite"):
            work()
    scored(overwrite=True, progress=notes)
    assert "all of s.zarr is made again" in notes.notes[0]
    assert tree_bytes("s.zarr") == before
    assert not list(home.glob("s.zarr.*"))


def test_other_bits_of_a_block_that_is_made_again_go_into_the_manifest(home):
    """As on another type of processor, here the manifest has the digest of another block."""
    path, notes, before = Path("s.zarr/scores/manifest.json"), Recorder(), tree_bytes("s.zarr")
    manifest = json.loads(path.read_text())
    manifest["blocks"][1]["sha256"] = manifest["blocks"][0]["sha256"]
    path.write_text(json.dumps(manifest, indent=1))
    with pytest.raises(CorruptionError, match=r"scores/c/1/0 .* holds other values than its manifest says"):
        bigkpca.verify("s.zarr")
    scored(progress=notes)
    assert "the new blocks have other bits, as on another type of processor" in notes.notes[-1]
    assert tree_bytes("s.zarr") == before


def test_a_run_that_is_stopped_while_it_mends_is_gone_on_with(home, monkeypatch):
    before, notes = tree_bytes("s.zarr"), Recorder()
    for number in (1, 2):
        Path(f"s.zarr/residual/c/{number}").unlink()
    with cut_off_at(block_arrays, "replace_block"):
        scored()
    monkeypatch.setattr(block_arrays, "write_block", lambda *_: pytest.fail("a block was computed again"))
    scored(progress=notes)
    assert "continuing: 2 of 2 blocks are written already" in notes.notes
    assert tree_bytes("s.zarr") == before
    assert not list(home.glob("s.zarr.*"))


@pytest.mark.parametrize("gone", ["residual/zarr.json", pytest.param("scores", marks=pytest.mark.full)])
def test_arrays_that_are_gone_are_made_again_when_asked_for(gone, home):
    before = tree_bytes("s.zarr")
    (shutil.rmtree if (home / "s.zarr" / gone).is_dir() else Path.unlink)(home / "s.zarr" / gone)
    with pytest.raises((CorruptionError, IncompleteError), match=r"s\.zarr"):
        bigkpca.verify("s.zarr")
    scored(overwrite=True)
    assert tree_bytes("s.zarr") == before


def test_output_that_is_replaced_during_the_check_is_not_called_damaged(home, monkeypatch):
    bigkpca.fit("d.zarr", "m2.zarr", components=3, size=12)
    bigkpca.transform("m.zarr", "d.zarr", "s2.zarr", block_rows=32)
    listed = block_writer.damage.listed_damage

    def meddle(*arguments):
        monkeypatch.setattr(block_writer.damage, "listed_damage", listed)
        bigkpca.transform("m2.zarr", "d.zarr", "s2.zarr", block_rows=32, overwrite=True)
        return listed(*arguments)

    monkeypatch.setattr(block_writer.damage, "listed_damage", meddle)
    with pytest.raises(IncompleteError, match=r"s2\.zarr was replaced while it was checked: run the same command"):
        bigkpca.verify("s2.zarr")


def test_unfinished_output_is_described_and_not_read(home):
    with cut_off_at(block_arrays, "write_block", 2):
        bigkpca.transform("m.zarr", "d.zarr", "o.zarr", block_rows=32)
    facts = json.loads(run("info", "o.zarr", "--json").stdout)
    assert (facts["kind"], facts["path"], facts["finished"], facts["shape"]) == ("features", "o.zarr", False, [90, 3])
    missing = len(facts["missing_blocks"])  # one to three: the other thread may be before or behind its own write
    message = rf"o\.zarr is not finished: {3 - missing} of 3 blocks are written, {missing} are missing"
    with pytest.raises(IncompleteError, match=message):
        bigkpca.verify("o.zarr")
    for work in (
        lambda: bigkpca.fit("o.zarr", "n.zarr"),
        lambda: bigkpca.reconstruct("m.zarr", "o.zarr", "y.zarr"),
        lambda: bigkpca.reconstruct("m.zarr", "o.zarr/scores", "y.zarr"),
    ):
        with pytest.raises(IncompleteError, match="is not finished: run the command that makes it again"):
            work()
    bigkpca.transform("m.zarr", "d.zarr", "o.zarr", block_rows=32)
    assert bigkpca.verify("o.zarr").shape == (90, 3)


def test_damage_of_datasets_and_other_arrays_is_named(home):
    zarr.create_array("f.zarr", shape=(50, 7), chunks=(8, 3), dtype="f4")[:] = 1
    truncate(home / "d.zarr" / "x" / "c" / "1" / "0")
    (home / "d.zarr" / "y" / "c" / "2").unlink()
    empty(home / "d.zarr" / "y" / "c" / "0")
    truncate(home / "f.zarr" / "c" / "6" / "2")
    with pytest.raises(CorruptionError, match=r"d\.zarr: 3 of its files") as error:
        bigkpca.verify("d.zarr")
    assert "x/c/1/0 (block 1, rows 32 to 63) does not decode" in str(error.value)
    assert "y/c/0 (block 0, rows 0 to 31) is missing, or empty" in str(error.value)
    assert "y/c/2 (block 2, rows 64 to 89) is missing, or empty" in str(error.value)
    with pytest.raises(CorruptionError, match=r"\n  c/6/2 \(block 6, rows 48 to 49\) does not decode"):
        bigkpca.verify("f.zarr")


def test_arrays_of_others_in_a_dataset_need_not_store_what_is_empty(home):
    zarr.open_group("d.zarr").create_array("z", shape=(90, 2), chunks=(32, 2), dtype="f4")[:32] = 1
    assert bigkpca.verify("d.zarr").kind == "dataset"
    truncate(home / "d.zarr" / "z" / "c" / "0" / "0")
    with pytest.raises(CorruptionError, match=r"1 of its files .*\n  z/c/0/0 .* does not decode"):
        bigkpca.verify("d.zarr")


def test_datasets_that_are_not_what_their_attribute_says_are_refused(home):
    metadata = home / "d.zarr" / "x" / "zarr.json"
    whole = metadata.read_text()
    metadata.write_text(whole.replace("90,", "64,", 1))
    with pytest.raises(CorruptionError, match="not the 90 rows of 4 columns that its attribute says"):
        bigkpca.verify("d.zarr")
    metadata.write_text(whole)
    (home / "d.zarr" / "y" / "zarr.json").unlink()
    with pytest.raises(CorruptionError, match=r"the arrays \['y'\] are missing"):
        bigkpca.verify("d.zarr")
    group = zarr.open_group("d.zarr")
    group.attrs["bigkpca"] = {key: value for key, value in group.attrs["bigkpca"].items() if key != "rows"}
    with pytest.raises(IncompleteError, match="its ingest did not finish"):
        bigkpca.verify("d.zarr")


def test_damaged_models_and_what_cannot_be_checked_are_refused(home):
    flip(home / "m.zarr" / "mean" / "c" / "0")
    with pytest.raises(CorruptionError, match="does not decode"):
        bigkpca.verify("m.zarr")
    with pytest.raises(SpecError, match="checked as a whole: leave --array out"):
        bigkpca.verify("s.zarr", array="scores")
    with pytest.raises(MemoryLimitError, match="1 MB are allowed: allow more memory"):
        bigkpca.verify("d.zarr", memory=10**6)
