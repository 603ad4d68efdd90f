"""Rows added to a model that was fitted before."""

import numpy as np
import pytest

from bigkpca import KernelPCA
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.errors import SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import sums_of
from bigkpca.execution.progress import Silent
from bigkpca.fitting.partial_fit import extend
from bigkpca.fitting.solve import Checks, solve
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec, resolve
from bigkpca.storage.models import model_digest
from tests.fitting.cases import CASES, OPTIONS, fitted, not_uniform
from tests.helpers import oracles
from tests.helpers.fits import scores


@not_uniform
@pytest.mark.parametrize(
    "case", ["kmeans", "thesis", "columns", "rff phase", "rff-pca pointwise", "tensor sketch", "standardize"]
)
def test_adding_rows_is_fitting_all_with_the_same_features_and_signs(case, X):
    options = OPTIONS | CASES[case]
    spec, rows, engine = FitSpec.checked(**options), ArrayRows(X), Engine(threads=1)
    half = fitted(X[:220], **options)
    grown = extend(half, ArrayRows(X[220:]), spec, engine, Silent())
    sums, _ = sums_of(rows, half.features, half.sums.about, None, engine, Silent())
    whole, *_ = solve(sums.moments, half.features, resolve(spec, rows), Checks(X, half.sums.about, X[:0], len(X), X))
    np.testing.assert_allclose(grown.solution.eigenvalues, whole.eigenvalues, rtol=1e-9)
    np.testing.assert_allclose(grown.solution.total_variance, whole.total_variance, rtol=1e-9)
    before, after, expected = (scores(model, X) for model in (half, grown, Model(half.features, whole, sums)))
    np.testing.assert_allclose(
        oracles.with_signs_of(after, expected), expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max()
    )
    agreement = (after * before).sum(axis=0) / (np.linalg.norm(after, axis=0) * np.linalg.norm(before, axis=0))
    followed = agreement[np.abs(agreement) > 0.5]  # a component that turned into another one has no sign to follow
    assert len(followed) >= 3
    assert (followed > 0).all()


def test_random_features_of_halves_are_those_of_all_rows(X):
    # Frequencies depend on the seed alone, and sine and cosine pairs do not care where the rows were shifted to.
    options = {"method": "rff", "sigma": 25.0, "size": 100, "random_state": 1}
    halves = KernelPCA(5, **options).partial_fit(X[:150]).partial_fit(X[150:])
    whole = KernelPCA(5, **options).fit(X)
    np.testing.assert_allclose(halves.eigenvalues_, whole.eigenvalues_, rtol=1e-9)
    expected = whole.transform(X)
    np.testing.assert_allclose(oracles.with_signs_of(halves.transform(X), expected), expected, atol=1e-6)


def test_models_without_sums_take_no_more_rows(X):
    for options in ({"method": "exact"}, {"method": "rff", "solver": "randomized"}, {"refine": 1, "size": 20}):
        kpca = KernelPCA(3, **options).fit(X[:100])
        before = model_digest(kpca.model_)
        assert not hasattr(kpca, "partial_fit")
        assert not hasattr(KernelPCA(3, **options), "partial_fit")
        with pytest.raises(AttributeError) as caught:
            kpca.partial_fit(X[100:])
        assert "or of the randomized solver cannot take more rows" in str(caught.value.__cause__)
        with pytest.raises(SpecError, match="or of the randomized solver cannot take more rows"):
            extend(kpca.model_, ArrayRows(X[100:]), FitSpec.of(kpca.model_), Engine(threads=1), Silent())
        assert model_digest(kpca.model_) == before
