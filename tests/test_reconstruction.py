"""From scores back to rows, end to end: the same bits everywhere, nothing lost, nothing taken for what it is not."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import zarr
from click.testing import CliRunner, Result
from conftest import peak_bytes
from sklearn.decomposition import PCA

import bigkpca
from bigkpca import KernelPCA, arrays, kernels, methods, preimages
from bigkpca.cli import main
from bigkpca.data.blocks import Block
from bigkpca.data.memory import ArrayRows
from bigkpca.data.opening import open_rows
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import CorruptionError, DataError, IncompleteError, MemoryLimitError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import INTERPRETER_BYTES, plan_fit, plan_reconstruct, plan_transform
from bigkpca.execution.progress import Silent
from bigkpca.execution.projection import block_denoised, block_preimages, reconstruct_rows, residual_rows
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.partial_fit import extend
from bigkpca.spec import FitSpec
from bigkpca.storage import block_arrays
from bigkpca.storage.models import load_model, model_digest, save_model

N, CHUNK = 500, 100
OPTIONS: dict[str, Any] = {"components": 8, "size": 60, "seed": 3, "block_rows": CHUNK}
ARRAYS = ("x", "converged", "iterations", "far")
WAYS: dict[str, dict[str, Any]] = {
    "fixed-point": {},
    "anchored": {"preimage": preimages.FixedPoint(anchor=0.05, iterations=7)},
    "thesis": {"preimage": preimages.FixedPoint(mean_term=False)},
    "mds": {"preimage": preimages.Distances(neighbours=8, rows=100)},
    "linear": {"preimage": "linear"},
    "ridge": {"preimage": preimages.Ridge(size=50)},
    "denoising": {"preimage": preimages.Denoising(noise=2.0, size=50)},
    "denoising of the fit's noise": {"preimage": preimages.Denoising(size=50), "noise": 3.0},
}

pytestmark = pytest.mark.usefixtures("quiet_signals")


class Notes(Silent):
    def __init__(self) -> None:
        object.__setattr__(self, "notes", [])

    def note(self, message: str) -> None:
        self.notes.append(message)  # type: ignore[attr-defined]


def tree_bytes(path: str | Path) -> dict[str, bytes]:
    root = Path(path)
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def X(digits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return digits[:N].astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def dataset(folder: Path, X: np.ndarray[Any, Any]) -> str:
    """500 digits in five chunks."""
    path = str(folder / "digits.zarr")
    zarr.create_array(path, shape=X.shape, dtype=X.dtype, chunks=(CHUNK, 64))[:] = X
    return path


@pytest.fixture(scope="module")
def model(folder: Path, dataset: str) -> str:
    bigkpca.fit(dataset, folder / "model.zarr", **OPTIONS)
    return str(folder / "model.zarr")


@pytest.fixture(scope="module")
def other(folder: Path, dataset: str) -> str:
    """Another model of as many components."""
    bigkpca.fit(dataset, folder / "other.zarr", **OPTIONS | {"seed": 4})
    return str(folder / "other.zarr")


@pytest.fixture(scope="module")
def scores(folder: Path, dataset: str, model: str) -> str:
    bigkpca.transform(model, dataset, folder / "scores.zarr", block_rows=CHUNK)
    return str(folder / "scores.zarr")


@pytest.fixture(scope="module")
def back(folder: Path, model: str, scores: str) -> Path:
    """What the scores stand for, written in five shards by threads."""
    bigkpca.reconstruct(model, scores, folder / "back.zarr", block_rows=CHUNK)
    return folder / "back.zarr"


@pytest.fixture(scope="module")
def denoised(folder: Path, model: str, dataset: str) -> Path:
    bigkpca.denoise(model, dataset, folder / "denoised.zarr", block_rows=CHUNK)
    return folder / "denoised.zarr"


def fitted(X: np.ndarray[Any, Any], **options: Any) -> Any:
    return fit_rows(ArrayRows(X), FitSpec.checked(**OPTIONS | options), Engine(threads=1), Silent())


def rows_of(model: Any, X: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Pre-images of the scores of X, in one tile."""
    (Y,) = model.project([X], len(X))
    return model.reconstructing(len(X))(Y, None).rows


def error_of(model: Any, X: np.ndarray[Any, Any]) -> float:
    """Of pre-images, as a share of the variance of X."""
    rows = rows_of(model, X)
    assert rows.shape == X.shape
    assert np.isfinite(rows).all()
    return float(((rows - X) ** 2).sum() / ((X - X.mean(axis=0)) ** 2).sum())


# -- the same rows, however they are asked for ---------------------------------------------------------------


@pytest.fixture(scope="module")
def kpca(model: str) -> KernelPCA:
    return KernelPCA.load(model)


def test_reconstruct_is_inverse_transform_of_every_kind_of_scores(
    kpca: KernelPCA, scores: str, back: Path, tmp_path: Path
) -> None:
    array = zarr.open_group(scores, mode="r")["scores"]
    Y = array[:]  # type: ignore[index]
    expected = zarr.open_group(back, mode="r")["x"][:]  # type: ignore[index]
    assert expected.dtype == np.float32  # type: ignore[union-attr]
    np.testing.assert_array_equal(kpca.inverse_transform(Y), expected)
    np.testing.assert_array_equal(kpca.inverse_transform(pd.DataFrame(Y)), expected)
    np.testing.assert_array_equal(kpca.inverse_transform(Y.tolist()), expected)  # type: ignore[union-attr]
    np.save(tmp_path / "scores.npy", Y)  # type: ignore[arg-type]
    for lazy in (da.from_array(Y, chunks=(77, 3)), array, scores, Path(scores), tmp_path / "scores.npy"):
        found = kpca.inverse_transform(lazy)
        assert isinstance(found, da.Array)
        np.testing.assert_array_equal(found.compute(scheduler="threads"), expected)
    stored = kpca.inverse_transform(Y, out=tmp_path / "rows.zarr")
    assert isinstance(stored, zarr.Array)
    assert (stored.shape, stored.dtype) == ((N, 64), np.float32)
    found = reconstruct_rows(ArrayRows(Y), kpca.model_, block_preimages, Engine(threads=1), Silent())  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.rows, expected)
    for name in ARRAYS[1:]:
        np.testing.assert_array_equal(block_arrays.values(str(back), name), getattr(found, name))
    assert found.iterations.max() > 0


