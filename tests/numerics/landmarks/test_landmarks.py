"""Which rows stand for all: rules that choose landmarks from a sample."""

import json
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import KernelPCA as Peer

from bigkpca import KernelPCA
from bigkpca.errors import DataError, SpecError
from bigkpca.numerics import landmarks
from bigkpca.numerics.bandwidth import median_sigma, pair_distances
from bigkpca.numerics.kernels import Function, Gaussian, Linear, Polynomial, Sigmoid
from bigkpca.numerics.landmarks import (
    BasicPatterns,
    KMeans,
    Leverage,
    RowNumbers,
    Rows,
    RPCholesky,
    Uniform,
    basic_patterns,
    leverage,
)
from bigkpca.spec import FitSpec
from tests.helpers import oracles
from tests.helpers.oracles import inverse_quadratic

KERNEL = Gaussian(1.0)
every_rule = pytest.mark.parametrize(
    "rule", [KMeans(), Uniform(), RPCholesky(), Leverage(), BasicPatterns()], ids=lambda rule: rule.name
)
every_rule_of_rows = pytest.mark.parametrize(
    "rule", [Uniform(), RPCholesky(), Leverage(), BasicPatterns()], ids=lambda rule: rule.name
)
ten_seeds = pytest.mark.parametrize("seed", range(10))


def sorted_rows(X):
    return X[np.lexsort(X.T)]


