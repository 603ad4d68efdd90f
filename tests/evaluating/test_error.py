"""The error of fitted models from exact kernels between sampled rows, and the command that prints it."""

import json

import numpy as np
import pytest
import zarr
from numpy.testing import assert_allclose

import bigkpca
from bigkpca import KernelPCA
from bigkpca.errors import DataError, SpecError
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.linear_pca import captured
from tests.helpers import oracles
from tests.helpers.commands import run
from tests.helpers.fits import fit

R = 4
MODELS = {
    "kmeans": {"landmarks": "kmeans"},
    "columns": {"method": "columns"},
    "rff": {"method": "rff"},
    "rff-pca": {"method": "rff-pca"},
    "standardized": {"standardize": True},
    "polynomial": {"kernel": "polynomial"},
    "thesis": {"method": bigkpca.methods.Nystroem(form="thesis")},
}


def some_rows(n, seed=0, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def fitted(X, engine=None, **options):
    return fit(X, engine, **{"n_components": R, "size": 60, "random_state": 1} | options)


def truth(model, X):
    """The three errors of a model, from the whole Gram matrix of rows X."""
    features, options = model.features, model.provenance["spec"]
    K = features.kernel.gram(features.as_columns().shifted(X).astype(np.float64))
    V = next(iter(features.tiles([X], len(X))))[0].astype(np.float64)
    cutoff = rank_tolerance(features.dtype)
    if options["method"] == "columns":
        E = K - oracles.columns_gram(V, cutoff)
    elif hasattr(features, "landmarks"):
        E = K - oracles.nystroem_gram(V, features.gram(), cutoff)
    else:
        E = K - V @ V.T
    missed = np.abs(np.diag(E)).sum()
    K, E = (oracles.centred(A) if options["center"] else A for A in (K, E))
    scores, total = (V - model.solution.mean) @ model.solution.components, np.trace(K)
    apart = ~np.eye(len(X), dtype=bool)
    return np.sum(scores**2) / total, missed / total, np.linalg.norm(E[apart]) / np.linalg.norm(K[apart])


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_all_rows_give_the_errors_themselves_and_a_sample_estimates_them(name, center):
    X, new = some_rows(400), some_rows(400, seed=1)
    model = fitted(X, center=center, **MODELS[name])
    for rows in (X,) if name == "columns" else (X, new):  # whose approximation of other rows is that of these
        found = bigkpca.evaluate(model, rows)
        values = [each.value for each in (found.explained, found.unexplained, found.kernel)]
        assert_allclose(values, truth(model, rows), rtol=1e-3, atol=1e-5)
        assert found.explained.standard_error == found.kernel.standard_error == 0
    sampled = bigkpca.evaluate(model, X, sample=200, random_state=2)
    for one, true in zip((sampled.explained, sampled.unexplained, sampled.kernel), truth(model, X), strict=True):
        assert abs(one.value - true) <= 5 * one.standard_error + 0.02 * true + 1e-5


def test_standard_errors_are_those_of_many_samples():
    X = some_rows(600)
    model = fitted(X, method="rff")
    found = [bigkpca.evaluate(model, X, sample=200, random_state=seed) for seed in range(200)]
    for name in ("explained", "unexplained", "kernel"):
        each = [getattr(one, name) for one in found]
        spread, stated = np.std([one.value for one in each]), np.mean([one.standard_error for one in each])
        assert 0.7 * spread < stated < 2 * spread, name


def test_an_evaluation_tells_what_scores_capture_of_columns_and_what_pre_images_lose(digits):
    X = digits[:200].astype(np.float64)
    kpca = KernelPCA(R, size=60, random_state=1).fit(X)
    found, Y = bigkpca.evaluate(kpca, X), kpca.transform(X)
    assert found.captured.shares == pytest.approx(captured(kpca.model_.features, X, Y).shares, rel=1e-4)
    held_out = np.arange(3, 200, 4)
    spread = np.sum((X[held_out] - np.delete(X, held_out, axis=0).mean(axis=0)) ** 2)
    lost = np.sum((X[held_out] - kpca.inverse_transform(Y[held_out])) ** 2) / spread
    assert found.lost.by_preimages == pytest.approx(lost, rel=1e-4)
    assert "columns explained" in repr(found)
    assert bigkpca.evaluate(fitted(X, kernel="laplacian"), X).lost is None


def test_models_that_keep_all_rows_have_no_error_on_them():
    X = some_rows(200)
    for method, refine in (("exact", 0), ("nystroem", 2), ("rff", 2)):
        model = fitted(X, method=method, refine=refine, residual_tol=1e-9)
        found = bigkpca.evaluate(model, X, sample=80)
        assert max(found.unexplained.value, found.kernel.value) < 1e-6
        assert found.explained.value == pytest.approx(model.solution.explained_variance_ratio.sum(), rel=0.2)


@pytest.fixture
def stored(tmp_path):
    path = str(tmp_path / "rows.zarr")
    zarr.create_array(path, data=some_rows(600), chunks=(100, 3))
    return path


@pytest.mark.full
@pytest.mark.bits
def test_estimates_are_the_same_on_threads_and_processes_and_depend_on_the_seed(stored, two_processes):
    model = fitted(stored, block_rows=100)
    here, other = (bigkpca.evaluate(model, stored, sample=100, random_state=seed) for seed in (0, 1))
    with two_processes.client.as_current():
        there = bigkpca.evaluate(model, stored, sample=100, random_state=0)
    assert repr(there) == repr(here)
    assert (there.kernel, there.captured.shares) == (here.kernel, here.captured.shares)
    assert other.kernel != here.kernel


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
    cubic, rows = fitted(X, kernel="polynomial"), X.copy()
    rows[7] = 1e120
    with pytest.raises(DataError, match="the array: kernel values overflow"):
        bigkpca.evaluate(cubic, rows)


def test_the_command_prints_estimates_or_json(stored, tmp_path):
    KernelPCA(R, size=60, random_state=0).fit(stored).save(tmp_path / "model.zarr")
    command = ("evaluate", tmp_path / "model.zarr", stored, "--sample")
    expected = bigkpca.evaluate(tmp_path / "model.zarr", stored, sample=200, random_state=5)
    shown = run(*command, 200, "--seed", 5).stdout
    for words in ("from 200 of 600 rows", *(f"    {each}\n" for each in (expected.explained, expected.kernel))):
        assert words in shown
    facts = json.loads(run(*command, 200, "--seed", 5, "--json", "-q").stdout)
    assert facts["kernel"] == {"value": expected.kernel.value, "standard_error": expected.kernel.standard_error}
    assert run(*command, 601).exit_code == 2