def test_denoise_is_one_call_for_every_kind_of_rows(
    kpca: KernelPCA, dataset: str, X: np.ndarray[Any, Any], denoised: Path, back: Path, tmp_path: Path
) -> None:
    expected = zarr.open_group(denoised, mode="r")["x"][:]  # type: ignore[index]
    for held in (X, np.asfortranarray(X), pd.DataFrame(X)):
        np.testing.assert_array_equal(kpca.denoise(held), expected)
    for lazy in (da.from_array(X, chunks=(77, 30)), zarr.open_array(dataset), dataset):
        found = kpca.denoise(lazy)
        assert isinstance(found, da.Array)
        np.testing.assert_array_equal(found.compute(scheduler="threads"), expected)
    stored = kpca.denoise(dataset, out=tmp_path / "rows.zarr")
    np.testing.assert_allclose(stored[:], expected, atol=1e-3)  # type: ignore[arg-type]  # other blocks
    # Iterations start at the rows, and end near where those of the scores alone do.
    from_scores = zarr.open_group(back, mode="r")["x"][:]  # type: ignore[index]
    assert not np.array_equal(from_scores, expected)  # type: ignore[arg-type]
    np.testing.assert_allclose(expected, from_scores, atol=0.1)  # type: ignore[arg-type]


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("computed although lazy")


def test_views_compute_nothing_before_they_are_asked(kpca: KernelPCA, X: np.ndarray[Any, Any]) -> None:
    import dask

    rows, Y = da.from_array(X, chunks=CHUNK), da.from_array(kpca.transform(X), chunks=CHUNK)
    with dask.config.set(scheduler=refuse):
        views = kpca.inverse_transform(Y), kpca.denoise(rows), kpca.residual(rows)
        assert [view.shape for view in views] == [(N, 64), (N, 64), (N,)]
        for view in views:
            with pytest.raises(AssertionError, match="computed although lazy"):
                view.compute()


