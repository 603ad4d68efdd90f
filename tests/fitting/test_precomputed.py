"""Kernel PCA of a Gram matrix that the caller has: as scikit-learn's, as our own exact method's, and its mistakes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.decomposition import KernelPCA as Peer
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

import bigkpca
from bigkpca import KernelPCA, arrays, kernels, methods
from bigkpca.data import matrix_tiles, npy
from bigkpca.data.memory import ArrayRows
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import EVERY
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import CorruptionError, DataError, IndefiniteKernelWarning, MemoryLimitError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import plan_fit, plan_transform
from bigkpca.execution.progress import Silent
from bigkpca.execution.projection import score_rows
from bigkpca.fitting import precomputed_products
from bigkpca.fitting.fit import fit_rows
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec
from bigkpca.storage.describe import info
from bigkpca.storage.models import load_model, save_model
from tests.helpers import oracles
from tests.helpers.commands import run
from tests.helpers.stores import as_npy, as_zarr

N, NEW, R = 330, 40, 6
X = np.random.default_rng(0).normal(size=(N + NEW, 5)) * [3, 1, 2, 1, 0.5]
KERNEL = kernels.Gaussian(2.5)
WHOLE = KERNEL.gram(X)
K, K_NEW = WHOLE[:N, :N], WHOLE[N:, :N]
OPTIONS: dict[str, Any] = {"kernel": "precomputed", "method": "exact"}
Damage = Callable[[Any], None]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """No matrix of more than 100 rows is held, and pieces are small enough for there to be many."""
    for module in ("spec.resolved", "evaluating.error"):
        monkeypatch.setattr(f"bigkpca.{module}.EXACT_MOST_ROWS", 100)
    monkeypatch.setattr(matrix_tiles, "_STRIP_ROWS", 64)
    monkeypatch.setattr(matrix_tiles, "_TALL", 32)
    monkeypatch.setattr(matrix_tiles, "PIECE_BYTES", 2**14)
    monkeypatch.setattr(matrix_tiles, "PART_BYTES", 2**15)
    monkeypatch.setattr(npy, "_RUN_BYTES", 2**8)


@pytest.fixture(params=["held", "read in pieces"])
def path(request: pytest.FixtureRequest) -> str:
    """Both ways of going about it."""
    if request.param == "read in pieces":
        request.getfixturevalue("large")
    return request.param


def fitted(data: Any, engine: Engine | None = None, progress: Any = None, **options: Any) -> Model:
    spec = FitSpec.checked(**{"components": R, "size": 60, "seed": 3, "residual_tol": 1e-7} | OPTIONS | options)
    return fit_rows(open_rows(data), spec, engine or Engine(threads=1), progress or Silent())


def scores(model: Model, data: Any, engine: Engine | None = None) -> Any:
    return score_rows(open_rows(data), model, engine or Engine(threads=1), Silent())


def estimator(**options: Any) -> KernelPCA:
    return KernelPCA(**{"n_components": R, "size": 60, "residual_tol": 1e-7, "random_state": 3} | OPTIONS | options)


SOURCES: dict[str, Any] = {
    "numpy": lambda folder, values: values,
    "npy": as_npy,
    "Fortran npy": lambda folder, values: as_npy(folder, np.asfortranarray(values)),
    "dask": lambda folder, values: da.from_array(values, chunks=(50, 50)),
    "dask, strips": lambda folder, values: da.from_array(values, chunks=(33, -1)),
    "zarr": lambda folder, values: as_zarr(folder, values, (50, 50)),
    "zarr v2": lambda folder, values: as_zarr(folder, values, (50, 50), zarr_format=2),
    "zarr, rows": lambda folder, values: as_zarr(folder, values, (32, values.shape[1])),
    "zarr, odd chunks": lambda folder, values: as_zarr(folder, values, (37, 91)),
    "zarr, shards": lambda folder, values: as_zarr(folder, values, (40, 40), shards=(120, 80)),
    "zarr, one chunk": lambda folder, values: as_zarr(folder, values, values.shape),
}


# The same as others'


@pytest.mark.parametrize("kind", SOURCES)
def test_it_is_scikit_learns(kind: str, path: str, tmp_path: Path) -> None:
    theirs = Peer(R, kernel="precomputed").fit(K)
    ours = estimator().fit(SOURCES[kind](tmp_path, K))
    assert ("products" in ours.model_.provenance) == (path != "held")
    assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-11)
    for values in (K, K_NEW):
        expected = theirs.transform(values)
        found = np.asarray(ours.transform(SOURCES[kind](tmp_path, values)))
        assert_allclose(oracles.with_signs_of(found, expected), expected, atol=1e-6)


@pytest.mark.parametrize("center", [True, False])
def test_it_is_the_exact_method_on_the_rows(center: bool, path: str) -> None:
    rows = fitted(X[:N], kernel=KERNEL, center=center)
    given = fitted(K, center=center)
    assert_allclose(given.solution.eigenvalues, rows.solution.eigenvalues, rtol=1e-11)
    assert_allclose(given.solution.total_variance, rows.solution.total_variance, rtol=1e-11)
    assert_allclose(given.solution.mean, rows.solution.mean, rtol=1e-10, atol=1e-13)
    assert_allclose(scores(given, K), scores(rows, X[:N]), atol=1e-6)  # signs as well
    assert_allclose(scores(given, K_NEW), scores(rows, X[N:]), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("asked", [None, "float32", "float64"])
def test_precision_is_that_of_the_matrix_or_as_asked(dtype: Any, asked: str | None, path: str) -> None:
    given = K.astype(dtype)
    exact = np.linalg.eigvalsh(oracles.centred(given.astype(np.float64)))[::-1][:R]
    model = fitted(given, residual_tol=1e-4, dtype=asked)
    assert model.features.dtype == (asked or np.result_type(dtype, np.float32))
    assert_allclose(model.solution.eigenvalues, exact, rtol=1e-7 if model.features.dtype == np.float64 else 1e-5)


def test_integers_are_kernels_too(path: str) -> None:
    counts = np.random.default_rng(1).integers(0, 4, (N, 4))
    model = fitted((counts @ counts.T).astype(np.uint8), components=3)
    exact = np.linalg.eigvalsh(oracles.centred((counts @ counts.T).astype(np.float64)))[::-1][:3]
    assert_allclose(model.solution.eigenvalues, exact, rtol=1e-5)


def subsequences(a: str, b: str) -> int:
    """How many pairs of substrings of three letters are the same."""
    return sum(a[i : i + 3] == b[j : j + 3] for i in range(len(a) - 2) for j in range(len(b) - 2))


def test_strings_by_a_similarity_of_their_own(path: str) -> None:
    rng = np.random.default_rng(0)
    strings = ["".join(rng.choice(list("acgt"), 12)) for _ in range(100)]
    strings += ["".join(rng.choice(list("aacc"), 12)) for _ in range(50)]
    similar = np.array([[subsequences(a, b) for b in strings] for a in strings], np.float64)
    similar /= np.sqrt(np.outer(similar.diagonal(), similar.diagonal()))
    model = estimator(n_components=2).fit(similar[:140, :140])
    expected, vectors = oracles.gram_kpca(similar[:140, :140], 2)
    assert_allclose(model.eigenvalues_, expected, rtol=1e-8)
    found = model.transform(similar[:140, :140])
    assert_allclose(oracles.with_signs_of(found, vectors), vectors, atol=1e-5)
    of_strings = model.transform(similar[140:, :140])[:, 0]  # ten strings of a and c, never seen
    assert abs(found[:100, 0].mean() - of_strings.mean()) > 2 * found[:100, 0].std()


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("tol", [0.1, 1e-2, 1e-5])
def test_residuals_are_the_true_ones(tol: float, center: bool, large: None) -> None:
    model = fitted(K, residual_tol=tol, center=center)
    Kc, certificate = oracles.centred(K) if center else K, model.certificate
    U, values = model.solution.components * np.sqrt(model.solution.eigenvalues), model.solution.eigenvalues
    assert certificate.residuals is not None
    left = np.linalg.norm(Kc @ U - U * values, axis=0) / values
    assert (certificate.residuals >= left).all()  # widened by rounding
    assert_allclose(certificate.residuals, left, rtol=1e-6, atol=1e-12)
    assert certificate.residuals.max() <= tol + 1e-12
    assert_allclose(certificate.eigenvalue_lower, values, rtol=1e-11)
    assert (certificate.eigenvalue_lower < values).all()
    assert_allclose(model.solution.total_variance, np.trace(Kc), rtol=1e-12)


def test_a_matrix_that_is_held_has_no_error() -> None:
    certificate = fitted(K).certificate
    assert (certificate.trace_error, certificate.residuals) == (0.0, None)


def test_components_by_the_largest_gap_are_those_of_the_exact_method() -> None:
    found, rows = fitted(K, components="auto"), fitted(X[:N], kernel=KERNEL, components="auto")
    assert len(found.solution.eigenvalues) == len(rows.solution.eigenvalues)
    assert found.provenance["choices"] == rows.provenance["choices"][-1:]
    again = fitted(K, components=len(found.solution.eigenvalues))
    assert_array_equal(again.solution.components, found.solution.components)


@pytest.mark.parametrize("components", [None, 0.9])
def test_components_by_share_or_all_where_the_matrix_is_held(components: Any, request: pytest.FixtureRequest) -> None:
    found = fitted(K, components=components).solution
    true = np.linalg.eigvalsh(oracles.centred(K))[::-1]
    count = N if components is None else int(np.searchsorted(np.cumsum(true) / true.sum(), 0.9)) + 1
    assert_allclose(found.eigenvalues, true[: len(found.eigenvalues)], rtol=1e-6)
    assert count - 1 - (components is None) <= len(found.eigenvalues) <= count
    request.getfixturevalue("large")
    with pytest.raises(SpecError, match="above 100 rows needs a number of components"):
        fitted(K, components=components)
    with pytest.raises(SpecError, match="above 100 rows needs a number of components"):
        plan_fit(ArrayRows(K), FitSpec.checked(components=components, **OPTIONS), 1)


def test_parts_that_nothing_ties_to_the_rest_are_found(large: None) -> None:
    apart = np.zeros((N, N))
    apart[:200, :200] = 0.5 + 0.5 * np.eye(200)
    apart[200:, 200:] = 0.7 * np.outer(*[np.sign(X[200:N, 0])] * 2) + 0.3 * np.eye(N - 200)
    numbers = np.arange(0, 200, 2)  # which columns the start knows
    rng = np.random.default_rng(0)

    class OnlyTheFirst:
        def choice(self, n: int, size: int, replace: bool) -> Any:
            return numbers[:size]

        def standard_normal(self, shape: Any) -> Any:
            return rng.standard_normal(shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precomputed_products, "random_stream", lambda *_: OnlyTheFirst())
        model = fitted(apart, components=2, center=False)
    true = np.linalg.eigvalsh(apart)[::-1][:2]
    assert_allclose(model.solution.eigenvalues, true, rtol=1e-8)


def test_low_rank_takes_no_products_to_speak_of(large: None) -> None:
    vectors = X[:N, :4].astype(np.float32)
    model = fitted(vectors @ vectors.T, components=20)
    assert model.components == 4
    assert model.provenance["products"] <= 3
    assert_allclose(model.solution.eigenvalues, np.linalg.eigvalsh(np.cov(vectors.T))[::-1] * (N - 1), rtol=1e-5)


def test_the_size_of_the_start_changes_the_products_alone(large: None) -> None:
    few, many = (fitted(K, size=size) for size in (8, 200))
    assert few.provenance["products"] > many.provenance["products"]
    assert_allclose(few.solution.eigenvalues, many.solution.eigenvalues, rtol=1e-10)


# The same everywhere


def saved(model: Model, out: Path) -> dict[str, bytes]:
    shutil.rmtree(out, ignore_errors=True)
    save_model(model, str(out))
    return {str(file.relative_to(out)): file.read_bytes() for file in sorted(out.rglob("*")) if file.is_file()}


@pytest.mark.parametrize(("kind", "dtype"), [("zarr", np.float64), ("zarr, rows", np.float32), ("dask", np.float32)])
@pytest.mark.bits
def test_models_and_scores_are_the_same_bytes_everywhere(
    kind: str, dtype: Any, path: str, engine: Engine, tmp_path: Path
) -> None:
    """With pieces as they come, since workers do not see the small constants; parts are cut here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix_tiles, "_TALL", 512)
        patch.setattr(matrix_tiles, "PIECE_BYTES", 2**23)
        source = SOURCES[kind](tmp_path, K.astype(dtype))
        one, other = (fitted(source, runs, residual_tol=1e-3) for runs in (None, engine))
        assert saved(one, tmp_path / "one") == saved(other, tmp_path / "other")
        assert_array_equal(scores(one, source), scores(one, source, engine))


