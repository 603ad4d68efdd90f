"""Mistakes in a given matrix: which entry or which chunk is wrong."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca.data.rows import ArrayRows
from bigkpca.errors import CorruptionError, DataError, FillValuesWarning, SpecError
from bigkpca.execution.plan import plan_fit
from bigkpca.spec import FitSpec
from tests.fitting.precomputed.matrices import (
    DISTANCES,
    OPTIONS,
    K,
    N,
    R,
    X,
    fitted,
    leading,
    squared_distances,
    with_entry,
)
from tests.helpers.stores import as_zarr

ROW_OF_ZEROS = K.copy()
ROW_OF_ZEROS[5] = 0
MISTAKES = {
    "one entry": (
        with_entry(201, 77, K[201, 77] + 0.25),
        r"is not symmetric: entry \((201, 77|77, 201)\) is [\d.e-]+, entry \((77, 201|201, 77)\) is [\d.e-]+ \(counted",
    ),
    "swapped rows": (K[[1, 0, *range(2, N)]], r"is not symmetric: entry .* store \(K \+ K\.T\) / 2"),
    "row of zeros": (ROW_OF_ZEROS, r"entry \(5, 5\) is 0|entry \(5, \d+\) is 0, entry"),
    "NaN": (with_entry(150, 250, np.nan), "row 150, column 250 is NaN"),
    "infinity": (with_entry(250, 150, np.inf), "row 250, column 150 is infinity"),
    "zero diagonal": (with_entry(9, 9, 0), r"entry \(9, 9\) is 0, but others in its row are not"),
    "distances": (
        1 - K,
        r"no entry is negative, as in a matrix of distances D: convert distances .* exp\(-D² .*, or with -D² / 2",
    ),
    "distances, up to rounding": (1 + 1e-9 - K, "as in a matrix of distances D"),
    "zeros": (np.zeros((N, N)), "no direction varies|nothing to project on"),
    "constant": (np.full((N, N), 3.0), "no direction varies"),
    "huge": (K * 1e300, "overflow"),
}


def test_mistakes_are_named():
    for mistake, (wrong, message) in MISTAKES.items():
        with pytest.raises(DataError, match=message):
            fitted(wrong, **{"dtype": "float32"} if mistake == "huge" else {})


def test_a_wrong_entry_is_found_wherever_it_is():
    for row, column in ((0, 1), (63, 64), (64, 63), (200, N - 1), (N - 1, 0)):
        message = rf"({row}, {column}).*({column}, {row})|({column}, {row}).*({row}, {column})"
        with pytest.raises(DataError, match=message):
            fitted(with_entry(row, column, K[row, column] - 0.01))


@pytest.mark.parametrize("given", ["kernels", "squared distances"])
def test_rounding_is_no_asymmetry(given):
    lengths = np.geomspace(1, 1e3, N)
    matrix = K * np.outer(lengths, lengths) if given == "kernels" else DISTANCES
    rng = np.random.default_rng(0)
    for dtype, scale in ((np.float32, 1e-12), (np.float64, 1e12)):
        eps = np.finfo(dtype).eps
        rounded = (matrix * scale * (1 + 8 * eps * rng.uniform(-1, 1, K.shape))).astype(dtype)
        assert fitted(rounded, n_components=3, residual_tol=1e-3).components == 3
        rounded[200, 300] *= 1.5
        with pytest.raises(DataError, match=r"is not symmetric: entry \((200, 300|300, 200)\)"):
            fitted(rounded, n_components=3)


def test_a_matrix_that_is_not_square_is_refused_with_both_numbers():
    for rows, columns in ((N, N - 1), (N - 1, N)):
        message = f"has {rows} rows and {columns} columns: .* needs the square matrix"
        with pytest.raises(SpecError, match=message):
            fitted(np.ones((rows, columns)))
        with pytest.raises(SpecError, match=message):
            plan_fit(ArrayRows(np.ones((rows, columns))), FitSpec.checked(n_components=R, **OPTIONS), 1)


def test_missing_and_damaged_chunks_are_told(tmp_path):
    place = as_zarr(tmp_path, K, (40, 40), "shards.zarr", shards=(120, 80))
    (Path(place) / "c/1/0").unlink()
    missing = pytest.warns(FillValuesWarning, match="1 of its chunks are not stored")
    with missing, pytest.raises(DataError, match="is not symmetric: entry"):
        fitted(place)
    place = as_zarr(tmp_path, K, (50, 50))
    (Path(place) / "c/3/2").write_bytes(b"nonsense")
    with pytest.raises(CorruptionError, match=r"rows \d+ to \d+ cannot be read"):
        fitted(place)


@pytest.mark.filterwarnings("ignore::bigkpca.errors.FillValuesWarning")
def test_zeros_are_zeros_stored_or_not(tmp_path):
    blocks, rows = K.copy(), X[:N].copy()
    blocks[:100, 100:] = blocks[100:, :100] = 0
    blocks[5] = blocks[:, 5] = 0  # a row at the origin
    rows[50:100] = rows[50]
    distances = 0 - squared_distances(rows, rows) / 2  # without negative zeros, which would be stored
    for given, chunk in ((blocks, "c/0/2"), (distances, "c/1/1")):
        place = as_zarr(tmp_path, given, (50, 50))
        assert not (Path(place) / chunk).exists()
        assert_allclose(fitted(place, n_components=5).solution.eigenvalues, leading(given, 5), rtol=1e-9)
