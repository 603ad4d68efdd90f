"""A fit that is stopped goes on from the sums that it saved, to the same bytes, and takes up no others."""

import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from dask.callbacks import Callback
from dask.utils import key_split

import bigkpca
from bigkpca.errors import BigKPCAError, DataError
from bigkpca.execution.engine import Engine, content_digest
from bigkpca.numerics.kernels import Gaussian
from bigkpca.numerics.methods import RandomFeatures
from bigkpca.workflows import checkpoints
from tests.helpers.dask_processes import wait_until
from tests.helpers.disks import mounted, tree_bytes
from tests.helpers.files import ROOT
from tests.helpers.fits import OPTIONS
from tests.helpers.progress import Once, Recorder
from tests.helpers.stores import as_zarr

ROWS, BLOCK = 600, 100  # six blocks
GIVEN = {**OPTIONS, "block_rows": BLOCK}
MANY_PASSES = {
    "nystroem": {},
    "standardize": {"standardize": True},
    "rff": {"method": RandomFeatures(form="phase"), "size": 80},
    "rff-pca": {"method": "rff-pca", "size": 80, "n_directions": 6},
    "sketch": {"method": "rff", "size": 300, "solver": "randomized"},
    "refine": {"refine": 1},
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, digits):
    return as_zarr(tmp_path_factory.mktemp("rows"), digits[:ROWS], (BLOCK, 64))


@pytest.fixture
def at_once(monkeypatch):
    """Sums are saved after every block. Nothing but these makes that happen in a test that takes a second."""
    for name in ("_EVERY_SECONDS", "_SHORT_SECONDS", "_MOST_SHARE"):
        monkeypatch.setattr(checkpoints, name, 0.0)


@pytest.fixture
def stopped(at_once, dataset, tmp_path):
    """The path of a model whose fit was stopped when half of its pass was done."""
    with pytest.raises(KeyboardInterrupt):
        bigkpca.fit(dataset, tmp_path / "m.zarr", progress=Once(after=ROWS + ROWS // 2), **GIVEN)
    assert saved(tmp_path / "m.zarr")
    return tmp_path / "m.zarr"


@pytest.fixture(scope="module")
def clean(dataset, tmp_path_factory):
    """The bytes of a fit that nobody stopped."""
    bigkpca.fit(dataset, out := tmp_path_factory.mktemp("clean") / "m.zarr", **GIVEN)
    return tree_bytes(out)


def saved(out):
    """The files of sums beside an output."""
    return sorted(out.with_name(out.name + ".partial").rglob("*.npz"))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("nystroem", "sketch") else pytest.mark.full) for name in MANY_PASSES],
)
def test_a_fit_that_is_stopped_again_and_again_ends_as_one_that_is_not(name, dataset, tmp_path, request):
    given, out, stops = {**GIVEN, **MANY_PASSES[name]}, tmp_path / "stopped.zarr", 0
    bigkpca.fit(dataset, tmp_path / "clean.zarr", **given)  # which saves no sums
    request.getfixturevalue("at_once")
    for _ in range(60):
        try:
            bigkpca.fit(dataset, out, progress=Once(after=ROWS + 30 + 300 * stops), **given)
            break
        except KeyboardInterrupt:
            stops += 1
    assert stops >= 2
    assert tree_bytes(out) == tree_bytes(tmp_path / "clean.zarr")
    assert [path.name for path in tmp_path.glob("stopped.zarr*")] == ["stopped.zarr"]


def test_blocks_whose_sums_were_saved_are_not_computed_again(stopped, dataset, clean):
    shown, computed = Recorder(), []
    with Callback(posttask=lambda key, *_: computed.append(key_split(key))):
        bigkpca.fit(dataset, stopped, progress=shown, **GIVEN)
    assert 0 < computed.count("bigkpca-fitting") <= 3 + 2  # those at work when it was stopped
    assert shown.rows == 2 * ROWS  # of the sample, and all of the pass: what was done before counts as done
    assert tree_bytes(stopped) == clean


