"""Fits of rows in memory: what they are equal to, and rows and options that they refuse."""

import numpy as np
import pytest

from bigkpca import kernels
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.errors import DataError, IndefiniteKernelWarning, MemoryLimitError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import plan_fit
from bigkpca.execution.progress import Silent
from bigkpca.execution.projection import score_rows
from bigkpca.fitting.fit import fit_rows, fit_within
from bigkpca.fitting.partial_fit import extend
from bigkpca.fitting.sample import sample_lengths
from bigkpca.spec import FitSpec
from bigkpca.storage.models import load_model
from tests.helpers.files import shared_file
from tests.helpers.fits import OPTIONS
from tests.helpers.progress import Recorder


def with_value(digits, value):
    bad = digits.astype(np.float32)
    bad[1234, 5] = value
    return bad


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_by_fit_and_transform(value, digits, model, engine):
    rows = ArrayRows(with_value(digits, value))
    with pytest.raises(DataError, match="row 1234, column 5 is"):
        fit_rows(rows, FitSpec.checked(**OPTIONS), engine, Silent())
    with pytest.raises(DataError, match="row 1234, column 5 is"):
        score_rows(rows, load_model(model), engine, Silent())


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_constant_data_are_refused(kernel):
    with pytest.raises(DataError, match="all 50 sampled rows are equal: constant data"):
        fit_rows(ArrayRows(np.ones((50, 3))), FitSpec.checked(kernel=kernel), Engine(), Silent())


def test_more_landmarks_or_components_than_rows_are_lowered(digits):
    notes = Recorder()
    fitted = fit_rows(ArrayRows(digits[:30]), FitSpec.checked(components=200, size=100), Engine(), notes)
    assert fitted.features.size == 30
    assert fitted.components <= 30
    assert [note.split(":")[0] for note in notes.notes] == [
        "size lowered from 100 to 30",
        "components lowered from 200 to at most 30",
    ]


def test_an_indefinite_kernel_says_how_negative(digits):
    spec = FitSpec.checked(kernel="sigmoid", gamma=3e-4, coef0=-1.0, size=100, components=5)
    for method in ("nystroem", "exact"):
        with pytest.warns(IndefiniteKernelWarning, match=r"most negative eigenvalue is -\d+\.\d+ of the largest"):
            fit_rows(ArrayRows(digits[:300]), spec.model_copy(update={"method": method}), Engine(), Silent())


def test_exact_on_too_many_rows_needs_a_number_of_components():
    with pytest.raises(SpecError, match=r"above 8192 rows needs a number of components, not 0\.9"):
        fit_within(
            ArrayRows(np.eye(9000, 2)), FitSpec.checked(method="exact", components=0.9), Engine(), None, Silent()
        )