def test_models_are_saved_and_loaded(path: str, tmp_path: Path) -> None:
    model = fitted(K)
    save_model(model, str(tmp_path / "model.zarr"))
    loaded = load_model(str(tmp_path / "model.zarr"))
    assert_array_equal(scores(loaded, K_NEW), scores(model, K_NEW))
    assert loaded.features.kernel == kernels.Precomputed()
    assert loaded.features.dtype == model.features.dtype
    assert loaded.provenance["content"] == model.provenance["content"]
    assert FitSpec.of(loaded) == FitSpec.of(model)
    assert FitSpec.of(loaded).precomputed
    again = KernelPCA.load(tmp_path / "model.zarr")
    assert_array_equal(again.transform(K_NEW), scores(model, K_NEW))
    assert again.get_params()["kernel"] == "precomputed"
    size = sum(file.stat().st_size for file in (tmp_path / "model.zarr").rglob("*"))
    assert size < 20 * 8 * N + 80_000  # vectors and their certificate, but no matrix


def test_contents_tell_matrices_apart(path: str) -> None:
    other = K.copy()
    other[7, 7] = 1.01
    assert fitted(K).provenance["content"] == fitted(K.copy()).provenance["content"]
    assert fitted(K).provenance["content"] != fitted(other).provenance["content"]