@pytest.mark.parametrize(
    "change",
    [
        {"random_state": 4},
        "processor",
        *(pytest.param(change, marks=pytest.mark.full) for change in ({"block_rows": 50}, "numpy", "bigkpca")),
    ],
    ids=str,
)
def test_sums_of_other_options_versions_or_processors_are_not_taken_up(change, stopped, dataset, tmp_path, monkeypatch):
    shown, given = Recorder(), {**GIVEN, **(change if isinstance(change, dict) else {})}
    if change == "bigkpca":
        monkeypatch.setattr(checkpoints, "version", lambda name: "0.0")
    if change == "numpy":
        monkeypatch.setattr(checkpoints, "_ARITHMETIC", ("0.0", *checkpoints._ARITHMETIC[1:]))
    if change == "processor":
        monkeypatch.setattr(Engine, "core_types", lambda self: ["Other"])
    computed = []
    with Callback(posttask=lambda key, *_: computed.append(key_split(key))):
        bigkpca.fit(dataset, stopped, progress=shown, **given)
    assert computed.count("bigkpca-fitting") > 3 + 2
    if given != GIVEN:
        assert any("removed what an interrupted run" in note for note in shown.notes)
        bigkpca.fit(dataset, tmp_path / "clean.zarr", **given)
        assert tree_bytes(stopped) == tree_bytes(tmp_path / "clean.zarr")


@pytest.mark.full
def test_damaged_files_of_sums_are_computed_again(stopped, dataset, clean):
    kept = stopped.with_name("kept")
    shutil.copytree(f"{stopped}.partial", kept)
    for damage in (
        lambda path: path.write_bytes(path.read_bytes()[:-200]),
        lambda path: path.write_bytes(path.read_bytes()[:2000] + b"\1\2" + path.read_bytes()[2002:]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"PK\5\6" + bytes(18)),  # no members
        lambda path: path.rename(path.with_name("x-y.npz")),
        lambda path: path.rename(path.with_name("40-0.npz")),  # no node of this tree
    ):
        for path in saved(stopped):
            damage(path)
        bigkpca.fit(dataset, stopped, **GIVEN)
        assert tree_bytes(stopped) == clean
        shutil.rmtree(stopped)
        shutil.copytree(kept, f"{stopped}.partial")


def test_sums_outlive_errors_that_are_not_of_the_rows(stopped, dataset):
    before = [path.read_bytes() for path in saved(stopped)]
    for wrong in ({"scheduler": "http://127.0.0.1:1"}, {"memory": "1 MB"}):
        with pytest.raises(BigKPCAError):
            bigkpca.fit(dataset, stopped, **wrong, **GIVEN)
        assert [path.read_bytes() for path in saved(stopped)] == before, wrong


@pytest.mark.usefixtures("at_once")
def test_rows_that_cannot_be_fitted_leave_no_sums(tmp_path, digits):
    X = digits[:ROWS].astype(np.float32)
    X[570, 3] = np.nan
    np.save(tmp_path / "x.npy", X)
    few = {**GIVEN, "size": 5, "n_components": 2, "landmarks": X[:5], "sigma": 20.0}
    with pytest.raises(DataError, match="row 570, column 3 is NaN"):
        bigkpca.fit(tmp_path / "x.npy", tmp_path / "m.zarr", **few)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


@pytest.mark.usefixtures("at_once")
def test_a_disk_that_is_full_does_not_end_the_fit(dataset, tmp_path):
    given = {**GIVEN, "size": 300}
    bigkpca.fit(dataset, tmp_path / "clean.zarr", **given)
    with mounted("size=8m", tmp_path / "small") as disk:
        filler, shown = disk / "filler", Recorder()
        shown.finish = lambda: shown.started[-1][0] == "fitting" and filler.unlink()  # room for the model
        filler.write_bytes(bytes(8 * 2**20 - 2 * 300 * 300 * 8))  # room for one sum, and part of another
        with pytest.raises(KeyboardInterrupt):
            bigkpca.fit(dataset, disk / "m.zarr", progress=Once(after=ROWS + 500), **given)
        assert len(saved(disk / "m.zarr")) == 1
        assert not list(disk.rglob("*.npz.partial"))  # which would keep it full
        bigkpca.fit(dataset, disk / "m.zarr", progress=shown, **given)
        assert tree_bytes(disk / "m.zarr") == tree_bytes(tmp_path / "clean.zarr")
        assert [path.name for path in disk.iterdir()] == ["m.zarr"]
    (told,) = [note for note in shown.notes if "sums of the fit cannot be saved" in note]
    assert told.endswith("No space left on device): continuing without saving")


