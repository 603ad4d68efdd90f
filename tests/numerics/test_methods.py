"""Methods as values: names, options, which kernels and sizes they take, and the solver behind each."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.errors import SpecError
from bigkpca.numerics import gram_solver, methods, solvers
from bigkpca.numerics.features import FourierRows, KernelRows, PrincipalFourierRows
from bigkpca.numerics.kernels import Gaussian, Laplacian, Linear, Matern, Polynomial, Sigmoid
from bigkpca.numerics.methods import ColumnSampling, Exact, Nystroem, PrincipalFeatures, RandomFeatures
from bigkpca.numerics.moments import block_moments
from bigkpca.numerics.span import span_of
from tests.helpers import oracles

KERNEL = Gaussian(1.0)
EVERY = [
    Nystroem(),
    Nystroem("thesis"),
    Nystroem("thesis", 7),
    ColumnSampling(),
    RandomFeatures(),
    RandomFeatures("phase"),
    PrincipalFeatures(),
    PrincipalFeatures("alpha", "qmc"),
    Exact(),
]
by_landmarks = [Nystroem(), Nystroem("thesis", 3), ColumnSampling(), Exact()]


def rows(seed=0, n=40, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def kernel_rows(size=8, kernel=KERNEL):
    return KernelRows(kernel, np.zeros(3), rows()[:size])


def moments_and_features(features, X):
    ((V, diagonal),) = features.tiles([X], len(X))
    V = V.copy()
    return block_moments([(V.copy(), diagonal)], V.mean(axis=0)), V


def fourier(phase=False):
    W, b = rows(1, n=6), np.random.default_rng(2).uniform(0, 6, 6)
    return FourierRows(KERNEL, np.zeros(3), W, b if phase else None)


def principal(factor=None):
    axes = np.linalg.qr(rows(4, n=3))[0][:, :2]
    return PrincipalFourierRows(KERNEL, np.zeros(3), rows(1, n=6, d=2), axes, None, factor)


def test_a_method_goes_through_json_and_back():
    for method in EVERY:
        assert methods.from_dict(json.loads(json.dumps(methods.to_dict(method)))) == method
        assert methods.METHODS[method.name] is type(method)
        assert method.landmarks == isinstance(method, Nystroem | ColumnSampling | Exact)


def test_a_name_stands_for_the_default_of_its_method_and_an_unknown_one_comes_with_the_nearest():
    names = {"nystroem": Nystroem(), "Nystrom": Nystroem(), "nyström": Nystroem(), "columns": ColumnSampling()}
    for name, method in {**names, "RFF": RandomFeatures(), "rff-pca": PrincipalFeatures(), "exact": Exact()}.items():
        assert methods.named(name) == method
    for name, nearest in {"nystroemm": "nystroem", "exat": "exact", "column": "columns"}.items():
        with pytest.raises(SpecError, match=f"unknown method '{name}': did you mean '{nearest}'"):
            methods.named(name)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (Nystroem, {"form": "thesi"}, "unknown form of Nystroem 'thesi': did you mean 'thesis'"),
        (Nystroem, {"form": "thesis", "rank": 0}, "rank is a positive number, for form='thesis' alone"),
        (Nystroem, {"rank": 5}, "rank is a positive number, for form='thesis' alone; components cut the other"),
        (RandomFeatures, {"form": "phases"}, "unknown form of RandomFeatures 'phases': did you mean 'phase'"),
        (PrincipalFeatures, {"correction": "alfa"}, "unknown correction of PrincipalFeatures 'alfa': did you mean"),
        (PrincipalFeatures, {"form": "sobol"}, "unknown form of PrincipalFeatures 'sobol'"),
    ],
)
def test_options_that_do_not_exist_are_named(method, options, message):
    with pytest.raises(SpecError, match=message):
        method(**options)


@pytest.mark.parametrize(
    ("method", "kernel", "size", "message"),
    [
        (RandomFeatures(), Linear(), 10, "the linear kernel has no spectral density .* method='nystroem'"),
        (RandomFeatures(), Sigmoid(1.0), None, "the sigmoid kernel has no spectral density"),
        (RandomFeatures(), KERNEL + KERNEL, 10, "the sum kernel has no spectral density"),
        (RandomFeatures(), KERNEL, 11, "size=11: sines and cosines come in pairs"),
        (RandomFeatures("iid"), Polynomial(1.0), 10, "a polynomial kernel has a tensor sketch, which has no form"),
        (RandomFeatures(), Polynomial(1.0, 1), 10, "a tensor sketch is for polynomial kernels of degree 2 or more"),
        (PrincipalFeatures(), Laplacian(1.0), 10, "method='rff-pca' needs the gaussian kernel, not 'laplacian'"),
        (PrincipalFeatures(), KERNEL, 11, "size=11: sines and cosines come in pairs"),
    ],
    ids=str,
)
def test_kernels_and_sizes_that_will_not_do_are_named(method, kernel, size, message):
    with pytest.raises(SpecError, match=message):
        method.check(kernel, size)


def test_kernels_and_sizes_that_will_do_pass():
    RandomFeatures().check(Matern(1.0) * Laplacian(2.0), 10)
    RandomFeatures().check(3 * KERNEL, None)
    RandomFeatures("phase").check(KERNEL, 11)
    RandomFeatures().check(Polynomial(1.0, 2), 11)
    PrincipalFeatures().check(KERNEL, 10)
    PrincipalFeatures(form="phase").check(KERNEL, 11)
    for method in by_landmarks:
        method.check(Sigmoid(1.0), 11)


def test_phases_come_with_independent_frequencies():
    couplings = {"orthogonal": "orthogonal", "iid": "iid", "qmc": "qmc", "phase": "iid"}
    for form, coupling in couplings.items():
        assert RandomFeatures(form=form).coupling == PrincipalFeatures(form=form).coupling == coupling


def assert_same_solution(got, expected):
    assert_array_equal(got.mean, expected.mean)
    assert_array_equal(got.components, expected.components)
    assert_array_equal(got.eigenvalues, expected.eigenvalues)
    assert got.total_variance == expected.total_variance


@pytest.mark.parametrize("center", [True, False])
def test_each_method_has_its_solver(center):
    X, features = rows(), kernel_rows()
    moments, _ = moments_and_features(features, X)
    W, keys = features.gram(), {"center": center, "tolerance": 1e-12}
    for method, expected in (
        (Nystroem(), solvers.nystroem(span_of(W, moments, 1e-12), 2, **keys)),
        (Nystroem("thesis"), solvers.nystroem_thesis(span_of(W, moments, 1e-12), 2, rank=None, **keys)),
        (Nystroem("thesis", 1), solvers.nystroem_thesis(span_of(W, moments, 1e-12), 2, rank=1, **keys)),
        (ColumnSampling(), solvers.column_sampling(span_of(W, moments, 1e-12), 2, **keys)),
    ):
        assert_same_solution(method.solve(moments, features, 2, center, 1e-12), expected)
    moments, _ = moments_and_features(fourier(), X)
    expected = solvers.plain(moments, 2, **keys)
    assert_same_solution(RandomFeatures().solve(moments, fourier(), 2, center, 1e-12), expected)
    everything = KernelRows(KERNEL, np.zeros(3), X)
    expected = gram_solver.gram(everything.gram(), 2, positive=True, **keys)
    assert_same_solution(Exact().solve(None, everything, 2, center, 1e-12), expected)


@pytest.mark.parametrize(("center", "factor"), [(True, None), (False, 0.9)])
def test_principal_features_add_what_their_diagonal_lacks(center, factor):
    moments, V = moments_and_features(principal(factor), rows())
    lacking = 1 - (V**2).sum() / 40
    assert lacking > 0.1
    centred = V - V.mean(axis=0) if center else V
    found = PrincipalFeatures().solve(moments, principal(factor), 2, center, 1e-12)
    assert_allclose(found.eigenvalues, np.linalg.eigvalsh(centred.T @ centred)[::-1][:2] + lacking, rtol=1e-10)


def test_the_exact_method_reports_negative_eigenvalues_of_kernels_of_unknown_sign():
    everything = KernelRows(Sigmoid(0.5, -0.5), np.zeros(3), rows())
    assert Exact().solve(None, everything, 2, True, 1e-12).negative < -0.01


def test_factors_multiply_to_the_approximation_and_leave_out_what_repeats():
    X = rows()
    for S, rank in ((X[:8], 8), (np.repeat(X[:4], 3, axis=0), 4)):
        features = KernelRows(KERNEL, np.zeros(3), S)
        moments, C = moments_and_features(features, X)
        nystroem, columns = oracles.nystroem_gram(C, features.gram(), 1e-12), oracles.columns_gram(C)
        for method, expected in ((Nystroem(), nystroem), (Nystroem("thesis"), nystroem), (ColumnSampling(), columns)):
            P = method.factor(moments, features, 1e-12)
            assert P.shape == (len(S), rank)
            assert_allclose(C @ P @ P.T @ C.T, expected, atol=1e-7)
    everything = KernelRows(KERNEL, np.zeros(3), X)
    Z = KERNEL(X, X) @ Exact().factor(None, everything, 1e-12)
    assert_allclose(Z @ Z.T, KERNEL(X, X), atol=1e-7)
    assert RandomFeatures().factor(moments, fourier(), 1e-12) is None
    assert PrincipalFeatures().factor(moments, principal(), 1e-12) is None


def test_the_factor_of_the_thesis_is_cut_to_its_rank_before_it_is_extended():
    X, features = rows(), kernel_rows()
    moments, C = moments_and_features(features, X)
    values, Q = np.linalg.eigh(features.gram())
    for rank in (1, 3, 8, 20):
        kept = slice(None, -rank - 1, -1)
        Z = C @ Nystroem("thesis", rank).factor(moments, features, 1e-12)
        assert_allclose(Z @ Z.T, C @ (Q[:, kept] / values[kept]) @ Q[:, kept].T @ C.T, atol=1e-9)
