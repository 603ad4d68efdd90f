"""Every method and every landmark rule end to end: the same bits everywhere, on disk too, and what scores add up to."""

import numpy as np
import pytest
from sklearn.base import clone

from bigkpca import KernelPCA
from bigkpca.execution.engine import Engine
from bigkpca.storage.models import load_model, model_digest
from bigkpca.workflows.fit import save
from tests.fitting.cases import CASES, every_case, every_method, fitted
from tests.helpers.fits import scores

SAVED_QUICKLY = ("columns", "own rows", "row numbers", "rff-pca pointwise")


def bits(X, engine, **options):
    model = fitted(X, engine, **options)
    return model_digest(model), scores(model, X, engine).tobytes()


@pytest.mark.bits
@every_case
def test_models_and_scores_are_the_same_bytes_with_any_number_of_threads(case, digits):
    one, two = (bits(digits[:150], Engine(threads=count), **CASES[case], block_rows=60) for count in (1, 2))
    assert one == two


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in SAVED_QUICKLY else pytest.mark.full) for case in CASES]
)
def test_models_are_saved_and_fitted_again_by_their_parameters_and_seed(case, digits, tmp_path):
    # Rows of the caller's come back from the offset to the bit in float64 alone.
    X = digits[:150].astype(np.float64) if case == "own rows" else digits[:150]
    model = fitted(X, **CASES[case])
    expected = scores(model, X).tobytes()
    save(model, tmp_path / "model.zarr")
    loaded = load_model(str(tmp_path / "model.zarr"))
    assert model_digest(loaded) == model_digest(model)
    assert scores(loaded, X).tobytes() == expected
    kpca = KernelPCA.load(tmp_path / "model.zarr")
    assert kpca.transform(X).tobytes() == expected
    again = clone(kpca).fit(X).model_
    assert scores(again, X).tobytes() == expected
    if case != "own rows":
        assert model_digest(again) == model_digest(model)
    other = fitted(X, **CASES[case] | {"random_state": 4})
    moved = not np.allclose(other.solution.eigenvalues, model.solution.eigenvalues, rtol=1e-6)
    assert moved == (case not in ("exact", "own rows", "row numbers"))


@pytest.mark.parametrize("case", ["nystroem", "columns", "rff phase", "exact", "standardize"])
def test_blocks_change_nothing_but_rounding(case, few):
    one, many = (fitted(few, **CASES[case], block_rows=rows) for rows in (None, 60))
    np.testing.assert_allclose(many.solution.eigenvalues, one.solution.eigenvalues, rtol=1e-9)
    np.testing.assert_allclose(scores(many, few), scores(one, few), atol=1e-6 * np.abs(scores(one, few)).max())


@every_method
def test_training_scores_are_centred_and_new_rows_by_the_training_mean(method, X):
    model = fitted(X[:150], method=method)
    training = scores(model, X[:150])
    np.testing.assert_allclose(training.mean(axis=0), 0, atol=1e-10 * np.abs(training).max())
    squares = (training**2).sum(axis=0)
    if method == "rff-pca":  # its eigenvalues have mean(1 - a²) besides
        added = model.solution.eigenvalues - squares
        np.testing.assert_allclose(added, added[0], rtol=1e-6)
        assert 0 < added[0] < 1
    else:
        np.testing.assert_allclose(squares, model.solution.eigenvalues, rtol=1e-6)
    # A row scores as it would among the training rows, and not about the mean of the rows beside it.
    np.testing.assert_allclose(scores(model, X[:5]), training[:5], rtol=1e-9, atol=1e-9)
    assert np.abs(scores(model, X[150:]).mean(axis=0)).max() > 1e-3
