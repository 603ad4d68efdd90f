"""Fits of rows in memory: what they are equal to, and rows and options that they refuse."""

import gc
import weakref

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from bigkpca import KernelPCA, kernels
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import DataError, FewerComponentsWarning, MemoryLimitError
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import plan_fit
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.sample import draw_sample, sample_lengths
from bigkpca.fitting.solve import solve_rows
from bigkpca.spec import FitSpec, resolve
from tests.fitting.cases import every_method
from tests.fitting.cases import fitted as fit_small
from tests.helpers import oracles
from tests.helpers.fits import fit, scores
from tests.helpers.progress import Recorder


@pytest.mark.parametrize("dtype", [bool, np.uint8])
def test_sigma_is_measured_on_truth_values_and_unsigned_numbers(dtype):
    X = np.random.default_rng(0).random((200, 5)) > 0.5
    X[:, 1] = True  # whose smallest number is not 0
    found, expected = (KernelPCA(2, random_state=0).fit(X.astype(each)) for each in (dtype, np.float32))
    assert found.sigma_ == expected.sigma_
    np.testing.assert_allclose(found.eigenvalues_, expected.eigenvalues_, rtol=1e-6)


def test_more_landmarks_or_components_than_rows_are_lowered(digits):
    notes = Recorder()
    with pytest.warns(FewerComponentsWarning, match="200 components were requested, but 29 are kept: there are 30 "):
        fitted = fit(digits[:30], progress=notes, n_components=200, size=100)
    assert fitted.features.size == 30
    assert fitted.components == 29
    fit(digits[:30], progress=notes, n_components=50, size=100)
    assert [note.split(":")[0] for note in notes.notes] == [
        "size lowered from 100 to 30",
        "size lowered from 100 to 30",
        "50 components were requested, but 29 are kept",
    ]


def test_candidate_lengths_are_those_of_a_fit(digits):
    rows = ArrayRows(digits[:300])
    lengths = sample_lengths(rows, resolve(FitSpec.checked(n_components=5, size=100), rows), Engine())
    assert fit(digits[:300], n_components=5, size=100).features.kernel == kernels.Gaussian(lengths["median"].sigma)


def test_rows_without_differences_or_whose_kernel_values_overflow_are_refused(digits):
    for kernel in ("gaussian", "linear"):
        with pytest.raises(DataError, match="all 50 sampled rows are equal: constant data"):
            fit(np.ones((50, 3)), kernel=kernel)
    X = digits.astype(np.float32)
    cubic = {"kernel": "poly", "n_components": 3, "size": 30}
    fitted, gaussian = fit(X, **cubic), fit(X, n_components=3, size=30)
    X[1500] = 1e30
    with pytest.raises(DataError, match="rows 0 to 1796: kernel values overflow"):
        scores(fitted, X)
    with pytest.raises(DataError, match="some row is far larger than the rest"):
        fit(X, **cubic)
    assert np.isfinite(scores(gaussian, X)).all()  # exp(-infinity) is a kernel value like any other


@pytest.mark.full
def test_a_pass_in_float64_is_planned_before_it_begins(digits, monkeypatch):
    monkeypatch.setattr("bigkpca.execution.plan.process_bytes", lambda: 10**8)  # which changes meanwhile
    rows, seen = ArrayRows(digits[:900].astype(np.float32)), Recorder()
    here = Engine(threads=1, progress=seen)
    spec = FitSpec.checked(size=400, sigma=2000.0, n_components=5)
    assert fit_rows(rows, spec, here).features.dtype == np.float64
    limit = plan_fit(rows, spec, 1).peak_bytes + 1_000_000
    with pytest.raises(
        MemoryLimitError, match=r"this needs \d+ MB in a process, but \d+ MB are allowed: .*(allow more|would fit)"
    ):
        fit_rows(rows, spec, here, limit=limit)
    assert seen.notes == ["rounding in float32 would be too large here: the pass is in float64"] * 2


# Standardised columns: as a scaler would give them, whatever their units


@every_method
def test_standardize_is_fitting_what_a_scaler_gives_whatever_the_unit(method, few):
    options = {"method": method, "landmarks": "uniform" if method == "nystroem" else "auto"}
    Y = StandardScaler().fit_transform(few)
    theirs = fit_small(Y, **options)
    expected = scores(theirs, Y)
    for X, close in ((few, 1e-9), (few * 1e-6, 1e-9), ((few + 2.0**20).astype(np.float32), 1e-3)):
        ours = fit_small(X, standardize=True, **options)
        np.testing.assert_allclose(ours.solution.eigenvalues, theirs.solution.eigenvalues, rtol=close)
        assert ours.features.kernel.sigma == pytest.approx(theirs.features.kernel.sigma, rel=close)
        atol = max(10 * close, 1e-7)
        np.testing.assert_allclose(oracles.with_signs_of(scores(ours, X), expected), expected, atol=atol)


def test_constant_columns_keep_scale_one():
    X = np.random.default_rng(0).normal(size=(100, 6)) * [1, 0, 1e-9, 0, 0, 1] + [0, 1 / 3, 0, 1e9 + 1 / 3, 0, 0]
    for block_rows in (None, 7):
        model = fit_small(X, standardize=True, size=30, n_components=3, block_rows=block_rows)
        np.testing.assert_array_equal(model.features.scale[[1, 3, 4]], 1)
        np.testing.assert_allclose(model.features.scale[[0, 2, 5]], X[:, [0, 2, 5]].std(axis=0), rtol=1e-12)
        assert np.isfinite(scores(model, X)).all()


@pytest.mark.parametrize("options", [{}, {"preimage": "ridge"}, {"standardize": True}, {"method": "rff-pca"}], ids=str)
def test_the_sample_is_freed_before_the_pass(monkeypatch, digits, options):
    held = []

    def drawn(*given):
        sample = draw_sample(*given)
        held.append(weakref.ref(sample.X))
        return sample

    def solved(*given):
        gc.collect()
        assert held[0]() is None
        return solve_rows(*given)

    monkeypatch.setattr("bigkpca.fitting.fit.draw_sample", drawn)
    monkeypatch.setattr("bigkpca.fitting.fit.solve_rows", solved)
    assert fit(digits, n_components=3, size=20, **options).components == 3
