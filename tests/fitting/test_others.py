"""The model of all rows but some, against a fit of the others; and verdicts on rows that a model has not seen."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

import bigkpca
from bigkpca import KernelPCA
from bigkpca.comparing import trials
from bigkpca.comparing.trials import Candidate, MethodVariant, run_trial
from bigkpca.data.rows import ArrayRows
from bigkpca.execution.engine import Engine
from bigkpca.fitting import others
from bigkpca.fitting.others import mapped, scored_without, with_other_preimages, without
from bigkpca.numerics.linear_pca import LinearPCA
from bigkpca.numerics.methods import Nystroem
from bigkpca.numerics.span import span_of
from bigkpca.spec import FitSpec
from tests.helpers.fits import fit
from tests.helpers.oracles import with_signs_of
from tests.helpers.stores import as_npy

JUDGED = np.arange(3, 240, 4)
KEPT = np.delete(np.arange(240), JUDGED)
SLOW = partial(pytest.param, marks=pytest.mark.full)


def in_order(function, values):
    return list(map(function, values))


def apart(X, **options):
    """A model of rows X, the one without every fourth row, and a fit of the others."""
    options = {"n_components": 3, "sigma": 40.0, "dtype": "float64"} | options
    model, own = (fit(rows, **options) for rows in (X, X[KEPT]))
    spec = FitSpec.of(model)
    other = without(model, mapped(model.features, X[JUDGED], in_order), JUDGED if spec.exact else None, spec, in_order)
    return other, own, other and partial(with_other_preimages, other, model, X[JUDGED], spec)


@pytest.mark.parametrize("options", [{}, {"center": False}, {"method": "exact"}], ids=str)
def test_the_model_without_some_rows_is_the_fit_of_the_others(options, digits):
    X = digits[:240].astype(np.float64)
    exact = options.get("method") == "exact"
    other, own, with_preimages = apart(X, **options, **({} if exact else {"landmarks": X[::5]}))
    assert_allclose(other.solution.eigenvalues, own.solution.eigenvalues, rtol=1e-6)
    (found,), (expected,) = (model.project([X[JUDGED]], len(JUDGED)) for model in (other, own))
    assert_allclose(with_signs_of(found, expected), expected, atol=1e-6)
    restoring = with_preimages()
    kept = restoring.features.unshifted(restoring.decoder.reference_rows)
    assert_allclose(np.sort(kept, axis=0), np.sort(X[KEPT], axis=0), atol=1e-9)  # without those that are judged
    ours, wanted = (
        model.reconstructing(len(JUDGED))(Y, None).rows for model, Y in ((restoring, found), (own, expected))
    )
    assert np.abs(ours - wanted).max() < 0.2 * X.std()  # from the same rows in another order


@pytest.mark.full
def test_there_is_none_without_the_rows_or_for_pre_images_that_took_a_pass(digits):
    X = digits[:240].astype(np.float64)
    assert apart(X, preimage="ridge")[2]() is None
    assert apart(X, method="rff", size=20, preimage="linear")[2]() is None
    linear = apart(X, preimage="linear", size=10)[2]()  # means of many rows each
    assert linear.decoder.reference_rows is None
    assert apart(X, preimage="linear", size=240)[2]() is None  # from landmarks that are the rows
    assert apart(X, method="columns", size=40)[0] is None
    assert apart(X, method=Nystroem(form="thesis"), size=40)[0] is None
    model = fit(X, n_components=2, size=40, method="rff", solver="randomized")
    assert without(model, mapped(model.features, X[JUDGED], in_order), None, FitSpec.of(model), in_order) is None
    few = np.repeat(X[:2], 120, axis=0)
    model = fit(few, n_components=1, size=2)
    spec = FitSpec.of(model)
    of_few = mapped(model.features, few, in_order)
    assert without(model, of_few.part(slice(120)), None, spec, in_order) is None  # the others do not vary
    other = without(model, of_few.part(slice(60, 180)), None, spec, in_order)
    assert with_other_preimages(other, model, few[60:180], spec) is None  # the others are the same rows


def test_known_features_and_the_span_of_the_landmarks_change_nothing(digits):
    X = digits[:240].astype(np.float64)
    model = fit(X, n_components=3, sigma=40.0, size=30)
    spec, judged = FitSpec.of(model), np.isin(np.arange(240), JUDGED)
    known, span = mapped(model.features, X, in_order), span_of(model.features.gram(), model.moments, 1e-12)
    before = known.V.copy()
    plain, found = (scored_without(model, X, judged, None, spec, in_order, *more) for more in ((), (known, span)))
    (expected,) = plain.model.project([X], len(X))
    for scores in (plain.scores, found.scores):
        assert_allclose(with_signs_of(scores, expected), expected, atol=1e-9)
    assert np.array_equal(known.V, before)  # others use them, too


@pytest.mark.filterwarnings("ignore::bigkpca.errors.DominantVariableWarning")
def test_a_sentinel_does_not_make_other_rows_the_same():
    X = np.random.default_rng(0).normal(size=(240, 3))
    X[KEPT[0]] = -99999
    kept = apart(X, sigma=2.0, size=40)[2]().decoder.reference_rows
    assert len(kept) == len(KEPT)


@pytest.fixture(scope="module")
def noise():
    """Rows without structure, in which every component of few rows is chance, and new rows of their kind."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(600, 40)), rng.normal(size=(4000, 40))


