"""A fit that is stopped goes on from the sums that it saved, to the same bytes, and takes up no others."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import bigkpca
from bigkpca.errors import BigKPCAError, DataError
from bigkpca.execution.engine import Engine, content_digest
from bigkpca.execution.partial_sums import PartialSums
from bigkpca.numerics.kernels import Gaussian
from bigkpca.numerics.methods import RandomFeatures
from bigkpca.workflows import checkpoints
from tests.helpers.disks import small_disk, tree_bytes
from tests.helpers.fits import OPTIONS
from tests.helpers.progress import Recorder

BLOCK = 100  # rows, of the 1797 of the data: 18 blocks
MANY_PASSES = {
    "nystroem": {},
    "standardize": {"standardize": True},
    "columns": {"method": "columns"},
    "rff": {"method": RandomFeatures(form="phase"), "size": 80},
    "rff-pca": {"method": "rff-pca", "size": 80, "n_directions": 6},
    "sketch": {"method": "rff", "size": 300, "solver": "randomized"},
    "ridge": {"preimage": "ridge"},
    "denoising": {"preimage": "denoising", "noise": 2.0},
    "refine": {"refine": 1},
}

QUICK = ("nystroem", "sketch")  # the others are slow


@dataclass
class Stopping(Recorder):
    """Stops the fit, as Ctrl-C does, once so many rows are done in its passes."""

    most: int = 0

    def advance(self, rows):
        super().advance(rows)
        if self.rows > self.most:
            raise KeyboardInterrupt


@pytest.fixture
def at_once(monkeypatch):
    """Sums are saved after every block."""
    monkeypatch.setattr(checkpoints, "_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "_SHORT_SECONDS", 0.0)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(each, id=name, marks=() if name in QUICK else pytest.mark.long)
        for name, each in MANY_PASSES.items()
    ],
)
@pytest.mark.usefixtures("at_once")
def test_a_fit_that_is_stopped_again_and_again_ends_as_one_that_is_not(options, dataset, tmp_path):
    given = {**OPTIONS, "block_rows": BLOCK, **options}
    clean, out = tmp_path / "clean.zarr", tmp_path / "stopped.zarr"
    bigkpca.fit(dataset, clean, **given)
    stops = 0
    for _ in range(60):
        try:
            bigkpca.fit(dataset, out, progress=Stopping(most=1900 + 600 * stops), **given)
            break
        except KeyboardInterrupt:
            stops += 1
    assert stops >= 2
    assert tree_bytes(out) == tree_bytes(clean)
    assert sorted(path.name for path in tmp_path.glob("stopped.zarr*")) == ["stopped.zarr"]


@pytest.mark.usefixtures("at_once")
def test_blocks_whose_sums_were_saved_are_not_computed_again(dataset, tmp_path, monkeypatch):
    given = {**OPTIONS, "block_rows": BLOCK}
    with pytest.raises(KeyboardInterrupt):
        bigkpca.fit(dataset, tmp_path / "m.zarr", progress=Stopping(most=1797 + 900), **given)
    computed = []
    add = PartialSums.add
    monkeypatch.setattr(
        PartialSums, "add", lambda self, group, value: (computed.append(group), add(self, group, value))[1]
    )
    shown = Recorder()
    bigkpca.fit(dataset, tmp_path / "m.zarr", progress=shown, **given)
    assert 0 < len(computed) <= 18 - 9 + 3  # those at work when it was stopped
    assert shown.rows == 2 * 1797  # of the sample, and all of the pass: what was done before counts as done


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "change", [{"seed": 4}, {"sigma": 30.0}, {"block_rows": 200}, {"size": 90}], ids=lambda change: next(iter(change))
)
def test_sums_of_other_options_are_not_taken_up(change, dataset, tmp_path):
    given = {**OPTIONS, "block_rows": BLOCK}
    with pytest.raises(KeyboardInterrupt):
        bigkpca.fit(dataset, tmp_path / "m.zarr", progress=Stopping(most=1797 + 900), **given)
    shown = Recorder()
    bigkpca.fit(dataset, tmp_path / "m.zarr", progress=shown, **{**given, **change})
    assert any("holds sums of other rows, options, versions or processors: removed" in note for note in shown.notes)
    bigkpca.fit(dataset, tmp_path / "clean.zarr", **{**given, **change})
    assert tree_bytes(tmp_path / "m.zarr") == tree_bytes(tmp_path / "clean.zarr")


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-200]),
        lambda path: path.write_bytes(path.read_bytes()[:2000] + b"\1\2" + path.read_bytes()[2002:]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"PK\5\6" + bytes(18)),
        lambda path: path.rename(path.with_name("x-y.npz")),
        lambda path: path.rename(path.with_name("40-0.npz")),
    ],
    ids=["truncated", "flipped", "empty", "no members", "no node", "no node of this tree"],
)
def test_a_damaged_file_is_computed_again(damage, dataset, tmp_path):
    given = {**OPTIONS, "block_rows": BLOCK}
    out, clean = tmp_path / "m.zarr", tmp_path / "clean.zarr"
    with pytest.raises(KeyboardInterrupt):
        bigkpca.fit(dataset, out, progress=Stopping(most=1797 + 1000), **given)
    saved = sorted((tmp_path / "m.zarr.bigkpca-sums").rglob("*.npz"))
    assert saved
    for path in saved:
        damage(path)
    bigkpca.fit(dataset, out, **given)
    bigkpca.fit(dataset, clean, **given)
    assert tree_bytes(out) == tree_bytes(clean)


@pytest.mark.usefixtures("at_once")
def test_rows_that_cannot_be_fitted_leave_no_sums(tmp_path, digits):
    X = digits.astype(np.float32)
    X[1700, 3] = np.nan
    np.save(tmp_path / "x.npy", X)
    few = {**OPTIONS, "size": 5, "components": 2, "landmarks": X[:5], "sigma": 20.0, "block_rows": BLOCK}
    with pytest.raises(DataError, match="row 1700, column 3 is NaN"):
        bigkpca.fit(tmp_path / "x.npy", tmp_path / "m.zarr", **few)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


_DIGEST = """
import numpy as np
from bigkpca.execution.engine import content_digest
from bigkpca.numerics.kernels import Gaussian
print(content_digest("fitting", 18, (Gaussian(2.0), np.arange(6.0).reshape(2, 3), None, "a")))
"""


def test_passes_are_recognised_in_another_process():
    run, env = [sys.executable, "-c", _DIGEST], {**os.environ, "PYTHONHASHSEED": "7"}
    there = subprocess.run(run, capture_output=True, text=True, check=True, timeout=60, env=env)
    given = (Gaussian(2.0), np.arange(6.0).reshape(2, 3), None, "a")
    assert there.stdout.strip() == content_digest("fitting", 18, given)
    assert content_digest("fitting", 17, given) != content_digest("fitting", 18, given)


@pytest.mark.usefixtures("at_once")
def test_sums_are_saved_from_a_cluster_too(dataset, tmp_path, two_processes):
    given = {**OPTIONS, "block_rows": BLOCK}
    bigkpca.fit(dataset, tmp_path / "clean.zarr", **given)
    assert two_processes.client is not None
    with two_processes.client.as_current(), pytest.raises(KeyboardInterrupt):
        bigkpca.fit(dataset, tmp_path / "m.zarr", progress=Stopping(most=1797 + 900), **given)
    assert list((tmp_path / "m.zarr.bigkpca-sums").rglob("*.npz"))
    bigkpca.fit(dataset, tmp_path / "m.zarr", **given)  # on threads, in groups of another size
    assert tree_bytes(tmp_path / "m.zarr") == tree_bytes(tmp_path / "clean.zarr")


_KILLED = """
import sys
import bigkpca
from bigkpca.workflows import checkpoints
checkpoints._EVERY_SECONDS = checkpoints._SHORT_SECONDS = 0.0
print("fitting", flush=True)
bigkpca.fit(sys.argv[1], sys.argv[2], components=10, size=400, seed=3, block_rows=100, refine=1)
"""


@pytest.mark.long
def test_a_fit_that_is_killed_at_random_times_ends_as_one_that_is_not(dataset, tmp_path):
    """SIGKILL while sums are written, too."""
    out, clean, rng = tmp_path / "m.zarr", tmp_path / "clean.zarr", np.random.default_rng(0)
    command, kills, ends, seconds = [sys.executable, "-c", _KILLED, dataset], 0, 0, 1.0
    subprocess.run([*command, str(clean)], check=True, timeout=100)
    while kills < 8 or not ends:
        with subprocess.Popen([*command, str(out)], stdout=subprocess.PIPE) as fit:
            assert fit.stdout
            assert fit.stdout.read(1)  # it begins to fit
            try:
                # Sooner where fits end before, so that most are killed on fast machines and on slow ones.
                fit.wait(seconds * rng.random() if kills < 8 else 100)
            except subprocess.TimeoutExpired:
                os.kill(fit.pid, signal.SIGKILL)
                kills += 1
                continue
        assert fit.returncode == 0
        assert tree_bytes(out) == tree_bytes(clean)
        assert sorted(path.name for path in tmp_path.glob("m.zarr*")) == ["m.zarr"]
        shutil.rmtree(out)
        ends, seconds = ends + 1, 0.8 * seconds


_AT_ONCE = """
from bigkpca.cli import main
from bigkpca.workflows import checkpoints
checkpoints._EVERY_SECONDS = 0.0
main()
"""


def seconds_of(pid):
    """Seconds that a process has computed: what else a machine does changes the time that goes by, and not these."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def seconds_of_children():
    """The same, of all processes that this one started and that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_fit_that_is_told_to_end_saves_its_sums_and_ends_at_once(number, dataset, tmp_path):
    out, sums = tmp_path / "m.zarr", tmp_path / "m.zarr.bigkpca-sums"
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(150_000, 50)).astype("f4"))
    options = "--size", "1500", "--landmarks", "uniform", "--sigma", "9", "--components", "10"
    command = [sys.executable, "-c", _AT_ONCE, "fit", str(tmp_path / "x.npy"), str(out), *options]
    earlier = seconds_of_children()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as fit:
        end = time.monotonic() + 60
        while not list(sums.rglob("*.npz")):
            assert fit.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        before = seconds_of(fit.pid)
        fit.send_signal(number)
        told = fit.communicate(timeout=60)[1]
    assert seconds_of_children() - earlier - before < 10
    assert fit.returncode == 6
    assert "stopped; nothing half-done was published: run the same command again" in told
    assert list(sums.rglob("*.npz"))


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("wrong", [{"scheduler": "http://127.0.0.1:1"}, {"memory": "1 MB"}], ids=["address", "memory"])
def test_sums_outlive_errors_that_are_not_of_the_rows(wrong, dataset, tmp_path):
    given = {**OPTIONS, "block_rows": BLOCK}
    with pytest.raises(KeyboardInterrupt):
        bigkpca.fit(dataset, tmp_path / "m.zarr", progress=Stopping(most=1797 + 1000), **given)
    saved = tree_bytes(tmp_path / "m.zarr.bigkpca-sums")
    assert saved
    with pytest.raises(BigKPCAError):
        bigkpca.fit(dataset, tmp_path / "m.zarr", **wrong, **given)
    assert tree_bytes(tmp_path / "m.zarr.bigkpca-sums") == saved


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("what", ["bigkpca", "numpy", "processor"])
def test_sums_of_other_versions_or_processors_are_not_taken_up(what, dataset, tmp_path, monkeypatch):
    given, shown = {**OPTIONS, "block_rows": BLOCK}, Recorder()
    with pytest.raises(KeyboardInterrupt):
        bigkpca.fit(dataset, tmp_path / "m.zarr", progress=Stopping(most=1797 + 1000), **given)
    if what == "processor":
        monkeypatch.setattr(Engine, "core_types", lambda self: ["Other"])
    else:
        real = checkpoints.version
        monkeypatch.setattr(checkpoints, "version", lambda name: "0.0" if name == what else real(name))
    bigkpca.fit(dataset, tmp_path / "m.zarr", progress=shown, **given)
    assert any("other rows, options, versions or processors: removed" in note for note in shown.notes)


@pytest.mark.usefixtures("at_once")
def test_a_fit_goes_on_where_its_sums_cannot_be_saved(dataset, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    shown = Recorder()
    monkeypatch.setattr(checkpoints.SavedPass, "_save", full)
    bigkpca.fit(dataset, tmp_path / "m.zarr", progress=shown, **OPTIONS, block_rows=BLOCK)
    told = next(note for note in shown.notes if "cannot be saved" in note)
    assert told.endswith("No space left on device): going on without")


@dataclass
class Cleared(Recorder):
    """Removes a file once the passes of a fit are over."""

    filler: Path = Path()

    def finish(self):
        super().finish()
        if self.started[-1][0] == "fitting":
            self.filler.unlink()


@pytest.mark.usefixtures("at_once")
def test_a_disk_that_is_full_for_a_while_does_not_end_the_fit(dataset, tmp_path):
    given = {**OPTIONS, "size": 300, "block_rows": BLOCK}
    bigkpca.fit(dataset, tmp_path / "clean.zarr", **given)
    with small_disk("8m", tmp_path / "small") as disk:
        shown = Cleared(filler=disk / "filler")
        shown.filler.write_bytes(bytes(8 * 2**20 - 2 * 300 * 300 * 8))  # room for one sum, and part of another
        with pytest.raises(KeyboardInterrupt):
            bigkpca.fit(dataset, disk / "m.zarr", progress=Stopping(most=1797 + 1500), **given)
        assert len(list((disk / "m.zarr.bigkpca-sums").rglob("*.npz"))) == 1
        assert not list(disk.rglob("*.partial"))  # which would keep it full
        bigkpca.fit(dataset, disk / "m.zarr", progress=shown, **given)
        assert tree_bytes(disk / "m.zarr") == tree_bytes(tmp_path / "clean.zarr")
        assert [path.name for path in disk.iterdir()] == ["m.zarr"]
    assert any("sums of the fit cannot be saved" in note for note in shown.notes)
