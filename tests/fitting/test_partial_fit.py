"""Rows added to a model that was fitted before."""

import numpy as np
import pytest

from bigkpca import KernelPCA
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import sums_of
from bigkpca.execution.progress import Silent
from bigkpca.fitting.partial_fit import extend
from bigkpca.fitting.solve import Checks, solve
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec, resolve
from bigkpca.storage.models import model_digest
from tests.fitting.cases import CASES, OPTIONS, fitted
from tests.helpers import oracles
from tests.helpers.fits import scores

not_uniform = pytest.mark.filterwarnings("ignore::bigkpca.errors.UniformLandmarksWarning")


@not_uniform
@pytest.mark.parametrize("case", [name for name in CASES if name != "exact" and "randomized" not in name])
def test_adding_rows_is_fitting_all_with_the_same_features(case, X):
    options = OPTIONS | CASES[case]
    if "numbers" in case:
        options = options | {"landmarks": np.arange(0, 300, 7)}
    spec, rows = FitSpec.checked(**options), ArrayRows(X)
    half = fitted(X[:300], **options)
    grown = extend(half, ArrayRows(X[300:]), spec, Engine(threads=1), Silent())
    assert half.sums is not None
    sums, _ = sums_of(rows, half.features, half.sums.about, None, Engine(threads=1), Silent())
    checks = Checks(X, half.sums.about, X[:0], len(X), X)
    whole, *_ = solve(sums.moments, half.features, resolve(spec, rows), checks)
    np.testing.assert_allclose(grown.solution.eigenvalues, whole.eigenvalues, rtol=1e-9)
    np.testing.assert_allclose(grown.solution.total_variance, whole.total_variance, rtol=1e-9)
    expected = scores(Model(half.features, whole, sums), X)
    ours = scores(grown, X)
    np.testing.assert_allclose(
        oracles.with_signs_of(ours, expected), expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max()
    )


@not_uniform
@pytest.mark.parametrize(
    "case", ["nystroem", "thesis", "columns", "rff orthogonal", "rff phase", "rff-pca pointwise", "tensor sketch"]
)
def test_signs_follow_those_of_the_model_before_rows_were_added(case, X):
    options = OPTIONS | CASES[case]
    half = fitted(X[:300], **options)
    more = ArrayRows(X[300:])
    grown = extend(half, more, FitSpec.checked(**options), Engine(threads=1), Silent())
    before, after = (scores(model, X) for model in (half, grown))
    agreement = (after * before).sum(axis=0) / (np.linalg.norm(after, axis=0) * np.linalg.norm(before, axis=0))
    followed = agreement[np.abs(agreement) > 0.5]  # a component that turned into another one has no sign to follow
    assert len(followed) >= 3
    assert (followed > 0).all()


def test_signs_of_a_tensor_sketch_follow_through_partial_fit(digits):
    X = digits[:600]
    kpca = KernelPCA(6, method="rff", kernel="polynomial", degree=2, size=60, random_state=3).partial_fit(X[:300])
    before = kpca.transform(X)
    after = kpca.partial_fit(X[300:]).transform(X)
    assert ((before * after).sum(axis=0) > 0).all()


@not_uniform
@pytest.mark.parametrize("method", ["columns", "rff", "rff-pca", "nystroem"])
def test_partial_fit_on_halves_counts_all_rows(method, X):
    kpca = KernelPCA(3, method=method, size=40, random_state=0).partial_fit(X[:300])
    first = kpca.transform(X)
    kpca.partial_fit(X[300:])
    assert kpca.model_.moments.count == 600
    again = kpca.transform(X)
    assert (first[:, 0] * again[:, 0]).sum() > 0
    np.testing.assert_allclose(again.mean(axis=0), 0, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_random_features_of_halves_are_those_of_all_rows(seed, X):
    # Frequencies depend on the seed alone, and sine and cosine pairs do not care where the rows were shifted to.
    options = {"method": "rff", "sigma": 25.0, "size": 100, "random_state": seed}
    halves = KernelPCA(5, **options).partial_fit(X[:300]).partial_fit(X[300:])
    whole = KernelPCA(5, **options).fit(X)
    np.testing.assert_allclose(halves.eigenvalues_, whole.eigenvalues_, rtol=1e-9)
    expected = whole.transform(X)
    np.testing.assert_allclose(oracles.with_signs_of(halves.transform(X), expected), expected, atol=1e-6)


@pytest.mark.parametrize("options", [{"method": "exact"}, {"method": "rff", "solver": "randomized"}], ids=str)
def test_models_without_moments_take_no_more_rows(options, X):
    kpca = KernelPCA(3, **options).fit(X[:100])
    before = model_digest(kpca.model_)
    assert not hasattr(kpca, "partial_fit")
    assert not hasattr(KernelPCA(3, **options), "partial_fit")
    with pytest.raises(AttributeError) as caught:
        kpca.partial_fit(X[100:])
    assert "or of the randomized solver cannot take more rows" in str(caught.value.__cause__)
    assert model_digest(kpca.model_) == before
