"""What a given matrix cannot do or be, in words; the contract of scikit-learn; the commands."""

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

import bigkpca
from bigkpca import KernelPCA, arrays, kernels, methods
from bigkpca.errors import DataError, SpecError
from bigkpca.spec import FitSpec
from tests.fitting.precomputed.matrices import K_NEW, KERNEL, OPTIONS, K, N, R, X, estimator, fitted
from tests.helpers.fits import scores


def test_options_that_make_no_sense_are_refused():
    for options, message in (
        ({"method": "nystroem"}, "kernel='precomputed' needs method='exact', not 'nystroem'"),
        ({"method": methods.RandomFeatures("iid"), "kernel": kernels.Precomputed()}, "needs method='exact', not 'rff'"),
        ({"standardize": True}, "standardize=True does not work with kernel='precomputed'"),
        ({"sigma": 2.0}, "the precomputed kernel has no length sigma"),
        ({"gamma": 2.0}, "the precomputed kernel has no gamma"),
    ):
        with pytest.raises(SpecError, match=message):
            FitSpec.checked(**OPTIONS | options)


def test_the_kernel_has_no_formula():
    kernel = kernels.Precomputed()
    assert kernels.from_dict(kernel.to_dict()) == kernel
    assert (kernel.on_vectors, kernel.stationary, kernel.positive, kernel.savable) == (False, False, False, True)
    assert np.isnan(kernel.diagonal(X)).all()
    for combined in (kernel, 2.0 * kernel, kernel + KERNEL, KERNEL * kernel):
        with pytest.raises(SpecError, match="a precomputed kernel has no formula to evaluate or to combine"):
            combined(X, X)


def test_new_rows_that_are_no_kernels_with_the_fitted_ones_are_refused(tmp_path):
    model = estimator().fit(K)
    message = (
        rf"has 7 columns, but the model was fitted on the kernels of {N} rows: each new row must contain its kernels"
    )
    with pytest.raises(SpecError, match=message):
        bigkpca.transform(model.model_, K_NEW[:, :7], tmp_path / "scores.zarr")
    with pytest.raises(ValueError, match="7 features"):  # scikit-learn's own words
        model.transform(K_NEW[:, :7])
    with pytest.raises(SpecError, match=message):
        model.transform(da.from_array(K_NEW[:, :7]))
    wrong = K_NEW.copy()
    wrong[3, 300] = np.nan
    with pytest.raises(DataError, match="row 3, column 300 is NaN"):
        scores(model.model_, wrong)
    with pytest.raises(DataError, match="rows 0 to 39: kernel values overflow"):
        scores(fitted(K, dtype="float32", residual_tol=1e-3), K_NEW * 1e300)


def test_what_needs_rows_or_their_matrix_says_so():
    model = estimator().fit(K)
    with pytest.raises(SpecError, match="is a kernel matrix: see the residual of every component"):
        bigkpca.evaluate(model.model_, K)
    with pytest.raises(SpecError, match="keeps neither the rows nor their matrix"):
        arrays.feature_map(model.model_, K)
    assert not hasattr(model, "partial_fit")
    assert_allclose(arrays.leverage(model.model_, K).sum().compute(), R, rtol=1e-6)
    assert (model.landmarks_, model.sigma_) == (None, None)


@pytest.mark.full
def test_scikit_learn_contract():
    refused = {"check_estimators_nan_inf": "wants NaN reported before a matrix of 10 rows and 3 columns is refused"}
    for name in ("pandas_series", "not_an_array", "list", "shape", "not_overwritten"):
        refused[f"check_sample_weights_{name}"] = "a kernel matrix takes no weights"
    refused["check_all_zero_sample_weights_error"] = "a kernel matrix takes no weights"
    given = KernelPCA(n_components=2, random_state=0, **OPTIONS)
    assert check_estimator(given, expected_failed_checks=refused, on_skip=None)


def test_the_tag_says_that_input_is_pairwise_however_the_kernel_is_typed():
    expected = fitted(K).solution
    for name in ("PRECOMPUTED", kernels.Precomputed()):
        given = estimator(kernel=name)
        assert get_tags(given).input_tags.pairwise
        assert not hasattr(given, "score")
        model = given.fit(K).model_
        assert_array_equal(model.solution.components, expected.components)
    for kernel in ("gaussian", "no kernel", kernels.Linear(), np.dot):
        assert not get_tags(KernelPCA(kernel=kernel)).input_tags.pairwise
