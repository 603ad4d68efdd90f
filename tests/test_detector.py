"""KernelPCADetector: its promise about false alarms, its contract, and rows of every kind."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from scipy.stats import binom
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import bigkpca
from bigkpca import KernelPCA, KernelPCADetector, arrays
from bigkpca.data.rows import ArrayRows
from bigkpca.data.sample_weights import weighted
from bigkpca.errors import DataError, SpecError
from bigkpca.estimator.parameters import spec_of
from bigkpca.execution.engine import Engine
from bigkpca.fitting.calibration import without_calibration
from bigkpca.numerics.calibration import COMBINED
from tests.data.cases import case
from tests.helpers.files import shared_file
from tests.helpers.lazy import refuse
from tests.helpers.stores import as_zarr

SMALL = KernelPCA(2, size=8, sigma=3.0, landmarks="uniform", random_state=0)


def full(value):
    """A parameter of the full tests."""
    return pytest.param(value, marks=pytest.mark.full)


def small(**options):
    return clone(SMALL).set_params(**options)


def rows_in(X):
    """The rows of X as a set."""
    return set(map(tuple, X))


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).normal(size=(300, 3))


@pytest.fixture(scope="module")
def detector(X):
    return KernelPCADetector(SMALL, alpha=0.1).fit(X)


def set_aside(X, kpca, weights=None):
    """Numbers of the calibration rows of a fit."""
    rows = weighted(ArrayRows(X), weights)
    return without_calibration(rows, spec_of(kpca), Engine(threads=1))[1]


EQUAL_WEIGHTS = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]


@pytest.mark.full
@parametrize_with_checks(
    [KernelPCADetector(alpha=0.4), KernelPCADetector(contamination=0.1)],
    expected_failed_checks=lambda _: dict.fromkeys(EQUAL_WEIGHTS, "rows are set aside at random, also repeated ones"),
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def within_range(detectors, draw, alpha, rows):
    """In how many cases the share of new rows that are flagged is in the range that the detector gives."""
    hits = 0
    for i, detector in enumerate(detectors):
        low, high = detector.calibration_.range(alpha, rows)
        hits += low <= np.mean(detector.predict(draw(i)) == -1) <= high
    return hits


@pytest.mark.parametrize("seeds", [12, full(100)])
def test_the_share_of_ordinary_rows_that_are_flagged_is_in_the_range_in_95_percent_of_fits(seeds):
    def drawn(seed, n):  # skewed rows
        return np.random.default_rng(seed).gamma(0.5, size=(n, 2))

    made = [KernelPCADetector(small(random_state=i), alpha=0.1).fit(drawn([1, i], 150)) for i in range(seeds)]
    low, high = binom.ppf([1e-4, 1 - 1e-4], seeds, 0.955)
    assert low <= within_range(made, lambda i: drawn([2, i], 800), 0.1, 800) <= high


def _covertype():
    return np.load(shared_file("covertype", "covtype_93k.npz"))["X_raw"]


def _heavy_tails():
    rng = np.random.default_rng(5)
    return rng.standard_t(1.5, size=(40_000, 6)) * rng.choice([1.0, 1.0, 30.0], size=(40_000, 1)) + 5


@pytest.mark.long
@pytest.mark.parametrize("load", [_covertype, _heavy_tails])
@pytest.mark.filterwarnings("ignore::bigkpca.errors.DominantVariableWarning", "ignore::bigkpca.errors.RoundingWarning")
def test_false_alarms_on_real_rows_are_in_the_range(load):
    X, hits = load(), 0
    for seed in range(20):
        rows = X[np.random.default_rng(seed).permutation(len(X))[:9000]]
        kpca = KernelPCA(20, size=200, sigma="3 median", standardize=load is _covertype, random_state=seed)
        made = KernelPCADetector(kpca, alpha=0.02, calibration_rows=1000).fit(rows[:5000])
        hits += within_range([made], lambda _, new=rows[5000:]: new, 0.02, 4000)
    assert hits >= binom.ppf(1e-3, 20, 0.95)


@pytest.mark.parametrize(
    "options",
    [
        {"standardize": True, "landmarks": "uniform", "sigma": "3 median"},
        full({"landmarks": "kmeans", "sigma": "median"}),
        full({"method": "rff", "solver": "randomized", "landmarks": "auto"}),
        full({"method": "rff-pca", "sigma": "median", "landmarks": "auto"}),
        full({"kernel": "polynomial", "gamma": "scale", "sigma": "median"}),
        full({"size": "auto", "tol": 0.1}),
    ],
)
def test_components_do_not_depend_on_calibration_rows(options, X):
    kpca = small(calibration_rows=100, **options)
    numbers = set_aside(X, kpca)
    other = X.copy()
    other[numbers] = np.random.default_rng(1).normal(size=(100, 3)) * 1e3 + 7
    models = [clone(kpca).fit(rows).model_ for rows in (X, other)]
    for name in ("mean", "components", "eigenvalues", "total_variance"):
        one, two = (np.asarray(getattr(model.solution, name)) for model in models)
        assert one.tobytes() == two.tobytes(), name
    assert models[0].features.dtype == models[1].features.dtype
    for model, rows in zip(models, (X, other), strict=True):
        np.testing.assert_array_equal(model.calibration.rows, rows[numbers])
        assert model.sums is None or model.sums.count == model.sums.weight == 200
    if kpca.method == "auto" and isinstance(kpca.landmarks, str) and kpca.landmarks != "kmeans":
        given = models[0].features.landmarks_in_user_units()
        assert cdist(given, np.delete(X, numbers, axis=0)).min(axis=1).max() < 1e-6 < cdist(given, X[numbers]).min()


def test_a_fit_without_its_calibration_rows_has_the_same_eigenvalues(X):
    weights = np.random.default_rng(1).integers(1, 4, len(X)).astype(float)
    kpca = small(landmarks=X[:20], calibration_rows=100, size="auto")
    found = clone(kpca).fit(X, sample_weight=weights)
    numbers = set_aside(X, kpca, weights)
    kept = np.setdiff1d(np.arange(len(X)), numbers)
    expected = small(landmarks=X[:20], size="auto").fit(X[kept], sample_weight=weights[kept])
    np.testing.assert_allclose(found.eigenvalues_, expected.eigenvalues_, rtol=1e-10)
    calibration = found.model_.calibration
    np.testing.assert_allclose(calibration.precisions, weights[kept].sum() / expected.eigenvalues_, rtol=1e-7)
    T2 = (expected.transform(X[numbers]) ** 2 * calibration.precisions).sum(axis=1)
    np.testing.assert_allclose(calibration.values[1], np.sort(T2), rtol=1e-6)
    np.testing.assert_allclose(calibration.values[0], np.sort(expected.residual(X[numbers])), rtol=1e-6)


def test_rows_that_are_landmarks_and_rows_of_weight_0_are_not_set_aside(X):
    own, weights = np.arange(0, 300, 3), np.ones(300)
    weights[1::3] = 0
    found = KernelPCADetector(small(landmarks=own, size="auto"), alpha=0.1, calibration_rows=50).fit(X, None, weights)
    assert len(found.calibration_.rows) == len(rows_in(found.calibration_.rows)) == 50
    assert not rows_in(found.calibration_.rows) & rows_in(np.concatenate([X[own], X[1::3]]))
    most = small(landmarks=own, size="auto", calibration_rows=150).fit(X).model_  # half of the other rows
    assert most.calibration.count == 100
    message = "calibration_rows=1: the array has too few rows to set some aside: add rows, or set it to 0"
    with pytest.raises(SpecError, match=message):
        small(landmarks=np.arange(299), size="auto", calibration_rows=1).fit(X)


def test_each_row_is_set_aside_with_the_same_chance(X):
    weights = np.linspace(0.1, 10, 300)
    plain, with_weights = np.zeros((2, 300))
    for seed in range(60):
        kpca = small(calibration_rows=60, random_state=seed)
        plain[set_aside(X, kpca)] += 1
        with_weights[set_aside(X, kpca, weights)] += 1
    for each in (plain, with_weights):
        halves = each[:150].sum(), each[150:].sum()
        assert abs(halves[0] - halves[1]) < 5 * np.sqrt(60 * 60)
        assert binom.ppf(1e-7, 60, 0.2) <= each.min() <= each.max() <= binom.ppf(1 - 1e-7, 60, 0.2)


def test_a_share_is_left_out_and_flagged():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(279, 3)), rng.normal([4, 0, 0], 0.3, size=(21, 3))])
    clean, told = (KernelPCADetector(small(size=40), alpha=0.05, contamination=each).fit(X) for each in ("auto", 0.07))
    assert (told.left_out_, clean.left_out_) == (21, 0)
    assert (told.predict(X) == -1).sum() == 21
    assert told.model_.sums.count == 279 - told.calibration_.count
    assert len(told.calibration_.rows) == 75
    assert not rows_in(X[-told.score_samples(X) > -told.offset_]) & rows_in(told.calibration_.rows)


@pytest.mark.parametrize("share", [0.01, full(0.5)])
def test_fits_are_repeated_until_the_same_rows_are_left_out(share, X, monkeypatch):
    fits, fitted = [], KernelPCA._fitted

    def counting(self, rows, *others):
        fits.append(rows.weights)
        return fitted(self, rows, *others)

    monkeypatch.setattr(KernelPCA, "_fitted", counting)
    rows = X.copy()
    rows[:3] += 50  # so far from all others that the first fit finds them
    found = KernelPCADetector(SMALL, contamination=share).fit(rows)
    assert fits[0] is None
    assert all(len(each.excluded) == 300 * share for each in fits[1:])
    assert len(fits) == (2 if share == 0.01 else 3)
    assert (found.predict(rows) == -1).sum() == found.left_out_ == 300 * share


def test_rows_of_weight_0_are_no_part_of_the_share(X):
    weights = np.r_[np.ones(200), np.zeros(100)]
    rows = X.copy()
    rows[200:] += 50
    found = KernelPCADetector(SMALL, contamination=0.1).fit(rows, sample_weight=weights)
    assert found.left_out_ == (found.predict(rows[:200]) == -1).sum() == 20


def test_what_cannot_be_fitted_is_refused(X):
    wrong_share, wrong_contamination = "give the share of ordinary rows that may", 'give "auto", or a share above 0'
    for options, message in (
        ({"alpha": 0.01, "calibration_rows": 50}, "alpha=0.01 needs 199 calibration rows, and 300 rows allow 50: give"),
        ({"alpha": 1e-3}, "needs 1,999 calibration rows, and 300 rows allow 150: give an alpha of at least 0.014, or"),
        *(({"alpha": wrong}, wrong_share) for wrong in (0, 1, "1%", None)),
        *(({"contamination": wrong}, wrong_contamination) for wrong in (0.0, 0.6, np.nan, "much", None, True)),
        *(({"calibration_rows": wrong}, f"={wrong!r}: give a number of at least 1") for wrong in (0, 1.5, None)),
        ({"kpca": small(method="exact", landmarks="auto", size="auto")}, "does not take calibration_rows=75: omit one"),
        ({"kpca": small(refine=2)}, "refine=2 does not take calibration_rows=75"),
    ):
        with case(options), pytest.raises(SpecError, match=message):
            KernelPCADetector(**{"kpca": SMALL, "alpha": 0.1, **options}).fit(X)
    with pytest.raises(SpecError, match="needs 3 calibration rows, and 2 rows allow 1: give more rows"):
        KernelPCADetector(SMALL, alpha=0.5).fit(X[:2])
    with pytest.raises(SpecError, match="the model has no calibration rows, which limits need: fit it with"):
        arrays.statistics(clone(SMALL).fit(X), X)
    spoilt = X.copy()
    spoilt[set_aside(X, small(calibration_rows=75))[0], 1] = np.nan
    with pytest.raises(DataError, match="NaN"):
        KernelPCADetector(SMALL, alpha=0.1).fit(spoilt)
    with pytest.raises(AttributeError, match="has no attribute 'partial_fit'") as caught:
        KernelPCADetector(contamination=0.1).partial_fit(X)
    assert "contamination=0.1: partial_fit leaves no rows out" in str(caught.value.__cause__)


CONTAINERS = {
    "path": (lambda X, folder: as_zarr(folder, X, (50, 3)), da.Array),
    "frame": (lambda X, _: pd.DataFrame(X, columns=list("abc")), np.ndarray),
    "dask array": (lambda X, _: da.from_array(X, chunks=(77, 3)), da.Array),
    "dask frame": (lambda X, _: dd.from_pandas(pd.DataFrame(X, columns=list("abc")), npartitions=3), dd.Series),
    "DataArray": (lambda X, _: xr.DataArray(X, dims=("time", "place")), xr.DataArray),
    "sparse": (lambda X, _: csr_array(X), np.ndarray),
}


@pytest.mark.parametrize("name", ["frame", *map(full, sorted({*CONTAINERS} - {"frame"}))])
def test_all_containers_give_the_same_values(name, X, detector, tmp_path):
    make, kind = CONTAINERS[name]
    rows, values, flags = make(X, tmp_path), detector.statistics(X), detector.predict(X)
    assert (values.shape, flags.dtype) == ((300, 3), int)
    found = KernelPCADetector(SMALL, alpha=0.1).fit(rows)
    np.testing.assert_allclose(found.offset_, detector.offset_, rtol=1e-9)
    with dask.config.set(scheduler=refuse):
        all_of_them, scores, predicted = found.statistics(rows), found.score_samples(rows), found.predict(rows)
    assert isinstance(predicted, kind)
    np.testing.assert_allclose(all_of_them, values, rtol=1e-9)
    np.testing.assert_allclose(scores, -values[:, COMBINED], rtol=1e-9)
    np.testing.assert_array_equal(predicted, flags)
    np.testing.assert_allclose(found.p_values(rows), detector.p_values(X))
    np.testing.assert_array_equal(found.reasons(rows), detector.reasons(X))
    if name == "path":
        left_out = [KernelPCADetector(SMALL, contamination=0.1).fit(each).offset_ for each in (rows, X)]
        np.testing.assert_allclose(*left_out, rtol=1e-9)
    if name != "dask frame":
        np.testing.assert_allclose(found.contributions(rows), detector.contributions(X), rtol=1e-6, atol=1e-9)


def test_rows_of_integers(digits):
    rows = digits[:300]
    found = KernelPCADetector(KernelPCA(5, size=30, random_state=0), alpha=0.1).fit(rows)
    assert found.calibration_.rows.dtype == rows.dtype
    np.testing.assert_array_equal(
        found.contributions(rows[:4] * 1.0).argmax(1), found.contributions(rows[:4]).argmax(1)
    )


@pytest.fixture(scope="module")
def frame(X):
    return pd.DataFrame(X, columns=list("abc"))


def check_same(found, other, frame):
    assert (other.offset_, other.false_alarms_, other.calibration_.count) == (found.offset_, found.false_alarms_, 75)
    assert list(other.feature_names_in_) == list(frame.columns)
    for method in ("statistics", "contributions"):
        assert getattr(other, method)(frame[:2]).tobytes() == getattr(found, method)(frame[:2]).tobytes()


def test_detectors_are_saved_with_their_limit(frame, tmp_path):
    found = KernelPCADetector(SMALL, alpha=0.1, contamination=0.05).fit(frame)
    found.save(tmp_path / "model.zarr")
    loaded = KernelPCADetector.load(tmp_path / "model.zarr")
    check_same(found, loaded, frame)
    check_same(found, clone(loaded).fit(frame), frame)
    assert (loaded.alpha, loaded.contamination, loaded.left_out_) == (0.1, 0.05, found.left_out_)
    loaded.save(tmp_path / "model.zarr")  # the same model
    other = KernelPCADetector.load(tmp_path / "model.zarr", alpha=0.3)
    assert (other.contamination, other.left_out_) == ("auto", found.left_out_)
    assert -other.offset_ == found.calibration_.limits(0.3)[COMBINED] != -found.offset_
    with pytest.raises(SpecError, match="already holds"):
        other.save(tmp_path / "model.zarr")
    other.save(tmp_path / "model.zarr", overwrite=True)
    assert KernelPCADetector.load(tmp_path / "model.zarr").offset_ == other.offset_
    with pytest.raises(SpecError, match=r"with 75 calibration rows, it must be at least 0.027 and below 1"):
        KernelPCADetector.load(tmp_path / "model.zarr", alpha=0.01)


def test_models_without_a_limit_have_that_for_1_percent(frame, tmp_path):
    kpca = small(calibration_rows=200).fit(pd.concat([frame, frame + 0.01]))
    kpca.save(tmp_path / "model.zarr")
    loaded = KernelPCADetector.load(tmp_path / "model.zarr")
    assert (loaded.alpha, -loaded.offset_) == (0.01, kpca.model_.calibration.limits(0.01)[COMBINED])
    KernelPCADetector.load(tmp_path / "model.zarr", alpha=0.3).save(tmp_path / "limited.zarr")
    KernelPCA.load(tmp_path / "limited.zarr").partial_fit(frame[:30]).save(tmp_path / "more.zarr")
    assert KernelPCADetector.load(tmp_path / "more.zarr").alpha == 0.01  # the limit was that of fewer rows
    clone(SMALL).fit(frame).save(tmp_path / "plain.zarr")
    with pytest.raises(SpecError, match="the model has no calibration rows"):
        KernelPCADetector.load(tmp_path / "plain.zarr")


@pytest.mark.filterwarnings("ignore::bigkpca.errors.FarRowsWarning")  # the new rows are twice as wide
def test_limits_follow_the_rows_that_partial_fit_adds(X):
    first = KernelPCADetector(SMALL, alpha=0.1).partial_fit(X)
    fitted = KernelPCADetector(SMALL, alpha=0.1).fit(X)
    assert first.offset_ == fitted.offset_
    added, rng = [X], np.random.default_rng(1)
    for number in range(1, 6):
        added.append(rng.normal(size=(100, 3)) * 2)
        first.partial_fit(added[-1], sample_weight=np.full(100, 4.0**number))
    last = rows_in(first.calibration_.rows)
    assert len(last) == 75
    assert last <= rows_in(np.concatenate(added))
    assert len(last & rows_in(X)) < 5  # of 75, a share of about 2^-5 of weight
    assert 0.02 <= np.mean(first.predict(rng.normal(size=(2000, 3)) * 2) == -1) <= 0.25


def test_all_rows_replace_calibration_rows_in_proportion(X):
    found = KernelPCADetector(SMALL, alpha=0.1, calibration_rows=100).fit(X[:250])
    kept = rows_in(found.calibration_.rows)
    for i in range(4):
        found.partial_fit(X[250 + i : 251 + i])  # one row is never set aside: at least as many must be added
    assert rows_in(found.calibration_.rows) == kept
    assert found.model_.sums.count == 250 - 62 + 4
    more = np.random.default_rng(2).normal(size=(1000, 3))
    found.partial_fit(more)
    assert found.calibration_.count == 62
    new = len(rows_in(found.calibration_.rows) & rows_in(more))
    assert abs(new - 62 * 1000 / 1254) <= 1.01
    assert found.model_.sums.count == 192 + 1000 - new
    eigenvalues = found.model_.solution.eigenvalues
    np.testing.assert_allclose(found.calibration_.precisions, found.model_.sums.weight / eigenvalues)


@pytest.mark.full
def test_rows_that_are_set_aside_do_not_change_what_is_added(X):
    more = np.random.default_rng(1).normal(size=(200, 3))
    first, second = (small(calibration_rows=100).fit(X) for _ in range(2))
    known = rows_in(first.partial_fit(more).model_.calibration.rows)
    aside = [tuple(row) in known for row in more]
    second.partial_fit(np.where(np.c_[aside], 50, more))
    assert first.model_.solution.components.tobytes() == second.model_.solution.components.tobytes()
    assert (second.model_.calibration.rows == 50).all(axis=1).sum() == sum(aside) > 30


def test_models_with_calibrations_are_merged_and_share_features(X):
    first = small(calibration_rows=60).fit(X[:150])
    second = clone(SMALL).fit(X[150:], like=first)
    assert (second.model_.calibration.count, second.model_.sums.count) == (60, 90)
    assert rows_in(second.model_.calibration.rows) <= rows_in(X[150:])
    both = sum([first, second])
    with pytest.raises(TypeError, match="unsupported operand"):
        1 + first
    found = both.model_.calibration
    assert (found.count, both.model_.sums.count) == (60, 180)
    assert len(rows_in(found.rows) & rows_in(first.model_.calibration.rows)) == 30
    values = arrays.statistics(both, found.rows).compute()
    np.testing.assert_allclose(np.sort(values[:, :2], axis=0).T, found.values, rtol=1e-5)
    np.testing.assert_allclose(found.precisions, 180 / both.eigenvalues_, rtol=1e-6)
    assert bigkpca.merge([first, second]).calibration.values.tobytes() == found.values.tobytes()


@pytest.mark.parametrize("dtype", ["f8", full("f4")])
def test_rows_with_equal_values_are_flagged_alike_one_by_one_and_together(dtype):
    """Rounding depends on the rows that are computed together: it must not decide between equal rows."""
    values = np.array(np.meshgrid(*[[0, 1]] * 4)).reshape(4, 16).T.astype(dtype)
    chances = np.r_[np.full(15, 0.9 / 15), 0.1]
    rng = np.random.default_rng(0)
    X = values[rng.choice(16, 1500, p=chances)]
    found = KernelPCADetector(KernelPCA(3, size=10, random_state=0), alpha=0.05).fit(X)
    together, alone = found.predict(X), [found.predict(row[None])[0] for row in values]
    for row, flag in zip(values, alone, strict=True):
        assert set(together[(row == X).all(axis=1)]) == {flag}
    assert chances[np.array(alone) == -1].sum() <= 0.07  # up to 0.05, and what the calibration adds by chance
    scores = [found.score_samples(row[None])[0] for row in X[:9]]
    np.testing.assert_allclose(scores, found.score_samples(X)[:9], rtol=1e-4)


def test_the_column_that_was_changed_contributes_most():
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(400, 2))
    X = latent @ rng.normal(size=(2, 6)) + 0.05 * rng.normal(size=(400, 6))
    X[:, 5] *= 100  # in other units
    found = KernelPCADetector(KernelPCA(2, sigma="3 median", standardize=True, random_state=0), alpha=0.05).fit(X)
    for column, step in enumerate([4, 4, 4, 4, 4, 400]):
        row = X[:1].copy()
        row[0, column] += step
        assert found.reasons(row).tolist() == ["residual"]
        assert np.abs(found.contributions(row)[0]).argmax() == column
    usual = np.sqrt(np.mean(found.contributions(found.calibration_.rows) ** 2, axis=0))
    np.testing.assert_allclose(usual, 1)
    constant = np.column_stack([X[:, :5], np.ones(400)])
    flat = KernelPCADetector(SMALL, alpha=0.05).fit(constant)
    assert np.isfinite(flat.contributions(constant[:3])).all()
    with pytest.raises(SpecError, match="pre-image"):
        KernelPCADetector(small(kernel="laplacian"), alpha=0.1).fit(constant).contributions(constant[:2])


def test_p_values_of_ordinary_rows_are_uniform(detector):
    new = np.random.default_rng(7).normal(size=(4000, 3))
    found = detector.p_values(new)
    assert np.ptp(np.quantile(found, [0.1, 0.5, 0.9]) - [0.1, 0.5, 0.9]) < 0.2
    flags = detector.predict(new)
    np.testing.assert_array_equal(flags == -1, found <= 0.1)
    low, high = detector.false_alarms_
    assert (low, high) == detector.calibration_.range(0.1)
    assert low <= np.mean(flags == -1) <= high
    np.testing.assert_array_equal(flags == -1, detector.decision_function(new) < 0)
    np.testing.assert_array_equal(detector.decision_function(new), detector.score_samples(new) - detector.offset_)
