"""Estimates of a model's error from sampled exact rows, against the whole Gram matrix."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import oracles
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose

from bigkpca import KernelPCA, evaluate
from bigkpca.cli import main
from bigkpca.engine import Engine
from bigkpca.errors import SpecError

MODELS: list[dict[str, Any]] = [
    {"landmarks": "uniform", "size": 60},
    {"size": 60},
    {"size": 60, "center": False},
    {"method": "columns", "size": 60},
    {"method": "rff", "size": 200},
]
ids = pytest.mark.parametrize("options", MODELS, ids=str)


def truth(model: KernelPCA, X: Any) -> tuple[Any, Any, Any]:
    """(unit score vectors, u'Kc u of each, Kc), K in place of Kc where the model is not centred."""
    K = model.kernel_.gram(X)
    U = model.transform(X)
    if model.center:
        K, U = oracles.centred(K), U - U.mean(axis=0)
    U /= np.linalg.norm(U, axis=0)
    return U, np.einsum("ij,ij->j", U, K @ U), K


@pytest.fixture(scope="module")
def digit_rows() -> Any:
    from sklearn.datasets import load_digits

    return load_digits().data[:600]


@ids
def test_intervals_cover_the_eigenvalues_of_the_score_vectors(options: dict[str, Any], digit_rows: Any) -> None:
    model = KernelPCA(5, sigma=25.0, random_state=0, **options).fit(digit_rows)
    _, true, _ = truth(model, digit_rows)
    inside = []
    for seed in range(40):
        found = evaluate(model.model_, digit_rows, sample=150, seed=seed)
        inside.append(np.abs(found.eigenvalues - true) <= 1.96 * found.standard_errors)
    assert 0.88 <= np.mean(inside) <= 0.995  # 200 intervals, five and five of which go together


@ids
def test_a_sample_of_all_rows_is_exact(options: dict[str, Any], digit_rows: Any) -> None:
    X = digit_rows[:200]
    model = KernelPCA(4, sigma=25.0, random_state=0, **options).fit(X)
    U, true, K = truth(model, X)
    found = evaluate(model.model_, X, sample=200)
    assert_allclose(found.eigenvalues, true, rtol=1e-6)
    assert_allclose(found.residuals, np.linalg.norm(K @ U - U * true, axis=0) / true, rtol=5e-3)  # n / (n - 1)
    assert_allclose(found.total_variance.value, np.trace(K), rtol=1e-9)
    assert found.total_variance.standard_error == 0


def test_the_norm_of_the_error_is_that_of_the_approximation(digit_rows: Any) -> None:
    X = digit_rows[:200]
    model = KernelPCA(4, sigma=25.0, size=60, landmarks="uniform", random_state=0).fit(X)
    K, S = model.kernel_.gram(X), model.landmarks_
    error = K - oracles.nystroem_gram(model.kernel_(X, S), model.kernel_.gram(S), 1e-12)
    found = evaluate(model.model_, X, sample=200)
    assert_allclose(found.frobenius.value, np.linalg.norm(error), rtol=1e-6)
    sampled = evaluate(model.model_, X, sample=100).frobenius
    assert abs(sampled.value - found.frobenius.value) < 4 * sampled.standard_error


def test_a_model_is_evaluated_on_rows_it_has_not_seen(digit_rows: Any) -> None:
    model = KernelPCA(4, sigma=25.0, size=60, random_state=0).fit(digit_rows[:300])
    new = digit_rows[300:]
    _, true, _ = truth(model, new)
    found = evaluate(model.model_, new, sample=200)
    assert (np.abs(found.eigenvalues - true) < 4 * found.standard_errors).all()


def test_evaluations_are_the_same_numbers_on_processes(digit_rows: Any, two_processes: Engine) -> None:
    model = KernelPCA(4, sigma=25.0, size=60, random_state=0, block_rows=200).fit(digit_rows)
    here = evaluate(model.model_, digit_rows, sample=50)
    assert two_processes.client is not None
    with two_processes.client.as_current():
        there = evaluate(model.model_, digit_rows, sample=50)
    assert here.eigenvalues.tobytes() == there.eigenvalues.tobytes()
    assert here.frobenius == there.frobenius


def test_what_cannot_be_evaluated_is_refused(digit_rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = KernelPCA(4, sigma=25.0, size=60, random_state=0).fit(digit_rows).model_
    with pytest.raises(SpecError, match="a sample of 601 rows: the array has 600"):
        evaluate(model, digit_rows, sample=601)
    with pytest.raises(SpecError, match="the array has 63 columns, the model was fitted on 64"):
        evaluate(model, digit_rows[:, 1:])
    monkeypatch.setattr("bigkpca.pipeline.EXACT_MOST_ROWS", 50)
    with pytest.raises(SpecError, match="at most 50, and this model keeps 60 rows; its certificate has the residual"):
        evaluate(model, digit_rows)


def test_the_command_prints_a_table_or_json(digit_rows: Any, tmp_path: Any) -> None:
    rows, model = str(tmp_path / "rows.npy"), str(tmp_path / "model.zarr")
    np.save(rows, digit_rows)
    KernelPCA(3, sigma=25.0, size=60, random_state=0).fit(digit_rows).save(model)
    printed = CliRunner().invoke(main, ["evaluate", "-q", model, rows, "--sample", "100"])
    assert printed.exit_code == 0, printed.output
    assert "estimates from 100 of 600 rows" in printed.stdout
    assert "total variance" in printed.stdout
    as_json = CliRunner().invoke(main, ["evaluate", "-q", model, rows, "--sample", "100", "--json"])
    found = json.loads(as_json.stdout)
    assert len(found["eigenvalues"]) == len(found["residuals"]) == 3
    assert found["total_variance"]["standard_error"] > 0
