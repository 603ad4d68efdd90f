"""Rows added to a model, and models of parts of the rows that add up to the model of all rows."""

from dataclasses import replace

import numpy as np
import pytest

from bigkpca import KernelPCA, kernels
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import MemoryLimitError, SpecError, UniformLandmarksWarning
from bigkpca.execution.engine import Engine
from bigkpca.fitting.merge import extend, fit_like, merge, spec_like
from bigkpca.numerics.moments import of_square
from bigkpca.spec import FitSpec, resolve
from bigkpca.storage.models import model_digest
from tests.fitting.cases import CASES, fitted, not_uniform
from tests.helpers import oracles
from tests.helpers.fits import scores

ENGINE = Engine(threads=1)


def like(model, X):
    """The model of rows X with the features of `model`."""
    return fit_like(ArrayRows(X), model, spec_like(model, {}), ENGINE, None)


def in_parts(X, *cuts, **options):
    """Models of parts of X that end before these rows."""
    first, *others = np.split(X, cuts)
    model = fitted(first, **options)
    return [model, *(like(model, part) for part in others)]


def agree(found, expected):
    """Scores are the same but for their signs."""
    atol = 1e-6 * np.abs(expected).max()
    np.testing.assert_allclose(oracles.with_signs_of(found, expected), expected, rtol=1e-6, atol=atol)


@not_uniform
@pytest.mark.parametrize(
    "case", ["kmeans", "thesis", "columns", "rff phase", "rff-pca pointwise", "tensor sketch", "standardize"]
)
def test_adding_rows_is_fitting_all_with_the_same_features_and_signs(case, X):
    half = fitted(X[:220], **CASES[case])
    grown = extend(half, ArrayRows(X[220:]), FitSpec.of(half), ENGINE)
    whole = like(half, X)
    np.testing.assert_allclose(grown.solution.eigenvalues, whole.solution.eigenvalues, rtol=1e-9)
    np.testing.assert_allclose(grown.solution.total_variance, whole.solution.total_variance, rtol=1e-9)
    before, after = scores(half, X), scores(grown, X)
    agree(after, scores(whole, X))
    agreement = (after * before).sum(axis=0) / (np.linalg.norm(after, axis=0) * np.linalg.norm(before, axis=0))
    followed = agreement[np.abs(agreement) > 0.5]  # a component that turned into another one has no sign to follow
    assert len(followed) >= 3
    assert (followed > 0).all()
    fewer = extend(half, ArrayRows(X[220:]), FitSpec.of(half).model_copy(update={"n_components": 4}), ENGINE)
    np.testing.assert_allclose(scores(fewer, X), after[:, :4], rtol=1e-6, atol=1e-6 * np.abs(after).max())


def test_models_without_sums_take_no_more_rows(X):
    for options in ({"method": "exact"}, {"method": "rff", "solver": "randomized"}, {"refine": 1, "size": 20}):
        kpca = KernelPCA(3, **options).fit(X[:100])
        before, message = model_digest(kpca.model_), "or of the randomized solver cannot take more rows"
        assert not hasattr(KernelPCA(3, **options), "partial_fit")
        with pytest.raises(AttributeError, match="'KernelPCA' has no attribute 'partial_fit'") as caught:
            kpca.partial_fit(X[100:])
        assert message in str(caught.value.__cause__)
        with pytest.raises(SpecError, match=message):
            extend(kpca.model_, ArrayRows(X[100:]), FitSpec.of(kpca.model_), ENGINE)
        assert model_digest(kpca.model_) == before


@not_uniform
@pytest.mark.parametrize("case", ["columns", "rff-pca pointwise", "row numbers"])
def test_merged_models_are_the_model_of_all_rows(case, X):
    options = {"landmarks": np.arange(0, 100, 3), "size": "auto"} if case == "row numbers" else CASES[case]
    parts = in_parts(X, 110, 220, **options)
    before = [model_digest(each) for each in parts]
    merged, whole = merge(parts, ENGINE), like(parts[0], X)
    assert [model_digest(each) for each in parts] == before
    assert [each["shape"][0] for each in merged.provenance["added"]] == [110, 80]
    assert whole.provenance["spec"] == parts[0].provenance["spec"]
    assert merged.sums.count == len(X)
    np.testing.assert_allclose(merged.solution.eigenvalues, whole.solution.eigenvalues, rtol=1e-9)
    np.testing.assert_allclose(merged.solution.total_variance, whole.solution.total_variance, rtol=1e-9)
    agree(scores(merged, X), scores(whole, X))


@pytest.mark.bits
def test_sums_of_equal_parts_are_those_of_all_rows_to_the_bit(X):
    for cuts, dtype in (((128, 256), "f4"), (range(32, 289, 32), "f8")):
        parts = in_parts(X.astype(dtype), *cuts, block_rows=32)
        merged, whole = merge(parts, ENGINE), like(parts[0], X.astype(dtype))
        for name in ("about", "total", "products", "trace", "count"):
            np.testing.assert_array_equal(getattr(merged.sums, name), getattr(whole.sums, name))
        np.testing.assert_array_equal(merged.solution.eigenvalues, whole.solution.eigenvalues)


