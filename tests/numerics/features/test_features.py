"""Feature maps against their formulas, tile by tile, with the offset taken away in the precision of the data; by NumPy
and on other devices, with the sums of passes."""

import itertools
import json
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.numerics.array_api import dtype_of, on_host
from bigkpca.numerics.features import (
    MAPS,
    Columns,
    FourierRows,
    KernelRows,
    PrincipalFourierRows,
    SubspaceRows,
    piece_rows,
    tensor_sketch,
)
from bigkpca.numerics.kernels import Gaussian, Laplacian, Linear, Matern, Polynomial
from bigkpca.numerics.moments import Rounding, shifted_sums, square_of
from tests.helpers.devices import agree, every_device, every_dtype, place
from tests.numerics import fits

D = 4
OFFSET, SCALE = np.array([3.0, -1e3, 0.25, 0.0]), np.array([2.0, 1e3, np.inf, 1e-3])
UNITS = np.where(np.isinf(SCALE), 1, SCALE)  # of columns that are scaled so


def maps(dtype, offset=OFFSET, scale=SCALE):
    """One feature map of each kind and form."""
    rng, given = np.random.default_rng(1), {"scale": scale}
    W, b = rng.normal(size=(6, D)).astype(dtype), rng.uniform(0, 7, 6).astype(dtype)
    landmarks = rng.normal(size=(5, D)).astype(dtype)
    axes = np.linalg.qr(rng.normal(size=(D, D)))[0].astype(dtype)
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
        "sketch": tensor_sketch(Polynomial(0.5, 2, 1.0), 8, offset, scale, rng, np.dtype(dtype)),
        "odd sketch": tensor_sketch(Polynomial(0.5, 3, 0.0), 7, offset, scale, rng, np.dtype(dtype)),
    }


every_map = pytest.mark.parametrize("name", maps("f4"))


