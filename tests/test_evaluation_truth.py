"""Estimates of a model's error from exact kernels with sampled rows, against the whole Gram matrix."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pytest
import zarr
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal

import bigkpca
from bigkpca import KernelPCA
from bigkpca.cli import main
from bigkpca.engine import Engine, Silent
from bigkpca.errors import SpecError
from bigkpca.numerics.evaluation import Evaluation
from bigkpca.numerics.model import Model
from bigkpca.passes import score_rows
from bigkpca.pipeline import fit_rows
from bigkpca.sources import ArrayRows, ZarrRows, open_rows
from bigkpca.spec import FitSpec

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
    """What `evaluate` estimates, from the whole Gram matrix of rows X."""
    center, method = model.provenance["spec"]["center"], model.provenance["spec"]["method"]
    features = model.features
    rows = features.as_columns().shifted(X)
    K = features.kernel.gram(rows.astype(np.float64))
    ((V, _),) = features.tiles([X], len(X))
    V = V.astype(np.float64)
    if method == "columns":
        V = V @ FitSpec.of(model).method_value.factor(model.moments, features, 1e-12)
        E = K - V @ V.T
    elif hasattr(features, "landmarks"):
        E = K - oracles.nystroem_gram(V, features.gram(), 1e-12)
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
    }


def assert_same(found: Evaluation, other: Evaluation) -> None:
    for part in fields(Evaluation):
        assert_array_equal(
            np.asarray(getattr(found, part.name), object), np.asarray(getattr(other, part.name), object), part.name
        )


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
    assert found.frobenius.standard_error == 0
    assert found.total_variance.standard_error == 0


@pytest.mark.parametrize("case", ["uniform", "kmeans", "columns", "rff"])
def test_intervals_hold_the_truth_as_often_as_they_say(case: str) -> None:
    X = some_rows(400)
    model = fitted(X, **MODELS[case])
    true = truth(model, X)
    inside, within, residuals, frobenius = [], [], [], []
    for seed in range(200):
        found = bigkpca.evaluate(model, X, sample=150, seed=seed)
        inside.append(np.abs(found.eigenvalues - true["eigenvalues"]) <= 1.96 * found.standard_errors)
        residuals.append(found.residuals)
        estimates = [(found.frobenius, true["frobenius"]), (found.total_variance, true["total_variance"])]
        within.append([abs(estimate.value - value) <= 1.96 * estimate.standard_error for estimate, value in estimates])
        frobenius.append(found.frobenius.value)
    assert 0.9 <= np.mean(inside) <= 0.99
    of_frobenius, of_total = np.mean(within, axis=0)
    assert 0.88 <= of_total <= 0.99
    # With k-means one row of 400 makes a third of |K - K^|², and intervals of so heavy a tail hold in 72 %.
    assert (0.65 if case == "kmeans" else 0.88) <= of_frobenius <= 0.99
    # Both are roots of unbiased squares.
    assert_allclose(np.sqrt(np.mean(np.square(frobenius))), true["frobenius"], rtol=0.03)
    assert_allclose(np.sqrt(np.mean(np.square(residuals), axis=0)), true["residuals"], rtol=0.05)


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


@pytest.mark.parametrize(
    "method",
    [
        "nystroem",
        "columns",
        "rff",
        "rff-pca",
    ],
)
def test_a_refined_model_keeps_its_rows_and_has_no_error_on_them(method: str) -> None:
    X = some_rows(200)
    model = fitted(X, method=method, refine=2, residual_tol=1e-9)
    found = bigkpca.evaluate(model, X, sample=80)
    assert_allclose(found.eigenvalues, model.solution.eigenvalues, rtol=1e-3)
    assert found.frobenius.value < 1e-6


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
    model, counts, block = fitted(stored), np.zeros(6, int), ZarrRows.block

    def counting(self: ZarrRows, start: int, stop: int) -> Any:
        counts[start // 100 : (stop - 1) // 100 + 1] += 1
        return block(self, start, stop)

    monkeypatch.setattr(ZarrRows, "block", counting)
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
    monkeypatch.setattr("bigkpca.pipeline.EXACT_MOST_ROWS", 100)
    with pytest.raises(SpecError, match="at most 100, and this model keeps 150 rows"):
        bigkpca.evaluate(exact, X, sample=50)
    assert bigkpca.evaluate(model, X, sample=50).sampled == 50


def test_the_command_prints_estimates_or_json(stored: str, tmp_path: Path) -> None:
    KernelPCA(R, size=60, random_state=0).fit(stored).save(tmp_path / "model.zarr")

    def run(*arguments: Any) -> Any:
        typed = ["evaluate", tmp_path / "model.zarr", stored, *arguments]
        return CliRunner().invoke(main, [str(argument) for argument in typed])

    expected = bigkpca.evaluate(tmp_path / "model.zarr", stored, sample=200, seed=5)
    shown = run("--sample", 200, "--seed", 5)
    assert shown.exit_code == 0, shown.output
    assert "200 of 600 rows" in shown.stdout
    assert len(re.findall(r"^ +\d+ ", shown.stdout, re.M)) == R
    facts = json.loads(run("--sample", 200, "--seed", 5, "--json", "-q").stdout)
    assert facts["eigenvalues"] == expected.eigenvalues.tolist()
    assert facts["residuals"] == expected.residuals.tolist()
    assert facts["frobenius"]["value"] == expected.frobenius.value
    assert facts["total_variance"]["standard_error"] == expected.total_variance.standard_error
    assert (facts["rows"], facts["sampled"]) == (600, 200)
    assert run("--sample", 601).exit_code == 2
    assert run("--sample", 1).exit_code == 2
