"""Feature maps: rows to kernel rows, tile by tile, with the offset taken away in the precision of the data."""

import itertools
import json
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.errors import SpecError
from bigkpca.numerics.features import (
    FourierRows,
    KernelRows,
    PrincipalFourierRows,
    from_parts,
    piece_rows,
    tensor_sketch,
)
from bigkpca.numerics.kernels import Gaussian, Laplacian, Matern, Polynomial
from bigkpca.numerics.methods import RandomFeatures
from tests.numerics.fits import rows


def kernel_rows(kernel, landmarks, offset=None, dtype=np.float64):
    """The map of landmarks that are given in the units of the data."""
    offset = np.zeros(landmarks.shape[1]) if offset is None else offset
    return KernelRows(kernel, offset, (landmarks - offset).astype(dtype))


def all_features(features, X, tile=64):
    """(V, Σ k(x, x)) of all rows, by tiles that are overwritten before the next one."""
    parts, trace = [], 0.0
    for V, diagonal in features.tiles((X[a : a + tile] for a in range(0, len(X), tile)), tile):
        parts.append(V.copy())
        trace += float(diagonal.sum())
        V[:] = np.nan
    return np.concatenate(parts), trace


def test_a_tall_tile_is_evaluated_in_pieces():
    X = np.random.default_rng(0).normal(size=(2100, 300))
    offset, kernel = X.mean(axis=0), Polynomial(degree=2, gamma=0.01)
    assert piece_rows(300, 8) < len(X)
    assert [piece_rows(d, 4) for d in (1, 256, 257, 784, 10**6)] == [2**19, 2048, 1024, 1024, 1024]
    ((V, diagonal),) = kernel_rows(kernel, X[:3], offset).tiles([X], len(X))
    assert_allclose(V, (1 + 0.01 * (X - offset) @ (X[:3] - offset).T) ** 2, rtol=1e-12)
    assert_allclose(diagonal, (1 + 0.01 * ((X - offset) ** 2).sum(axis=1)) ** 2, rtol=1e-12)


def fourier(kernel, d=3, m=5, phase=False, dtype=np.float64, offset=None, scale=None):
    rng = np.random.default_rng(9)
    W, b = rng.normal(size=(m, d)).astype(dtype), rng.uniform(0, 2 * np.pi, m).astype(dtype)
    return FourierRows(kernel, np.zeros(d) if offset is None else offset, W, b if phase else None, scale=scale)


def principal(seed=0, d=4, kept=2, m=5, phase=False, factor=None, sigma=1.5):
    rng = np.random.default_rng(seed)
    axes, b = np.linalg.qr(rng.normal(size=(d, d)))[0][:, :kept], rng.uniform(0, 2 * np.pi, m)
    W = rng.normal(size=(m, kept)) / sigma
    return PrincipalFourierRows(Gaussian(sigma), rng.normal(size=d), W, axes, b if phase else None, factor)


def sketch(seed, kernel, size=16, d=3, dtype=np.float64, offset=None, scale=None):
    offset = np.zeros(d) if offset is None else offset
    return tensor_sketch(kernel, size, offset, scale, np.random.default_rng(seed), np.dtype(dtype))


def naive_fourier(x, W, phases, at_zero):
    m = len(W)
    angles = [sum(a * b for a, b in zip(w, x, strict=True)) for w in W]
    if phases is None:
        return math.sqrt(at_zero / m) * np.array([*map(math.cos, angles), *map(math.sin, angles)])
    return math.sqrt(2 * at_zero / m) * np.array([math.cos(a + b) for a, b in zip(angles, phases, strict=True)])


EVERY_MAP = {
    "kernel rows": kernel_rows(Gaussian(1.5), rows(0, n=4)),
    "pairs": fourier(Gaussian(1.5)),
    "phases": fourier(Matern(1.5), phase=True),
    "principal": principal(d=3),
    "principal with one factor and phases": principal(d=3, factor=0.8, phase=True),
    "scaled sketch": sketch(0, Polynomial(0.5), scale=np.array([1.0, 2.0, 4.0]), offset=np.ones(3)),
}
every_map = pytest.mark.parametrize("features", EVERY_MAP.values(), ids=EVERY_MAP.keys())


@pytest.mark.parametrize(
    ("phase", "kernel", "dtype", "atol"),
    [
        (False, Gaussian(1.5), np.float64, 1e-13),
        (True, 3.0 * Laplacian(2.0), np.float64, 1e-13),
        (False, 3.0 * Laplacian(2.0), np.float32, 1e-5),
    ],
)
def test_fourier_features_are_cosines_and_sines_of_frequencies(phase, kernel, dtype, atol):
    X = rows(0).astype(dtype)
    features = fourier(kernel, phase=phase, dtype=dtype)
    V, trace = all_features(features, X, tile=4)
    at_zero = kernel.diagonal(X)[0]
    expected = [naive_fourier(x, features.frequencies, features.phases, at_zero) for x in X.astype(float)]
    assert (features.size, features.columns, features.dtype) == (5 if phase else 10, 3, np.dtype(dtype))
    assert V.dtype == dtype
    assert_allclose(V, expected, atol=atol)
    assert_allclose(trace, 40 * at_zero)