@pytest.mark.full
@pytest.mark.usefixtures("at_once")
def test_sums_are_saved_from_a_cluster_too(dataset, clean, tmp_path, two_processes):
    with two_processes.client.as_current(), pytest.raises(KeyboardInterrupt):
        bigkpca.fit(dataset, tmp_path / "m.zarr", progress=Once(after=ROWS + ROWS // 2), **GIVEN)
    assert saved(tmp_path / "m.zarr")
    bigkpca.fit(dataset, tmp_path / "m.zarr", **GIVEN)  # on threads, in groups of another size
    assert tree_bytes(tmp_path / "m.zarr") == clean


# Processes


def digest_of_a_pass(number=18):
    return content_digest("fitting", number, (Gaussian(2.0), np.arange(6.0).reshape(2, 3), None, "a"))


@pytest.mark.full
def test_passes_are_recognised_in_another_process():
    code = f"from {__name__} import digest_of_a_pass; print(digest_of_a_pass())"
    run, env = [sys.executable, "-c", code], {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    there = subprocess.run(run, capture_output=True, text=True, check=True, env=env)
    assert there.stdout.strip() == digest_of_a_pass() != digest_of_a_pass(17)


_AT_ONCE = """
from bigkpca.cli import main
from bigkpca.workflows import checkpoints
checkpoints._EVERY_SECONDS = checkpoints._SHORT_SECONDS = checkpoints._MOST_SHARE = 0.0
main()
"""


@pytest.mark.long
def test_a_fit_that_is_killed_again_and_again_ends_as_one_that_is_not(dataset, tmp_path):
    """SIGKILL while sums are written, too."""
    out, clean, killed = tmp_path / "m.zarr", tmp_path / "clean.zarr", 0
    options = ["--components", "10", "--size", "400", "--seed", "3", "--block-rows", "100", "--refine", "1", "-q"]
    command = [sys.executable, "-c", _AT_ONCE, "fit", dataset]
    for _ in range(8):
        before = saved(out)
        with subprocess.Popen([*command, out, *options]) as fit:
            wait_until(lambda before=before, fit=fit: saved(out) != before or fit.poll() is not None)
            fit.kill()
        killed += fit.returncode == -signal.SIGKILL
    assert killed >= 2
    for path in (out, clean):
        subprocess.run([*command, path, *options], check=True, timeout=100)
    assert tree_bytes(out) == tree_bytes(clean)
    assert sorted(path.name for path in tmp_path.glob("m.zarr*")) == ["m.zarr"]


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_fit_that_is_told_to_end_saves_its_sums_and_says_so_in_one_line(number, tmp_path):
    """SIGINT reaches all processes of a fit, as a terminal does it."""
    out, x = tmp_path / "m.zarr", tmp_path / "x.npy"
    np.save(x, np.random.default_rng(0).normal(size=(150_000, 50)).astype("f4"))
    options = ["--size", "1500", "--landmarks", "uniform", "--sigma", "9", "--components", "10"]
    options += ["--workers", "2"] if number == signal.SIGINT else []
    command = [sys.executable, "-c", _AT_ONCE, "fit", x, out, *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as fit:
        wait_until(lambda: bool(saved(out)) or fit.poll() is not None)
        (os.killpg if number == signal.SIGINT else os.kill)(fit.pid, number)
        told = [line for line in fit.communicate(timeout=200)[1].splitlines() if "rows/s" not in line]
    stopped = "bigkpca: stopped; no partial output was published: rerun the same command to resume"
    assert (fit.returncode, told[-1]) == (6, stopped)
    assert saved(out)
    assert not out.exists()
