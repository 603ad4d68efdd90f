"""What a given matrix cannot do or be; mistakes in it; the contract of scikit-learn."""

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

import bigkpca
from bigkpca import KernelPCA, arrays, kernels, methods
from bigkpca.errors import DataError, MemoryLimitError, SpecError
from bigkpca.spec import FitSpec
from tests.fitting.precomputed.matrices import (
    DISTANCES,
    K_NEW,
    KERNEL,
    OPTIONS,
    K,
    N,
    R,
    X,
    estimator,
    fitted,
    with_entry,
)
from tests.helpers.fits import scores

ROW_OF_ZEROS = K.copy()
ROW_OF_ZEROS[5] = 0
MISTAKES = {
    "one entry": (
        with_entry(201, 77, K[201, 77] + 0.25),
        r"is not symmetric: entry \((201, 77|77, 201)\) is [\d.e-]+, entry \((77, 201|201, 77)\) is [\d.e-]+ \(counted",
    ),
    "swapped rows": (K[[1, 0, *range(2, N)]], r"is not symmetric: entry .* store \(K \+ K\.T\) / 2"),
    "row of zeros": (ROW_OF_ZEROS, r"entry \(5, 5\) is 0|entry \(5, \d+\) is 0, entry"),
    "NaN": (with_entry(150, 250, np.nan), "row 150, column 250 is NaN"),
    "infinity": (with_entry(250, 150, np.inf), "row 250, column 150 is infinity"),
    "zero diagonal": (with_entry(9, 9, 0), r"entry \(9, 9\) is 0, but others in its row are not"),
    "distances": (
        1 - K,
        r"no entry is negative, as in a matrix of distances D: convert distances .* exp\(-D² .*, or with -D² / 2",
    ),
    "distances, up to rounding": (1 + 1e-9 - K, "as in a matrix of distances D"),
    "zeros": (np.zeros((N, N)), "no direction varies|nothing to project on"),
    "constant": (np.full((N, N), 3.0), "no direction varies"),
    "huge": (K * 1e300, "overflow"),
}


def test_mistakes_are_named():
    for mistake, (wrong, message) in MISTAKES.items():
        with pytest.raises(DataError, match=message):
            fitted(wrong, **{"dtype": "float32"} if mistake == "huge" else {})


def test_a_wrong_entry_is_found_wherever_it_is():
    for i, j in ((0, 1), (64, 63), (200, N - 1), (N - 1, 0)):
        with pytest.raises(DataError, match=rf"({i}, {j}).*({j}, {i})|({j}, {i}).*({i}, {j})"):
            fitted(with_entry(i, j, K[i, j] - 0.01))


@pytest.mark.parametrize("given", ["kernels", "squared distances"])
def test_rounding_is_no_asymmetry(given):
    lengths = np.geomspace(1, 1e3, N)
    matrix = K * np.outer(lengths, lengths) if given == "kernels" else DISTANCES
    rng = np.random.default_rng(0)
    for dtype, scale in ((np.float32, 1e-12), (np.float64, 1e12)):
        eps = np.finfo(dtype).eps
        rounded = (matrix * scale * (1 + 8 * eps * rng.uniform(-1, 1, K.shape))).astype(dtype)
        assert fitted(rounded, n_components=3, residual_tol=1e-3).components == 3
        rounded[200, 300] *= 1.5
        with pytest.raises(DataError, match=r"is not symmetric: entry \((200, 300|300, 200)\)"):
            fitted(rounded, n_components=3)


def test_a_matrix_that_is_not_square_is_refused_with_both_numbers():
    for rows, columns in ((N, N - 1), (N - 1, N)):
        message = f"has {rows} rows and {columns} columns: .* needs the square matrix"
        with pytest.raises(SpecError, match=message):
            fitted(np.ones((rows, columns)))
        with pytest.raises(SpecError, match=message):
            bigkpca.plan(np.ones((rows, columns)), n_components=R, **OPTIONS)


def test_a_matrix_is_planned_in_float64_and_refused_before_it_is_read():
    matrix = np.broadcast_to(np.float32(np.nan), (8192, 8192))
    plan = bigkpca.plan(matrix, n_components=20, **OPTIONS)
    assert plan.array_bytes > 2 * 8 * 8192**2
    assert (plan.bytes_read, plan.passes) == (4 * 8192**2, 1)
    with pytest.raises(MemoryLimitError, match="50 MB are allowed: request fewer components, or allow more"):
        estimator(memory_limit="50 MB").fit(matrix)


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