def truth(kpca, X, new):
    """What the scores and PCA explain of new rows, and what the pre-images lose."""
    A, B = (np.column_stack([np.ones(len(rows)), kpca.transform(rows)]) for rows in (X, new))
    total = np.sum((new - X.mean(axis=0)) ** 2)
    expected = B @ np.linalg.lstsq(A, X)[0]
    answers = expected, LinearPCA.of(X, kpca.n_components_).reconstruct(new), kpca.inverse_transform(B[:, 1:])
    return [1 - np.sum((new - each) ** 2) / total for each in answers]


@pytest.mark.full
@pytest.mark.parametrize("options", [{"size": 200}, {"method": "exact"}, SLOW({"refine": 1})], ids=str)
def test_the_verdict_on_noise_is_that_on_new_rows(noise, options):
    X, new = noise
    kpca = KernelPCA(20, random_state=0, **options).fit(X)
    ours, pca, _ = truth(kpca, X, new)
    assert ours < pca
    found = kpca.captured_
    assert not found.seen
    assert found.shares == pytest.approx((ours, pca), abs=0.02)
    assert found.shares[0] < found.shares[1]


@pytest.mark.parametrize("options", [{"size": 200}, SLOW({"method": "exact"}), SLOW({"refine": 1})], ids=str)
def test_the_verdict_of_an_evaluation_is_that_on_new_rows(options, noise, tmp_path):
    X, new = noise
    fitted, fresh = as_npy(tmp_path, X), as_npy(tmp_path, new, "new.npy")
    kpca = KernelPCA(20, random_state=0, **options).fit(X)
    ours, pca, kept = truth(kpca, X, new)
    model = bigkpca.fit(fitted, tmp_path / "m.zarr", n_components=20, **options)
    for path, seen in ((fitted, False), (fresh, None)):  # files with another stamp may have the same rows
        found = bigkpca.evaluate(model, path, sample=80)
        assert (found.captured.seen, found.lost.seen) == (seen, seen)
        assert found.captured.shares == pytest.approx((ours, pca), abs=0.05)
        assert found.captured.shares[0] < found.captured.shares[1]
        assert found.lost.by_preimages == pytest.approx(1 - kept, abs=0.05)
        assert found.lost.by_preimages > found.lost.by_pca
    unknown = bigkpca.evaluate(kpca, X, sample=80)  # whose model does not record which rows it was fitted to
    assert (unknown.captured.seen, unknown.lost.seen) == (None, None)
    assert unknown.captured.shares[0] > unknown.captured.shares[1]
    assert unknown.lost.by_preimages < unknown.lost.by_pca


@pytest.mark.full
def test_the_verdict_of_a_comparison_is_that_on_new_rows(noise):
    X, new = noise
    rows, variant, given = ArrayRows(X), MethodVariant("nystroem", "uniform"), FitSpec(n_components=20, sigma=9.0)
    exact = trials.exact_reference(rows, given, Engine())
    found = run_trial(rows, variant.spec(given, 150, 0), Candidate(variant, 150, 0), exact, Engine())
    _, pca, kept = truth(KernelPCA(20, sigma=9.0, size=150, landmarks="uniform", random_state=0).fit(X), X, new)
    assert found.preimage_error == pytest.approx(1 - kept, abs=0.05)
    assert exact.pca_error == pytest.approx(1 - pca, abs=0.03)
    assert found.preimage_error > exact.pca_error


@pytest.mark.full
@pytest.mark.parametrize("options", [{"method": "columns", "size": 500}, {"preimage": "linear"}], ids=str)
def test_a_verdict_on_rows_that_are_landmarks_says_so(options, noise, tmp_path):
    X = noise[0]
    path = as_npy(tmp_path, X)
    model = bigkpca.fit(path, tmp_path / "m.zarr", n_components=20, **options)
    of_columns = "method" in options
    assert model.captured.seen == of_columns
    found = bigkpca.evaluate(model, path, sample=80)
    assert (found.captured.seen, found.lost.seen) == (of_columns, True)


def test_the_verdict_of_a_comparison_says_if_pre_images_were_made_from_the_judged_rows(noise):
    rows, variant = ArrayRows(noise[0]), MethodVariant("rff", "")
    for preimage, seen in (("auto", 0), ("linear", 1)):
        given = FitSpec(n_components=6, sigma=9.0, preimage=preimage)
        exact = trials.exact_reference(rows, given, Engine())
        found = run_trial(rows, variant.spec(given, 50, 0), Candidate(variant, 50, 0), exact, Engine())
        assert found.preimages_seen == seen


def test_a_copy_of_the_rows_may_have_been_seen(noise, tmp_path):
    X = noise[0][:100, :5]
    model = bigkpca.fit(as_npy(tmp_path, X), tmp_path / "m.zarr", n_components=2, size=50)
    found = bigkpca.evaluate(model, as_npy(tmp_path, X, "copy.npy"), sample=40)
    assert (found.captured.seen, found.lost.seen) == (None, None)


def test_large_problems_are_not_solved_again(noise, monkeypatch):
    kpca = KernelPCA(2, method="exact", sigma=30.0)  # whose scores are not those of chance
    assert not kpca.fit(noise[0][:, :2]).captured_.seen
    monkeypatch.setattr(others, "MOST_SOLVED", 500)
    assert kpca.fit(noise[0][:, :2]).captured_.seen
