"""Feature maps, and the sums of passes over their features, on arrays of other libraries against NumPy's."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bigkpca.numerics.array_api import dtype_of, on_host
from bigkpca.numerics.features import (
    Columns,
    FourierRows,
    KernelRows,
    PrincipalFourierRows,
    SubspaceRows,
    tensor_sketch,
)
from bigkpca.numerics.kernels import Gaussian, Laplacian, Linear, Matern, Polynomial
from bigkpca.numerics.moments import Rounding, shifted_sums, square_of
from tests.helpers.devices import agree, every_device, every_dtype, place

D = 4
OFFSET, SCALE = np.array([3.0, -1e3, 0.25, 0.0]), np.array([2.0, 1e3, np.inf, 1e-3])


def rows(n, scaled=True):
    """Rows (n, 4) about OFFSET whose columns have the units of SCALE, or 1."""
    return OFFSET + np.random.default_rng(0).normal(size=(n, D)) * np.where(np.isinf(SCALE) | (not scaled), 1, SCALE)


def maps(dtype, scale=SCALE):
    """One feature map of each kind and form."""
    rng, offset, given = np.random.default_rng(1), OFFSET, {"scale": scale}
    W, b = rng.normal(size=(6, D)).astype(dtype), rng.uniform(0, 7, 6).astype(dtype)
    landmarks = rng.normal(size=(5, D)).astype(dtype)
    axes = np.linalg.qr(rng.normal(size=(D, D)))[0].astype(dtype)
    polynomial = Polynomial(0.5, 2, 1.0)
    return {
        "columns": Columns(Linear(), offset, np.dtype(dtype), **given),
        "kernels": KernelRows(Gaussian(2.0), offset, landmarks, **given),
        "kernels in a subspace": SubspaceRows(Gaussian(2.0), offset, landmarks[:, :2], axes[:, :2], **given),
        "kernels on the processor": KernelRows(Matern(2.0, 2.2), offset, landmarks, **given),
        "pairs": FourierRows(Gaussian(1.0), offset, W, **given),
        "phases": FourierRows(3 * Laplacian(1.0), offset, W, b, **given),
        "principal": PrincipalFourierRows(Gaussian(1.5), offset, W[:, :2], axes[:, :2], **given),
        "principal phases": PrincipalFourierRows(Gaussian(np.float64(1.5)), offset, W[:, :2], axes[:, :2], b, **given),
        "principal, one factor": PrincipalFourierRows(Gaussian(1.5), offset, W[:, :2], axes[:, :2], None, 0.7, **given),
        "principal, all axes": PrincipalFourierRows(Gaussian(1.5), offset, W, axes, **given),
        "sketch": tensor_sketch(polynomial, 8, offset, scale, rng, np.dtype(dtype)),
        "odd sketch": tensor_sketch(Polynomial(0.5, 3, 0.0), 7, offset, scale, rng, np.dtype(dtype)),
    }


every_map = pytest.mark.parametrize("name", maps("float32"))


@every_device
@every_dtype
@every_map
@pytest.mark.parametrize("scaled", [False, True])
def test_features_are_those_of_numpy(name, scaled, dtype, device):
    features, X = maps(dtype, SCALE if scaled else None)[name], rows(90, scaled)
    there = features.placed(place(device))
    assert dtype_of(there.offset) == np.float64
    assert (there.size, there.columns, there.dtype) == (features.size, D, features.dtype)
    for stored in (dtype, ">f8", "g", "i8"):  # "g" are long doubles
        Z = np.asfortranarray(X.astype(stored))
        ((V, diagonal),) = features.tiles([Z], 90)
        ((V_there, diagonal_there),) = there.tiles([Z], 90)
        assert dtype_of(V_there) == dtype
        agree(V_there, V, dtype)
        assert diagonal_there.dtype == np.float64
        agree(diagonal_there, diagonal, dtype)
        agree(there.shifted(Z), features.shifted(Z), dtype)
        assert_array_equal(on_host(there.offset), features.offset)


@every_device
@pytest.mark.parametrize(
    "stored", ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "g", ">i2", ">f4"]
)
def test_equal_values_of_any_dtype_give_equal_features(stored, device):
    values = np.random.default_rng(0).integers(0, 2, (20, D))
    for dtype in ("float32", "float64"):
        here = KernelRows(Gaussian(2.0), np.full(D, 0.25), values[:3].astype(dtype))
        for features in (here, here.placed(place(device))):
            expected = on_host(next(features.tiles([values.astype(dtype)], 20))[0]).copy()
            # 0.25 is exact in every precision, so not even rounding differs.
            assert_array_equal(on_host(next(features.tiles([values.astype(stored)], 20))[0]), expected)


@every_device
def test_rows_are_shifted_before_they_are_rounded(device):
    expected = np.arange(-4.0, 4).reshape(2, 4)
    for large, stored in ((1e6, np.float32), (2.0**40, np.int64), (2.0**50, np.float64), (200.0, np.uint8)):
        for scale in (None, np.full(D, 2.0)):
            here = Columns(Linear(), np.full(D, large), np.dtype("float32"), scale=scale)
            for features in (here, here.placed(place(device))):
                ((found, _),) = features.tiles([(large + expected).astype(stored)], 2)
                assert_array_equal(on_host(found), expected if scale is None else expected / 2)


@every_device
@every_dtype
def test_columns_of_weight_0_are_0_where_differences_overflow(dtype, device):
    largest = np.finfo(dtype).max
    X = np.array([[largest, 1, 2, 3], [-largest, 1, 2, 3]], dtype)
    for scale in (np.array([np.inf, 1, 1, 1]), np.array([1e30, np.inf, 1, 1])):
        features = Columns(Linear(), np.array([-1e38, 0, 0, 0]), np.dtype(dtype), scale=scale)
        with np.errstate(over="ignore"):
            for each in (features, features.placed(place(device))):
                shifted = on_host(each.shifted(X))
                assert not shifted[:, np.isinf(scale)].any()
                agree(shifted[:, 2:], [[2, 3], [2, 3]], dtype)


def features_of(dtype, far=0):
    """Features (5000, 7) near (5, ..., 5), more than are added up at once, with k(x, x) and weights 0, 1 and 4,
    whose roots are exact. `far` rows are so only in three columns."""
    rng = np.random.default_rng(0)
    V = 5 + rng.normal(size=(5000, 7))
    some = rng.choice(len(V), far, replace=False)
    V[some, :3], V[some, 3:] = np.rint(1e4 * V[some, :3]), 5
    return V.astype(dtype), rng.uniform(1, 2, len(V)), rng.integers(0, 3, len(V)) ** 2.0


@every_device
@every_dtype
@pytest.mark.parametrize("far", [0, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_of_tall_tiles(weighted, far, dtype, device):
    """Each entry to the precision of what near rows add to it: far rows do not round them away."""
    V, diagonal, w = features_of(dtype, far)
    shift = np.full(7, 5.0)
    parts = slice(0, 4000), slice(4000, None)

    def summed(where):
        tiles = [(where(V[part]), diagonal[part]) for part in parts]
        return shifted_sums(tiles, shift, Rounding.unknown(7), [w[part] for part in parts] if weighted else None)

    u = w if weighted else np.ones(len(V))
    A = V.astype(np.float64) - shift
    scatter, total = (A * u[:, None]).T @ A, u @ A
    squares = u @ np.where(np.abs(A) < 100, A, 0) ** 2
    precise = {"float32": 1e-5, "float64": 1e-12}[dtype]
    for sums in (summed(np.copy), summed(place(device))):
        assert sums.count == (u > 0).sum()
        np.testing.assert_allclose([sums.weight, sums.trace], [u.sum(), u @ diagonal], rtol=1e-12)
        size = precise * np.sqrt(squares) + 1e-14 * np.sqrt(np.diag(scatter))
        assert (np.abs(sums.total - total) <= size * np.sqrt(u.sum())).all()
        found = square_of(sums.products, 7)
        rest = 1e-14 * np.sqrt(np.outer(np.diag(scatter), np.diag(scatter)))
        assert (np.abs(found - scatter) <= precise * np.sqrt(np.outer(squares, squares)) + rest).all()
        assert {type(each) for each in (sums.about, sums.total, sums.products)} == {np.ndarray}
