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


@pytest.mark.parametrize("method", EVERY, ids=str)
def test_a_method_goes_through_json_and_back(method):
    assert methods.from_dict(json.loads(json.dumps(methods.to_dict(method)))) == method
    assert methods.METHODS[method.name] is type(method)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("nystroem", Nystroem()),
        ("Nystrom", Nystroem()),
        ("nyström", Nystroem()),
        ("columns", ColumnSampling()),
        ("RFF", RandomFeatures()),
        ("rff-pca", PrincipalFeatures()),
        ("exact", Exact()),
    ],
)
def test_a_name_stands_for_the_default_of_its_method(name, method):
    assert methods.named(name) == method


@pytest.mark.parametrize(("name", "nearest"), [("nystroemm", "nystroem"), ("exat", "exact"), ("column", "columns")])
def test_an_unknown_name_comes_with_the_nearest(name, nearest):
    with pytest.raises(SpecError, match=f"unknown method '{name}': did you mean '{nearest}'"):
        methods.named(name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Nystroem("thesi"), "unknown form of Nystroem 'thesi': did you mean 'thesis'"),
        (lambda: Nystroem("thesis", 0), "rank is a positive number, for form='thesis' alone"),
        (lambda: Nystroem(rank=5), "rank is a positive number, for form='thesis' alone; components cut the other"),
        (lambda: RandomFeatures("phases"), "unknown form of RandomFeatures 'phases': did you mean 'phase'"),
        (lambda: RandomFeatures(None), "unknown form of RandomFeatures 'None'"),
        (lambda: PrincipalFeatures("alfa"), "unknown correction of PrincipalFeatures 'alfa': did you mean 'alpha'"),
        (lambda: PrincipalFeatures(form="sobol"), "unknown form of PrincipalFeatures 'sobol'"),
    ],
)
def test_options_that_do_not_exist_are_named(make, message):
    with pytest.raises(SpecError, match=message):
        make()


@pytest.mark.parametrize(
    ("method", "kernel", "size", "message"),
    [
        (RandomFeatures(), Linear(), 10, "the linear kernel has no spectral density .* method='nystroem'"),
        (RandomFeatures(), Sigmoid(1.0), None, "the sigmoid kernel has no spectral density"),
        (RandomFeatures(), KERNEL + KERNEL, 10, "the sum kernel has no spectral density"),
        (RandomFeatures(), KERNEL, 11, "size=11: sines and cosines come in pairs"),
        (RandomFeatures("iid"), KERNEL, 11, "size=11: sines and cosines come in pairs"),
        (RandomFeatures("qmc"), KERNEL, 11, "size=11: sines and cosines come in pairs"),
        (RandomFeatures("iid"), Polynomial(1.0), 10, "a polynomial kernel has a tensor sketch, which has no form"),
        (RandomFeatures("phase"), Polynomial(1.0), 10, "a polynomial kernel has a tensor sketch, which has no form"),
        (RandomFeatures(), Polynomial(1.0, 1), 10, "a tensor sketch is for polynomial kernels of degree 2 or more"),
        (PrincipalFeatures(), Laplacian(1.0), 10, "method='rff-pca' needs the gaussian kernel, not 'laplacian'"),
        (PrincipalFeatures(), 2 * KERNEL, 10, "method='rff-pca' needs the gaussian kernel, not 'scaled'"),
        (PrincipalFeatures(), KERNEL, 11, "size=11: sines and cosines come in pairs"),
    ],
    ids=str,
)
def test_kernels_and_sizes_that_will_not_do_are_named(method, kernel, size, message):
    with pytest.raises(SpecError, match=message):
        method.check(kernel, size)


@pytest.mark.parametrize(
    ("method", "kernel", "size"),
    [
        (RandomFeatures(), Matern(1.0) * Laplacian(2.0), 10),
        (RandomFeatures(), 3 * KERNEL, None),
        (RandomFeatures("phase"), KERNEL, 11),
        (RandomFeatures(), Polynomial(1.0, 2), 11),
        (PrincipalFeatures(), KERNEL, 10),
        (PrincipalFeatures(form="phase"), KERNEL, 11),
        *((method, Sigmoid(1.0), 11) for method in by_landmarks),
    ],
    ids=str,
)
def test_kernels_and_sizes_that_will_do_pass(method, kernel, size):
    method.check(kernel, size)


def test_landmarks_are_for_methods_of_kernel_rows():
    assert all(method.landmarks for method in by_landmarks)
    assert not RandomFeatures().landmarks
    assert not PrincipalFeatures().landmarks


@pytest.mark.parametrize("method", [RandomFeatures, PrincipalFeatures])
def test_phases_come_with_independent_frequencies(method):
    assert [method(form=form).coupling for form in ("orthogonal", "iid", "qmc", "phase")] == [
        "orthogonal",
        "iid",
        "qmc",
        "iid",
    ]


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


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("factor", [None, 0.9])
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


def test_factors_multiply_to_the_approximation():
    X, features = rows(), kernel_rows()
    moments, C = moments_and_features(features, X)
    W = features.gram()
    for method in (Nystroem(), Nystroem("thesis")):
        Z = C @ method.factor(moments, features, 1e-12)
        assert_allclose(Z @ Z.T, oracles.nystroem_gram(C, W, 1e-12), atol=1e-9)
    Z = C @ ColumnSampling().factor(moments, features, 1e-12)
    assert_allclose(Z @ Z.T, oracles.columns_gram(C), atol=1e-9)
    everything = KernelRows(KERNEL, np.zeros(3), X)
    Z = KERNEL(X, X) @ Exact().factor(None, everything, 1e-12)
    assert_allclose(Z @ Z.T, KERNEL(X, X), atol=1e-7)
    assert RandomFeatures().factor(moments, fourier(), 1e-12) is None
    assert PrincipalFeatures().factor(moments, principal(), 1e-12) is None


@pytest.mark.parametrize("rank", [1, 3, 8, 20])
def test_the_factor_of_the_thesis_is_cut_to_its_rank_before_it_is_extended(rank):
    X, features = rows(), kernel_rows()
    moments, C = moments_and_features(features, X)
    values, Q = np.linalg.eigh(features.gram())
    values, Q = values[::-1][:rank], Q[:, ::-1][:, :rank]
    Z = C @ Nystroem("thesis", rank).factor(moments, features, 1e-12)
    assert_allclose(Z @ Z.T, C @ (Q / values) @ Q.T @ C.T, atol=1e-9)