@pytest.fixture
def on(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Runs work on this engine."""

    @contextmanager
    def opened(*_: Any) -> Iterator[Engine]:
        yield engine

    monkeypatch.setattr("bigkpca.workflows.block_writer.open_engine", opened)
    return engine


@pytest.mark.bits
def test_stored_rows_are_the_same_bytes_everywhere(
    on: Engine, model: str, dataset: str, scores: str, back: Path, denoised: Path, tmp_path: Path
) -> None:
    bigkpca.reconstruct(model, scores, tmp_path / "back.zarr", block_rows=CHUNK)
    bigkpca.denoise(model, dataset, tmp_path / "denoised.zarr", block_rows=CHUNK)
    assert tree_bytes(tmp_path / "back.zarr") == tree_bytes(back)
    assert tree_bytes(tmp_path / "denoised.zarr") == tree_bytes(denoised)


@pytest.mark.parametrize("way", ["mds", "denoising"])
@pytest.mark.bits
def test_ways_back_are_the_same_bytes_everywhere(way: str, engine: Engine, dataset: str, tmp_path: Path) -> None:
    spec = FitSpec.checked(**OPTIONS | WAYS[way])
    for name, where in (("one.zarr", Engine(threads=1)), ("two.zarr", engine)):
        save_model(fit_rows(open_rows(dataset), spec, where, Silent()), str(tmp_path / name))
    assert tree_bytes(tmp_path / "one.zarr") == tree_bytes(tmp_path / "two.zarr")


# -- stopped, and started again ------------------------------------------------------------------------------


def sha256(values: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def test_the_manifest_names_the_model_the_input_and_every_array(model: str, scores: str, back: Path) -> None:
    manifest = block_arrays.read_manifest(str(back))
    assert manifest is not None
    assert manifest["model"] == model_digest(load_model(model))
    assert manifest["input"] == open_rows(scores).fingerprint()
    assert manifest["input"]["path"] == scores
    assert (manifest["format"], manifest["given"], manifest["rows"]) == ("reconstruction", "scores", N)
    stored = {name: zarr.open_group(back, mode="r")[name][:] for name in ARRAYS}  # type: ignore[index]
    for number, block in enumerate(manifest["blocks"]):
        start, stop = block["start"], block["stop"]
        assert (start, stop) == (number * CHUNK, (number + 1) * CHUNK)
        assert block["sha256"] == sha256(stored["x"][start:stop])  # type: ignore[index]
        for name in ARRAYS[1:]:
            assert block[f"{name}_sha256"] == sha256(stored[name][start:stop])  # type: ignore[index]
    assert len(manifest["blocks"]) == N // CHUNK


def test_stored_rows_are_a_dataset_like_any(back: Path, tmp_path: Path) -> None:
    import xarray

    opened = xarray.open_zarr(back, consolidated=False)
    assert opened["x"].dims == ("row", "column")
    assert [opened[name].dims for name in ARRAYS[1:]] == [("row",)] * 3
    facts = json.loads(run("info", back, "--json").stdout)
    assert (facts["kind"], facts["finished"]) == ("reconstruction", True)
    assert run("fit", back, tmp_path / "again.zarr", "--size", 20, "--components", 3, "-q").exit_code == 0


def test_the_same_command_again_does_nothing(model: str, scores: str, dataset: str, back: Path, denoised: Path) -> None:
    for command, given, out in ((bigkpca.reconstruct, scores, back), (bigkpca.denoise, dataset, denoised)):
        before, notes = tree_bytes(out), Notes()
        changed = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
        stored = command(model, given, out, block_rows=CHUNK, progress=notes)
        assert stored.shape == (N, 64)
        assert "nothing to do" in notes.notes[0]  # type: ignore[attr-defined]
        assert tree_bytes(out) == before
        assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == changed


@contextmanager
def one_thread(*_: Any) -> Iterator[Engine]:
    yield Engine(threads=1)


@pytest.mark.parametrize("given", ["scores", "rows"])
def test_a_run_that_failed_goes_on_where_it_stopped(
    given: str,
    model: str,
    scores: str,
    dataset: str,
    back: Path,
    denoised: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, notes, write, begun = tmp_path / "out.zarr", Notes(), block_arrays.write_block, []
    command, data, clean = (
        (bigkpca.reconstruct, scores, back) if given == "scores" else (bigkpca.denoise, dataset, denoised)
    )

    def failing(path: str, block: Block, values: Any) -> dict[str, str]:
        begun.append(block.number)
        if len(begun) == 4:
            write(path, block, {"x": values["x"]})
            raise OSError("the cable fell out")
        return write(path, block, values)

    monkeypatch.setattr("bigkpca.workflows.block_writer.open_engine", one_thread)
    monkeypatch.setattr(block_arrays, "write_block", failing)
    with pytest.raises(OSError, match="the cable fell out"):
        command(model, data, out, block_rows=CHUNK)
    assert block_arrays.read_manifest(str(out)) is None
    with pytest.raises(SpecError, match=r"input\.stamp is"):
        command(model, zarr.open_array(dataset)[:] if given == "rows" else np.ones((N, 8)), out, block_rows=CHUNK)
    monkeypatch.setattr(block_arrays, "write_block", write)
    command(model, data, out, block_rows=CHUNK, progress=notes)
    assert notes.notes == ["going on: 3 of 5 blocks were written before"]  # type: ignore[attr-defined]
    assert tree_bytes(out) == tree_bytes(clean)


def test_missing_and_damaged_shards_of_any_array_are_written_again(
    model: str, scores: str, back: Path, tmp_path: Path
) -> None:
    out, notes = tmp_path / "back.zarr", Notes()
    shutil.copytree(back, out)
    (out / "x" / "manifest.json").unlink()
    (out / "x" / "c" / "0" / "0").unlink()
    (out / "iterations" / "c" / "1").unlink()
    damaged = out / "far" / "c" / "2"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    untouched = [out / name / "c" / number for name in ARRAYS[1:] for number in ("3", "4")]
    before = [path.stat().st_mtime_ns for path in untouched]
    bigkpca.reconstruct(model, scores, out, block_rows=CHUNK, progress=notes)
    assert notes.notes == ["going on: 2 of 5 blocks were written before"]  # type: ignore[attr-defined]
    assert [path.stat().st_mtime_ns for path in untouched] == before
    assert tree_bytes(out) == tree_bytes(back)


def test_a_killed_reconstruct_goes_on_and_gives_the_same_bytes(
    model: str, scores: str, back: Path, tmp_path: Path
) -> None:
    out = tmp_path / "back.zarr"
    slow = (
        "import itertools, sys, time; from bigkpca.storage import block_arrays; from bigkpca.cli import main\n"
        "write, calls = block_arrays.write_block, itertools.count()\n"
        "def slow(*block): time.sleep(60 * (next(calls) >= 2)); return write(*block)  # two blocks, in any order\n"
        "block_arrays.write_block = slow\n"
        "main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", slow, "reconstruct", model, scores, str(out), "--block-rows", str(CHUNK)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(3000):
            if all(
                len(list(out.glob(shards))) >= 2 for shards in ("x/c/?/0", "converged/c/?", "far/c/?", "iterations/c/?")
            ):
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    finally:
        process.kill()
    assert block_arrays.read_manifest(str(out)) is None
    facts = json.loads(run("info", out, "--json").stdout)
    assert facts["finished"] is False
    assert len(facts["missing_blocks"]) == 3
    again = run("reconstruct", model, scores, out, "--block-rows", CHUNK)
    assert again.exit_code == 0
    assert "going on: " in again.stderr
    assert tree_bytes(out) == tree_bytes(back)


def test_what_is_in_the_way_is_named_and_kept(
    model: str, other: str, scores: str, dataset: str, X: np.ndarray[Any, Any], back: Path, tmp_path: Path
) -> None:
    out = tmp_path / "back.zarr"
    shutil.copytree(back, out)
    Y = zarr.open_group(scores, mode="r")["scores"][:]  # type: ignore[index]
    for work, differs in (
        (lambda: bigkpca.reconstruct(other, Y, out, block_rows=CHUNK), r"model is '\w+' there and '\w+' here"),
        (lambda: bigkpca.reconstruct(model, Y, out, block_rows=CHUNK), r"input\.path is '.*scores.zarr' there"),
        (lambda: bigkpca.reconstruct(model, scores, out, block_rows=200), "block_rows is 100 there and 200 here"),
        (
            lambda: bigkpca.denoise(model, dataset, out, block_rows=CHUNK),
            r"input\.path is '.*scores.zarr' there and '.*digits.zarr' here",
        ),
        (
            lambda: bigkpca.transform(model, dataset, out, block_rows=CHUNK),
            "it is a bigkpca store of reconstructed rows",
        ),
        (lambda: bigkpca.reconstruct(model, scores, other), "it is a bigkpca model"),
    ):
        with pytest.raises(SpecError, match=f"in the way: .*{differs}.*--overwrite"):
            work()
    assert tree_bytes(out) == tree_bytes(back)
    stored = bigkpca.denoise(model, X[:50], out, overwrite=True)
    assert stored.shape == (50, 64)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back.zarr"]


# -- what is refused -----------------------------------------------------------------------------------------


def test_scores_of_another_model_are_refused_with_both_digests(
    other: str, model: str, scores: str, dataset: str, tmp_path: Path
) -> None:
    theirs, own = (model_digest(load_model(path))[:12] for path in (model, other))
    message = rf"scores\.zarr.* holds scores of the model {theirs}, this is the model {own}"
    stored = zarr.open_group(scores, mode="r")["scores"]
    for given in (scores, Path(scores), str(Path(scores, "scores")), stored):
        for work in (
            lambda given=given: bigkpca.reconstruct(other, given, tmp_path / "out.zarr"),
            lambda given=given: KernelPCA.load(other).inverse_transform(given),
            lambda given=given: arrays.preimages(load_model(other), given),
        ):
            with pytest.raises(SpecError, match=message):
                work()
    assert not (tmp_path / "out.zarr").exists()
    result = run("reconstruct", other, scores, tmp_path / "out.zarr")
    assert result.exit_code == 2
    assert re.search(message, result.stderr)


def test_scores_that_are_not_finished_are_refused(model: str, scores: str, tmp_path: Path) -> None:
    half = tmp_path / "scores.zarr"
    shutil.copytree(scores, half)
    (half / "scores" / "manifest.json").unlink()
    (half / "scores" / "c" / "2" / "0").unlink()
    with pytest.raises(IncompleteError, match="is not finished: run the same bigkpca transform command again"):
        bigkpca.reconstruct(model, half, tmp_path / "out.zarr")
    result = run("reconstruct", model, half, tmp_path / "out.zarr")
    assert result.exit_code == 6
    (half / "scores" / "manifest.json").write_text("{")
    with pytest.raises(CorruptionError, match="does not parse"):
        bigkpca.reconstruct(model, half, tmp_path / "out.zarr")


def test_scores_of_another_width_are_refused(model: str, kpca: KernelPCA, tmp_path: Path) -> None:
    for work in (
        lambda: bigkpca.reconstruct(model, np.ones((10, 5)), tmp_path / "out.zarr"),
        lambda: kpca.inverse_transform(np.ones((10, 5))),
        lambda: kpca.inverse_transform(da.ones((10, 5))),
        lambda: arrays.preimages(kpca.model_, da.ones((10, 5))),
    ):
        with pytest.raises(SpecError, match=r"scores of shape \(10, 5\), but the model has 8 components"):
            work()
    with pytest.raises(SpecError, match="has 5 columns, the model was fitted on 64"):
        bigkpca.denoise(model, np.ones((10, 5)), tmp_path / "out.zarr")
    for lazy in (arrays.denoised, arrays.residuals):
        with pytest.raises(SpecError, match="has 5 columns, the model was fitted on 64"):
            lazy(kpca.model_, da.ones((10, 5)))
    np.save(tmp_path / "narrow.npy", np.ones((10, 5)))
    result = run("reconstruct", model, tmp_path / "narrow.npy", tmp_path / "out.zarr")
    assert result.exit_code == 2
    assert "the model has 8 components" in result.stderr
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_scores_that_are_not_finite_are_named(
    value: float, word: str, model: str, kpca: KernelPCA, tmp_path: Path
) -> None:
    Y = np.zeros((N, 8))
    Y[234, 5] = value
    np.save(tmp_path / "scores.npy", Y)
    for work in (
        lambda: bigkpca.reconstruct(model, Y, tmp_path / "out.zarr"),
        lambda: kpca.inverse_transform(Y),
        lambda: kpca.inverse_transform(tmp_path / "scores.npy").compute(),
    ):
        with pytest.raises(DataError, match=f"row 234, column 5 is {word}"):
            work()
    result = run("reconstruct", model, tmp_path / "scores.npy", tmp_path / "again.zarr")
    assert result.exit_code == 3
    assert f"row 234, column 5 is {word}" in result.stderr
    assert block_arrays.read_manifest(str(tmp_path / "again.zarr")) is None


def test_a_kernel_without_a_way_back_says_what_works(X: np.ndarray[Any, Any], tmp_path: Path) -> None:
    path, rows = tmp_path / "model.zarr", tmp_path / "rows.npy"
    np.save(rows, X)
    laplacian = bigkpca.fit(rows, path, kernel="laplacian", components=3, size=40)
    assert laplacian.decoder is None
    message = "pre-images of the laplacian kernel have no fixed point: use 'ridge', 'denoising' or 'linear'"
    kpca = KernelPCA.load(path)
    Y = kpca.transform(X)
    for work in (
        lambda: bigkpca.reconstruct(path, Y, tmp_path / "out.zarr"),
        lambda: bigkpca.denoise(path, X, tmp_path / "out.zarr"),
        lambda: kpca.inverse_transform(Y),
        lambda: kpca.inverse_transform(da.from_array(Y)),
        lambda: kpca.denoise(X),
        lambda: kpca.denoise(da.from_array(X)),
    ):
        with pytest.raises(SpecError, match=message):
            work()
    with pytest.raises(AttributeError) as caught:
        kpca.score(X)
    assert message in str(caught.value.__cause__)
    for command in ("reconstruct", "denoise"):
        np.save(tmp_path / "scores.npy", Y)
        given = tmp_path / "scores.npy" if command == "reconstruct" else rows
        result = run(command, path, given, tmp_path / "out.zarr")
        assert result.exit_code == 2
        assert message in result.stderr.replace("\n", " ")
    assert not (tmp_path / "out.zarr").exists()
    assert json.loads(run("info", path, "--json").stdout)["preimage"] is None
    taught = fitted(X, kernel="laplacian", preimage="linear")
    assert error_of(taught, X) < 0.4


def test_a_matrix_of_kernels_leads_to_no_rows(X: np.ndarray[Any, Any], tmp_path: Path) -> None:
    K = kernels.Gaussian(25.0)(X[:80].astype(float), X[:80].astype(float))
    kpca = KernelPCA(3, kernel="precomputed", method="exact").fit(K)
    np.save(tmp_path / "kernels.npy", K)
    kpca.save(tmp_path / "model.zarr")
    for work in (
        lambda: kpca.inverse_transform(kpca.transform(K)),
        lambda: kpca.denoise(K),
        lambda: bigkpca.reconstruct(tmp_path / "model.zarr", np.ones((4, 3)), tmp_path / "out.zarr"),
    ):
        with pytest.raises(SpecError, match="pre-images of the precomputed kernel have no fixed point"):
            work()
    assert not hasattr(kpca, "score")
    assert run("denoise", tmp_path / "model.zarr", tmp_path / "kernels.npy", tmp_path / "out.zarr").exit_code == 2
    for way in ("ridge", "linear", "mds"):
        with pytest.raises(SpecError, match=f"preimage='{way}' leads back to rows, which kernel='precomputed' has"):
            FitSpec.checked(kernel="precomputed", method="exact", preimage=way)


def test_a_model_whose_way_back_was_left_out_says_so(X: np.ndarray[Any, Any]) -> None:
    with pytest.raises(SpecError, match="this model leads nowhere back: fit it again with preimage='ridge'"):
        fitted(X).leading(3).reconstructing(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preimage": "rigde"}, "unknown preimage 'rigde': did you mean 'ridge'"),
        ({"preimage": 3}, "preimage"),
        ({"preimage": "denoising"}, "need the standard deviation of the noise: give noise="),
        ({"preimage": preimages.Denoising(noise=1.0), "noise": 2.0}, "both give the noise"),
        ({"noise": -1.0}, "noise=-1.0"),
        ({"noise": float("inf")}, "noise=inf"),
        ({"preimage": "mds", "kernel": "linear"}, "need a kernel that is a decreasing function"),
        ({"preimage": preimages.FixedPoint(anchor=0.1), "kernel": "laplacian"}, "no fixed point"),
    ],
    ids=str,
)
def test_ways_back_that_cannot_be_are_refused_before_anything_is_read(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        FitSpec.checked(**options)


# -- rows that nothing leads to ------------------------------------------------------------------------------


def test_far_rows_become_the_mean_are_flagged_and_counted(model: str, X: np.ndarray[Any, Any], tmp_path: Path) -> None:
    given, fitted_model, notes = X.copy(), load_model(model), Notes()
    given[[3, 250]] += 1e4
    stored = bigkpca.denoise(model, given, tmp_path / "rows.zarr", progress=notes)
    np.testing.assert_array_equal(np.flatnonzero(block_arrays.values(str(tmp_path / "rows.zarr"), "far")), [3, 250])
    assert notes.notes == ["2 of 500 rows are far from all data: they became the mean, see far"]  # type: ignore[attr-defined]
    mean = fitted_model.decoder.mean_row + fitted_model.features.offset  # type: ignore[union-attr]
    np.testing.assert_allclose(stored[[3, 250]], np.tile(mean, (2, 1)), rtol=1e-6)
    np.testing.assert_allclose(mean, X.mean(axis=0), atol=1.5)
    np.save(tmp_path / "rows.npy", given)
    shown = run("denoise", model, tmp_path / "rows.npy", tmp_path / "again.zarr")
    assert shown.exit_code == 0
    assert "2 of 500 rows are far from all data" in shown.stderr
    assert re.search(r"^far +2$", shown.stdout, re.M)
    assert re.search(r"^not converged +0$", shown.stdout, re.M)
    quiet = run("denoise", model, tmp_path / "rows.npy", tmp_path / "third.zarr", "-q")
    assert quiet.stderr == ""


def test_rows_that_did_not_converge_are_counted(X: np.ndarray[Any, Any], tmp_path: Path) -> None:
    fitted_model = fitted(X, preimage=preimages.FixedPoint(iterations=1))
    save_model(fitted_model, str(tmp_path / "model.zarr"))
    np.save(tmp_path / "rows.npy", X[:40])
    shown = run("denoise", tmp_path / "model.zarr", tmp_path / "rows.npy", tmp_path / "out.zarr", "-q")
    count = 40 - int(block_arrays.values(str(tmp_path / "out.zarr"), "converged").sum())
    assert count > 0
    assert re.search(rf"^not converged +{count}$", shown.stdout, re.M)
    assert block_arrays.values(str(tmp_path / "out.zarr"), "iterations").max() == 1


def test_rows_whose_kernel_values_overflow_are_refused(X: np.ndarray[Any, Any]) -> None:
    cubic, bad = fitted(X, kernel="poly"), X.copy()
    bad[7] = 1e30
    for work in (
        lambda: reconstruct_rows(ArrayRows(bad), cubic, block_denoised, Engine(threads=1), Silent()),
        lambda: residual_rows(ArrayRows(bad), cubic, Engine(threads=1), Silent()),
    ):
        with pytest.raises(DataError, match="rows 0 to 99: kernel values overflow"):
            work()


# -- model files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["columns", "rff-pca", "exact"])
@pytest.mark.parametrize("way", WAYS)
def test_ways_back_are_saved_and_loaded(way: str, method: str, X: np.ndarray[Any, Any], tmp_path: Path) -> None:
    few = X[:100]
    first, again = (fitted(few, method=method, **WAYS[way]) for _ in range(2))
    for name, model in (("first.zarr", first), ("again.zarr", again)):
        save_model(model, str(tmp_path / name))
    assert tree_bytes(tmp_path / "first.zarr") == tree_bytes(tmp_path / "again.zarr")
    loaded = load_model(str(tmp_path / "first.zarr"))
    assert model_digest(loaded) == model_digest(first)
    assert FitSpec.of(loaded).preimage_value == FitSpec.checked(**OPTIONS | WAYS[way]).preimage_value
    rows = rows_of(loaded, few)
    np.testing.assert_array_equal(rows, rows_of(first, few))
    assert rows.dtype == np.float32


def test_estimators_with_a_way_back_are_loaded_with_it(X: np.ndarray[Any, Any], tmp_path: Path) -> None:
    kpca = KernelPCA(4, size=40, preimage=preimages.Ridge(ridge=0.5, size=30), noise=2.0, random_state=0).fit(X)
    kpca.save(tmp_path / "model.zarr")
    loaded = KernelPCA.load(tmp_path / "model.zarr")
    assert loaded.get_params() == kpca.get_params()
    Y = kpca.transform(X)
    np.testing.assert_array_equal(loaded.inverse_transform(Y), kpca.inverse_transform(Y))
    assert loaded.score(X) == kpca.score(X)
    assert json.loads(run("info", tmp_path / "model.zarr", "--json").stdout)["preimage"] == "ridge"


def test_a_model_that_lost_an_array_of_its_way_back_names_it(model: str, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "model.zarr")
    shutil.rmtree(tmp_path / "model.zarr" / "decoder_weights")
    with pytest.raises(CorruptionError, match="decoder_weights are gone"):
        bigkpca.load(tmp_path / "model.zarr")
    shutil.copytree(model, tmp_path / "changed.zarr")
    zarr.open_array(str(tmp_path / "changed.zarr" / "decoder_weights"), mode="r+")[0, 0] = 7
    with pytest.raises(CorruptionError, match="does not match its digest"):
        bigkpca.load(tmp_path / "changed.zarr")


# -- passes and memory ---------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> np.ndarray[Any, Any]:
    """How often each of the five chunks was read."""
    counts, block = np.zeros(N // CHUNK, int), ZarrRows.block

    def counting(self: ZarrRows, start: int, stop: int) -> Any:
        counts[start // CHUNK : (stop - 1) // CHUNK + 1] += 1
        return block(self, start, stop)

    monkeypatch.setattr(ZarrRows, "block", counting)
    return counts


@pytest.mark.parametrize("method", ["nystroem", "rff", "rff-pca", "exact"])
@pytest.mark.parametrize("way", WAYS)
def test_ways_back_that_are_learned_cost_one_planned_pass_and_others_none(
    way: str, method: str, dataset: str, reads: np.ndarray[Any, Any]
) -> None:
    spec = FitSpec.checked(**OPTIONS | {"method": method} | WAYS[way])
    passes = {"nystroem": 1, "rff": 1, "rff-pca": 2, "exact": 0}[method] + spec.preimage_value.trained
    fit_rows(open_rows(dataset), spec, Engine(threads=1), Silent())
    np.testing.assert_array_equal(reads, 1 + passes)
    plan = plan_fit(open_rows(dataset), spec, 1)
    assert plan.passes == passes
    assert plan.bytes_read == (1 + passes) * N * 64 * 4


def test_refined_models_learn_the_way_back_in_one_pass_more(dataset: str, reads: np.ndarray[Any, Any]) -> None:
    counts = []
    for way in ("fixed-point", preimages.Ridge(size=50)):
        reads[:] = 0
        spec = FitSpec.checked(**OPTIONS | {"refine": 1, "preimage": way})
        assert (
            error_of(fit_rows(open_rows(dataset), spec, Engine(threads=1), Silent()), zarr.open_array(dataset)[:]) < 0.6
        )  # type: ignore[arg-type]
        counts.append((reads.copy(), plan_fit(open_rows(dataset), spec, 1).passes))
    (without, planned), (with_ridge, planned_too) = counts
    np.testing.assert_array_equal(with_ridge, without + 1)
    assert planned_too == planned + 1


def test_the_way_back_reads_each_chunk_once(dataset: str, model: str, tmp_path: Path, reads: Any) -> None:
    fitted_model = load_model(model)
    for number, work in enumerate(
        (
            lambda out: bigkpca.denoise(model, dataset, out, block_rows=CHUNK),
            lambda out: bigkpca.transform(model, dataset, out, residual=True, block_rows=CHUNK),
            lambda out: arrays.denoised(fitted_model, dataset).compute(scheduler="synchronous"),
            lambda out: arrays.residuals(fitted_model, dataset).compute(scheduler="synchronous"),
            lambda out: residual_rows(open_rows(dataset), fitted_model, Engine(threads=1), Silent()),
            lambda out: KernelPCA.load(model).score(dataset),
        )
    ):
        reads[:] = 0
        work(tmp_path / f"{number}.zarr")
        np.testing.assert_array_equal(reads, 1)


def test_a_way_back_that_does_not_fit_in_memory_is_refused(
    model: str, scores: str, dataset: str, tmp_path: Path
) -> None:
    for work in (
        lambda: bigkpca.reconstruct(model, scores, tmp_path / "out.zarr", memory="20 MB"),
        lambda: bigkpca.denoise(model, dataset, tmp_path / "out.zarr", memory=20 * 10**6),
    ):
        with pytest.raises(MemoryLimitError, match=r"needs \d+ MB in a process, 20 MB are allowed: ask for smaller"):
            work()
    assert not (tmp_path / "out.zarr").exists()
    result = run("reconstruct", model, scores, tmp_path / "out.zarr", "--memory", "20 MB")
    assert result.exit_code == 4
    assert run("reconstruct", model, scores, tmp_path / "out.zarr", "--memory", "2 GB", "-q").exit_code == 0


def test_a_plan_of_the_way_back_counts_what_takes_memory(model: str) -> None:
    fitted_model, rows = load_model(model), ArrayRows(np.broadcast_to(np.float32(0), (10**6, 64)))
    plan = plan_reconstruct(rows, fitted_model, None, 2)
    assert (plan.rows, plan.columns, plan.passes, plan.size) == (10**6, 64, 1, 60)
    assert plan.bytes_read == 10**6 * 64 * 4 == plan.result_bytes
    assert INTERPRETER_BYTES < plan.peak_bytes < plan_reconstruct(rows, fitted_model, None, 4).peak_bytes
    longer = ArrayRows(np.broadcast_to(np.float32(0), (10**7, 64)))
    assert plan_reconstruct(longer, fitted_model, None, 2).peak_bytes < 1.2 * plan.peak_bytes
    of_scores = plan_reconstruct(ArrayRows(np.broadcast_to(np.float32(0), (10**6, 8))), fitted_model, None, 2)
    assert of_scores.bytes_read == 10**6 * 8 * 4
    assert of_scores.result_bytes == plan.result_bytes
    larger = [
        plan_fit(rows, FitSpec.checked(preimage=preimages.Ridge(size=size), size=100), 2).peak_bytes
        for size in (1000, 4000)
    ]
    assert larger[1] - larger[0] > 8 * (4000**2 - 1000**2)


def wide_rows(path: Path, n: int, d: int) -> Path:
    """Of ten strong directions, as data are."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 10)) @ rng.normal(size=(10, d)) + rng.normal(size=(n, d))
    np.save(path, X.astype(np.float32))
    return path


@pytest.mark.alone
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the high-water mark of Linux")
def test_peaks_of_the_way_back_stay_below_their_plan(tmp_path: Path) -> None:
    rows, model, scores = (tmp_path / name for name in ("rows.npy", "model.zarr", "scores.zarr"))
    wide_rows(rows, 4500, 500)
    options = {"preimage": preimages.FixedPoint(iterations=2), "size": 400, "components": 20}
    fitted_model = bigkpca.fit(rows, model, **options)
    transformed = peak_bytes("transform", "-q", "--residual", model, rows, scores)
    plan = plan_transform(open_rows(rows), fitted_model, None, 2, residual=True).peak_bytes
    assert transformed <= plan, (transformed, plan)
    for command, given in (("reconstruct", scores), ("denoise", rows)):
        found = peak_bytes(command, "-q", model, given, tmp_path / f"{command}.zarr")
        plan = plan_reconstruct(open_rows(given), fitted_model, None, 2).peak_bytes
        assert 0.5 * plan < found <= plan, (command, found, plan)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the high-water mark of Linux")
@pytest.mark.parametrize("options", [["ridge"], ["denoising", "--noise", "1"], ["mds"], ["linear"], ["fixed-point"]])
@pytest.mark.parametrize("n", [2000, 20_000])
def test_peaks_of_every_way_back_stay_below_their_plan(options: list[str], n: int, tmp_path: Path) -> None:
    rows, model = wide_rows(tmp_path / "rows.npy", n, 784), tmp_path / "model.zarr"
    noise = float(options[2]) if len(options) > 1 else None
    spec = FitSpec.checked(size=1000, preimage=options[0], noise=noise)
    fit = peak_bytes("fit", "-q", rows, model, "--size", 1000, "--preimage", *options)
    assert fit <= plan_fit(open_rows(rows), spec, 2).peak_bytes
    found = peak_bytes("denoise", "-q", model, rows, tmp_path / "denoised.zarr")
    plan = plan_reconstruct(open_rows(rows), load_model(str(model)), None, 2).peak_bytes
    assert found <= plan, (found, plan)


# -- models of every make ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"method": "columns"},
        {"method": methods.Nystroem("thesis", rank=30)},
        {"method": "rff", "size": 400},
        {"method": "rff", "size": 400, "solver": "randomized"},
        {"method": "rff-pca", "size": 400},
        {"method": "exact"},
        {"refine": 2},
        {"method": "exact", "preimage": "mds"},
        {"refine": 2, "preimage": "mds"},
        {"refine": 2, "preimage": preimages.Ridge(size=100)},
        {"method": "rff", "refine": 2},
        {"method": "rff", "kernel": "polynomial", "size": 400, "preimage": "linear"},
        {"standardize": True},
        {"standardize": True, "preimage": preimages.Ridge(size=100)},
        {"center": False},
        {"dtype": "float64"},
        {"kernel": "polynomial", "degree": 2},
        {"kernel": "linear"},
        {"kernel": "matern"},
        {"kernel": "rational-quadratic"},
        {"kernel": "laplacian", "preimage": "linear"},
        {"kernel": "cosine", "preimage": preimages.Ridge(size=100)},
        {"landmarks": "uniform"},
        {"landmarks": "rpcholesky"},
        {"size": "auto", "tol": 0.3},
    ],
    ids=str,
)
def test_models_of_every_make_lead_back(options: dict[str, Any], X: np.ndarray[Any, Any]) -> None:
    few = X[:300]
    pca = PCA(8).fit(few)
    best = ((few - pca.inverse_transform(pca.transform(few))) ** 2).sum() / ((few - few.mean(axis=0)) ** 2).sum()
    assert 0.25 < best < 0.27
    assert error_of(fitted(few, **options), few) < 2 * best