def sum_of_squares(rows, centres):
    """Σ_i min_j |x_i - c_j|^2."""
    return ((rows[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2).min(axis=1).sum()


def clustered(seed, n=200):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) * 0.3 + rng.normal(size=(6, 3))[rng.integers(0, 6, n)] * 4


@every_rule
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_rule_gives_as_many_landmarks_as_asked_in_the_dtype_of_the_sample(rule, dtype):
    sample = clustered(0).astype(dtype)
    sample.flags.writeable = False
    chosen = rule.choose(sample, KERNEL, 17, np.random.default_rng(0))
    assert chosen.shape == (17, 3)
    assert chosen.dtype == dtype
    assert np.isfinite(chosen).all()


@every_rule
def test_the_seed_decides(rule):
    sample = clustered(0)
    one, again, other = (rule.choose(sample, KERNEL, 10, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert_array_equal(one, again)
    assert (one != other).any()


@every_rule
def test_as_many_landmarks_as_rows_are_the_rows(rule):
    sample = clustered(3, n=30)
    assert_array_equal(sorted_rows(rule.choose(sample, KERNEL, 30, np.random.default_rng(0))), sorted_rows(sample))


def test_uniform_landmarks_are_different_rows_in_their_order():
    sample = np.arange(50.0)[:, None]
    chosen = Uniform().choose(sample, KERNEL, 20, np.random.default_rng(0))[:, 0]
    assert (np.diff(chosen) > 0).all()
    assert set(chosen) <= set(range(50))


def test_every_row_is_equally_likely_to_be_a_uniform_landmark():
    sample = np.arange(10.0)[:, None]
    rng = np.random.default_rng(0)
    counts = sum(np.isin(np.arange(10), Uniform().choose(sample, KERNEL, 3, rng)) for _ in range(2000))
    assert_allclose(counts, 600, atol=6 * np.sqrt(2000 * 0.3 * 0.7))


@pytest.mark.parametrize("seed", range(5))
def test_iterations_of_kmeans_lower_the_sum_of_squares(seed):
    sample = clustered(seed)
    sums = [
        sum_of_squares(
            sample, KMeans(iterations, rows_per_landmark=20).choose(sample, KERNEL, 10, np.random.default_rng(7))
        )
        for iterations in range(5)  # without iterations they are the rows that it starts from
    ]
    assert (np.diff(sums) <= 1e-9 * sums[0]).all()
    assert sums[3] < 0.8 * sums[0]


def test_one_centre_is_the_mean():
    sample = clustered(0)
    assert_allclose(
        KMeans(1, rows_per_landmark=200).choose(sample, KERNEL, 1, np.random.default_rng(0))[0], sample.mean(axis=0)
    )


def test_more_rows_than_a_tile_are_all_assigned(monkeypatch):
    sample = clustered(0)
    whole = KMeans().choose(sample, KERNEL, 20, np.random.default_rng(0))
    monkeypatch.setattr("bigkpca.numerics.landmarks.kmeans._TILE_ROWS", 7)
    assert_allclose(KMeans().choose(sample, KERNEL, 20, np.random.default_rng(0)), whole, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_duplicate_rows_leave_centres_that_are_such_rows(dtype):
    distinct = np.array([[0.0, 1.0], [2.0, 3.0], [-4.0, 5.0]], dtype)
    sample = np.repeat(distinct, 20, axis=0)
    centres = KMeans().choose(sample, KERNEL, 12, np.random.default_rng(0))
    assert centres.shape == (12, 2)
    nearest = np.abs(centres[:, None] - distinct).sum(axis=2).min(axis=1)
    assert_allclose(nearest, 0, atol=1e-6)


def eigenvalue_error(X, chosen, kernel, exact):
    """Mean relative error of the leading eigenvalues of the Nyström approximation."""
    approximate, _ = oracles.nystroem_kpca(kernel(X, chosen), kernel(chosen, chosen), len(exact))
    return np.mean(1 - approximate / exact)


def test_kmeans_beats_uniform_landmarks_threefold_on_digits(digits):
    X = digits[:600].astype(np.float64)
    kernel = Gaussian(median_sigma(pair_distances(X, "sqeuclidean", np.random.default_rng(0)), "sqeuclidean"))
    exact, _ = oracles.gram_kpca(kernel(X, X), 10)
    uniform, kmeans = (
        np.mean(
            [eigenvalue_error(X, rule.choose(X, kernel, 50, np.random.default_rng(s)), kernel, exact) for s in range(3)]
        )
        for rule in (Uniform(), KMeans())
    )
    assert 0 < kmeans < uniform / 3


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("kmeans", KMeans()),
        ("k-means", KMeans()),
        ("K-Means", KMeans()),
        ("uniform", Uniform()),
        ("UNIFORM", Uniform()),
        ("rpcholesky", RPCholesky()),
        ("RPCholesky", RPCholesky()),
        ("leverage", Leverage()),
        ("basic-patterns", BasicPatterns()),
        ("basic_patterns", BasicPatterns()),
    ],
)
def test_a_name_stands_for_the_default_of_its_rule(name, rule):
    assert landmarks.named(name) == rule


@pytest.mark.parametrize(
    ("name", "nearest"), [("kmean", "kmeans"), ("unifrom", "uniform"), ("Auto", "auto"), ("cholesky", "rpcholesky")]
)
def test_an_unknown_name_comes_with_the_nearest(name, nearest):
    with pytest.raises(SpecError, match=f"unknown landmark rule '{name}': did you mean '{nearest}'"):
        landmarks.named(name)


@pytest.mark.parametrize(
    "rule",
    [KMeans(), KMeans(5, 20), Uniform(), RPCholesky(0.01, "all", 0.1), Leverage(), BasicPatterns(0.9, False)],
    ids=str,
)
def test_a_rule_goes_through_json_and_back(rule):
    assert landmarks.from_dict(json.loads(json.dumps(landmarks.to_dict(rule))), np.empty((0, 0))) == rule


@pytest.mark.parametrize("values", [{"rows_per_landmark": 0}, {"iterations": -1}])
def test_kmeans_refuses_options_out_of_range(values):
    with pytest.raises(SpecError, match="iterations must not be negative, rows_per_landmark at least 1"):
        landmarks.KMeans(**values)


def test_averages_need_a_kernel_that_says_it_is_made_for_them():
    sample = clustered(0)
    message = "landmarks='kmeans' takes averages of rows, which a kernel function need not be made for"
    with pytest.raises(SpecError, match=message):
        KMeans().choose(sample, Function(inverse_quadratic), 5, np.random.default_rng(0))
    assert KMeans().choose(sample, Function(inverse_quadratic, vectors=True), 5, np.random.default_rng(0)).shape == (
        5,
        3,
    )


@every_rule_of_rows
@ten_seeds
def test_other_rules_give_distinct_rows_of_the_sample_for_any_kernel(rule, seed):
    sample = clustered(seed)
    for kernel in (KERNEL, Function(inverse_quadratic)):
        chosen = rule.choose(sample, kernel, 17, np.random.default_rng(seed))
        assert len(np.unique(chosen, axis=0)) == 17
        assert (chosen[:, None] == sample[None]).all(axis=2).any(axis=1).all()


def test_kmeans_uses_ten_rows_for_a_landmark_but_no_fewer_than_10000():
    assert KMeans().most_rows(50) == 10_000
    assert KMeans().most_rows(2000) == 2000 * KMeans().rows_per_landmark > 10_000


@pytest.mark.parametrize("rule", [RPCholesky(), Leverage()], ids=lambda rule: rule.name)
def test_rules_that_look_at_the_kernel_use_twenty_rows_for_a_landmark_but_no_fewer_than_20000(rule):
    assert rule.most_rows(50) == 20_000
    assert rule.most_rows(2000) == 40_000


def with_small_clusters(seed, n=600):
    """One large cluster, and two of 1 % of the rows each, far away."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    X[: n // 100] = rng.normal(size=(n // 100, 2)) * 0.3 + [40, 0]
    X[n // 100 : n // 50] = rng.normal(size=(n // 100, 2)) * 0.3 + [0, 40]
    return rng.permutation(X)


def trace_left(X, S, kernel):
    return len(X) - np.trace(oracles.nystroem_gram(kernel(X, S), kernel(S, S), 1e-12))


@pytest.mark.parametrize("rule", [RPCholesky(), Leverage()], ids=lambda rule: rule.name)
def test_rules_that_look_at_the_kernel_have_smaller_errors_than_uniform_rows_where_clusters_are_small(rule):
    kernel, found = Gaussian(3.0), []
    for seed in range(10):
        X, rng = with_small_clusters(seed), np.random.default_rng(seed)
        found.append([trace_left(X, each.choose(X, kernel, 40, rng), kernel) for each in (rule, Uniform())])
    own, uniform = np.mean(found, axis=0)
    assert own < uniform / 2


@ten_seeds
def test_rpcholesky_puts_a_landmark_into_every_small_cluster(seed):
    chosen = RPCholesky().choose(with_small_clusters(seed), Gaussian(3.0), 40, np.random.default_rng(seed))
    assert (chosen > 30).any(axis=0).all()


# RPCholesky


@pytest.mark.parametrize(
    "values",
    [{"tol": -0.1}, {"tol": 1.0}, {"least_accepted": 0.0}, {"least_accepted": 1.0}, {"over": "some"}],
    ids=str,
)
def test_rpcholesky_refuses_options_out_of_range(values):
    message = r"tol lies in \[0, 1\), least_accepted in \(0, 1\), over is 'sample' or 'all'"
    with pytest.raises(SpecError, match=message):
        RPCholesky(**values)


def test_a_tolerance_gives_fewer_landmarks_than_asked_for():
    X = clustered(0)
    loose, tight = (RPCholesky(tol=tol).choose(X, KERNEL, 150, np.random.default_rng(0)) for tol in (0.5, 0.05))
    assert len(loose) < len(tight) < 150
    assert trace_left(X, loose, KERNEL) <= 0.5 * 200
    assert trace_left(X, tight, KERNEL) <= 0.05 * 200


# Leverage


@ten_seeds
@pytest.mark.parametrize("size", [1, 2, 3, 20, 99, 100])
def test_leverage_gives_distinct_rows_as_many_as_asked(seed, size):
    numbers = leverage.choose_rows(clustered(seed, n=100), KERNEL, size, np.random.default_rng(seed))
    assert len(set(numbers)) == len(numbers) == size
    assert 0 <= min(numbers) <= max(numbers) < 100


@ten_seeds
def test_scores_against_all_rows_are_ridge_leverage_scores(seed):
    X, size = clustered(seed, n=80), 30
    K = KERNEL.gram(X)
    k = int(size / (4 * np.log(size)))
    lam = np.linalg.eigvalsh(K)[:-k].sum() / k
    exact = np.diag(K - K @ np.linalg.inv(K + lam * np.eye(80)) @ K) / lam
    scores = leverage._scores(X, X, np.ones(80), KERNEL, size, map)
    assert_allclose(scores, np.minimum(np.log(size) * exact, 1), rtol=1e-9)
    assert scores.min() < 0.9
    # A row that is kept with probability p counts for 1 / p rows.
    twice = leverage._scores(X, X, np.full(80, 2**0.5), KERNEL, size, map)
    doubled = np.diag(K - K @ np.linalg.inv(K + lam * np.eye(80)) @ K)
    assert_allclose(twice, np.minimum(np.log(size) * doubled / (2 * lam), 1), rtol=1e-9)


@ten_seeds
def test_rows_that_stand_alone_are_drawn_more_often(seed):
    X = with_small_clusters(seed)
    alone = X.max(axis=1) > 30
    rng = np.random.default_rng(seed)
    drawn = sum(alone[leverage.choose_rows(X, Gaussian(3.0), 40, rng)].sum() for _ in range(20))
    assert alone.sum() == 12
    assert drawn > 2 * 20 * 40 * 12 / 600


def test_tiles_of_rows_do_not_change_what_leverage_chooses(monkeypatch):
    X = clustered(0)
    whole = leverage.choose_rows(X, KERNEL, 20, np.random.default_rng(0))
    monkeypatch.setattr(leverage, "_TILE_ROWS", 11)
    assert_array_equal(leverage.choose_rows(X, KERNEL, 20, np.random.default_rng(0)), whole)


def test_leverage_of_an_indefinite_kernel_works_or_is_refused():
    refused = 0
    for seed in range(10):
        try:
            assert len(Leverage().choose(clustered(seed), Sigmoid(0.5, -0.5), 20, np.random.default_rng(seed))) == 20
        except SpecError:
            refused += 1
    assert refused > 0
    with pytest.raises(SpecError, match=r"leverage scores need a positive semidefinite kernel.*landmarks='uniform'"):
        leverage._scores(np.eye(3), np.eye(3)[:2], np.ones(2), Sigmoid(1.0, -5.0), 2, map)
    chosen = Leverage().choose(clustered(0), Sigmoid(0.02, 0.0), 20, np.random.default_rng(0))
    assert len(np.unique(chosen, axis=0)) == 20


def test_leverage_of_rows_that_are_all_zero_is_the_same_for_all():
    X = np.zeros((50, 3))
    scores = leverage._scores(X, X[:5], np.ones(5), Linear(), 5, map)
    assert scores[0] > 0
    assert_array_equal(scores, np.full(50, scores[0]))
    assert len(set(leverage.choose_rows(X, Linear(), 5, np.random.default_rng(0)))) == 5


@pytest.mark.parametrize("rule", [RPCholesky(), Leverage(), BasicPatterns()], ids=lambda rule: rule.name)
def test_kernel_values_that_overflow_are_named(rule):
    X = clustered(0).astype(np.float32)
    X[7] = 1e20
    with pytest.raises(DataError, match="the sampled rows: kernel values overflow"):
        rule.choose(X, Polynomial(1.0, 2), 20, np.random.default_rng(0))


@pytest.mark.parametrize("centred", [True, False])
def test_kernel_vectors_of_large_rows_overflow_without_a_warning(centred):
    X = clustered(0).astype(np.float32)
    X[7] = 1e20
    with pytest.raises(DataError, match="the sampled rows: kernel values overflow"):
        basic_patterns.kernel_directions(X, X[:20], Polynomial(1.0, 2), centred)


def test_kernel_vectors_that_overflow_are_named():
    X = clustered(0).astype(np.float32)
    infinite = Function(lambda X, Y: np.full((len(X), len(Y)), np.inf))
    with pytest.raises(DataError, match="the sampled rows: kernel values overflow"):
        BasicPatterns().choose(X, infinite, 20, np.random.default_rng(0))


# Basic patterns


@cache
def naive_kernel(seed, n, m):
    """Of n clustered rows and the first m of them."""
    X = clustered(seed, n)
    return oracles.matrix(lambda x, y: oracles.gaussian(x, y, 1.0), X, X[:m])


def naive_directions(seed, n, m, centred):
    K = naive_kernel(seed, n, m)
    if centred:
        K = K - K.mean(axis=0)
    return K / np.linalg.norm(K, axis=1, keepdims=True)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_directions_are_unit_kernel_vectors(centred, dtype):
    X = clustered(0, n=40).astype(dtype)
    found = basic_patterns.kernel_directions(X, X[:15], KERNEL, centred)
    assert found.dtype == dtype
    assert_allclose(found, naive_directions(0, 40, 15, centred), atol=1e-10 if dtype == np.float64 else 1e-4)


def test_a_kernel_vector_of_zeros_has_no_direction():
    found = basic_patterns.kernel_directions(np.array([[0.0], [2.0]]), np.array([[1.0], [1.0]]), Linear(), False)
    assert_allclose(found, [[0, 0], [0.5**0.5, 0.5**0.5]])


@ten_seeds
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("threshold", [0.3, 0.8, 0.99])
def test_patterns_differ_by_the_threshold_and_every_other_row_is_like_one_of_them(seed, centred, threshold):
    directions = naive_directions(seed, 120, 120, centred)
    numbers = basic_patterns.scan(directions, threshold, 120)
    cosines = directions @ directions.T
    among = cosines[np.ix_(numbers, numbers)]
    assert (among[~np.eye(len(numbers), dtype=bool)] < threshold).all()
    assert (np.diff(numbers) > 0).all()
    for row in set(range(120)) - set(numbers):
        assert cosines[row, numbers[numbers < row]].max() >= threshold
    assert numbers[0] == 0
    assert 1 < len(numbers) < 120


@ten_seeds
def test_pieces_and_a_bound_do_not_change_the_order_of_patterns(seed, monkeypatch):
    directions = naive_directions(seed, 300, 50, True)
    whole = basic_patterns.scan(directions, 0.9, 300)
    monkeypatch.setattr(basic_patterns, "_PIECE_ROWS", 7)
    assert_array_equal(basic_patterns.scan(directions, 0.9, 300), whole)
    assert len(whole) > 6
    assert_array_equal(basic_patterns.scan(directions, 0.9, 6), whole[:6])


@ten_seeds
@pytest.mark.parametrize("count", [1, 5, 30])
def test_the_smallest_threshold_that_finds_enough_is_found(seed, count):
    directions = naive_directions(seed, 150, 150, True)
    numbers = basic_patterns.scan_for(directions, count)
    assert len(set(numbers)) == len(numbers) == count
    cosines = (directions @ directions.T)[np.ix_(numbers, numbers)]
    closest = cosines[~np.eye(count, dtype=bool)].max(initial=-1)
    assert len(basic_patterns.scan(directions, closest - 2e-3, count)) < count or closest == -1
    first = (directions @ directions.T)[:count, :count][~np.eye(count, dtype=bool)].max(initial=-1)
    assert closest <= first


@pytest.mark.parametrize("centred", [True, False])
def test_a_threshold_gives_at_most_as_many_as_asked_for(centred):
    sample = clustered(0)
    few, many = (
        BasicPatterns(threshold, centred).choose(sample, KERNEL, 100, np.random.default_rng(0))
        for threshold in (0.5, 0.99)
    )
    assert 3 < len(few) < len(many) <= 100
    assert len(BasicPatterns(0.99, centred).choose(sample, KERNEL, 10, np.random.default_rng(0))) == 10


def test_a_threshold_keeps_every_distinct_row_once():
    sample = np.repeat(clustered(0, n=12), 5, axis=0)
    chosen = BasicPatterns(0.999).choose(sample, Gaussian(0.5), 40, np.random.default_rng(0))
    assert len(np.unique(chosen, axis=0)) == len(chosen) <= 12


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_pattern_is_found_twice_where_rows_repeat(centred, dtype):
    for seed in range(10):
        distinct = clustered(seed, n=12).astype(dtype)
        for kernel in (Gaussian(0.5), Gaussian(3.0), Polynomial(0.1, 2)):
            chosen = BasicPatterns(centred=centred).choose(
                np.repeat(distinct, 5, axis=0), kernel, 40, np.random.default_rng(seed)
            )
            assert 1 < len(chosen) == len(np.unique(chosen, axis=0)) <= 12


@pytest.mark.parametrize("threshold", [-1.0, 1.01, np.nan])
def test_a_threshold_is_a_cosine(threshold):
    with pytest.raises(SpecError, match="the threshold is a cosine, above -1 and at most 1"):
        BasicPatterns(threshold)


def test_centred_patterns_tell_rows_apart_where_the_kernel_is_wide():
    sample, kernel = clustered(0), Gaussian(100.0)
    numbers = [len(BasicPatterns(0.9, c).choose(sample, kernel, 50, np.random.default_rng(0))) for c in (True, False)]
    assert numbers[0] > 5
    assert numbers[1] == 1


# Landmarks of the caller's own


def test_rows_of_the_callers_own_are_kept_as_they_are():
    values = np.array([[1, 2], [3, 4]], np.int16)
    assert Rows(values).values is values


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (np.array([["a", "b"]]), DataError, "the array of landmarks holds .* values: rows must be real numbers"),
        (np.ones((2, 2), complex), DataError, "the array of landmarks holds complex128 values"),
        (np.ones(3), SpecError, r"landmarks of shape \(3,\): give rows like those of the data, \(l, d\)"),
        (np.ones((0, 3)), SpecError, r"landmarks of shape \(0, 3\): give rows"),
        (np.ones((3, 0)), SpecError, r"landmarks of shape \(3, 0\): give rows"),
        (np.array([[1.0, 2.0], [np.nan, 1.0]]), DataError, "the array of landmarks: row 1, column 0 is NaN"),
        (np.array([[1.0, np.inf]]), DataError, "the array of landmarks: row 0, column 1 is infinity"),
    ],
    ids=str,
)
def test_rows_that_cannot_be_landmarks_are_named(values, error, message):
    with pytest.raises(error, match=message):
        Rows(values)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (np.array([0.0, 1.0]), "row numbers for landmarks must be integers, not float64; rows are"),
        (np.array([True, False]), "row numbers for landmarks must be integers, not bool; rows are"),
        (np.array([[0, 1]]), r"landmarks of shape \(1, 2\): give at least one row \(l, d\), or row number \(l,\)"),
        (np.array([], int), r"landmarks of shape \(0,\): give at least one row"),
        (np.array([]), r"landmarks of shape \(0,\): give at least one row"),
        (np.array([3, -1]), "landmark -1: row numbers are counted from 0"),
        (np.array([-2, -7]), "landmark -7: row numbers are counted from 0"),
    ],
    ids=str,
)
def test_row_numbers_that_cannot_be_are_named(numbers, message):
    with pytest.raises(SpecError, match=message):
        RowNumbers(numbers)


def test_of_rows_that_are_the_same_the_first_stays_in_its_place():
    rows = np.array([[5.0, 1.0], [2.0, 1.0], [3.0, 1.0], [2.0, 1.0], [2.0, 0.0], [5.0, 1.0]])
    assert_array_equal(landmarks.distinct(rows), rows[[0, 1, 2, 4]])
    assert landmarks.distinct(rows[:3]) is not None
    assert_array_equal(landmarks.distinct(rows[:3]), rows[:3])


@pytest.mark.parametrize("given", ["rows", "numbers", "numbers that recur"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_landmarks_that_recur_count_once_and_all_rows_are_exact_kernel_pca(given, dtype, tmp_path):
    X = np.random.default_rng(0).integers(0, 3, (120, 4)).astype(dtype)  # of 81 possible rows
    own = {"rows": X, "numbers": np.arange(120), "numbers that recur": np.append(np.arange(120), [3, 3, 7])}[given]
    ours = KernelPCA(5, landmarks=own, size=len(own), sigma=1.5, dtype="float64", random_state=0).fit(X)
    theirs = Peer(5, kernel="rbf", gamma=0.5 / 1.5**2).fit(X.astype(np.float64))
    assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-9)
    for rows in (X, X[:7] + 0.5):
        expected = theirs.transform(rows.astype(np.float64))
        assert_allclose(oracles.with_signs_of(ours.transform(rows), expected), expected, atol=1e-7)
    _, first = np.unique(X, axis=0, return_index=True)
    assert_allclose(ours.landmarks_, X[np.sort(first)], atol=1e-12)
    assert ours.model_.provenance["choices"] == [
        {
            "option": "landmarks",
            "value": len(first),
            "reason": f"of {len(own)} rows that are given; {len(own) - len(first)} of them repeat others",
        }
    ]
    ours.save(tmp_path / "model.zarr")
    again = KernelPCA.load(tmp_path / "model.zarr")
    assert_array_equal(again.transform(X), ours.transform(X))
    assert FitSpec.of(again.model_) == FitSpec.of(ours.model_)
    assert FitSpec.of(again.model_).to_dict() == ours.model_.provenance["spec"]
    assert again.partial_fit(X[:50]).landmarks_.shape == (len(first), 4)


def test_landmarks_that_are_the_same_once_they_are_rounded_count_once():
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    own = np.repeat(X[:30].astype(np.float64), 2, axis=0)
    own[::2] += 1e-12
    ours = KernelPCA(3, landmarks=own, sigma=1.5, dtype="float32", random_state=0).fit(X)
    few = len(ours.landmarks_)
    assert 30 <= few < 50
    reason = f"of 60 rows that are given; {60 - few} of them repeat others"
    assert ours.model_.provenance["choices"][0]["reason"] == reason


def test_landmarks_of_the_callers_own_go_through_json_and_back():
    own = clustered(0, n=5)
    description = json.loads(json.dumps(landmarks.to_dict(Rows(own))))
    assert description == {"name": "rows", "sha256": description["sha256"], "count": 5}
    assert landmarks.to_dict(Rows(own + 1))["sha256"] != description["sha256"]
    assert_array_equal(landmarks.from_dict(description, own).values, own)
    description = json.loads(json.dumps(landmarks.to_dict(RowNumbers(np.array([4, 1])))))
    assert description == {"name": "row-numbers", "numbers": [4, 1]}
    assert_array_equal(landmarks.from_dict(description, own).numbers, [4, 1])
    description = landmarks.to_dict(Rows(own[[0, 1, 2, 3, 4, 0]]))
    assert description["count"] == 6
    assert landmarks.to_dict(landmarks.from_dict(description, own)) == description


def test_an_unknown_rule_in_a_file_is_named():
    with pytest.raises(SpecError, match="unknown landmark rule 'leverages': did you mean 'leverage'"):
        landmarks.from_dict({"name": "leverages"}, np.empty((0, 0)))
