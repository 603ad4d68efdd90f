"""Aligned arrays; symmetric eigenproblems, whole and by ARPACK, however eigenvalues are spaced; products by tiles."""

from unittest import mock

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse.linalg
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca import KernelPCA, kernels
from bigkpca.errors import DataError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.numerics import linalg, solvers
from bigkpca.numerics.linalg import (
    aligned,
    all_aligned,
    congruence,
    eigh_descending,
    numerical_rank,
    rank_tolerance,
    signs,
)
from tests.helpers import oracles
from tests.helpers.askew import ASKEW, Held, Pair, in_order, misaligned
from tests.helpers.oracles import matrix_with
from tests.numerics.fits import seeds

SPECTRUM = np.array([5.0, 3.0, 3.0, 1.0, 1e-3, 0.0, -0.5])
N, R = 300, 12
MANY = 2100  # rows, of which few eigenpairs come from ARPACK


@pytest.fixture(autouse=True)
def one_thread_of_blas():
    with single_threaded_blas:
        yield


@pytest.mark.parametrize("how", [how for how in ASKEW if how != "read-only"])
def test_an_askew_array_is_copied_and_equal(how):
    X = np.random.default_rng(0).normal(size=(7, 5))
    found = aligned(ASKEW[how](X))
    assert in_order(found)
    assert_array_equal(found, X)


def test_arrays_that_need_no_copy_stay_themselves():
    for shape in ((), (0,), (3,), (0, 4), (2, 3, 4)):
        X = np.empty(shape)
        assert aligned(X) is X
        value = Held(X, {"a": [X, (X,)], "b": "text", "c": None})
        assert all_aligned(value) is value


def test_arrays_are_found_at_any_depth_and_the_rest_is_left_alone():
    X = np.arange(12.0).reshape(3, 4)
    bad, marker = misaligned(X), object()
    value = Held(bad, [Pair(bad, {"k": (bad, marker)}), marker, "text", 3]).cached(bad)
    found = all_aligned(value)
    assert isinstance(found.others[0], Pair)
    inner = found.others[0].second["k"]
    for each in (found.X, found.others[0].first, inner[0], vars(found)["_cached"]):
        assert in_order(each)
        assert_array_equal(each, X)
    assert inner[1] is found.others[1] is marker
    assert value.X is bad  # the one that was given is as it was


@given(seed=seeds, scale=st.sampled_from([1e-12, 1.0, 1e12]))
def test_leading_eigenpairs_descend(seed, scale):
    A = np.asfortranarray(matrix_with(SPECTRUM * scale, seed))  # LAPACK works on a copy of others in any case
    before = A.copy()
    for count in (1, 3, 6, 7, 20, None):
        kept = min(count or 7, 7)
        values, vectors = eigh_descending(A if count else A.copy(), count)
        assert_allclose(values, SPECTRUM[:kept] * scale, atol=1e-13 * scale)
        assert_allclose(before @ vectors, vectors * values, atol=1e-13 * scale)
        assert_allclose(vectors.T @ vectors, np.eye(kept), atol=1e-13)
    assert_array_equal(A, before)


def test_no_eigenvalue_is_lost_where_all_are_nearly_equal(digits):
    X = digits[:200].astype(float)
    K = oracles.centred(np.exp(-2 * ((X[:, None] - X[None]) ** 2).sum(axis=2)))
    for A in (K, np.eye(200), np.eye(200) - 1 / 200):
        values, vectors = eigh_descending(A.copy(), 5)
        assert_allclose(values, 1, atol=1e-12)
        assert_allclose(vectors.T @ vectors, np.eye(5), atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 70])