def test_the_linear_kernel_gives_pca_back(X: np.ndarray[Any, Any]) -> None:
    rows = X.astype(np.float64)
    pca = PCA(8).fit(rows)
    expected = pca.inverse_transform(pca.transform(rows))
    kpca = KernelPCA(8, kernel="linear", random_state=0).fit(rows)
    np.testing.assert_allclose(kpca.inverse_transform(kpca.transform(rows)), expected, atol=1e-8 * np.abs(rows).max())
    np.testing.assert_allclose(kpca.denoise(rows), expected, atol=1e-8 * np.abs(rows).max())


def test_rows_come_back_where_they_were(X: np.ndarray[Any, Any]) -> None:
    """Shifted data have shifted pre-images, standardised columns come back in their units."""
    rows = X[:, 10:14].astype(np.float64) + np.arange(4)
    options = {"landmarks": "uniform", "components": 5, "sigma": 2.0}
    near = rows_of(fitted(rows, **options), rows)
    np.testing.assert_allclose(rows_of(fitted(rows + 2**20, **options), rows + 2**20) - 2**20, near, atol=1e-5)
    units = np.array([1e-6, 1.0, 1e3, 1e6])
    one, many = (fitted(rows * u, **options, standardize=True) for u in (1.0, units))
    np.testing.assert_allclose(rows_of(many, rows * units) / units, rows_of(one, rows), atol=1e-6)
    by_hand = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    scaled = rows_of(fitted(by_hand, **options), by_hand) * rows.std(axis=0) + rows.mean(axis=0)
    np.testing.assert_allclose(rows_of(one, rows), scaled, atol=1e-5)


