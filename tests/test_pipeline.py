"""Fit and transform end to end: the same bits everywhere, nothing lost, nothing half-done."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from conftest import shared_file

import bigkpca
from bigkpca import kernels
from bigkpca.data.blocks import split
from bigkpca.data.memory import ArrayRows
from bigkpca.data.opening import open_rows
from bigkpca.errors import (
    CorruptionError,
    DataError,
    IncompleteError,
    IndefiniteKernelWarning,
    LockedError,
    MemoryLimitError,
    SpecError,
)
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.execution.projection import score_rows
from bigkpca.fitting.fit import fit_rows, fit_within
from bigkpca.fitting.partial_fit import extend
from bigkpca.fitting.sample import sample_lengths
from bigkpca.spec import FitSpec
from bigkpca.storage import block_arrays
from bigkpca.storage.locks import lock
from bigkpca.storage.models import load_model, model_digest, save_model

OPTIONS: dict[str, Any] = {"components": 10, "size": 100, "seed": 3}


def tree_bytes(path: str | Path) -> dict[str, bytes]:
    root = Path(path)
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}


@pytest.fixture
def dataset(tmp_path: Path, digits: np.ndarray[Any, Any]) -> str:
    path = str(tmp_path / "digits.zarr")
    array = zarr.create_array(path, shape=digits.shape, dtype=digits.dtype, chunks=(100, 64))
    array[:] = digits
    return path


@pytest.fixture
def model(tmp_path: Path, dataset: str) -> str:
    path = str(tmp_path / "model.zarr")
    bigkpca.fit(dataset, path, **OPTIONS)
    return path


@pytest.mark.parametrize("block_rows", [None, 200])
@pytest.mark.bits
def test_models_and_scores_are_the_same_bytes_everywhere(
    engine: Engine, dataset: str, tmp_path: Path, block_rows: int | None
) -> None:
    rows = open_rows(dataset)
    spec = FitSpec.checked(**OPTIONS, block_rows=block_rows)
    reference = fit_rows(rows, spec, Engine(threads=1), Silent())
    save_model(reference, str(tmp_path / "reference.zarr"))
    fitted = fit_rows(rows, spec, engine, Silent())
    save_model(fitted, str(tmp_path / "fitted.zarr"))
    assert tree_bytes(tmp_path / "fitted.zarr") == tree_bytes(tmp_path / "reference.zarr")
    assert (
        score_rows(rows, fitted, engine, Silent()).tobytes()
        == score_rows(rows, reference, Engine(threads=1), Silent()).tobytes()
    )


@pytest.mark.cluster
@pytest.mark.bits
def test_stored_features_are_the_same_bytes_on_one_and_two_processes(
    dataset: str, model: str, tmp_path: Path, one_process: Engine, two_processes: Engine
) -> None:
    bigkpca.transform(model, dataset, tmp_path / "threads.zarr", block_rows=200)
    for engine, name in ((one_process, "one.zarr"), (two_processes, "two.zarr")):
        assert engine.client is not None
        with engine.client.as_current():
            bigkpca.transform(model, dataset, tmp_path / name, block_rows=200)
            bigkpca.fit(dataset, tmp_path / f"model-{name}", **OPTIONS)
        assert tree_bytes(tmp_path / name) == tree_bytes(tmp_path / "threads.zarr")
        assert tree_bytes(tmp_path / f"model-{name}") == tree_bytes(model)


@pytest.mark.cluster
def test_workers_in_another_folder_find_what_was_named_from_here(
    digits: np.ndarray[Any, Any], tmp_path: Path, two_processes: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert two_processes.client is not None
    monkeypatch.chdir(tmp_path)
    np.save("few.npy", digits[:300])
    with two_processes.client.as_current():
        bigkpca.fit("few.npy", "model.zarr", components=3, size=20)
        bigkpca.transform("model.zarr", "few.npy", "scores.zarr")
    assert two_processes.client.submit(os.getcwd).result() != str(tmp_path)
    scores = score_rows(ArrayRows(digits[:300]), bigkpca.load("model.zarr"), Engine(), Silent())
    np.testing.assert_array_equal(block_arrays.open_main("scores.zarr", "features")[:], scores)


def test_in_memory_rows_and_stored_rows_give_the_same_scores(
    dataset: str, model: str, digits: np.ndarray[Any, Any], tmp_path: Path
) -> None:
    stored = bigkpca.transform(model, dataset, tmp_path / "scores.zarr", block_rows=4096)
    held = score_rows(ArrayRows(digits), load_model(model), Engine(), Silent())
    np.testing.assert_array_equal(stored[:], held)


def test_a_model_needs_no_training_data(dataset: str, model: str, digits: np.ndarray[Any, Any]) -> None:
    shutil.rmtree(dataset)
    fitted = bigkpca.load(model)
    scores = score_rows(ArrayRows(digits), fitted, Engine(), Silent())
    np.testing.assert_allclose((scores.astype(float) ** 2).sum(axis=0), fitted.solution.eigenvalues, rtol=1e-4)


def test_a_saved_model_is_the_model(dataset: str, model: str) -> None:
    rows = open_rows(dataset)
    fitted = fit_rows(rows, FitSpec.checked(**OPTIONS), Engine(), Silent(), rows.fingerprint())
    assert model_digest(load_model(model)) == model_digest(fitted)


def test_seeds_matter_and_repeat(dataset: str, tmp_path: Path) -> None:
    rows = open_rows(dataset)
    first, again, other = (
        fit_rows(rows, FitSpec.checked(components=3, size=50, seed=seed), Engine(), Silent()) for seed in (1, 1, 2)
    )
    assert model_digest(first) == model_digest(again)
    assert not np.array_equal(first.features.landmarks, other.features.landmarks)


def test_each_chunk_is_read_once_for_the_sample_and_once_for_the_pass(
    dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, int]] = []
    block = type(open_rows(dataset)).block

    def counting(self: Any, start: int, stop: int) -> Any:
        read.append((start, stop))
        return block(self, start, stop)

    monkeypatch.setattr("bigkpca.data.zarr.ZarrRows.block", counting)
    fit_rows(open_rows(dataset), FitSpec.checked(**OPTIONS), Engine(threads=1), Silent())
    chunks = np.zeros(18, int)
    for start, stop in read:
        chunks[start // 100 : (stop - 1) // 100 + 1] += 1
    np.testing.assert_array_equal(chunks, 2)


# -- doing it again ------------------------------------------------------------------------------------------


class Notes(Silent):
    def __init__(self) -> None:
        object.__setattr__(self, "notes", [])

    def note(self, message: str) -> None:
        self.notes.append(message)  # type: ignore[attr-defined]


def test_the_same_fit_again_does_nothing(dataset: str, model: str) -> None:
    before, notes = tree_bytes(model), Notes()
    changed = {path: os.stat(path).st_mtime_ns for path in Path(model).rglob("*")}
    bigkpca.fit(dataset, model, progress=notes, **OPTIONS)
    assert "nothing to do" in notes.notes[0]
    assert tree_bytes(model) == before
    assert {path: os.stat(path).st_mtime_ns for path in Path(model).rglob("*")} == changed


def test_the_same_transform_again_does_nothing(dataset: str, model: str, tmp_path: Path) -> None:
    out, notes = tmp_path / "scores.zarr", Notes()
    bigkpca.transform(model, dataset, out)
    before = tree_bytes(out)
    bigkpca.transform(model, dataset, out, progress=notes)
    assert "nothing to do" in notes.notes[0]
    assert tree_bytes(out) == before


def test_other_rows_in_memory_are_not_taken_for_the_same(
    digits: np.ndarray[Any, Any], model: str, tmp_path: Path
) -> None:
    out, scores, notes = tmp_path / "memory.zarr", tmp_path / "scores.zarr", Notes()
    for _ in range(2):
        bigkpca.fit(digits, out, progress=notes, **OPTIONS)
        bigkpca.transform(model, digits, scores, progress=notes)
    assert len(notes.notes) == 2
    assert all("nothing to do" in note for note in notes.notes)
    with pytest.raises(SpecError, match=r"identity\.stamp is"):
        bigkpca.fit(digits[::-1], out, **OPTIONS)
    with pytest.raises(SpecError, match=r"input\.stamp is"):
        bigkpca.transform(model, digits[::-1], scores)


def test_another_fit_in_the_way_is_named_and_kept(dataset: str, model: str) -> None:
    before = tree_bytes(model)
    with pytest.raises(SpecError, match=r"in the way: .*spec.size is 100 there and 50 here.*--overwrite"):
        bigkpca.fit(dataset, model, components=10, size=50, seed=3)
    assert tree_bytes(model) == before
    bigkpca.fit(dataset, model, components=10, size=50, seed=3, overwrite=True)
    assert load_model(model).features.size == 50
    assert sorted(path.name for path in Path(model).parent.iterdir()) == ["digits.zarr", "model.zarr"]


def test_what_is_not_ours_is_never_replaced(dataset: str, model: str, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "holiday.jpg").write_bytes(b"sun")
    for work in (
        lambda: bigkpca.fit(dataset, tmp_path / "photos", overwrite=True, **OPTIONS),
        lambda: bigkpca.transform(model, dataset, tmp_path / "photos", overwrite=True),
    ):
        with pytest.raises(SpecError, match="was not made by bigkpca"):
            work()
    assert (tmp_path / "photos" / "holiday.jpg").read_bytes() == b"sun"


def test_features_of_another_model_are_refused_then_replaced(dataset: str, model: str, tmp_path: Path) -> None:
    out, other = tmp_path / "scores.zarr", tmp_path / "other.zarr"
    bigkpca.transform(model, dataset, out)
    bigkpca.fit(dataset, other, components=4, size=60)
    before = tree_bytes(out)
    with pytest.raises(SpecError, match=r"model is '.*' there and '.*' here"):
        bigkpca.transform(other, dataset, out)
    assert tree_bytes(out) == before
    assert bigkpca.transform(other, dataset, out, overwrite=True).shape == (1797, 4)


def test_two_runs_at_once_are_refused(dataset: str, model: str, tmp_path: Path) -> None:
    out = str(tmp_path / "scores.zarr")
    with lock(out), pytest.raises(LockedError, match=r"another run is writing .*scores\.zarr"):
        bigkpca.transform(model, dataset, out)
    bigkpca.transform(model, dataset, out)
    assert not Path(out + ".bigkpca-lock").exists()


# -- stopping half-way ---------------------------------------------------------------------------------------


def start_command(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bigkpca.cli", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for_shards(out: Path, count: int) -> None:
    for _ in range(3000):
        if len(list((out / "scores" / "c").glob("*/0"))) >= count:
            return
        time.sleep(0.01)
    raise AssertionError("no shards appeared")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_transform_goes_on_and_gives_the_same_bytes(
    how: signal.Signals, dataset: str, model: str, tmp_path: Path
) -> None:
    clean, out = tmp_path / "clean.zarr", tmp_path / "scores.zarr"
    bigkpca.transform(model, dataset, clean, block_rows=100)
    process = start_command("transform", model, dataset, str(out), "--block-rows", "100")
    try:
        wait_for_shards(out, 2)
        process.send_signal(how)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    if block_arrays.read_manifest(str(out)) is not None:
        pytest.skip("the run was too quick to be stopped")
    if how != signal.SIGKILL:
        assert process.returncode == 6
        assert b"run the same command again" in errors
    written = {path: path.stat().st_mtime_ns for path in (out / "scores" / "c").glob("*/0")}
    bigkpca.transform(model, dataset, out, block_rows=100)
    assert {path: path.stat().st_mtime_ns for path in written} == written  # not computed again
    assert tree_bytes(out) == tree_bytes(clean)


def test_an_unpublished_store_resumes_with_missing_and_damaged_blocks_alone(
    dataset: str, model: str, tmp_path: Path
) -> None:
    clean, out = tmp_path / "clean.zarr", tmp_path / "scores.zarr"
    bigkpca.transform(model, dataset, clean, block_rows=200)
    shutil.copytree(clean, out)
    (out / "scores" / "manifest.json").unlink()
    (out / "scores" / "c" / "2" / "0").unlink()
    damaged = out / "scores" / "c" / "4" / "0"
    damaged.write_bytes(damaged.read_bytes()[:-7])
    notes = Notes()
    bigkpca.transform(model, dataset, out, block_rows=200, progress=notes)
    assert notes.notes == ["going on: 7 of 9 blocks were written before"]
    assert tree_bytes(out) == tree_bytes(clean)


def test_unfinished_blocks_of_another_input_are_refused(
    dataset: str, model: str, tmp_path: Path, digits: np.ndarray[Any, Any]
) -> None:
    out = tmp_path / "scores.zarr"
    bigkpca.transform(model, dataset, out)
    (out / "scores" / "manifest.json").unlink()
    zarr.open_array(dataset, mode="r+")[0] = digits[1]
    with pytest.raises(SpecError, match=r"input\.stamp is"):
        bigkpca.transform(model, dataset, out)


def test_input_that_changes_under_a_run_is_not_published(
    dataset: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = block_arrays.write_block

    def meddle(*arguments: Any) -> str:
        zarr.open_array(dataset, mode="r+")[0, 0] = 7
        return write(*arguments)

    monkeypatch.setattr("bigkpca.storage.block_arrays.write_block", meddle)
    with pytest.raises(SpecError, match="changed while it was read"):
        bigkpca.transform(model, dataset, tmp_path / "scores.zarr")
    assert block_arrays.read_manifest(str(tmp_path / "scores.zarr")) is None


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A real file system of 400 kB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a file system is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_earlier_output_and_can_be_resumed(dataset: str, tmp_path: Path, small_disk: Path) -> None:
    model, out = tmp_path / "model.zarr", small_disk / "scores.zarr"
    bigkpca.fit(dataset, model, components=80, size=200)
    bigkpca.fit(dataset, tmp_path / "small.zarr", components=2, size=20)
    bigkpca.transform(tmp_path / "small.zarr", dataset, out)
    before = tree_bytes(out)
    with pytest.raises(IncompleteError, match=r"the disk is full .* make room and run the same command again"):
        bigkpca.transform(model, dataset, out, overwrite=True, block_rows=100)
    assert tree_bytes(out) == before
    with pytest.raises(IncompleteError, match="the disk is full"):
        bigkpca.fit(dataset, small_disk / "model.zarr", components=80, size=200)
    assert not (small_disk / "model.zarr").exists()
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    assert bigkpca.transform(model, dataset, out, overwrite=True, block_rows=100).shape == (1797, 80)


# -- bad input -----------------------------------------------------------------------------------------------


def with_value(digits: np.ndarray[Any, Any], value: float) -> np.ndarray[Any, Any]:
    bad = digits.astype(np.float32)
    bad[1234, 5] = value
    return bad


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_by_fit_and_transform(
    value: float, digits: np.ndarray[Any, Any], model: str, engine: Engine
) -> None:
    rows = ArrayRows(with_value(digits, value))
    with pytest.raises(DataError, match="row 1234, column 5 is"):
        fit_rows(rows, FitSpec.checked(**OPTIONS), engine, Silent())
    with pytest.raises(DataError, match="row 1234, column 5 is"):
        score_rows(rows, load_model(model), engine, Silent())


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_constant_data_are_refused(kernel: str) -> None:
    with pytest.raises(DataError, match="all 50 sampled rows are equal: constant data"):
        fit_rows(ArrayRows(np.ones((50, 3))), FitSpec.checked(kernel=kernel), Engine(), Silent())


def test_rows_of_another_width_are_refused(model: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="has 5 columns, the model was fitted on 64"):
        bigkpca.transform(model, np.ones((10, 5)), tmp_path / "scores.zarr")
    assert not (tmp_path / "scores.zarr").exists()


def test_a_limit_that_is_too_low_names_both_numbers_and_what_fits(dataset: str, tmp_path: Path) -> None:
    with pytest.raises(
        MemoryLimitError, match=r"needs \d+ MB in a process, 300 MB are allowed: nystroem with a size of"
    ):
        bigkpca.fit(dataset, tmp_path / "model.zarr", size=1700, memory="300 MB")
    with pytest.raises(
        MemoryLimitError, match=r"needs \d+ MB in a process, .*: even a size of 10 needs \d+ MB: allow more"
    ):
        bigkpca.fit(dataset, tmp_path / "model.zarr", size=1000, memory="1 MB")


def test_a_transform_that_does_not_fit_is_refused(dataset: str, model: str, tmp_path: Path) -> None:
    with pytest.raises(MemoryLimitError, match="1 MB are allowed"):
        bigkpca.transform(model, dataset, tmp_path / "scores.zarr", memory=10**6)


def test_more_landmarks_or_components_than_rows_are_lowered(digits: np.ndarray[Any, Any]) -> None:
    notes = Notes()
    fitted = fit_rows(ArrayRows(digits[:30]), FitSpec.checked(components=200, size=100), Engine(), notes)
    assert fitted.features.size == 30
    assert fitted.components <= 30
    assert [note.split(":")[0] for note in notes.notes] == [
        "size lowered from 100 to 30",
        "components lowered from 200 to at most 30",
    ]


def test_an_indefinite_kernel_says_how_negative(digits: np.ndarray[Any, Any]) -> None:
    spec = FitSpec.checked(kernel="sigmoid", gamma=3e-4, coef0=-1.0, size=100, components=5)
    for method in ("nystroem", "exact"):
        with pytest.warns(IndefiniteKernelWarning, match=r"most negative eigenvalue is -\d+\.\d+ of the largest"):
            fit_rows(ArrayRows(digits[:300]), spec.model_copy(update={"method": method}), Engine(), Silent())


def test_a_function_as_kernel_fits_but_cannot_be_saved(digits: np.ndarray[Any, Any], tmp_path: Path) -> None:
    def kernel(A: Any, B: Any) -> Any:
        return kernels.Gaussian(20.0)(A, B)

    spec = {"components": 3, "size": 40, "landmarks": "uniform"}
    own, ours = (
        fit_rows(ArrayRows(digits.astype(float)), FitSpec.checked(kernel=k, **spec), Engine(), Silent())
        for k in (kernel, kernels.Gaussian(20.0))
    )
    np.testing.assert_allclose(own.solution.eigenvalues, ours.solution.eigenvalues, rtol=1e-9)
    with pytest.raises(SpecError, match="whose kernel is a function cannot be saved"):
        bigkpca.fit(digits, tmp_path / "model.zarr", kernel=kernel)
    with pytest.raises(SpecError, match="cannot be saved"):
        save_model(own, str(tmp_path / "model.zarr"))


def test_exact_on_too_many_rows_needs_a_number_of_components() -> None:
    with pytest.raises(SpecError, match=r"above 8192 rows needs a number of components, not 0\.9"):
        fit_within(
            ArrayRows(np.eye(9000, 2)), FitSpec.checked(method="exact", components=0.9), Engine(), None, Silent()
        )


def test_a_damaged_model_is_refused(dataset: str, model: str) -> None:
    stored = zarr.open_array(f"{model}/eigenvalues", mode="r+")
    stored[0] = 1.0
    with pytest.raises(CorruptionError, match="does not match its digest"):
        bigkpca.load(model)
    shard = Path(model, "components", "c", "0", "0")
    shard.write_bytes(shard.read_bytes()[:-5])
    with pytest.raises(CorruptionError, match="an array does not decode"):
        bigkpca.load(model)


def test_an_exact_model_whose_rows_are_gone_says_so(digits: np.ndarray[Any, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.zarr"
    bigkpca.fit(digits[:50], path, method="exact", components=3)
    shutil.rmtree(path / "landmarks")
    with pytest.raises(CorruptionError, match=r"landmarks \(the rows that it compares others with\) are gone"):
        bigkpca.transform(path, digits[:50], tmp_path / "scores.zarr")


def test_large_arrays_of_a_model_are_stored_in_pieces(
    digits: np.ndarray[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bigkpca.storage.models._SHARD_BYTES", 4096)
    fitted = bigkpca.fit(digits[:50], tmp_path / "model.zarr", method="exact", components=3)
    assert len(list((tmp_path / "model.zarr" / "landmarks" / "c").iterdir())) == 4
    np.testing.assert_array_equal(bigkpca.load(tmp_path / "model.zarr").features.landmarks, fitted.features.landmarks)


def test_a_model_of_an_unknown_version_is_refused(model: str) -> None:
    metadata = Path(model) / "zarr.json"
    metadata.write_text(metadata.read_text().replace('"format_version": 1', '"format_version": 99'))
    with pytest.raises(SpecError, match="model format version 99; this bigkpca reads version 1"):
        bigkpca.load(model)


def test_paths_that_hold_something_else(dataset: str, model: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="does not exist: no model"):
        bigkpca.load(tmp_path / "nothing.zarr")
    with pytest.raises(SpecError, match="exists, but is not a bigkpca model"):
        bigkpca.load(dataset)
    bigkpca.transform(model, dataset, tmp_path / "scores.zarr")
    with pytest.raises(SpecError, match="is a bigkpca feature store, not a model"):
        bigkpca.load(tmp_path / "scores.zarr")


# -- what comes out ------------------------------------------------------------------------------------------


def test_features_open_in_xarray_and_the_manifest_names_them(dataset: str, model: str, tmp_path: Path) -> None:
    import xarray

    out = tmp_path / "scores.zarr"
    scores = bigkpca.transform(model, dataset, out, block_rows=200)
    opened = xarray.open_zarr(out, consolidated=False)["scores"]
    assert opened.dims == ("row", "component")
    np.testing.assert_array_equal(opened.values, scores[:])
    manifest = block_arrays.read_manifest(str(out))
    assert manifest is not None
    assert manifest["model"] == model_digest(load_model(model))
    assert manifest["rows"] == 1797
    digests = [(block_arrays.block_digests(str(out), block) or {})["scores"] for block in split(1797, 200)]
    assert [block["sha256"] for block in manifest["blocks"]] == digests


def test_exact_equals_nystroem_with_every_row(digits: np.ndarray[Any, Any]) -> None:
    X = digits[:400].astype(np.float64)
    exact, full = (
        fit_rows(
            ArrayRows(X),
            FitSpec.checked(components=20, method=method, size=400, landmarks=rule),
            Engine(),
            Silent(),
        )
        for method, rule in (("exact", "auto"), ("nystroem", "uniform"))
    )
    np.testing.assert_allclose(full.solution.eigenvalues, exact.solution.eigenvalues, rtol=1e-9)
    ours, theirs = (np.abs(score_rows(ArrayRows(X), m, Engine(), Silent())) for m in (full, exact))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_adding_rows_equals_fitting_all_with_the_same_landmarks(digits: np.ndarray[Any, Any]) -> None:
    X = digits.astype(np.float64)
    spec = FitSpec.checked(components=8, size=60)
    first = fit_rows(ArrayRows(X[:1000]), spec, Engine(), Silent())
    grown = extend(first, ArrayRows(X[1000:]), spec, Engine(), Silent())
    features = first.features.kernel(X - first.features.offset, first.features.landmarks)
    assert grown.moments is not None
    assert grown.moments.count == len(X)
    np.testing.assert_allclose(grown.moments.mean, features.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(grown.moments.scatter, np.cov(features.T, bias=True) * len(X), rtol=1e-8, atol=1e-9)
    scores = score_rows(ArrayRows(X), grown, Engine(), Silent())
    before = score_rows(ArrayRows(X), first, Engine(), Silent())
    assert (np.einsum("ij,ij->j", scores, before) > 0).all()


def test_an_exact_model_takes_no_more_rows(digits: np.ndarray[Any, Any]) -> None:
    spec = FitSpec.checked(method="exact", components=3)
    exact = fit_rows(ArrayRows(digits[:50]), spec, Engine(), Silent())
    with pytest.raises(
        SpecError, match=r"a model of the exact method, .* or of the randomized solver cannot take more rows"
    ):
        extend(exact, ArrayRows(digits), spec, Engine(), Silent())


def test_scaling_data_and_sigma_together_changes_nothing(digits: np.ndarray[Any, Any]) -> None:
    X = digits.astype(np.float64)
    for dtype, tolerance in (("float64", 1e-9), ("float32", 1e-4)):
        # Uniform landmarks: k-means of integers has ties, which rounding breaks either way.
        spec = FitSpec.checked(components=10, size=50, dtype=dtype, landmarks="uniform")
        reference = fit_rows(ArrayRows(X), spec, Engine(), Silent())
        for factor in (1e-6, 1e6):
            scaled = fit_rows(ArrayRows(X * factor), spec, Engine(), Silent())
            np.testing.assert_allclose(scaled.solution.eigenvalues, reference.solution.eigenvalues, rtol=tolerance)


def test_data_far_from_the_origin_lose_nothing(digits: np.ndarray[Any, Any]) -> None:
    X = digits.astype(np.float64)
    spec = FitSpec.checked(components=10, size=50, dtype="float32")
    near, far = (fit_rows(ArrayRows(X + shift), spec, Engine(), Silent()) for shift in (0, 2**30))
    np.testing.assert_allclose(far.solution.eigenvalues, near.solution.eigenvalues, rtol=1e-4)


def test_candidate_lengths_are_those_of_a_fit(digits: np.ndarray[Any, Any]) -> None:
    spec = FitSpec.checked(components=5, size=100)
    lengths = sample_lengths(ArrayRows(digits), spec, Engine(), Silent())
    fitted = fit_rows(ArrayRows(digits), spec, Engine(), Silent())
    assert fitted.features.kernel == kernels.Gaussian(lengths["median"].sigma)
    with pytest.raises(SpecError, match="the kernel linear has no length"):
        sample_lengths(ArrayRows(digits), FitSpec.checked(kernel="linear"), Engine(), Silent())


@pytest.mark.slow
@pytest.mark.parametrize(("size", "allowed"), [(1000, 0.004), (500, 0.007)])
def test_eigenvalues_of_mnist_are_accurate(size: int, allowed: float, tmp_path: Path) -> None:
    from benchmarks.accuracy import exact_eigenvalues
    from benchmarks.common import MEDIAN_DISTANCE, mnist

    shared_file("mnist", "train-images-idx3-ubyte.gz")
    X = mnist()[::6]
    exact = exact_eigenvalues(X, tmp_path)[:20]
    spec = FitSpec.checked(components=20, size=size, sigma=MEDIAN_DISTANCE)
    fitted = fit_rows(ArrayRows(X), spec, Engine(), Silent()).solution.eigenvalues
    assert np.abs(fitted / exact - 1).mean() <= allowed


def test_rows_whose_kernel_values_overflow_are_refused(digits: np.ndarray[Any, Any]) -> None:
    X = digits.astype(np.float32)
    cubic = FitSpec.checked(kernel="poly", components=3, size=30)
    fitted = fit_rows(ArrayRows(X), cubic, Engine(), Silent())
    gaussian = fit_rows(ArrayRows(X), FitSpec.checked(components=3, size=30), Engine(), Silent())
    X[1500] = 1e30
    with pytest.raises(DataError, match="rows 0 to 1796: kernel values overflow"):
        score_rows(ArrayRows(X), fitted, Engine(), Silent())
    with pytest.raises(DataError, match="some row is far larger than the rest"):
        fit_rows(ArrayRows(X), cubic, Engine(), Silent())
    scores = score_rows(ArrayRows(X), gaussian, Engine(), Silent())
    assert np.isfinite(scores).all()  # exp(-infinity) is a kernel value like any other
