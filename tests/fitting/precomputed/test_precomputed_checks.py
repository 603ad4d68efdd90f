"""Mistakes in a given matrix: which entry, which chunk, or by how much it is indefinite."""

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca import KernelPCA
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.errors import CorruptionError, DataError, IndefiniteKernelWarning, SpecError
from bigkpca.execution.planning import plan_fit
from bigkpca.spec import FitSpec
from tests.fitting.precomputed.matrices import OPTIONS, SOURCES, K, N, R, X, fitted, indefinite, one_entry, swapped
from tests.helpers import oracles
from tests.helpers.stores import as_zarr

MISTAKES = {
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
def test_mistakes_are_named(mistake, kind, path, tmp_path):
    damage, message = MISTAKES[mistake]
    wrong = K.copy()
    damage(wrong)
    asked = {"dtype": "float32"} if mistake == "huge" else {}
    with pytest.raises(DataError, match=message):
        fitted(SOURCES[kind](tmp_path, wrong), **asked)


@pytest.mark.parametrize(("row", "column"), [(0, 1), (63, 64), (64, 63), (200, N - 1), (N - 1, 0)])
def test_a_wrong_entry_is_found_wherever_it_is(row, column, path):
    wrong = K.copy()
    wrong[row, column] -= 0.01
    with pytest.raises(DataError, match=rf"({row}, {column}).*({column}, {row})|({column}, {row}).*({row}, {column})"):
        fitted(wrong)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_rounding_is_no_asymmetry(dtype, scale, path):
    rng, eps = np.random.default_rng(0), np.finfo(dtype).eps
    uneven = K * np.outer(np.geomspace(1, 1e3, N), np.geomspace(1, 1e3, N)) * scale
    rounded = (uneven * (1 + 8 * eps * rng.uniform(-1, 1, K.shape))).astype(dtype)
    assert fitted(rounded, residual_tol=1e-3).components == R
    rounded[7, 300] *= 1.5
    rounded[200, 300] *= 1.5
    with pytest.raises(DataError, match=r"is not symmetric: entry \((7|200|300), (7|200|300)\)"):
        fitted(rounded)


@pytest.mark.parametrize("shape", [(N, N - 1), (N - 1, N), (N, 5)])
def test_a_matrix_that_is_not_square_is_refused_with_both_numbers(shape, path):
    message = f"has {shape[0]} rows and {shape[1]} columns: .* takes the square matrix"
    wrong = np.random.default_rng(0).normal(size=shape)
    with pytest.raises(SpecError, match=message):
        fitted(wrong)
    with pytest.raises(SpecError, match=message):
        plan_fit(ArrayRows(wrong), FitSpec.checked(components=R, **OPTIONS), 1)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_missing_chunks_are_told_from_wrong_entries(zarr_format, path, tmp_path):
    def chunk(folder, row, column):
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
    with pytest.raises(CorruptionError, match=r"1 stored chunks are missing, the first holds row 100"):
        fitted(place)


def test_a_missing_shard_is_named_whole(path, tmp_path):
    place = SOURCES["zarr, shards"](tmp_path, K)
    (Path(place) / "c/1/0").unlink()
    with pytest.raises(CorruptionError, match="chunk of rows 120 to 239, columns 0 to 79 is not stored"):
        fitted(place)


def test_zeros_that_are_not_stored_are_zeros(path, tmp_path):
    blocks = K.copy()
    blocks[:100, 100:] = blocks[100:, :100] = 0
    place = as_zarr(tmp_path, blocks, (50, 50))
    assert not (Path(place) / "c/0/2").exists()
    expected = np.linalg.eigvalsh(oracles.centred(blocks))[::-1][:R]
    assert_allclose(fitted(place).solution.eigenvalues, expected, rtol=1e-9)


def test_a_row_of_zeros_and_its_column_are_a_row_at_the_origin(path):
    given = K.copy()
    given[5] = given[:, 5] = 0
    expected = np.linalg.eigvalsh(oracles.centred(given))[::-1][:R]
    assert_allclose(fitted(given).solution.eigenvalues, expected, rtol=1e-9)


def test_a_chunk_that_does_not_decode_is_named(path, tmp_path):
    place = SOURCES["zarr"](tmp_path, K)
    (Path(place) / "c/3/2").write_bytes(b"nonsense")
    with pytest.raises(CorruptionError, match=r"rows \d+ to \d+ cannot be read"):
        fitted(place)


@pytest.mark.parametrize("share", [0.3, 0.01])
def test_an_indefinite_matrix_is_said_to_be_so_and_by_how_much(share, path):
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


def test_a_matrix_that_is_positive_once_centred_is_not_indefinite(path):
    squares = np.square(X[:N, None] - X[None, :N]).sum(axis=2)
    given = squares.max() / 8 - squares / 2  # of which scaling is classical: its centred form is that of XX'
    assert np.linalg.eigvalsh(given)[0] < -1
    expected = np.linalg.eigvalsh(oracles.centred(X[:N] @ X[:N].T))[::-1][:5]
    assert_allclose(fitted(given, components=5).solution.eigenvalues, expected, rtol=1e-9)
    with pytest.warns(IndefiniteKernelWarning):
        fitted(given, components=5, center=False)


# What is proven of matrices that hide their size


def test_eigenvalues_beside_a_large_negative_one_are_proven_no_better_than_they_are():
    u = np.random.default_rng(0).choice([-1.0, 1.0], 600)
    K = -np.outer(u, u)
    np.fill_diagonal(K, 0.001)
    with pytest.warns(IndefiniteKernelWarning):
        found = KernelPCA(5, kernel="precomputed", method="exact", center=False).fit(K).certificate_
    assert (found.eigenvalue_lower <= 1.001).all()
    assert (found.eigenvalue_upper >= 1.001).all()


def test_centring_rows_that_are_nearly_alike_makes_no_eigenvalue():
    n = 2500
    u = np.random.default_rng(1).normal(size=n)
    u -= u.mean()
    u /= np.linalg.norm(u)
    K = 0.9999 + 2e-10 * np.outer(u, u)
    kpca = KernelPCA(2, kernel="precomputed", method="exact").fit(K)
    assert kpca.eigenvalues_[0] == pytest.approx(2e-10, rel=1e-4)
    assert kpca.certificate_.eigenvalue_lower[1:].max(initial=0.0) == 0


def test_large_entries_beside_a_small_diagonal_may_be_rounded():
    rng = np.random.default_rng(2)
    A = rng.normal(size=(80, 80))
    K = (1000 * (A + A.T)).astype(np.float32)
    np.fill_diagonal(K, 1.0)
    K[3, 5] = np.nextafter(K[3, 5], np.float32(np.inf))
    with pytest.warns(IndefiniteKernelWarning):
        assert KernelPCA(3, kernel="precomputed", method="exact").fit(K).n_components_ == 3