# -- more rows -----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::bigkpca.errors.UniformLandmarksWarning")
@pytest.mark.parametrize("way", ["fixed-point", "linear"])
@pytest.mark.parametrize("method", ["nystroem", "columns"])
def test_a_model_that_grew_leads_back_as_one_fitted_on_all(way: str, method: str, X: np.ndarray[Any, Any]) -> None:
    rows = X.astype(np.float64)
    given = {"landmarks": rows[:300:5], "size": "auto", "sigma": 30.0} if method == "nystroem" else {"sigma": 30.0}
    spec = FitSpec.checked(**OPTIONS | given | {"method": method, "preimage": way})
    first = fit_rows(ArrayRows(rows[:300]), spec, Engine(threads=1), Silent())
    grown = extend(first, ArrayRows(rows[300:]), spec, Engine(threads=1), Silent())
    assert not np.allclose(rows_of(grown, rows[:50]), rows_of(first, rows[:50]), atol=1e-3)
    own = first.features.landmarks_in_user_units()
    if method == "nystroem":
        whole = fit_rows(ArrayRows(rows), FitSpec.checked(**OPTIONS | given | {"preimage": way}), Engine(), Silent())
        assert whole.decoder is not None
        np.testing.assert_allclose(own, whole.features.landmarks_in_user_units())
        np.testing.assert_allclose(rows_of(grown, rows), rows_of(whole, rows), atol=1e-3)
    assert error_of(grown, rows) < 0.4