def test_samples_of_parts_stay_in_proportion_however_models_are_merged():
    rows = np.random.default_rng(0).normal(size=(1600, 3))
    rows[800:, 0] += 6  # the second half is another cluster
    parts = in_parts(rows, 400, 800, 1200, method="rff", size=40, n_components=2)
    ab, cd = merge(parts[:2], ENGINE), merge(parts[2:], ENGINE)
    for merged in (merge(parts, ENGINE), merge([ab, cd], ENGINE), merge([ab, *parts[2:]], ENGINE)):
        assert 0.4 < np.mean(merged.drawn.X[:, 0] > 3) < 0.6


def test_a_small_part_is_planned_with_the_features_that_it_gets():
    X = np.random.default_rng(0).normal(size=(500, 5))
    model = fitted(X[:400], size=300)
    small = ArrayRows(X[400:])
    fit = resolve(spec_like(model, {}), small).with_features(model.features.size, model.features.dtype)
    assert (fit.size, fit.dtype) == (300, np.float64)
    with pytest.raises(MemoryLimitError, match=r"this needs .* MB in a process, but 10 MB are allowed"):
        fit_like(small, model, spec_like(model, {}), ENGINE, 10_000_000)


def assert_bounds_hold(model, X):
    """Bounds against the eigenvalues of the exact Gram matrix."""
    rows, found = model.features.shifted(X), model.certificate
    exact, _ = oracles.gram_kpca(model.features.kernel(rows, rows), model.components)
    assert found.proven
    assert (found.lower <= exact * (1 + 1e-9)).all()
    assert (found.upper >= exact * (1 - 1e-9)).all()


@pytest.mark.filterwarnings("ignore::bigkpca.errors.IndefiniteKernelWarning")
def test_bounds_of_a_merged_model_hold_for_all_rows(X):
    assert_bounds_hold(merge(in_parts(X, 80, 200, landmarks="uniform"), ENGINE), X)
    indefinite = merge(in_parts(X, 80, 200, kernel=kernels.Sigmoid(gamma=0.001, coef0=0.1)), ENGINE).certificate
    assert not indefinite.proven
    assert np.isfinite(indefinite.missed).all()


def test_bounds_hold_where_the_first_part_has_not_seen_a_cluster(X):
    far = X[:100] * 0.2 + 1000  # alike among themselves, and like no landmark
    model = fitted(X[100:200])
    other = like(model, np.concatenate([X[200:250], far]))
    for order in ([model, other], [other, model]):
        merged = merge(order, ENGINE)
        assert_bounds_hold(merged, np.concatenate([X[100:250], far]))
        assert set(merged.certificate.trust) == {"doubtful"}


def test_sums_about_different_vectors_add_up(X):
    one, other = in_parts(X, 150)
    known, nothing = other.sums.moments, np.zeros(len(other.sums.about))
    about_their_mean = replace(other.sums, about=known.mean, total=nothing, products=of_square(known.scatter))
    merged, expected = merge([one, replace(other, sums=about_their_mean)], ENGINE), merge([one, other], ENGINE)
    np.testing.assert_allclose(merged.solution.eigenvalues, expected.solution.eigenvalues, rtol=1e-10)


def test_methods_that_need_uniform_landmarks_warn(X):
    model = fitted(X[:150], method="columns")
    for call in (
        lambda: like(model, X[150:]),
        lambda: extend(model, ArrayRows(X[150:]), FitSpec.of(model), ENGINE),
    ):
        with pytest.warns(UniformLandmarksWarning, match="these are from some of them"):
            call()


def test_what_does_not_add_up_is_refused(X):
    model = fitted(X[:150])
    other = like(model, X[150:])
    fewer = replace(other, provenance={**other.provenance, "spec": {**other.provenance["spec"], "n_components": 3}})

    def of_file(digest, path="a"):  # as computed here, and there by a processor with other rounding
        identity = {"path": path, "stamp": "x"}
        return replace(other, provenance={**other.provenance, "identity": identity, "content": digest})

    for models, message in (
        ([], "0 models were given: merging needs at least two"),
        ([model], "1 models were given"),
        ([model, fitted(X[150:])], r"model 2 has different features from the first one .* fit it with like="),
        ([model, other, model], "model 3 has the same rows as model 1, which would count twice"),
        ([other, merge([model, other], ENGINE)], "model 2 has the same rows as model 1"),
        ([model, fitted(X[150:], method="exact")], "model 2: a model of the exact method"),
        ([of_file("here"), of_file("there")], "model 2 has the same rows as model 1"),
        ([model, replace(other, drawn=None)], "model 2: a model of the exact method"),
        ([model, fewer], "model 2 was fitted with n_components=3, the first one with 6"),
    ):
        with pytest.raises(SpecError, match=message):
            merge(models, ENGINE)
    merge([of_file("here"), of_file("there", "b")], ENGINE)  # other files may have the same sizes and times


def test_options_that_features_do_not_allow_are_refused(X):
    for before, options, message in (
        ({}, {"sigma": 3.0}, "sigma=3.0, but the model was fitted with 'median', which must not change"),
        ({"method": "exact"}, {}, "the exact method"),
    ):
        with pytest.raises(SpecError, match=message):
            spec_like(fitted(X[:100], **before), options)
    with pytest.raises(SpecError, match="columns"):
        like(fitted(X[:150]), X[:, :3])