def test_an_eigenvalue_below_noise_is_found(n):
    spectrum = np.linspace(1e-3, 1, n)
    spectrum[n // 2] = -0.5
    A = matrix_with(spectrum)
    assert_allclose(linalg.values_if_negative(A, 0.49), np.linalg.eigvalsh(A)[::-1], atol=1e-12)
    assert linalg.values_if_negative(A, 0.51) is None


def test_the_rank_is_relative_to_the_largest_eigenvalue():
    for scale in (1e-12, 1.0, 1e12):
        values = np.array([4.0, 2.0, 1e-6, 1e-9, 0.0, -1e-9]) * scale
        assert [numerical_rank(values, tolerance) for tolerance in (1e-12, 1e-7, 0.4)] == [4, 3, 2]
    assert numerical_rank(np.array([1.0, 0.5]), 0.5) == 1  # an eigenvalue at the tolerance is dropped
    for values in ([], [0.0, 0.0], [-1.0, -2.0]):
        assert numerical_rank(np.array(values), 1e-12) == 0
    assert [rank_tolerance(np.dtype(dtype)) for dtype in ("f2", "f4", "f8")] == [1e-7, 1e-7, 1e-12]


def test_the_entry_of_largest_absolute_value_decides_the_sign():
    scores = np.array([[1.0, -1.0, 2.0, 0.0], [-3.0, 0.5, -2.0, 0.0], [2.0, -0.2, 1.0, 0.0]])
    # Columns: largest is -3; largest is -1; 2 and -2 tie and the first decides; all zero.
    assert_array_equal(signs(scores), [-1, -1, 1, 1])
    assert_array_equal(signs(np.empty((0, 3))), [1, 1, 1])


@pytest.mark.parametrize("n", [1, 255, 257, 600])
def test_products_with_a_triangle_are_those_of_the_formula(n):
    """From several tiles on; exactly symmetric, and with the same bits for any number of threads."""
    S, T = matrix_with(np.linspace(-1, 2, n), 5), np.triu(np.random.default_rng(0).normal(size=(n, n)))
    found = congruence(S, T)
    assert_array_equal(found, found.T)
    assert_allclose(found, T.T @ S @ T, atol=1e-12 * n * np.abs(T).max() ** 2)
    with mock.patch.object(linalg, "_PROCESSORS", 1):
        assert_array_equal(congruence(S, T), found)


def several(*values):
    return np.concatenate([values, np.linspace(0.9, 0, N - len(values))])


SPECTRA = {
    "slow": 1 / np.arange(1, N + 1),
    "one far ahead": several(1e9),
    "all equal": np.ones(N),
    "all but equal": 1 + 1e-13 * np.arange(N),
    "pairs": np.repeat(1 / np.arange(1, N // 2 + 1), 2),
    "ten equal, then three": several(*[5.0] * 10, *[4.0] * 3),
    "low rank": np.pad([3.0, 2.0, 2.0, 1.0], (0, N - 4)),
    "nothing": np.zeros(N),
    "negative ones, larger": np.concatenate([np.linspace(3, 0, 100), np.linspace(-1, -9, 200)]),
    "all negative": -1 / np.arange(1, N + 1),
    "equal at the cut": several(*np.linspace(3, 2, R - 2), *[1.5] * 5),
}


# LAPACK may be asked about the others, where eigenvalues are too close.
ITERATED = ("slow", "one far ahead", "low rank", "negative ones, larger")
CASES = [*((case, 1.0) for case in SPECTRA), *(("slow", 10.0**power) for power in (-290, -30, 30, 290))]


@pytest.fixture
def small_ones_too(monkeypatch):
    """ARPACK also takes matrices that are small enough for a test, for which LAPACK is faster."""
    for name, value in (("_LEAST_ROWS", 2), ("_FEW", 1), ("_MOST", 4)):
        monkeypatch.setattr(linalg, name, value)


@pytest.mark.parametrize(("case", "scale"), CASES)
def test_eigenpairs_are_the_leading_ones_with_multiplicity(case, scale, small_ones_too):
    A = scale * matrix_with(SPECTRA[case])
    true, before = scale * np.sort(SPECTRA[case])[::-1][:R], A.copy()
    with mock.patch.object(linalg, "eigh_descending", side_effect=linalg.eigh_descending) as lapack:
        values, vectors = linalg.leading_pairs(A, R)
    assert_array_equal(A, before)
    assert lapack.called is (not 1e-100 < scale < 1e100) or case not in ITERATED
    size = np.abs(SPECTRA[case]).max() * scale
    assert_allclose(values, true, rtol=1e-12, atol=2e-14 * size)
    assert_allclose(vectors.T @ vectors, np.eye(R), atol=1e-12)
    left = np.linalg.norm((A / scale) @ vectors - vectors * (values / scale), axis=0) * scale
    assert (left <= np.maximum(1e-12 * values, 1e-13 * size)).all()
    assert_allclose(linalg.norm_of_symmetric(A), size, rtol=1e-3)


def test_a_direction_in_which_the_start_has_no_share_is_not_missed(small_ones_too):
    start = np.random.default_rng(0).standard_normal(N)[:, None]
    others = np.random.default_rng(1).normal(size=(N, 2))
    hidden = scipy.linalg.qr(np.hstack([start, others]), mode="economic")[0][:, 1:]
    # Two eigenvectors are these, and all others have nothing of them.
    rest = scipy.linalg.null_space(hidden.T)
    A = (hidden * [0.6, 0.3]) @ hidden.T + rest @ matrix_with(0.5 ** np.arange(N - 2)) @ rest.T
    assert_allclose(linalg.leading_pairs((A + A.T) / 2, 3)[0], [1, 0.6, 0.5], rtol=1e-12)


@pytest.mark.parametrize("missed", [1, 4, 8])
def test_eigenvectors_that_are_missed_are_found_by_the_second_search(missed):
    values, vectors = np.linalg.eigh(matrix_with(SPECTRA["slow"]))
    found = np.delete(np.arange(N)[::-1][:10], missed)
    with mock.patch.object(linalg, "_LEAST_ROWS", 2):
        A, start = (vectors * values) @ vectors.T, np.random.default_rng(3).standard_normal(N)
        assert not linalg._are_leading((A + A.T) / 2, values[found], vectors[:, found], start)


def some_rows(n=MANY, d=16):
    return np.random.default_rng(0).normal(size=(n, d)) * np.linspace(3, 0.3, d)


def exact(X, **options):
    return KernelPCA(**{"n_components": 10, "sigma": 4.0, "method": "exact", "random_state": 0} | options).fit(X)


@pytest.mark.parametrize(("given", "center"), [("rows", True), pytest.param("matrix", False, marks=pytest.mark.full)])
def test_few_components_of_a_held_matrix_are_iterated_and_right(given, center, monkeypatch):
    eigh = scipy.linalg.eigh

    def of_small_ones(A, **options):
        assert len(A) <= MANY // 2  # half of the rows make the reference of a model of the others
        return eigh(A, **options)

    monkeypatch.setattr(scipy.linalg, "eigh", of_small_ones)
    X = some_rows()
    K = kernels.Gaussian(4.0).gram(X)
    options = {"center": center} | ({"kernel": "precomputed", "sigma": "median"} if given == "matrix" else {})
    ours, data = exact(K if given == "matrix" else X, **options), K if given == "matrix" else X
    Kc = oracles.centred(K) if center else K
    true = np.sort(scipy.sparse.linalg.eigsh(Kc, 10, v0=X[:, 0], return_eigenvectors=False))[::-1]
    assert_allclose(ours.eigenvalues_, true, rtol=1e-12)
    certificate = ours.certificate_
    assert (certificate.lower <= true).all()
    assert (true <= certificate.upper).all()
    assert_allclose(certificate.upper, true, rtol=1e-10)
    assert certificate.trust == ("solid",) * 10
    scores = np.asarray(ours.transform(data))
    assert_allclose(Kc @ scores, scores * ours.eigenvalues_, atol=1e-11 * true[0] ** 1.5)
    assert_allclose(scores.T @ scores, np.diag(true), atol=1e-10 * true[0])
    assert_allclose(ours.model_.solution.total_variance, np.trace(Kc), rtol=1e-12)
    assert ours.model_.solution.negative == 0  # of a matrix whose sign nothing tells, too


@pytest.mark.parametrize("scale", [1e-150, 1e250])
def test_huge_and_tiny_kernels_have_their_eigenvalues(scale):
    K = scale * kernels.Gaussian(4.0).gram(some_rows(600))
    expected = np.linalg.eigvalsh(oracles.centred(K / scale))[::-1][:2]
    found = solvers.gram(K, 2, center=True, tolerance=1e-12, positive=True)
    assert_allclose(found.eigenvalues / scale, expected, rtol=1e-10)


def test_kernels_that_overflow_are_said_to_do_so():
    for rows in (100, MANY):
        with pytest.raises(DataError, match="kernel values overflow"):
            exact(1e120 * some_rows(rows), kernel="polynomial", sigma="median")