@pytest.mark.parametrize("way", ["fixed-point", "linear", "mds"])
@pytest.mark.parametrize("method", ["rff", "rff-pca"])
def test_random_features_that_grew_lead_back_for_old_rows_and_new(
    way: str, method: str, X: np.ndarray[Any, Any]
) -> None:
    spec = FitSpec.checked(**OPTIONS | {"size": 400, "method": method, "preimage": way})
    grown = fit_rows(ArrayRows(X[:300]), spec, Engine(threads=1), Silent())
    for piece in (X[300:490], X[490:497], X[497:]):  # however few are added
        grown = extend(grown, ArrayRows(piece), spec, Engine(threads=1), Silent())
    whole = fit_rows(ArrayRows(X), spec, Engine(threads=1), Silent())
    assert error_of(grown, X) < 1.2 * error_of(whole, X)


@pytest.mark.parametrize("way", ["ridge", "denoising"])
def test_what_was_learned_from_the_rows_before_takes_no_more(way: str, X: np.ndarray[Any, Any]) -> None:
    kpca = KernelPCA(4, size=30, preimage=WAYS[way]["preimage"], random_state=0).fit(X)
    with pytest.raises(AttributeError) as caught:
        kpca.partial_fit(X)
    assert f"partial_fit cannot add rows to what preimage='{way}' learned" in str(caught.value.__cause__)
    kpca = KernelPCA(4, size=30, preimage="linear", random_state=0).partial_fit(X[:300]).partial_fit(X[300:])
    assert kpca.inverse_transform(kpca.transform(X)).shape == X.shape


