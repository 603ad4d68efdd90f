"""The error of fitted models from exact kernels with sampled rows, and the command that prints it."""

import json
import re
from dataclasses import fields

import numpy as np
import pytest
import zarr
from numpy.testing import assert_allclose, assert_array_equal

import bigkpca
from bigkpca import KernelPCA
from bigkpca.errors import DataError, SpecError
from bigkpca.numerics.linear_pca import captured
from tests.evaluating.models import R, fitted, some_rows, truth
from tests.helpers.commands import run
from tests.helpers.stores import counted_reads


@pytest.mark.parametrize("center", [True, False])
def test_digits_fitted_and_new(digits, center):
    model = fitted(digits[:600], center=center)
    for X in (digits[:600], digits[600:1200]):  # the second it has not seen
        true, found = truth(model, X), bigkpca.evaluate(model, X, sample=300, random_state=2)
        assert found.rows == len(X)
        assert (np.abs(found.eigenvalues - true["eigenvalues"]) <= 4 * found.standard_errors).all()
        assert (found.standard_errors < 0.02 * found.eigenvalues).all()
        assert_allclose(found.residuals, true["residuals"], rtol=0.2)
        assert abs(found.frobenius.value - true["frobenius"]) <= 4 * found.frobenius.standard_error
        difference = abs(found.total_variance.value - true["total_variance"])
        assert difference <= 4 * found.total_variance.standard_error + 1e-5 * true["total_variance"]


@pytest.mark.full
def test_an_evaluation_tells_what_scores_capture_of_columns_and_what_pre_images_lose(digits):
    X = digits[:600].astype(np.float64)
    kpca = KernelPCA(R, size=60, random_state=1).fit(X)
    found, Y = bigkpca.evaluate(kpca, X, sample=150), kpca.transform(X)  # drawn from all rows
    own = captured(kpca.model_.features, X, Y)
    assert found.captured.shares == pytest.approx(own.shares, rel=1e-4)
    assert (found.captured.rows, found.captured.held_out) == (450, 150)
    held_out = np.arange(3, 600, 4)
    train = np.delete(X, held_out, axis=0)
    spread = np.sum((X[held_out] - train.mean(axis=0)) ** 2)
    lost = np.sum((X[held_out] - kpca.inverse_transform(Y[held_out])) ** 2) / spread
    assert found.lost.by_preimages == pytest.approx(lost, rel=1e-4)
    V = np.linalg.svd(train - train.mean(axis=0), full_matrices=False)[2][:R]
    Z = X[held_out] - train.mean(axis=0)
    assert found.lost.by_pca == pytest.approx(np.sum((Z - Z @ V.T @ V) ** 2) / spread, rel=1e-4)
    assert "columns explained" in repr(found)
    without = bigkpca.evaluate(fitted(X, kernel="laplacian"), X, sample=150)
    assert without.captured is not None
    assert without.lost is None


def test_models_that_keep_all_rows_have_no_error_on_them():
    X = some_rows(200)
    for method, refine, residual in (("exact", 0, 1e-8), ("nystroem", 2, np.inf), ("rff", 2, np.inf)):
        model = fitted(X, method=method, refine=refine, residual_tol=1e-9)
        found = bigkpca.evaluate(model, X, sample=80)
        assert_allclose(found.eigenvalues, model.solution.eigenvalues, rtol=1e-3 if refine else 1e-9)
        assert found.frobenius.value < 1e-6
        assert found.residuals.max() < residual


@pytest.fixture
def stored(tmp_path):
    path = str(tmp_path / "rows.zarr")
    zarr.create_array(path, shape=(600, 3), dtype=np.float64, chunks=(100, 3))[:] = some_rows(600)
    return path


def test_rows_are_read_once_for_the_sample_and_once_more(stored, monkeypatch):
    model, counts = fitted(stored), counted_reads(monkeypatch, 6, 100)
    bigkpca.evaluate(model, stored, sample=100)
    assert_array_equal(counts, 2)


def assert_same(found, other):
    for part in fields(found):
        first, second = (getattr(each, part.name) for each in (found, other))
        if part.name == "captured":
            assert_same(first, second)
        else:
            assert_array_equal(np.asarray(first, object), np.asarray(second, object), part.name)


@pytest.mark.full
@pytest.mark.bits
def test_estimates_are_the_same_on_threads_and_processes(stored, two_processes):
    model = fitted(stored, block_rows=100)
    here = bigkpca.evaluate(model, stored, sample=100)
    with two_processes.client.as_current():
        assert_same(bigkpca.evaluate(model, stored, sample=100), here)


def test_the_seed_decides_which_rows_are_sampled():
    X = some_rows(150)
    first, again, other = (bigkpca.evaluate(fitted(X), X, sample=50, random_state=seed) for seed in (0, 0, 1))
    assert first.sampled == 50
    assert_same(first, again)
    assert (first.eigenvalues != other.eigenvalues).any()


def test_what_cannot_be_evaluated_is_refused(monkeypatch):
    X = some_rows(150)
    model = fitted(X)
    with pytest.raises(SpecError, match="has 4 columns, but the model was fitted on 3"):
        bigkpca.evaluate(model, some_rows(150, d=4), sample=50)
    for sample in (151, 1):
        with pytest.raises(SpecError, match=f"sample={sample}: .* has 150 rows"):
            bigkpca.evaluate(model, X, sample=sample)
    exact = fitted(X, method="exact")
    monkeypatch.setattr("bigkpca.evaluating.EXACT_MOST_ROWS", 100)
    with pytest.raises(SpecError, match="at most 100 landmarks, but this model keeps 150 rows: see the residual"):
        bigkpca.evaluate(exact, X, sample=50)
    rows = X.astype(np.float32)
    cubic = fitted(rows, kernel="polynomial")
    for size in (1e12, 1e20):
        rows[7] = size
        with pytest.raises(DataError, match="the array, rows 0 to 149: kernel values overflow"):
            bigkpca.evaluate(cubic, rows, sample=50)


def test_the_command_prints_estimates_or_json(stored, tmp_path):
    KernelPCA(R, size=60, random_state=0).fit(stored).save(tmp_path / "model.zarr")

    def evaluate(*options):
        return run("evaluate", tmp_path / "model.zarr", stored, *options)

    expected = bigkpca.evaluate(tmp_path / "model.zarr", stored, sample=200, random_state=5)
    shown = evaluate("--sample", 200, "--seed", 5)
    assert shown.exit_code == 0, shown.output
    assert "estimates from 200 of 600 rows" in shown.stdout
    assert f"total variance   {expected.total_variance.value:.6g} ± " in shown.stdout
    assert len(re.findall(r"^ +\d+ ", shown.stdout, re.M)) == R
    low, high = expected.intervals[0]
    assert f"{low:#.6g} to {high:#.6g}" in shown.stdout
    facts = json.loads(evaluate("--sample", 200, "--seed", 5, "--json", "-q").stdout)
    for name in ("eigenvalues", "intervals", "residuals"):
        assert facts[name] == getattr(expected, name).tolist()
    assert facts["frobenius"]["value"] == expected.frobenius.value
    assert facts["total_variance"]["standard_error"] == expected.total_variance.standard_error
    assert (facts["rows"], facts["sampled"]) == (600, 200)
    assert evaluate("--sample", 601).exit_code == 2