def test_exact_equals_nystroem_with_every_row(digits):
    X = digits[:400].astype(np.float64)
    exact, full = (
        fit_rows(
            ArrayRows(X),
            FitSpec.checked(components=20, method=method, size=400, landmarks=rule),
            Engine(),
            Silent(),
        )
        for method, rule in (("exact", "auto"), ("nystroem", "uniform"))
    )
    np.testing.assert_allclose(full.solution.eigenvalues, exact.solution.eigenvalues, rtol=1e-9)
    ours, theirs = (np.abs(score_rows(ArrayRows(X), m, Engine(), Silent())) for m in (full, exact))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_adding_rows_equals_fitting_all_with_the_same_landmarks(digits):
    X = digits.astype(np.float64)
    spec = FitSpec.checked(components=8, size=60)
    first = fit_rows(ArrayRows(X[:1000]), spec, Engine(), Silent())
    grown = extend(first, ArrayRows(X[1000:]), spec, Engine(), Silent())
    features = first.features.kernel(X - first.features.offset, first.features.landmarks)
    assert grown.moments is not None
    assert grown.moments.count == len(X)
    np.testing.assert_allclose(grown.moments.mean, features.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(grown.moments.scatter, np.cov(features.T, bias=True) * len(X), rtol=1e-8, atol=1e-9)
    scores = score_rows(ArrayRows(X), grown, Engine(), Silent())
    before = score_rows(ArrayRows(X), first, Engine(), Silent())
    assert (np.einsum("ij,ij->j", scores, before) > 0).all()


def test_an_exact_model_takes_no_more_rows(digits):
    spec = FitSpec.checked(method="exact", components=3)
    exact = fit_rows(ArrayRows(digits[:50]), spec, Engine(), Silent())
    with pytest.raises(
        SpecError, match=r"a model of the exact method, .* or of the randomized solver cannot take more rows"
    ):
        extend(exact, ArrayRows(digits), spec, Engine(), Silent())


def test_scaling_data_and_sigma_together_changes_nothing(digits):
    X = digits.astype(np.float64)
    for dtype, tolerance in (("float64", 1e-9), ("float32", 1e-4)):
        # Uniform landmarks: k-means of integers has ties, which rounding breaks either way.
        spec = FitSpec.checked(components=10, size=50, dtype=dtype, landmarks="uniform")
        reference = fit_rows(ArrayRows(X), spec, Engine(), Silent())
        for factor in (1e-6, 1e6):
            scaled = fit_rows(ArrayRows(X * factor), spec, Engine(), Silent())
            np.testing.assert_allclose(scaled.solution.eigenvalues, reference.solution.eigenvalues, rtol=tolerance)


def test_data_far_from_the_origin_lose_nothing(digits):
    X = digits.astype(np.float64)
    spec = FitSpec.checked(components=10, size=50, dtype="float32")
    near, far = (fit_rows(ArrayRows(X + shift), spec, Engine(), Silent()) for shift in (0, 2**30))
    np.testing.assert_allclose(far.solution.eigenvalues, near.solution.eigenvalues, rtol=1e-4)


def test_candidate_lengths_are_those_of_a_fit(digits):
    spec = FitSpec.checked(components=5, size=100)
    lengths = sample_lengths(ArrayRows(digits), spec, Engine(), Silent())
    fitted = fit_rows(ArrayRows(digits), spec, Engine(), Silent())
    assert fitted.features.kernel == kernels.Gaussian(lengths["median"].sigma)
    with pytest.raises(SpecError, match="the kernel linear has no length"):
        sample_lengths(ArrayRows(digits), FitSpec.checked(kernel="linear"), Engine(), Silent())


@pytest.mark.long
@pytest.mark.parametrize(("size", "allowed"), [(1000, 0.004), (500, 0.007)])
def test_eigenvalues_of_mnist_are_accurate(size, allowed, tmp_path):
    from benchmarks.accuracy import exact_eigenvalues
    from benchmarks.common import MEDIAN_DISTANCE, mnist

    shared_file("mnist", "train-images-idx3-ubyte.gz")
    X = mnist()[::6]
    exact = exact_eigenvalues(X, tmp_path)[:20]
    spec = FitSpec.checked(components=20, size=size, sigma=MEDIAN_DISTANCE)
    fitted = fit_rows(ArrayRows(X), spec, Engine(), Silent()).solution.eigenvalues
    assert np.abs(fitted / exact - 1).mean() <= allowed


def test_rows_whose_kernel_values_overflow_are_refused(digits):
    X = digits.astype(np.float32)
    cubic = FitSpec.checked(kernel="poly", components=3, size=30)
    fitted = fit_rows(ArrayRows(X), cubic, Engine(), Silent())
    gaussian = fit_rows(ArrayRows(X), FitSpec.checked(components=3, size=30), Engine(), Silent())
    X[1500] = 1e30
    with pytest.raises(DataError, match="rows 0 to 1796: kernel values overflow"):
        score_rows(ArrayRows(X), fitted, Engine(), Silent())
    with pytest.raises(DataError, match="some row is far larger than the rest"):
        fit_rows(ArrayRows(X), cubic, Engine(), Silent())
    scores = score_rows(ArrayRows(X), gaussian, Engine(), Silent())
    assert np.isfinite(scores).all()  # exp(-infinity) is a kernel value like any other


def test_a_second_fit_in_float64_is_planned_before_it_begins(digits):
    rows, here, seen = ArrayRows(np.repeat(digits, 8, axis=0).astype(np.float32)), Engine(threads=1), Recorder()
    spec = FitSpec.checked(size=400, sigma=2000.0, components=5)
    assert fit_within(rows, spec, here, None, seen).features.dtype == np.float64
    limit = plan_fit(rows, spec, 1).peak_bytes + 1_000_000
    with pytest.raises(
        MemoryLimitError, match=r"this needs \d+ MB in a process, \d+ MB are allowed: .*(allow more|would fit)"
    ):
        fit_within(rows, spec, here, limit, seen)
    assert seen.notes == ["rounding in float32 would count here: fitting again in float64"] * 2