@pytest.mark.parametrize(
    "options",
    [{"method": "rff", "kernel": "polynomial"}, {"method": methods.RandomFeatures("phase")}, {"kernel": "laplacian"}],
    ids=str,
)
def test_there_is_a_score_where_there_is_a_way_back(options: dict[str, Any], X: np.ndarray[Any, Any]) -> None:
    for way in ("fixed-point", "ridge"):
        kpca = KernelPCA(4, size=30, preimage=way, random_state=0, **options)
        assert hasattr(kpca, "score") == (way == "ridge")
        assert hasattr(kpca.fit(X), "score") == (way == "ridge")
    assert -np.inf < kpca.score(X) < 0
    assert hasattr(KernelPCA(kernel="no kernel"), "score")  # a fit says what is wrong with it


def test_a_model_without_a_way_back_grows_too(X: np.ndarray[Any, Any]) -> None:
    spec = FitSpec.checked(**OPTIONS | {"kernel": "laplacian"})
    first = fit_rows(ArrayRows(X[:300]), spec, Engine(threads=1), Silent())
    assert extend(first, ArrayRows(X[300:]), spec, Engine(threads=1), Silent()).decoder is None


# -- novelty -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("center", [True, False])
def test_residuals_are_what_scores_leave_of_the_diagonal(center: bool, X: np.ndarray[Any, Any]) -> None:
    rows = X[:120].astype(np.float64)
    kernel = kernels.Gaussian(30.0)
    kpca = KernelPCA(6, kernel=kernel, method="exact", center=center).fit(rows)
    K = kernel(rows, rows)
    if center:  # |H φ(x)|² - |z|² with both about the mean
        H = np.eye(len(K)) - 1 / len(K)
        K = H @ K @ H
    expected = np.diag(K) - (kpca.transform(rows) ** 2).sum(axis=1)
    np.testing.assert_allclose(kpca.residual(rows), expected, atol=1e-10)
    np.testing.assert_allclose(kpca.model_.residual(rows), expected, atol=1e-10)
    assert (expected > 0.01).any()
    far = kernel.diagonal(rows[:1]) + (kernel(rows, rows).mean() if center else 0)
    np.testing.assert_allclose(kpca.residual(rows[:1] + 1e4), far, rtol=0.1)


