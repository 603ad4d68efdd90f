"""Estimates of a model's error from sampled rows, against the whole Gram matrix: intervals, and how rows are drawn."""

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose

import bigkpca
from bigkpca.numerics import evaluation
from bigkpca.numerics.evaluation import Pool, Sample
from bigkpca.numerics.random_streams import PROBES, random_stream
from tests.evaluating.models import MODELS, Whole, fitted, some_rows, truth, uniform


@pytest.mark.parametrize(("case", "center"), [("kmeans", True), ("columns", False), ("rff", True)])
def test_samples_of_the_sums_of_all_rows_are_evaluations(case, center):
    X = some_rows(120)
    model = fitted(X, center=center, **MODELS[case])
    expected = bigkpca.evaluate(model, X, sample=50, random_state=3)
    found = Whole.of(model, X).sampled(50, random_stream(3, PROBES))
    for part in ("eigenvalues", "standard_errors", "residuals", "intervals"):
        assert_allclose(getattr(found, part), getattr(expected, part), rtol=1e-9, atol=1e-12, err_msg=part)
    margin, upper = 1.96 * found.standard_errors, found.eigenvalues * (1 + found.residuals**2)
    assert_allclose(found.intervals, np.column_stack([found.eigenvalues - margin, upper + margin]), rtol=1e-9)
    assert_allclose(found.frobenius.value, expected.frobenius.value, rtol=1e-9)
    assert_allclose(found.total_variance.standard_error, expected.total_variance.standard_error, rtol=1e-9)


@pytest.mark.parametrize(("case", "center"), [*((case, True) for case in MODELS), ("kmeans", False), ("rff", False)])
def test_a_sample_of_all_rows_is_exact(case, center):
    X = some_rows(150)
    model = fitted(X, center=center, **MODELS[case])
    true, found = truth(model, X), bigkpca.evaluate(model, X, sample=150)
    assert (found.rows, found.sampled) == (150, 150)
    assert_allclose(found.eigenvalues, true["eigenvalues"], rtol=1e-8)
    assert_allclose(found.standard_errors, 0, atol=2e-9 * true["eigenvalues"][0])
    assert_allclose(found.residuals, true["residuals"] * np.sqrt(150 / 149), rtol=1e-5, atol=1e-12)
    assert_allclose(found.frobenius.value, true["frobenius"], rtol=1e-6, atol=1e-9)
    assert_allclose(found.total_variance.value, true["total_variance"], rtol=1e-8)
    lengthened = found.intervals[:, 1] - found.eigenvalues
    assert_allclose(lengthened, found.eigenvalues * found.residuals**2, atol=2e-9 * true["eigenvalues"][0])
    assert found.frobenius.standard_error == 0
    assert found.total_variance.standard_error == 0


def coverage(model, X, size, count):
    """Shares of `count` samples whose 95 % intervals hold the truth; lambda of solid components alone."""
    true, found = truth(model, X), Whole.of(model, X).samples(size, count)
    low, high = np.moveaxis(np.array([one.intervals for one in found]), 2, 0)
    values, errors = (np.array([getattr(one, part) for one in found]) for part in ("eigenvalues", "standard_errors"))
    trust = model.certificate.trust
    assert trust is not None
    solid = np.array(trust) == "solid"
    held = {
        "u'Kc u": (np.abs(values - true["eigenvalues"]) <= 1.96 * errors).mean(axis=0),
        "u'Kc u, raised": ((low <= true["eigenvalues"]) & (true["eigenvalues"] <= high)).mean(axis=0),
        "lambda": ((low <= true["lambda"]) & (true["lambda"] <= high)).mean(axis=0)[solid],
    }
    for part in ("frobenius", "total_variance"):
        pairs = [(getattr(one, part).value, getattr(one, part).standard_error) for one in found]
        held[part] = np.mean([abs(value - true[part]) <= 1.96 * error for value, error in pairs])
    return held