@pytest.mark.parametrize(
    ("phase", "factor", "kept"), [(False, None, 2), (True, None, 1), (False, 0.8, 1), (True, 0.8, 4)]
)
def test_principal_features_are_those_of_the_projection_times_a_factor_of_the_residual(phase, factor, kept):
    features = principal(kept=kept, phase=phase, factor=factor)
    X = rows(1, d=4)
    V, trace = all_features(features, X, tile=4)
    expected = []
    for x in X - features.offset:
        p = [sum(a * b for a, b in zip(axis, x, strict=True)) for axis in features.axes.T]
        rho2 = sum(a * a for a in x) - sum(a * a for a in p)
        a = math.exp(-rho2 / (2 * 1.5**2)) if factor is None else factor
        expected.append(a * naive_fourier(p, features.frequencies, features.phases, 1))
    assert features.size == (5 if phase else 10)
    assert_allclose(V, expected, atol=1e-12)
    assert_allclose(trace, 40)


def test_the_unexplained_part_is_what_the_diagonal_lacks():
    X = rows(2, n=50, d=4)
    features = principal()
    V, _ = all_features(features, X)
    lacking = 1 - (V**2).sum(axis=1)
    assert (lacking > 0).all()
    assert_allclose(features.unexplained(float((V**2).sum()), 50), lacking.mean())
    alpha = 1.3
    corrected = principal(factor=alpha**-0.5)
    assert_allclose(corrected.unexplained(12345.0, 50), 1 - 1 / alpha)
    assert_allclose((all_features(corrected, X)[0] ** 2).sum(axis=1), 1 / alpha)
    assert principal(factor=1.0).unexplained(50.0, 50) == 0


@every_map
def test_scale_divides_rows_once_the_offset_is_gone(features):
    X = rows(5) * 3
    scale = np.array([0.5, 3.0, 1e6])
    V, trace = all_features(type(features)(**{**vars(features), "scale": scale}), X * scale + features.offset)
    plain, plain_trace = all_features(type(features)(**{**vars(features), "scale": None, "offset": np.zeros(3)}), X)
    assert_allclose(V, plain, atol=1e-9 * np.abs(plain).max())
    assert_allclose(trace, plain_trace)


@every_map
def test_tiles_of_any_height_give_the_same_features_and_leave_rows_alone(features):
    X = rows(5, n=20)
    X.flags.writeable = False
    whole, trace = all_features(features, X, tile=20)
    assert whole.shape == (20, features.size)
    for tile in (1, 7):
        V, other = all_features(features, X, tile=tile)
        assert_allclose(V, whole, atol=1e-12)
        assert_allclose(other, trace)


@every_map
def test_a_map_goes_through_numbers_and_arrays_and_back(features):
    parameters = json.loads(json.dumps(features.parameters()))
    arrays = {name: array.copy() for name, array in features.arrays().items()}
    assert parameters["name"] == features.name
    back = from_parts(parameters, features.kernel, {**arrays, "components": np.zeros(3)})
    assert type(back) is type(features)
    assert back.parameters() == parameters
    assert back.arrays().keys() == arrays.keys()
    X = rows(5)
    assert_array_equal(all_features(back, X)[0], all_features(features, X)[0])


def naive_sketch(x, features):
    """Σ over all tuples of entries of x^: their product, with its sign, into the bucket that is the sum of theirs."""
    kernel, D = features.kernel, features.width
    extended = [*(math.sqrt(kernel.gamma) * a for a in x), math.sqrt(kernel.coef0)]
    v = np.zeros(D)
    for entries in itertools.product(range(len(extended)), repeat=kernel.degree):
        bucket = sum(int(features.buckets[i, j]) for i, j in enumerate(entries)) % D
        v[bucket] += math.prod(features.signs[i, j] * extended[j] for i, j in enumerate(entries))
    return v


@pytest.mark.parametrize(("size", "degree", "dtype"), [(8, 3, "f8"), (7, 2, "f8"), (1, 2, "f8"), (16, 2, "f4")])
def test_a_tensor_sketch_is_a_count_sketch_of_the_tensor_power(size, degree, dtype):
    features = sketch(3, Polynomial(0.7, degree, 0.4), size, dtype=dtype)
    V, trace = all_features(features, rows(0).astype(dtype), tile=4)
    assert (features.size, features.columns) == (size, 3)
    assert V.dtype == features.dtype == features.signs.dtype == dtype
    assert_allclose(V, [naive_sketch(x, features) for x in rows(0)], atol=1e-12 if dtype == "f8" else 1e-4)
    assert_allclose(trace, Polynomial(0.7, degree, 0.4).diagonal(rows(0)).sum(), rtol=1e-5)
    wide = sketch(0, Polynomial(0.7), size=4, d=50)
    assert set(np.unique(wide.signs)) == {-1, 1}
    assert set(np.unique(wide.buckets)) == {0, 1, 2, 3}


def test_kernels_without_a_tensor_sketch_are_refused():
    with pytest.raises(SpecError, match="a tensor sketch needs a polynomial kernel of degree 2 or more"):
        RandomFeatures().check(Polynomial(1.0, 1), 16)


@pytest.mark.parametrize(
    ("kernel", "size"), [(Polynomial(0.7, 2, 0.4), 33), (Polynomial(0.5, 3, 0.0), 16), (Polynomial(0.3, 4), 16)]
)
def test_tensor_sketches_are_unbiased_and_their_variance_is_bounded(kernel, size):
    X = rows(0, n=3)
    products = np.array([(V @ V.T) for V in (all_features(sketch(s, kernel, size), X)[0] for s in range(300))])
    exact = kernel(X, X)
    errors = products.std(axis=0, ddof=1) / 300**0.5
    assert (np.abs(products.mean(axis=0) - exact) < 5 * errors + 1e-12).all()
    norms = kernel.diagonal(X)  # |x^|^(2p)
    bound = (3**kernel.degree - 1) / size * np.outer(norms, norms)
    assert (products.var(axis=0) < bound * 1.2).all()