def test_residuals_of_every_kind_of_rows_are_those_that_transform_writes(
    model: str, dataset: str, scores: str, kpca: KernelPCA, X: np.ndarray[Any, Any], tmp_path: Path
) -> None:
    out = tmp_path / "scores.zarr"
    stored = bigkpca.transform(model, dataset, out, residual=True, block_rows=CHUNK)
    np.testing.assert_array_equal(stored[:], zarr.open_group(scores, mode="r")["scores"][:])  # type: ignore[arg-type, index]
    found = zarr.open_group(out, mode="r")["residual"]
    assert (found.shape, found.dtype) == ((N,), np.float32)  # type: ignore[union-attr]
    expected = found[:]  # type: ignore[index]
    np.testing.assert_array_equal(kpca.residual(X), expected)  # type: ignore[arg-type]
    for lazy in (da.from_array(X, chunks=(77, 30)), dataset, zarr.open_array(dataset)):
        view = kpca.residual(lazy)
        assert isinstance(view, da.Array)
        np.testing.assert_array_equal(view.compute(scheduler="threads"), expected)  # type: ignore[arg-type]
    np.testing.assert_allclose(load_model(model).residual(X), expected, rtol=1e-4, atol=1e-5)  # type: ignore[arg-type]
    manifest = block_arrays.read_manifest(str(out))
    assert manifest is not None
    assert manifest["blocks"][2]["residual_sha256"] == sha256(expected[200:300])  # type: ignore[index]
    with pytest.raises(SpecError, match="residual is True there and False here"):
        bigkpca.transform(model, dataset, out, block_rows=CHUNK)
    assert bigkpca.reconstruct(model, out, tmp_path / "back.zarr", block_rows=CHUNK).shape == (N, 64)
    noise = np.random.default_rng(0).uniform(0, 16, X.shape).astype(np.float32)
    assert np.median(kpca.residual(noise)) > 1.5 * np.median(expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["nystroem", "columns"])
def test_residuals_of_all_blocks_take_one_decomposition(
    method: str, X: np.ndarray[Any, Any], dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kpca = KernelPCA(4, size=60, method=method, block_rows=CHUNK, random_state=0).fit(X)
    decomposed, eigh = [], scipy.linalg.eigh

    def counting(A: Any, **options: Any) -> Any:
        decomposed.append(A.shape)
        return eigh(A, **options)

    monkeypatch.setattr(scipy.linalg, "eigh", counting)
    out, model = tmp_path / "scores.zarr", kpca.model_
    for work in (
        lambda: bigkpca.transform(model, dataset, out, residual=True, block_rows=CHUNK)[:],
        lambda: kpca.residual(X),
        lambda: kpca.residual(da.from_array(X, chunks=(CHUNK, -1))).compute(scheduler="synchronous"),
        lambda: model.residual(np.tile(X, (5, 1)).astype(np.float32)),
    ):
        decomposed.clear()
        assert len(work()) >= 3 * CHUNK
        assert decomposed.count((60, 60)) == 1
    decomposed.clear()
    bigkpca.transform(model, dataset, out, residual=True, block_rows=CHUNK)  # which is there already
    assert not decomposed


@pytest.mark.alone
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the high-water mark of Linux")
@pytest.mark.parametrize("method", ["nystroem", pytest.param("columns", marks=pytest.mark.slow)])
def test_the_peak_of_residuals_of_many_landmarks_stays_below_the_plan(method: str, tmp_path: Path) -> None:
    rows, model = wide_rows(tmp_path / "rows.npy", 20_000, 20), tmp_path / "model.zarr"
    fitted_model = bigkpca.fit(rows, model, method=method, size=2000, components=50, landmarks="uniform")
    found = peak_bytes("transform", "-q", "--residual", "--block-rows", 2048, model, rows, tmp_path / "scores.zarr")
    plan = plan_transform(open_rows(rows), fitted_model, 2048, 2, residual=True).peak_bytes
    assert 0.6 * plan < found <= plan, (found, plan)


def test_transform_takes_residual_as_an_option(
    model: str, dataset: str, X: np.ndarray[Any, Any], tmp_path: Path
) -> None:
    out = tmp_path / "scores.zarr"
    assert run("transform", model, dataset, out, "--residual", "-q").exit_code == 0
    residual = zarr.open_group(out, mode="r")["residual"][:]  # type: ignore[index]
    np.testing.assert_allclose(residual, load_model(model).residual(X), rtol=1e-4, atol=1e-5)  # type: ignore[arg-type]
    (out / "scores" / "manifest.json").unlink()
    (out / "residual" / "c" / "0").unlink()
    before = tree_bytes(out)
    assert run("transform", model, dataset, out, "--residual", "-q").exit_code == 0
    assert set(tree_bytes(out)) - set(before) == {"scores/manifest.json", "residual/c/0"}


def test_rows_of_a_matrix_have_no_residual(X: np.ndarray[Any, Any], tmp_path: Path) -> None:
    K = kernels.Gaussian(25.0)(X[:60].astype(float), X[:60].astype(float))
    kpca = KernelPCA(3, kernel="precomputed", method="exact").fit(K)
    message = r"residuals need k\(x, x\), which rows of a precomputed matrix do not say"
    with pytest.raises(SpecError, match=message):
        bigkpca.transform(kpca.model_, K, tmp_path / "out.zarr", residual=True)
    for work in (
        lambda: kpca.residual(K),
        lambda: kpca.model_.residual(K),
        lambda: kpca.residual(da.from_array(K)),
        lambda: arrays.residuals(kpca.model_, K),
    ):
        with pytest.raises(SpecError, match=message):
            work()


def test_the_commands_print_where_rows_are(model: str, scores: str, dataset: str, back: Path, tmp_path: Path) -> None:
    for command, given in (("reconstruct", scores), ("denoise", dataset)):
        shown = run(command, model, given, tmp_path / command, "--block-rows", CHUNK)
        assert shown.exit_code == 0
        assert re.search(r"^shape +500 × 64$", shown.stdout, re.M)
        assert re.search(r"^far +0$", shown.stdout, re.M)
        assert "500 rows in" in shown.stderr
        again = run(command, model, given, tmp_path / command, "--block-rows", CHUNK)
        assert again.exit_code == 0
        assert again.stdout == shown.stdout
        assert "nothing to do" in again.stderr
    assert tree_bytes(tmp_path / "reconstruct") == tree_bytes(back)