@pytest.mark.parametrize(
    ("components", "factor", "samples"),
    [
        pytest.param(10, 1, [300], marks=pytest.mark.full),
        pytest.param(20, 1, [300, 500], marks=pytest.mark.long),
        pytest.param(20, 2, [300, 500], marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize(
    ("size", "options"),
    [
        (150, {"landmarks": "uniform"}),
        (150, {}),
        (150, {"center": False}),
        (300, {"method": "columns"}),
        (1000, {"method": "rff"}),
    ],
    ids=str,
)
def test_intervals_hold_the_truth_as_often_as_they_say(size, options, components, factor, samples, digits):
    X = digits[:900]
    model = fitted(X, **options, n_components=components, size=factor * size)
    for sample in samples:
        held = coverage(model, X, sample, count=500)
        for part in ("u'Kc u", "lambda", "frobenius", *(["total_variance"] if "center" not in options else [])):
            assert np.min(held[part], initial=1) >= 0.9, part
            assert np.max(held[part], initial=0) <= 0.99, part
        assert np.min(held["u'Kc u, raised"]) >= 0.9
        assert "method" in options or len(held["lambda"])


@pytest.mark.parametrize(
    ("n", "sigma", "size", "sample"),
    [
        pytest.param(2000, 0.1, 100, 150, marks=pytest.mark.full),
        pytest.param(3000, 0.15, 150, 150, marks=pytest.mark.long),
        pytest.param(6000, 0.3, 200, 500, marks=pytest.mark.long),
        pytest.param(6000, 0.6, 150, 150, marks=pytest.mark.long),
    ],
)
def test_intervals_hold_in_two_dimensions_with_a_narrow_kernel(n, sigma, size, sample):
    X = some_rows(n, d=2)
    held = coverage(fitted(X, sigma=sigma, size=size, n_components=10, landmarks="kmeans"), X, sample, 400)
    assert np.mean(held["u'Kc u"]) >= 0.935
    for part in ("u'Kc u", "frobenius", "total_variance"):
        assert np.min(held[part]) >= 0.9, part


@pytest.mark.full
def test_where_few_rows_carry_the_error_the_interval_of_its_norm_holds_too():
    X = some_rows(400)
    model = fitted(X, landmarks="kmeans", random_state=33)
    whole, true = Whole.of(model, X), truth(model, X)["frobenius"]
    squares = np.sort(whole.sums.squares)[::-1]
    assert squares[0] > 0.3 * squares.sum()  # one row, which k-means left alone
    found = [each.frobenius for each in whole.samples(150, 500)]
    assert np.mean([abs(each.value - true) <= 1.96 * each.standard_error for each in found]) >= 0.93
    assert_allclose(np.sqrt(np.mean([each.value**2 for each in found])), true, rtol=0.03)  # unbiased squares


@pytest.mark.parametrize("case", ["kmeans", "columns", "rff"])
def test_squares_are_unbiased(case):
    X = some_rows(300)
    model = fitted(X, **MODELS[case])
    true, found = truth(model, X), Whole.of(model, X).samples(150, 200)
    residuals = np.array([one.residuals for one in found])
    assert_allclose(np.sqrt(np.mean(np.square(residuals), axis=0)), true["residuals"], rtol=0.05)
    assert_allclose(np.sqrt(np.mean([one.frobenius.value**2 for one in found])), true["frobenius"], rtol=0.03)
    assert_allclose(np.mean([one.total_variance.value for one in found]), true["total_variance"], rtol=1e-2)


def test_standard_errors_are_those_of_as_many_degrees_of_freedom_as_the_kurtosis_leaves():
    samples = np.random.default_rng(0).normal(size=(50, 3)) ** [1, 3, 5]
    kurtosis = scipy.stats.kurtosis(samples, fisher=False)
    freedom = np.minimum(2 * 49 / (kurtosis - 1), 49)
    assert freedom[0] == 49
    assert freedom[2] < 10
    plain = samples.std(axis=0, ddof=1) * np.sqrt(0.75 / 50)
    expected = scipy.stats.t.ppf(0.975, freedom) * plain
    assert_allclose(1.96 * uniform(50, 200).standard_errors(samples), expected, rtol=1e-12)
    in_two_steps = Sample(np.full(50, 0.5), 100, 200)
    assert_allclose(1.96 * in_two_steps.standard_errors(samples), expected, rtol=1e-12)
    found = 1.96 * uniform(2, 10**9).standard_errors(np.array([0.0, 2.0]))
    assert_allclose(found, scipy.stats.t.ppf(0.975, 1))
    assert_allclose(uniform(5, 50).standard_errors(np.ones((5, 2))), 0, atol=1e-15)


def test_rows_are_drawn_with_the_chances_that_weights_undo():
    rng = np.random.default_rng(0)
    q = rng.random(40) ** 4
    values, totals, counts = rng.normal(size=40), [], np.zeros(40)
    for _ in range(4000):
        numbers, sample = evaluation.draw(q, 10, 80, rng)
        assert len(np.unique(numbers)) == 10
        counts[numbers] += 1
        totals.append(sample.mean(values[numbers]))
    chances = counts / 4000
    largest = q.argmax()
    assert chances[largest] == 1  # more than its tenth
    assert_allclose(chances.sum(), 10)
    free = chances < 1
    assert_allclose(chances[free], (10 - (~free).sum()) * q[free] / q[free].sum(), atol=0.03)
    assert abs(np.mean(totals) - values.mean()) < 4 * np.std(totals) / np.sqrt(4000)


def test_standard_errors_are_those_of_both_steps():
    rng = np.random.default_rng(0)
    values = np.exp(rng.normal(size=2000))
    found, errors = [], []
    for _ in range(2000):
        pooled = rng.choice(2000, 400, replace=False)
        numbers, sample = evaluation.draw(np.sqrt(values[pooled]), 100, 2000, rng)
        x = values[pooled][numbers]
        found.append(sample.mean(x))
        errors.append(sample.standard_errors(x) ** 2)
    assert_allclose(np.mean(found), values.mean(), rtol=0.01)
    assert_allclose(np.sqrt(np.mean(errors)), np.std(found), rtol=0.08)


def test_sizes_are_the_shares_of_the_error_that_a_row_foretells():
    own, Y = np.array([0.0, 1.0, 3.0]), np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 6.0]])
    of_components = (np.array([0, 4, 27]) / 31 + np.array([0, 0, 1])) / 2
    assert_allclose(evaluation.sizes(Pool(own, Y), center=False), (1 / 3 + own / 4 + of_components) / 3)
    shifted = evaluation.sizes(Pool(own, Y + np.array([5.0, -7.0])), center=True)
    assert_allclose(shifted, evaluation.sizes(Pool(own, Y), center=True))
    assert_allclose(evaluation.sizes(Pool(np.zeros(3), 0 * Y), center=True), 1 / 3)