def rows(n, d=D, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def all_features(features, X, tile=64):
    """(V, k(x, x)) of all rows, by tiles that are overwritten before the next one."""
    parts = []
    for V, diagonal in features.tiles((X[a : a + tile] for a in range(0, len(X), tile)), tile):
        parts.append((on_host(V).copy(), diagonal))
        V[:, :] = float("nan")
    return [np.concatenate(each) for each in zip(*parts, strict=True)]


def test_a_tall_tile_is_evaluated_in_pieces():
    X = rows(2100, 300)
    offset, kernel = X.mean(axis=0), Polynomial(degree=2, gamma=0.01)
    assert piece_rows(300, 8) < len(X)
    assert [piece_rows(d, 4) for d in (1, 256, 257, 784, 10**6)] == [2**19, 2048, 1024, 1024, 1024]
    ((V, diagonal),) = KernelRows(kernel, offset, X[:3] - offset).tiles([X], len(X))
    assert_allclose(V, (1 + 0.01 * (X - offset) @ (X[:3] - offset).T) ** 2, rtol=1e-12)
    assert_allclose(diagonal, (1 + 0.01 * ((X - offset) ** 2).sum(axis=1)) ** 2, rtol=1e-12)


@every_map
def test_rows_are_shifted_and_scaled_by_tiles_of_any_height_and_left_alone(name):
    features, X = maps("f8")[name], rows(20)
    weighed = X * ~np.isinf(SCALE)  # columns of weight 0 are 0
    expected = all_features(maps("f8", np.zeros(D), None)[name], weighed)
    given = OFFSET + X * UNITS
    given.flags.writeable = False
    for tile in (20, 7, 1):
        for found, wanted in zip(all_features(features, given, tile), expected, strict=True):
            assert_allclose(found, wanted, atol=1e-9 * np.abs(wanted).max())
    assert expected[0].shape == (20, features.size)


@pytest.mark.parametrize("name", [name for name in maps("f4") if name != "columns"])
def test_a_map_goes_through_numbers_and_arrays_and_back(name):
    features = maps("f8")[name]
    parameters = json.loads(json.dumps(features.parameters()))
    arrays = {name: array.copy() for name, array in features.arrays().items()}
    back = MAPS[parameters.pop("name")](kernel=features.kernel, **parameters, **arrays)
    assert type(back) is type(features)
    assert_array_equal(all_features(back, rows(9))[0], all_features(features, rows(9))[0])


# Formulas.


def naive_fourier(x, W, phases, at_zero):
    m = len(W)
    angles = [sum(a * b for a, b in zip(w, x, strict=True)) for w in W]
    if phases is None:
        return math.sqrt(at_zero / m) * np.array([*map(math.cos, angles), *map(math.sin, angles)])
    return math.sqrt(2 * at_zero / m) * np.array([math.cos(a + b) for a, b in zip(angles, phases, strict=True)])


@every_dtype
@pytest.mark.parametrize("name", ["pairs", "phases"])
def test_fourier_features_are_cosines_and_sines_of_frequencies(name, dtype):
    features, X = maps(dtype, np.zeros(D), None)[name], rows(40).astype(dtype)
    V, diagonal = all_features(features, X, tile=4)
    at_zero = features.kernel.diagonal(X)[0]
    expected = [naive_fourier(x, features.frequencies, features.phases, at_zero) for x in X.astype(float)]
    assert (features.size, features.columns) == (6 if name == "phases" else 12, D)
    assert V.dtype == features.dtype == dtype
    assert_allclose(V, expected, atol=1e-5 if dtype == "float32" else 1e-13)
    assert_allclose(diagonal, at_zero)


def principal(seed=0, d=D, kept=2, m=5, phase=False, factor=None, sigma=1.5):
    rng = np.random.default_rng(seed)
    axes, b = np.linalg.qr(rng.normal(size=(d, d)))[0][:, :kept], rng.uniform(0, 2 * np.pi, m)
    W = rng.normal(size=(m, kept)) / sigma
    return PrincipalFourierRows(Gaussian(sigma), rng.normal(size=d), W, axes, b if phase else None, factor)


@pytest.mark.parametrize(
    ("phase", "factor", "kept"), [(False, None, 2), (True, None, 1), (False, 0.8, 1), (True, 0.8, 4)]
)
def test_principal_features_are_those_of_the_projection_times_a_factor_of_the_residual(phase, factor, kept):
    features, X = principal(kept=kept, phase=phase, factor=factor), rows(40)
    V, diagonal = all_features(features, X, tile=4)
    expected = []
    for x in X - features.offset:
        p = [sum(a * b for a, b in zip(axis, x, strict=True)) for axis in features.axes.T]
        rho2 = sum(a * a for a in x) - sum(a * a for a in p)
        a = math.exp(-rho2 / (2 * 1.5**2)) if factor is None else factor
        expected.append(a * naive_fourier(p, features.frequencies, features.phases, 1))
    assert_allclose(V, expected, atol=1e-12)
    assert_array_equal(diagonal, 1)


def sketch(seed, kernel, size=16, d=3, dtype=np.float64):
    return tensor_sketch(kernel, size, np.zeros(d), None, np.random.default_rng(seed), np.dtype(dtype))


def naive_sketch(x, features):
    """Σ over all tuples of entries of x^: their product, with its sign, into the bucket that is the sum of theirs."""
    kernel = features.kernel
    extended = [*(math.sqrt(kernel.gamma) * a for a in x), math.sqrt(kernel.coef0)]
    v = np.zeros(features.width)
    for entries in itertools.product(range(len(extended)), repeat=kernel.degree):
        bucket = sum(int(features.buckets[i, j]) for i, j in enumerate(entries)) % features.width
        v[bucket] += math.prod(features.signs[i, j] * extended[j] for i, j in enumerate(entries))
    return v


@pytest.mark.parametrize(("size", "degree", "dtype"), [(8, 3, "f8"), (7, 2, "f8"), (1, 2, "f8"), (16, 2, "f4")])
def test_a_tensor_sketch_is_a_count_sketch_of_the_tensor_power(size, degree, dtype):
    features, X = sketch(3, Polynomial(0.7, degree, 0.4), size, dtype=dtype), fits.rows(0)
    V, diagonal = all_features(features, X.astype(dtype), tile=4)
    assert (features.size, features.columns) == (size, 3)
    assert V.dtype == features.dtype == features.signs.dtype == dtype
    assert_allclose(V, [naive_sketch(x, features) for x in X], atol=1e-12 if dtype == "f8" else 1e-4)
    assert_allclose(diagonal, features.kernel.diagonal(X), rtol=1e-5)
    wide = sketch(0, Polynomial(0.7), size=4, d=50)
    assert set(np.unique(wide.signs)) == {-1, 1}
    assert set(np.unique(wide.buckets)) == {0, 1, 2, 3}


# On devices.


@every_device
@every_dtype
@every_map
@pytest.mark.parametrize("scaled", [False, True])
def test_features_are_those_of_numpy(name, scaled, dtype, device):
    features = maps(dtype, scale=SCALE if scaled else None)[name]
    there, X = features.placed(place(device)), OFFSET + rows(90) * (UNITS if scaled else 1)
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
            # 0.25 is exact in every precision, so not even rounding differs.
            found, expected = (all_features(features, values.astype(each))[0] for each in (stored, dtype))
            assert_array_equal(found, expected)


@every_device
def test_rows_are_shifted_before_they_are_rounded(device):
    expected = np.arange(-4.0, 4).reshape(2, 4)
    for large, stored in ((1e6, np.float32), (2.0**40, np.int64), (2.0**50, np.float64), (200.0, np.uint8)):
        for scale in (None, np.full(D, 2.0)):
            here = Columns(Linear(), np.full(D, large), np.dtype("float32"), scale=scale)
            for features in (here, here.placed(place(device))):
                found = all_features(features, (large + expected).astype(stored))[0]
                assert_array_equal(found, expected if scale is None else expected / 2)


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


@every_device
@every_dtype
@pytest.mark.parametrize(("far", "length"), [(0, 1), (3, 1e4), (3, 1e22)])  # of the last, no square fits float32
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_of_tall_tiles(weighted, far, length, dtype, device):
    """Each entry to the precision of what near rows add to it: far rows, in three of seven columns, do not round them
    away. More rows than are added up at once, with weights 0, 1 and 4, whose roots are exact."""
    rng = np.random.default_rng(0)
    V, some = 5 + rng.normal(size=(5000, 7)), rng.choice(5000, far, replace=False)
    V[some, :3], V[some, 3:] = np.rint(length * V[some, :3]), 5
    V, diagonal, u = V.astype(dtype), rng.uniform(1, 2, len(V)), np.ones(len(V))
    if weighted:
        u = rng.integers(0, 3, len(V)) ** 2.0
    A = V.astype(np.float64) - 5
    scatter, total = (A * u[:, None]).T @ A, u @ A
    squares = u @ np.where(np.abs(A) < 100, A, 0) ** 2
    precise, parts = {"float32": 1e-5, "float64": 1e-12}[dtype], (slice(0, 4000), slice(4000, None))
    for where in (np.copy, place(device)):
        tiles, weights = [(where(V[part]), diagonal[part]) for part in parts], [u[part] for part in parts]
        with np.errstate(over="ignore"):
            sums = shifted_sums(tiles, np.full(7, 5.0), Rounding.unknown(7), weights if weighted else None)
        assert sums.count == (u > 0).sum()
        assert_allclose([sums.weight, sums.trace], [u.sum(), u @ diagonal], rtol=1e-12)
        size = precise * np.sqrt(squares) + 1e-14 * np.sqrt(np.diag(scatter))
        assert (np.abs(sums.total - total) <= size * np.sqrt(u.sum())).all()
        rest = 1e-14 * np.sqrt(np.outer(np.diag(scatter), np.diag(scatter)))
        found = square_of(sums.products, 7)
        assert (np.abs(found - scatter) <= precise * np.sqrt(np.outer(squares, squares)) + rest).all()
        assert {type(each) for each in (sums.about, sums.total, sums.products)} == {np.ndarray}