@pytest.mark.parametrize("kind", ["zarr", "zarr, rows", "zarr, odd chunks"])
def test_each_chunk_is_decoded_once_for_the_start_and_at_most_once_for_each_product(
    kind: str, large: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = open_rows(SOURCES[kind](tmp_path, K))
    height, width = rows.grid
    decoded, block = np.zeros([-(-N // size) for size in rows.grid], int), ZarrRows.block

    def counting(self: Any, start: int, stop: int, columns: slice = EVERY) -> Any:
        left, right, _ = columns.indices(N)
        decoded[start // height : -(-stop // height), left // width : -(-right // width)] += 1
        return block(self, start, stop, columns)

    monkeypatch.setattr(ZarrRows, "block", counting)
    products = fitted(rows).provenance["products"]
    lower = np.tril(np.ones(decoded.shape, bool), -1) if kind == "zarr" else np.zeros(decoded.shape, bool)
    assert_array_equal(decoded, np.where(lower, 1, 1 + products))
    decoded[:] = 0
    scores(fitted(K), rows)
    assert_array_equal(decoded, 1)


# What a matrix of kernels is not


def swapped(values: Any) -> None:
    values[[20, 30]] = values[[30, 20]]


def one_entry(values: Any) -> None:
    values[201, 77] += 0.25


MISTAKES: dict[str, tuple[Any, str]] = {
    "one entry": (
        one_entry,
        r"entry \((201, 77|77, 201)\) is .* entry \((77, 201|201, 77)\) is .* store \(K \+ K\.T\) / 2",
    ),
    "swapped rows": (
        swapped,
        r"is not symmetric: entry \(\d+, \d+\) is [\d.e-]+, entry \(\d+, \d+\) is [\d.e-]+ \(counted",
    ),
    "row of zeros": (lambda values: values.__setitem__(5, 0), r"entry \(5, 5\) is 0|entry \(5, \d+\) is 0, entry"),
    "NaN": (lambda values: values.__setitem__((150, 250), np.nan), "row 150, column 250 is NaN"),
    "infinity": (lambda values: values.__setitem__((250, 150), np.inf), "row 250, column 150 is infinity"),
    "zero diagonal": (
        lambda values: values.__setitem__((9, 9), 0),
        r"entry \(9, 9\) is 0, and others of its row are not",
    ),
    "distances": (
        lambda values: np.subtract(1, values, out=values),
        r"no entry is negative, as in a matrix of distances D: distances D are made kernels by exp\(-D² .*, or -D² / 2",
    ),
    "distances, up to rounding": (
        lambda values: np.subtract(1 + 1e-9, values, out=values),
        "as in a matrix of distances D",
    ),
    "nothing positive": (lambda values: np.negative(values, out=values), "has no positive eigenvalue, and -"),
    "zeros": (lambda values: values.fill(0), "no direction varies|nothing to project on"),
    "constant": (lambda values: values.fill(3), "no direction varies"),
    "huge": (lambda values: np.multiply(values, 1e300, out=values), "overflow"),
}


@pytest.mark.parametrize(
    ("mistake", "kind"),
    [*[(mistake, "zarr") for mistake in MISTAKES], *[("one entry", kind) for kind in SOURCES if kind != "zarr"]],
)
def test_mistakes_are_named(mistake: str, kind: str, path: str, tmp_path: Path) -> None:
    damage, message = MISTAKES[mistake]
    wrong = K.copy()
    damage(wrong)
    asked = {"dtype": "float32"} if mistake == "huge" else {}
    with pytest.raises(DataError, match=message):
        fitted(SOURCES[kind](tmp_path, wrong), **asked)


@pytest.mark.parametrize(("row", "column"), [(0, 1), (63, 64), (64, 63), (200, N - 1), (N - 1, 0)])
def test_a_wrong_entry_is_found_wherever_it_is(row: int, column: int, path: str) -> None:
    wrong = K.copy()
    wrong[row, column] -= 0.01
    with pytest.raises(DataError, match=rf"({row}, {column}).*({column}, {row})|({column}, {row}).*({row}, {column})"):
        fitted(wrong)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_rounding_is_no_asymmetry(dtype: Any, scale: float, path: str) -> None:
    rng, eps = np.random.default_rng(0), np.finfo(dtype).eps
    uneven = K * np.outer(np.geomspace(1, 1e3, N), np.geomspace(1, 1e3, N)) * scale
    rounded = (uneven * (1 + 8 * eps * rng.uniform(-1, 1, K.shape))).astype(dtype)
    assert fitted(rounded, residual_tol=1e-3).components == R
    rounded[7, 300] *= 1.5
    rounded[200, 300] *= 1.5
    with pytest.raises(DataError, match=r"is not symmetric: entry \((7|200|300), (7|200|300)\)"):
        fitted(rounded)


@pytest.mark.parametrize("shape", [(N, N - 1), (N - 1, N), (N, 5)])
def test_a_matrix_that_is_not_square_is_refused_with_both_numbers(shape: tuple[int, int], path: str) -> None:
    message = f"has {shape[0]} rows and {shape[1]} columns: .* takes the square matrix"
    wrong = np.random.default_rng(0).normal(size=shape)
    with pytest.raises(SpecError, match=message):
        fitted(wrong)
    with pytest.raises(SpecError, match=message):
        plan_fit(ArrayRows(wrong), FitSpec.checked(components=R, **OPTIONS), 1)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_missing_chunks_are_told_from_wrong_entries(zarr_format: Any, path: str, tmp_path: Path) -> None:
    def chunk(folder: str, row: int, column: int) -> Path:
        return Path(folder) / (f"{row}.{column}" if zarr_format == 2 else f"c/{row}/{column}")

    place = as_zarr(tmp_path, K, (50, 50), zarr_format=zarr_format)
    chunk(place, 1, 6).unlink()
    hole = r"chunk of rows 50 to 99, columns 300 to 329 is not stored, but its mirror image"
    with pytest.raises(CorruptionError, match=hole):
        fitted(place)
    place = as_zarr(tmp_path, K, (50, 50), "other.zarr", zarr_format=zarr_format)
    chunk(place, 6, 6).unlink()
    with pytest.raises(CorruptionError, match=r"chunk of rows 300 to 329, columns 300 to 329 is not stored"):
        fitted(place)
    place = as_zarr(tmp_path, K, (50, 50), "nan.zarr", zarr_format=zarr_format, fill_value=np.nan)
    chunk(place, 2, 3).unlink()
    with pytest.raises(CorruptionError, match=r"1 stored chunks are gone, the first holds row 100"):
        fitted(place)


def test_a_missing_shard_is_named_whole(path: str, tmp_path: Path) -> None:
    place = SOURCES["zarr, shards"](tmp_path, K)
    (Path(place) / "c/1/0").unlink()
    with pytest.raises(CorruptionError, match="chunk of rows 120 to 239, columns 0 to 79 is not stored"):
        fitted(place)


def test_zeros_that_are_not_stored_are_zeros(path: str, tmp_path: Path) -> None:
    blocks = K.copy()
    blocks[:100, 100:] = blocks[100:, :100] = 0
    place = as_zarr(tmp_path, blocks, (50, 50))
    assert not (Path(place) / "c/0/2").exists()
    expected = np.linalg.eigvalsh(oracles.centred(blocks))[::-1][:R]
    assert_allclose(fitted(place).solution.eigenvalues, expected, rtol=1e-9)


def test_a_row_of_zeros_and_its_column_are_a_row_at_the_origin(path: str) -> None:
    given = K.copy()
    given[5] = given[:, 5] = 0
    expected = np.linalg.eigvalsh(oracles.centred(given))[::-1][:R]
    assert_allclose(fitted(given).solution.eigenvalues, expected, rtol=1e-9)


def test_a_chunk_that_does_not_decode_is_named(path: str, tmp_path: Path) -> None:
    place = SOURCES["zarr"](tmp_path, K)
    (Path(place) / "c/3/2").write_bytes(b"nonsense")
    with pytest.raises(CorruptionError, match=r"rows \d+ to \d+ cannot be read"):
        fitted(place)


def indefinite(share: float, seed: int = 0) -> Any:
    """K and one negative direction, its eigenvalue a share of the largest."""
    u = np.random.default_rng(seed).normal(size=N)
    u -= u.mean()
    largest = np.linalg.eigvalsh(oracles.centred(K))[-1]
    return K - share * largest * np.outer(u, u) / (u @ u)


@pytest.mark.parametrize("share", [0.3, 0.01])
def test_an_indefinite_matrix_is_said_to_be_so_and_by_how_much(share: float, path: str) -> None:
    given = indefinite(share)
    spectrum = np.linalg.eigvalsh(oracles.centred(given))
    with pytest.warns(IndefiniteKernelWarning, match=r"most negative eigenvalue is -\S+ of the largest") as told:
        model = fitted(given)
    (message,) = {str(warning.message) for warning in told}
    said = re.search(r"is (-\S+) of", message)
    assert said is not None
    assert_allclose(float(said[1]), spectrum[0] / spectrum[-1], rtol=0.5 if share < 0.1 and path != "held" else 0.05)
    assert model.solution.negative < 0
    assert_allclose(model.solution.eigenvalues, spectrum[::-1][:R], rtol=1e-9)


def test_a_matrix_that_is_positive_once_centred_is_not_indefinite(path: str) -> None:
    squares = np.square(X[:N, None] - X[None, :N]).sum(axis=2)
    given = squares.max() / 8 - squares / 2  # of which scaling is classical: its centred form is that of XX'
    assert np.linalg.eigvalsh(given)[0] < -1
    expected = np.linalg.eigvalsh(oracles.centred(X[:N] @ X[:N].T))[::-1][:5]
    assert_allclose(fitted(given, components=5).solution.eigenvalues, expected, rtol=1e-9)
    with pytest.warns(IndefiniteKernelWarning):
        fitted(given, components=5, center=False)


# Distances, and matrices of either sign


def squared(A: Any, B: Any) -> Any:
    return np.square(A[:, None] - B[None]).sum(axis=2)


def scaled(D2: Any, r: int) -> tuple[Any, Any]:
    """Classical scaling as Torgerson has it: eigenvalues of -H D² H / 2, and coordinates."""
    return oracles.gram_kpca(-D2 / 2, r)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_squared_distances_give_classical_scaling(dtype: Any, path: str) -> None:
    given = (-squared(X[:N], X[:N]) / 2).astype(dtype)
    model, (values, coordinates) = fitted(given, components=5, residual_tol=1e-5), scaled(squared(X[:N], X[:N]), 5)
    close = 1e-9 if dtype == np.float64 else 1e-5
    assert_allclose(model.solution.eigenvalues, values, rtol=close)
    assert model.solution.negative == 0  # no warning
    found, size = scores(model, given), np.sqrt(values[0])
    assert_allclose(oracles.with_signs_of(found, coordinates), coordinates, atol=max(close, 1e-5) * size)
    assert_allclose(model.solution.total_variance, np.square(X[:N] - X[:N].mean(axis=0)).sum(), rtol=close)
    assert_allclose(model.solution.explained_variance_ratio.sum(), 1, rtol=1e-4)
    axes = np.linalg.svd(X[:N] - X[:N].mean(axis=0), full_matrices=False)[2].T
    expected = (X[N:] - X[:N].mean(axis=0)) @ axes  # new rows are where principal axes have them
    new = scores(model, (-squared(X[N:], X[:N]) / 2).astype(dtype))
    assert_allclose(oracles.with_signs_of(new, expected), expected, atol=max(close, 1e-5) * size)


@pytest.mark.parametrize("kind", ["zarr", "zarr, odd chunks", "dask", "npy"])
def test_distances_of_no_space_give_the_positive_part_and_a_warning(kind: str, path: str, tmp_path: Path) -> None:
    D = np.abs(X[:N, None] - X[None, :N]).sum(axis=2)  # of city blocks
    values, coordinates = scaled(D**2, R)
    spectrum = np.linalg.eigvalsh(oracles.centred(-(D**2) / 2))
    with pytest.warns(IndefiniteKernelWarning, match="most negative eigenvalue is -"):
        model = fitted(SOURCES[kind](tmp_path, -(D**2) / 2))
    assert_allclose(model.solution.eigenvalues, values, rtol=1e-9)
    found = scores(model, -(D**2) / 2)
    assert_allclose(oracles.with_signs_of(found, coordinates), coordinates, atol=1e-5 * np.sqrt(values[0]))
    assert_allclose(model.solution.negative, spectrum[0] / spectrum[-1], rtol=1e-6 if path == "held" else 0.2)
    certificate = model.certificate
    assert certificate.eigenvalue_lower is not None
    assert (certificate.eigenvalue_lower <= values * (1 + 1e-14)).all()
    assert certificate.eigenvalue_upper is None or (values <= certificate.eigenvalue_upper).all()
    assert certificate.explained_variance_ratio_lower is None  # nothing of the kind is proven
    assert certificate.explained_variance_ratio_upper is None
    if path == "held":
        assert_allclose(model.solution.total_variance, spectrum[spectrum > 0].sum(), rtol=1e-9)


@pytest.mark.parametrize("center", [True, False])
def test_a_diagonal_of_either_sign_is_kept_to_its_positive_part(center: bool, path: str) -> None:
    signs = np.where(np.arange(N) % 3, 1.0, -1.0)
    given = K * signs[:, None] + signs * K  # indefinite, with a diagonal of both signs
    spectrum = np.linalg.eigvalsh(oracles.centred(given) if center else given)[::-1]
    with pytest.warns(IndefiniteKernelWarning):
        model = fitted(given, center=center)
    assert_allclose(model.solution.eigenvalues, spectrum[:R], rtol=1e-9)
    rows = scores(model, given)
    assert_allclose(np.square(rows).sum(axis=0), spectrum[:R], rtol=1e-6)


@pytest.mark.parametrize("given", ["kernels", "distances"])
def test_without_a_positive_eigenvalue_nothing_is_left(given: str, path: str) -> None:
    matrix = -K if given == "kernels" else squared(X[:N], X[:N]) - 1e-3
    with pytest.raises(
        DataError, match=r"has no positive eigenvalue, and -.* entries must be large where rows are alike"
    ):
        fitted(matrix)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_a_wrong_entry_among_squared_distances_is_named_and_rounding_is_not(
    dtype: Any, scale: float, path: str
) -> None:
    rng, eps = np.random.default_rng(0), np.finfo(dtype).eps
    given = -squared(X[:N], X[:N]) / 2 * scale
    rounded = (given * (1 + 8 * eps * rng.uniform(-1, 1, given.shape))).astype(dtype)
    assert fitted(rounded, components=3, residual_tol=1e-3).components == 3
    rounded[201, 77] *= 1.1
    with pytest.raises(DataError, match=r"is not symmetric: entry \((201, 77|77, 201)\)"):
        fitted(rounded, components=3)


def test_chunks_that_are_missing_among_squared_distances_are_named(path: str, tmp_path: Path) -> None:
    given = -squared(X[:N], X[:N]) / 2
    for row, column, says in ((1, 6, "rows 50 to 99, columns 300 to 329"), (6, 6, "rows 300 to 329, columns 300")):
        place = as_zarr(tmp_path, given, (50, 50), f"{row}.zarr")
        (Path(place) / f"c/{row}/{column}").unlink()
        with pytest.raises(CorruptionError, match=says):
            fitted(place, components=5)


def test_a_chunk_of_rows_at_no_distance_from_each_other_need_not_be_stored(path: str, tmp_path: Path) -> None:
    rows = X[:N].copy()
    rows[50:100] = rows[50]
    given = 0 - squared(rows, rows) / 2  # without negative zeros, which would be stored
    place = as_zarr(tmp_path, given, (50, 50))
    assert not (Path(place) / "c/1/1").exists()
    assert_allclose(fitted(place, components=5).solution.eigenvalues, scaled(-2 * given, 5)[0], rtol=1e-9)


def test_a_sample_without_a_positive_eigenvalue_is_no_reason_to_stop(
    large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = -np.eye(N)
    given[200:, 200:] += 0.5 * np.exp(-squared(X[200:N], X[200:N]) / 20)

    class OnlyTheFirst:
        def choice(self, n: int, size: int, replace: bool) -> Any:
            return np.arange(0, 200, 4)[:size]

        def standard_normal(self, shape: Any) -> Any:
            return np.random.default_rng(0).standard_normal(shape)

    spectrum = np.linalg.eigvalsh(oracles.centred(given))
    monkeypatch.setattr(precomputed_products, "random_stream", lambda *_: OnlyTheFirst())
    with pytest.warns(IndefiniteKernelWarning):
        model = fitted(given, components=3)
    assert_allclose(model.solution.eigenvalues, spectrum[::-1][:3], rtol=1e-9)


@pytest.mark.parametrize("sigma", [2.5, 30.0, 300.0])
def test_single_precision_makes_no_matrix_indefinite(sigma: float, path: str) -> None:
    given = kernels.Gaussian(sigma).gram(X[:N]).astype(np.float32)
    assert fitted(given, residual_tol=1e-2, components=3).solution.negative == 0


# What goes with it


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "nystroem"}, "kernel='precomputed' needs method='exact', not 'nystroem'"),
        ({"method": "columns"}, "needs method='exact', not 'columns'"),
        ({"method": methods.RandomFeatures("iid")}, "needs method='exact', not 'rff'"),
        ({"method": "nystroem", "kernel": kernels.Precomputed()}, "needs method='exact'"),
        ({"standardize": True}, "standardize=True is for rows that are vectors"),
        ({"refine": 2}, "leave refine out"),
        ({"landmarks": "uniform"}, "leave landmarks out"),
        ({"landmarks": [1, 2, 3]}, "leave landmarks out"),
        ({"n_directions": 3}, "n_directions=3 belongs to method='rff-pca'"),
        ({"solver": "randomized"}, "solver='randomized' is for random features"),
        ({"sigma": 2.0}, "the precomputed kernel has no length sigma"),
        ({"gamma": 2.0}, "the precomputed kernel has no gamma"),
        ({"kernel": kernels.Precomputed(), "sigma": 2.0}, "belong to kernel names"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        FitSpec.checked(**OPTIONS | options)


def test_the_default_method_says_which_one_is_needed() -> None:
    with pytest.raises(SpecError, match="kernel='precomputed' needs method='exact', not 'nystroem'"):
        KernelPCA(kernel="precomputed").fit(K)


def test_a_kernel_value_is_the_name() -> None:
    by_name, by_value = fitted(K), fitted(K, kernel=kernels.Precomputed())
    assert_array_equal(by_name.solution.components, by_value.solution.components)
    assert FitSpec.from_dict(FitSpec.of(by_value).to_dict(), np.empty((0, 0))) == FitSpec.of(by_value)


def test_the_kernel_has_no_formula() -> None:
    kernel = kernels.Precomputed()
    assert kernels.from_dict(kernel.to_dict()) == kernel
    assert (kernel.on_vectors, kernel.stationary, kernel.positive, kernel.savable) == (False, False, False, True)
    assert np.isnan(kernel.diagonal(X)).all()
    for combined in (kernel, 2.0 * kernel, kernel + KERNEL, KERNEL * kernel):
        with pytest.raises(SpecError, match="a precomputed kernel has no formula to evaluate, or to combine"):
            combined(X, X)
    with pytest.raises(SpecError, match="no formula"):
        arrays.kernel_blocks(X, X[:5], kernel)[0].compute()
    with pytest.raises(SpecError, match="no spectral density"):
        arrays.random_features(X, 10, kernel)


def test_rows_of_the_wrong_width_are_refused(path: str, tmp_path: Path) -> None:
    model = estimator().fit(K)
    message = rf"has 7 columns, the model was fitted on the kernels of {N} rows: each new row must hold its kernels"
    with pytest.raises(SpecError, match=message):
        bigkpca.transform(model.model_, K_NEW[:, :7], tmp_path / "scores.zarr")
    with pytest.raises(ValueError, match="7 features"):  # scikit-learn's own words
        model.transform(K_NEW[:, :7])
    with pytest.raises(SpecError, match=message):
        model.transform(da.from_array(K_NEW[:, :7]))


def test_what_needs_rows_or_their_matrix_says_so(path: str) -> None:
    model = estimator().fit(K)
    with pytest.raises(SpecError, match="is a matrix of them: the certificate of this model has the residual"):
        bigkpca.evaluate(model.model_, K)
    with pytest.raises(SpecError, match="keeps neither its rows nor their matrix"):
        arrays.feature_map(model.model_, K)
    assert not hasattr(model, "partial_fit")
    assert_allclose(arrays.leverage(model.model_, K).sum().compute(), R, rtol=1e-6)
    assert (model.landmarks_, model.sigma_) == (None, None)


def test_new_rows_that_are_not_finite_are_named(path: str) -> None:
    model, wrong = fitted(K), K_NEW.copy()
    wrong[3, 300] = np.nan
    with pytest.raises(DataError, match="row 3, column 300 is NaN"):
        scores(model, wrong)


def test_new_rows_that_overflow_are_named() -> None:
    model = fitted(K, dtype="float32", residual_tol=1e-3)
    with pytest.raises(DataError, match="rows 0 to 39: kernel values overflow"):
        scores(model, K_NEW * 1e300)


# scikit-learn's face and the commands

NOT_OURS = {
    "check_estimators_nan_inf": "wants NaN reported before a matrix of 10 rows and 3 columns is refused",
}


@parametrize_with_checks(
    [KernelPCA(n_components=2, random_state=0, **OPTIONS)], expected_failed_checks=lambda _: NOT_OURS
)
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("name", ["precomputed", "Precomputed", "PRECOMPUTED", kernels.Precomputed()])
def test_the_tag_says_that_input_is_pairwise_however_the_kernel_is_typed(name: Any) -> None:
    given = estimator().set_params(kernel=name)
    assert get_tags(given).input_tags.pairwise
    assert not hasattr(given, "score")
    assert_allclose(given.fit(K).eigenvalues_, estimator().fit(K).eigenvalues_)


def test_other_kernels_are_not_pairwise() -> None:
    for kernel in ("gaussian", "no kernel", kernels.Linear(), np.dot):
        assert not get_tags(KernelPCA(kernel=kernel)).input_tags.pairwise
    assert get_tags(estimator(kernel=kernels.Precomputed())).input_tags.pairwise
    assert not get_tags(KernelPCA()).input_tags.pairwise
    assert not get_tags(KernelPCA(kernel=KERNEL)).input_tags.pairwise
    assert clone(estimator()).get_params()["kernel"] == "precomputed"


def test_commands(path: str, tmp_path: Path) -> None:
    gram, model, new = as_zarr(tmp_path, K, (50, 50)), tmp_path / "model.zarr", tmp_path / "new.npy"
    np.save(new, K_NEW)
    typed = ("fit", gram, model, "--kernel", "precomputed", "--method", "exact", "--components", R)
    shown = run(*typed)
    assert shown.exit_code == 0, shown.output
    assert re.search(r"^kernel +precomputed$", shown.stdout, re.M)
    assert ("largest relative residual" in shown.stdout) == (path != "held")
    assert "nothing to do" in run(*typed).stderr
    assert run("transform", model, new, tmp_path / "scores.zarr").exit_code == 0
    expected = scores(load_model(str(model)), K_NEW)
    assert_allclose(zarr.open(tmp_path / "scores.zarr" / "scores")[:], expected, atol=1e-12)
    facts = json.loads(run("info", model, "--json").stdout)
    assert (facts["kernel"], facts["columns"], facts["method"]) == ({"name": "precomputed"}, N, "exact")
    assert facts["features"] == "given-kernels"
    assert info(str(model))["components"] == R
    planned = run("plan", gram, "--kernel", "precomputed", "--method", "exact", "--components", R, "--json")
    assert json.loads(planned.stdout)["bytes_read"] >= K.nbytes


@pytest.mark.parametrize(
    ("damage", "options", "code"),
    [
        (lambda values: None, [], 0),
        (lambda values: None, ["--method", "nystroem"], 2),
        (lambda values: None, ["--memory", "100 MB"], 4),
        (one_entry, [], 3),
    ],
)
def test_exit_codes(damage: Damage, options: list[str], code: int, path: str, tmp_path: Path) -> None:
    values = K.copy()
    damage(values)
    gram = as_zarr(tmp_path, values, (50, 50))
    typed = ["fit", gram, tmp_path / "model.zarr", "--kernel", "precomputed", "--method", "exact", "--components", R]
    assert run(*typed, *options).exit_code == code
    if not code:
        (Path(gram) / "c/2/3").unlink()
        assert run(*typed, "--overwrite").exit_code == 7
        wide = as_npy(tmp_path, K_NEW)
        assert run("fit", wide, *typed[2:], "--overwrite").exit_code == 2


# Plans


def planned(n: int, chunks: tuple[int, int] = (1, 1), dtype: Any = np.float32, **options: Any) -> Any:
    rows = ArrayRows(np.broadcast_to(np.zeros(1, dtype), (n, n)), grid=chunks)
    return plan_fit(rows, FitSpec.checked(**{"components": 20} | OPTIONS | options), 2)


def test_a_plan_counts_the_matrix_where_it_is_held_and_pieces_above() -> None:
    held, above, far = planned(8192), planned(8193), planned(60_000, (1000, 1000))
    assert held.peak_bytes > 3 * 8 * 8192**2
    assert above.peak_bytes < held.peak_bytes / 3
    assert far.peak_bytes < 4 * 60_000**2 / 8
    assert held.bytes_read == 4 * 8192**2
    assert (held.passes, above.passes) == (1, 3)
    assert_allclose(far.bytes_read, 2 * 4 * 60_000**2, rtol=0.02)  # the start, and two halves
    assert planned(60_000, (100, 60_000)).bytes_read == 3 * 4 * 60_000**2
    assert planned(60_000, (8000, 8000)).peak_bytes > far.peak_bytes + 2 * 3 * 4 * (8000**2 - 2 * 1000**2)
    assert planned(60_000, components=200).peak_bytes > planned(60_000).peak_bytes
    assert far.result_bytes >= 8 * 60_000 * 21


def test_a_plan_of_dask_counts_what_travels_to_tasks() -> None:
    def plan(data: Any) -> Any:
        return plan_fit(open_rows(data), FitSpec.checked(components=20, **OPTIONS), 2)

    zeros = da.zeros((20_000, 20_000), chunks=(1000, 1000), dtype=np.float32)
    assert plan(zeros).peak_bytes > planned(20_000, (1000, 1000)).peak_bytes + 2 * matrix_tiles.PART_BYTES


def test_a_plan_of_a_transform_counts_pieces() -> None:
    n = 2000
    features = fitted(K).features
    model = Model(type(features)(kernels.Precomputed(), np.zeros(n), "float32"), fitted(K).solution, None)

    def plan(chunks: tuple[int, int]) -> int:
        rows = ArrayRows(np.broadcast_to(np.zeros(1, np.float32), (50_000, n)), grid=chunks)
        return plan_transform(rows, model, None, 2).peak_bytes

    assert plan((4000, 2000)) > plan((1000, 1000)) + 2 * 3 * 4 * 4000 * 1000


@pytest.mark.parametrize("limit", ["100 MB"])
def test_what_does_not_fit_is_refused_before_it_is_read(limit: str, path: str) -> None:
    with pytest.raises(MemoryLimitError, match="100 MB are allowed: store the matrix in smaller chunks"):
        estimator(memory_limit=limit).fit(np.full((N, N), np.nan))


_FIT = """
import sys
from bigkpca import KernelPCA
import dask.array as da
data = da.from_zarr(sys.argv[1]) if sys.argv[2] == "dask" else sys.argv[1]
KernelPCA(int(sys.argv[3]), kernel="precomputed", method="exact", random_state=0).fit(data)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the high-water mark of Linux")
@pytest.mark.parametrize(
    ("n", "kind", "components"),
    [
        (12_000, (1000, 1000), 10),
        (12_000, (3000, 3000), 50),
        (12_000, (100, 12_000), 20),
        (12_000, "npy", 100),
        (12_000, "dask", 20),
        (3000, "npy", 20),
        (3000, (500, 500), 3000),
    ],
    ids=str,
)
def test_peaks_stay_below_the_plan(n: int, kind: Any, components: int, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(n, 10)).astype(np.float32)
    gram = kernels.Gaussian(3.0)(rows, rows)
    gram = (gram + gram.T) / 2
    np.fill_diagonal(gram, 1)
    chunks = (1000, 1000) if kind == "dask" else kind
    source = as_npy(tmp_path, gram) if kind == "npy" else as_zarr(tmp_path, gram, chunks)
    del gram
    command = [sys.executable, "-c", _FIT, source, str(kind), str(components)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True).stdout
    data = da.from_zarr(source) if kind == "dask" else source
    plan = plan_fit(open_rows(data), FitSpec.checked(components=components, **OPTIONS), Engine().threads)
    assert int(found) * 1024 <= plan.peak_bytes, (int(found) * 1024, plan.peak_bytes)


# What is proven of matrices that hide their size


def test_eigenvalues_beside_a_large_negative_one_are_proven_no_better_than_they_are() -> None:
    u = np.random.default_rng(0).choice([-1.0, 1.0], 600)
    K = -np.outer(u, u)
    np.fill_diagonal(K, 0.001)
    with pytest.warns(IndefiniteKernelWarning):
        found = KernelPCA(5, kernel="precomputed", method="exact", center=False).fit(K).certificate_
    assert (found.eigenvalue_lower <= 1.001).all()
    assert (found.eigenvalue_upper >= 1.001).all()


def test_centring_rows_that_are_nearly_alike_makes_no_eigenvalue() -> None:
    n = 2500
    u = np.random.default_rng(1).normal(size=n)
    u -= u.mean()
    u /= np.linalg.norm(u)
    K = 0.9999 + 2e-10 * np.outer(u, u)
    kpca = KernelPCA(2, kernel="precomputed", method="exact").fit(K)
    assert kpca.eigenvalues_[0] == pytest.approx(2e-10, rel=1e-4)
    assert kpca.certificate_.eigenvalue_lower[1:].max(initial=0.0) == 0


def test_large_entries_beside_a_small_diagonal_may_be_rounded() -> None:
    rng = np.random.default_rng(2)
    A = rng.normal(size=(80, 80))
    K = (1000 * (A + A.T)).astype(np.float32)
    np.fill_diagonal(K, 1.0)
    K[3, 5] = np.nextafter(K[3, 5], np.float32(np.inf))
    with pytest.warns(IndefiniteKernelWarning):
        assert KernelPCA(3, kernel="precomputed", method="exact").fit(K).n_components_ == 3
