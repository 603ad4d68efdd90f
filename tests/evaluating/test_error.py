"""Estimates of a model's error from exact kernels with sampled rows, against the whole Gram matrix."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import zarr
from numpy.testing import assert_allclose, assert_array_equal

import bigkpca
from bigkpca import KernelPCA
from bigkpca.data.memory import ArrayRows
from bigkpca.data.opening import open_rows
from bigkpca.errors import DataError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.execution.projection import score_rows
from bigkpca.execution.reductions import sums_with
from bigkpca.fitting.fit import fit_rows
from bigkpca.numerics import evaluation
from bigkpca.numerics.evaluation import Evaluation, Pool, Probes, Sample, Sums
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import PROBES, random_stream
from bigkpca.spec import FitSpec
from tests.helpers import oracles
from tests.helpers.commands import run
from tests.helpers.files import shared_file
from tests.helpers.stores import counted_reads

R = 4
MODELS: dict[str, dict[str, Any]] = {
    "uniform": {"landmarks": "uniform"},
    "kmeans": {"landmarks": "kmeans"},
    "columns": {"method": "columns"},
    "rff": {"method": "rff"},
    "rff-pca": {"method": "rff-pca"},
    "standardized": {"standardize": True},
    "polynomial": {"kernel": "polynomial"},
    "thesis": {"method": bigkpca.methods.Nystroem(form="thesis")},
}


def some_rows(n: int, seed: int = 0, d: int = 3) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(n, d))


def fitted(X: Any, engine: Engine | None = None, **options: Any) -> Model:
    spec = FitSpec.checked(**{"components": R, "size": 60, "seed": 1} | options)
    return fit_rows(open_rows(X), spec, engine or Engine(threads=1), Silent())


def truth(model: Model, X: Any) -> dict[str, Any]:
    """What `evaluate` estimates, and the eigenvalues of Kc, from the whole Gram matrix of rows X."""
    center, method = model.provenance["spec"]["center"], model.provenance["spec"]["method"]
    features = model.features
    K = features.kernel.gram(features.as_columns().shifted(X).astype(np.float64))
    ((V, _),) = features.tiles([X], len(X))
    V = V.astype(np.float64)
    cutoff = rank_tolerance(features.dtype)
    if method == "columns":
        E = K - oracles.columns_gram(V, cutoff)
    elif hasattr(features, "landmarks"):
        E = K - oracles.nystroem_gram(V, features.gram(), cutoff)
    else:
        E = K - V @ V.T
    Y = score_rows(ArrayRows(X), model, Engine(threads=1), Silent()).astype(np.float64)
    Y = Y - Y.mean(axis=0) if center else Y
    U = Y / np.linalg.norm(Y, axis=0)
    Kc = oracles.centred(K) if center else K
    values = np.einsum("ij,ij->j", U, Kc @ U)
    return {
        "eigenvalues": values,
        "residuals": np.linalg.norm(Kc @ U - U * values, axis=0) / values,
        "frobenius": np.linalg.norm(E),
        "total_variance": np.trace(Kc),
        "lambda": np.linalg.eigvalsh(Kc)[::-1][: len(values)],
    }


@dataclass(frozen=True)
class Whole:
    """An evaluation with every row as a probe, from which those of any sample follow without another pass."""

    sums: Sums
    given: Probes
    pool: Pool
    P: Any
    center: bool

    @classmethod
    def of(cls, model: Model, X: Any) -> Whole:
        P, n = model.factor(rank_tolerance(model.features.dtype)), len(X)
        given = evaluation.probes(model.features, model.solution, X, P, uniform(n, n))
        sums = sums_with(open_rows(X), model, given, Engine(threads=1), Silent())
        pool = evaluation.pool(model.features, model.solution, [X], P, n)
        return cls(sums, given, pool, P, model.provenance["spec"]["center"])

    def sampled(self, size: int, rng: np.random.Generator) -> Evaluation:
        n, sums, given = len(self.given.rows), self.sums, self.given
        pooled = np.sort(rng.choice(n, min(8 * size, n), replace=False))
        sizes = evaluation.sizes(Pool(self.pool.own[pooled], self.pool.Y[pooled]), center=self.center)
        drawn, sample = evaluation.draw(sizes, size, n, rng)
        numbers = pooled[drawn]
        few = replace(sums, KY=sums.KY[numbers], K1=sums.K1[numbers], squares=sums.squares[numbers])
        probes = Probes(given.rows[numbers], given.Y[numbers], given.C[numbers], sample)
        return evaluation.evaluation(few, probes, self.P, center=self.center)

    def samples(self, size: int, count: int) -> list[Evaluation]:
        rng = np.random.default_rng(0)
        return [self.sampled(size, rng) for _ in range(count)]


def uniform(m: int, n: int) -> Sample:
    """Of m of n rows, all with the same chance."""
    return Sample(np.full(m, m / n), n, n)


def assert_same(found: Evaluation, other: Evaluation) -> None:
    for part in fields(Evaluation):
        assert_array_equal(
            np.asarray(getattr(found, part.name), object), np.asarray(getattr(other, part.name), object), part.name
        )


@pytest.mark.parametrize("case", ["kmeans", "columns", "rff"])
@pytest.mark.parametrize("center", [True, False])
def test_samples_of_the_sums_of_all_rows_are_evaluations(case: str, center: bool) -> None:
    X = some_rows(120)
    model = fitted(X, center=center, **MODELS[case])
    expected = bigkpca.evaluate(model, X, sample=50, seed=3)
    found = Whole.of(model, X).sampled(50, random_stream(3, PROBES))
    for part in ("eigenvalues", "standard_errors", "residuals", "intervals"):
        assert_allclose(getattr(found, part), getattr(expected, part), rtol=1e-9, atol=1e-12, err_msg=part)
    assert_allclose(found.frobenius.value, expected.frobenius.value, rtol=1e-9)
    assert_allclose(found.total_variance.standard_error, expected.total_variance.standard_error, rtol=1e-9)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("case", MODELS)
def test_a_sample_of_all_rows_is_exact(case: str, center: bool) -> None:
    X = some_rows(250)
    model = fitted(X, center=center, **MODELS[case])
    true, found = truth(model, X), bigkpca.evaluate(model, X, sample=250)
    assert (found.rows, found.sampled) == (250, 250)
    assert_allclose(found.eigenvalues, true["eigenvalues"], rtol=1e-8)
    assert_allclose(found.standard_errors, 0, atol=2e-9 * true["eigenvalues"][0])
    assert_allclose(found.residuals, true["residuals"] * np.sqrt(250 / 249), rtol=1e-5, atol=1e-12)
    assert_allclose(found.frobenius.value, true["frobenius"], rtol=1e-6, atol=1e-9)
    assert_allclose(found.total_variance.value, true["total_variance"], rtol=1e-8)
    lengthened = found.intervals[:, 1] - found.eigenvalues
    assert_allclose(lengthened, found.eigenvalues * found.residuals**2, atol=2e-9 * true["eigenvalues"][0])
    assert found.frobenius.standard_error == 0
    assert found.total_variance.standard_error == 0


def coverage(model: Model, X: Any, size: int, count: int) -> dict[str, Any]:
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


COVERED: dict[str, dict[str, Any]] = {
    "uniform": {"landmarks": "uniform", "size": 150},
    "kmeans": {"size": 150},
    "uncentred": {"size": 150, "center": False},
    "columns": {"method": "columns", "size": 300},
    "rff": {"method": "rff", "size": 1000},
}


def assert_covered(held: dict[str, Any], *, center: bool) -> None:
    for part in ("u'Kc u", "lambda", "frobenius", "total_variance"):
        if center or part != "total_variance":  # tr(K) is known
            assert np.min(held[part], initial=1) >= 0.9, part
            assert np.max(held[part], initial=0) <= 0.99, part
    assert np.min(held["u'Kc u, raised"]) >= 0.9


@pytest.mark.parametrize("case", COVERED)
def test_intervals_hold_the_truth_as_often_as_they_say(case: str, digits: np.ndarray[Any, Any]) -> None:
    X = digits[:900]
    model = fitted(X, **{"components": 10} | COVERED[case])
    held = coverage(model, X, size=300, count=500)
    assert_covered(held, center=case != "uncentred")
    assert case in ("columns", "rff") or len(held["lambda"])


def usps_rows() -> Any:
    rows = np.load(shared_file("usps", "usps_int16.npz"))["X_milli"]
    return rows[np.sort(np.random.default_rng(0).choice(len(rows), 2000, replace=False))].astype(np.float32) / 1000


def mnist_rows() -> Any:
    import gzip

    with gzip.open(shared_file("mnist", "train-images-idx3-ubyte.gz")) as file:
        return np.frombuffer(file.read(16 + 784 * 2000), np.uint8, offset=16).reshape(-1, 784)


@pytest.mark.slow
@pytest.mark.parametrize("size", [100, 400])
@pytest.mark.parametrize("case", COVERED)
@pytest.mark.parametrize("data", [usps_rows, mnist_rows])
def test_intervals_of_many_models_hold_the_truth(data: Callable[[], Any], case: str, size: int) -> None:
    X = data()
    model = fitted(X, **{"components": 20} | COVERED[case] | {"size": 4 * size if case == "rff" else size})
    for sample in (300, 500):
        assert_covered(coverage(model, X, sample, count=500), center=case != "uncentred")


def test_where_few_rows_carry_the_error_the_interval_of_its_norm_holds_too() -> None:
    X = some_rows(400)
    model = fitted(X, landmarks="kmeans")
    whole, true = Whole.of(model, X), truth(model, X)["frobenius"]
    squares = np.sort(whole.sums.squares)[::-1]
    assert squares[0] > 0.3 * squares.sum()  # one row, which k-means left alone
    found = whole.samples(150, 500)
    inside = [abs(one.frobenius.value - true) <= 1.96 * one.frobenius.standard_error for one in found]
    assert np.mean(inside) >= 0.93
    assert_allclose(np.sqrt(np.mean([one.frobenius.value**2 for one in found])), true, rtol=0.03)  # unbiased squares


def assert_narrow(n: int, sigma: float, size: int, sample: int, count: int) -> None:
    X = some_rows(n, d=2)
    model = fitted(X, sigma=sigma, size=size, components=10, landmarks="kmeans")
    held = coverage(model, X, sample, count)
    assert np.mean(held["u'Kc u"]) >= 0.935
    for part in ("u'Kc u", "frobenius", "total_variance"):
        assert np.min(held[part]) >= 0.9, part


def test_intervals_hold_in_two_dimensions_with_a_narrow_kernel() -> None:
    assert_narrow(2000, 0.1, 100, 150, count=400)


@pytest.mark.slow
@pytest.mark.parametrize("sample", [150, 500])
@pytest.mark.parametrize(
    ("n", "sigma", "size"), [(3000, 0.15, 150), (5000, 0.08, 200), (6000, 0.3, 200), (6000, 0.6, 150)]
)
def test_intervals_hold_in_two_dimensions_with_any_narrow_kernel(n: int, sigma: float, size: int, sample: int) -> None:
    assert_narrow(n, sigma, size, sample, count=500)


@pytest.mark.parametrize("case", ["uniform", "kmeans", "columns", "rff"])
def test_squares_are_unbiased(case: str) -> None:
    X = some_rows(400)
    model = fitted(X, **MODELS[case])
    true, found = truth(model, X), Whole.of(model, X).samples(150, 300)
    residuals = np.array([one.residuals for one in found])
    assert_allclose(np.sqrt(np.mean(np.square(residuals), axis=0)), true["residuals"], rtol=0.05)
    assert_allclose(np.sqrt(np.mean([one.frobenius.value**2 for one in found])), true["frobenius"], rtol=0.03)
    assert_allclose(np.mean([one.total_variance.value for one in found]), true["total_variance"], rtol=1e-2)


def test_standard_errors_are_those_of_as_many_degrees_of_freedom_as_the_kurtosis_leaves() -> None:
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


def test_rows_are_drawn_with_the_chances_that_weights_undo() -> None:
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


def test_standard_errors_are_those_of_both_steps() -> None:
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


def test_sizes_are_the_shares_of_the_error_that_a_row_foretells() -> None:
    own, Y = np.array([0.0, 1.0, 3.0]), np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 6.0]])
    of_components = (np.array([0, 4, 27]) / 31 + np.array([0, 0, 1])) / 2
    assert_allclose(evaluation.sizes(Pool(own, Y), center=False), (1 / 3 + own / 4 + of_components) / 3)
    shifted = evaluation.sizes(Pool(own, Y + np.array([5.0, -7.0])), center=True)
    assert_allclose(shifted, evaluation.sizes(Pool(own, Y), center=True))
    assert_allclose(evaluation.sizes(Pool(np.zeros(3), 0 * Y), center=True), 1 / 3)


def test_intervals_of_heavy_tails_hold_more_often_than_those_of_plain_standard_errors() -> None:
    rng = np.random.default_rng(0)
    values = np.exp(1.5 * rng.normal(size=5000))
    plain, widened = [], []
    for _ in range(1000):
        sample = rng.choice(values, 100, replace=False)
        away = abs(sample.mean() - values.mean())
        plain.append(away <= 1.96 * sample.std(ddof=1) / np.sqrt(100))
        widened.append(away <= 1.96 * uniform(100, 10**9).standard_errors(sample))
    assert np.mean(plain) < 0.89
    assert np.mean(widened) > 0.9


def test_without_any_error_there_is_no_standard_error_either() -> None:
    assert evaluation._norm(np.zeros(5), uniform(5, 10)) == evaluation.Estimate(0.0, 0.0)


@pytest.mark.parametrize("center", [True, False])
def test_digits_fitted_and_new(digits: np.ndarray[Any, Any], center: bool) -> None:
    model = fitted(digits[:900], center=center)
    for X in (digits[:900], digits[900:]):  # the second it has not seen
        true, found = truth(model, X), bigkpca.evaluate(model, X, sample=300, seed=2)
        assert found.rows == len(X)
        assert (np.abs(found.eigenvalues - true["eigenvalues"]) <= 4 * found.standard_errors).all()
        assert (found.standard_errors < 0.02 * found.eigenvalues).all()
        assert_allclose(found.residuals, true["residuals"], rtol=0.2)
        assert abs(found.frobenius.value - true["frobenius"]) <= 4 * found.frobenius.standard_error
        difference = abs(found.total_variance.value - true["total_variance"])
        assert difference <= 4 * found.total_variance.standard_error + 1e-5 * true["total_variance"]


def test_estimates_are_better_than_the_eigenvalues_of_the_model() -> None:
    X = some_rows(600)
    model = fitted(X, landmarks="uniform", size=40)
    found = bigkpca.evaluate(model, X, sample=200)
    error = np.abs(found.eigenvalues - truth(model, X)["eigenvalues"])
    assert (found.eigenvalues >= model.solution.eigenvalues - 4 * found.standard_errors).all()
    assert error.sum() < 0.5 * np.abs(model.solution.eigenvalues - truth(model, X)["eigenvalues"]).sum()


def test_the_dense_exact_method_has_no_error() -> None:
    X = some_rows(200)
    model = fitted(X, method="exact")
    found = bigkpca.evaluate(model, X, sample=80)
    assert_allclose(found.eigenvalues, model.solution.eigenvalues, rtol=1e-9)
    assert found.frobenius.value < 1e-6
    assert found.residuals.max() < 1e-8


@pytest.mark.parametrize("method", ["nystroem", "columns", "rff", "rff-pca"])
def test_a_refined_model_keeps_its_rows_and_has_no_error_on_them(method: str) -> None:
    X = some_rows(200)
    model = fitted(X, method=method, refine=2, residual_tol=1e-9)
    found = bigkpca.evaluate(model, X, sample=80)
    assert_allclose(found.eigenvalues, model.solution.eigenvalues, rtol=1e-3)
    assert found.frobenius.value < 1e-6


@pytest.mark.parametrize("size", [1e12, 1e20])
def test_rows_whose_kernels_overflow_are_refused(size: float) -> None:
    X = some_rows(300).astype(np.float32)
    model = fitted(X, kernel="polynomial")
    X[7] = size
    with pytest.raises(DataError, match="the array, rows 0 to 299: kernel values overflow"):
        bigkpca.evaluate(model, X, sample=50)


def test_samples_follow_the_seed() -> None:
    X = some_rows(300)
    model = fitted(X)
    first, again, other = (bigkpca.evaluate(model, X, sample=50, seed=seed) for seed in (0, 0, 1))
    assert_same(first, again)
    assert (first.eigenvalues != other.eigenvalues).any()


@pytest.fixture
def stored(tmp_path: Path) -> str:
    path = str(tmp_path / "rows.zarr")
    zarr.create_array(path, shape=(600, 3), dtype=np.float64, chunks=(100, 3))[:] = some_rows(600)
    return path


def test_rows_are_read_once_for_the_sample_and_once_more(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, counts = fitted(stored), counted_reads(monkeypatch, 6, 100)
    bigkpca.evaluate(model, stored, sample=100)
    assert_array_equal(counts, 2)


@pytest.mark.cluster
def test_estimates_are_the_same_on_threads_and_processes(stored: str, two_processes: Engine) -> None:
    model = fitted(stored, block_rows=100)
    here = bigkpca.evaluate(model, stored, sample=100)
    assert two_processes.client is not None
    with two_processes.client.as_current():
        assert_same(bigkpca.evaluate(model, stored, sample=100), here)


def test_what_cannot_be_evaluated_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    X = some_rows(150)
    model = fitted(X)
    with pytest.raises(SpecError, match="has 4 columns, the model was fitted on 3"):
        bigkpca.evaluate(model, some_rows(150, d=4), sample=50)
    for sample in (151, 1, 0):
        with pytest.raises(SpecError, match=f"a sample of {sample} rows: .* has 150"):
            bigkpca.evaluate(model, X, sample=sample)
    exact = fitted(X, method="exact")
    monkeypatch.setattr("bigkpca.evaluating.error.EXACT_MOST_ROWS", 100)
    with pytest.raises(SpecError, match="at most 100, and this model keeps 150 rows; its certificate has the residual"):
        bigkpca.evaluate(exact, X, sample=50)
    assert bigkpca.evaluate(model, X, sample=50).sampled == 50


def test_the_command_prints_estimates_or_json(stored: str, tmp_path: Path) -> None:
    KernelPCA(R, size=60, random_state=0).fit(stored).save(tmp_path / "model.zarr")

    def evaluate(*options: Any) -> Any:
        return run("evaluate", tmp_path / "model.zarr", stored, *options)

    expected = bigkpca.evaluate(tmp_path / "model.zarr", stored, sample=200, seed=5)
    shown = evaluate("--sample", 200, "--seed", 5)
    assert shown.exit_code == 0, shown.output
    assert "estimates from 200 of 600 rows" in shown.stdout
    assert f"total variance   {expected.total_variance.value:.6g} ± " in shown.stdout
    assert len(re.findall(r"^ +\d+ ", shown.stdout, re.M)) == R
    low, high = expected.intervals[0]
    assert f"{low:#.6g} to {high:#.6g}" in shown.stdout
    facts = json.loads(evaluate("--sample", 200, "--seed", 5, "--json", "-q").stdout)
    assert facts["eigenvalues"] == expected.eigenvalues.tolist()
    assert facts["intervals"] == expected.intervals.tolist()
    assert facts["residuals"] == expected.residuals.tolist()
    assert facts["frobenius"]["value"] == expected.frobenius.value
    assert facts["total_variance"]["standard_error"] == expected.total_variance.standard_error
    assert (facts["rows"], facts["sampled"]) == (600, 200)
    assert evaluate("--sample", 601).exit_code == 2
    assert evaluate("--sample", 1).exit_code == 2
