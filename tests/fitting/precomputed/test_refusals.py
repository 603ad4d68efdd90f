"""What a given matrix cannot do or be, in words; the contract of scikit-learn; the commands."""

import json
import re
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

import bigkpca
from bigkpca import KernelPCA, arrays, kernels, methods
from bigkpca.errors import DataError, SpecError
from bigkpca.spec import FitSpec
from bigkpca.storage.describe import info
from bigkpca.storage.models import load_model
from tests.fitting.precomputed.matrices import K_NEW, KERNEL, OPTIONS, K, N, R, X, estimator, fitted, one_entry
from tests.helpers.commands import run
from tests.helpers.fits import scores
from tests.helpers.stores import as_npy, as_zarr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "nystroem"}, "kernel='precomputed' needs method='exact', not 'nystroem'"),
        ({"method": "columns"}, "needs method='exact', not 'columns'"),
        ({"method": methods.RandomFeatures("iid")}, "needs method='exact', not 'rff'"),
        ({"method": "nystroem", "kernel": kernels.Precomputed()}, "needs method='exact'"),
        ({"standardize": True}, "standardize=True is for rows that are vectors"),
        ({"refine": 2}, "leave refine out"),
        ({"landmarks": "uniform"}, "leave landmarks out"),
        ({"landmarks": [1, 2, 3]}, "leave landmarks out"),
        ({"n_directions": 3}, "n_directions=3 belongs to method='rff-pca'"),
        ({"solver": "randomized"}, "solver='randomized' is for random features"),
        ({"sigma": 2.0}, "the precomputed kernel has no length sigma"),
        ({"gamma": 2.0}, "the precomputed kernel has no gamma"),
        ({"kernel": kernels.Precomputed(), "sigma": 2.0}, "belong to kernel names"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(SpecError, match=message):
        FitSpec.checked(**OPTIONS | options)


def test_the_default_method_says_which_one_is_needed():
    with pytest.raises(SpecError, match="kernel='precomputed' needs method='exact', not 'nystroem'"):
        KernelPCA(kernel="precomputed").fit(K)


def test_a_kernel_value_is_the_name():
    by_name, by_value = fitted(K), fitted(K, kernel=kernels.Precomputed())
    assert_array_equal(by_name.solution.components, by_value.solution.components)
    assert FitSpec.from_dict(FitSpec.of(by_value).to_dict(), np.empty((0, 0))) == FitSpec.of(by_value)


def test_the_kernel_has_no_formula():
    kernel = kernels.Precomputed()
    assert kernels.from_dict(kernel.to_dict()) == kernel
    assert (kernel.on_vectors, kernel.stationary, kernel.positive, kernel.savable) == (False, False, False, True)
    assert np.isnan(kernel.diagonal(X)).all()
    for combined in (kernel, 2.0 * kernel, kernel + KERNEL, KERNEL * kernel):
        with pytest.raises(SpecError, match="a precomputed kernel has no formula to evaluate, or to combine"):
            combined(X, X)
    with pytest.raises(SpecError, match="no formula"):
        arrays.kernel_blocks(X, X[:5], kernel)[0].compute()
    with pytest.raises(SpecError, match="no spectral density"):
        arrays.random_features(X, 10, kernel)


def test_rows_of_the_wrong_width_are_refused(path, tmp_path):
    model = estimator().fit(K)
    message = rf"has 7 columns, the model was fitted on the kernels of {N} rows: each new row must hold its kernels"
    with pytest.raises(SpecError, match=message):
        bigkpca.transform(model.model_, K_NEW[:, :7], tmp_path / "scores.zarr")
    with pytest.raises(ValueError, match="7 features"):  # scikit-learn's own words
        model.transform(K_NEW[:, :7])
    with pytest.raises(SpecError, match=message):
        model.transform(da.from_array(K_NEW[:, :7]))


def test_what_needs_rows_or_their_matrix_says_so(path):
    model = estimator().fit(K)
    with pytest.raises(SpecError, match="is a kernel matrix: the certificate of the model has the residual"):
        bigkpca.evaluate(model.model_, K)
    with pytest.raises(SpecError, match="keeps neither its rows nor their matrix"):
        arrays.feature_map(model.model_, K)
    assert not hasattr(model, "partial_fit")
    assert_allclose(arrays.leverage(model.model_, K).sum().compute(), R, rtol=1e-6)
    assert (model.landmarks_, model.sigma_) == (None, None)


def test_new_rows_that_are_not_finite_are_named(path):
    model, wrong = fitted(K), K_NEW.copy()
    wrong[3, 300] = np.nan
    with pytest.raises(DataError, match="row 3, column 300 is NaN"):
        scores(model, wrong)


def test_new_rows_that_overflow_are_named():
    model = fitted(K, dtype="float32", residual_tol=1e-3)
    with pytest.raises(DataError, match="rows 0 to 39: kernel values overflow"):
        scores(model, K_NEW * 1e300)


# scikit-learn's face and the commands


NOT_OURS = {
    "check_estimators_nan_inf": "wants NaN reported before a matrix of 10 rows and 3 columns is refused",
}


@parametrize_with_checks(
    [KernelPCA(n_components=2, random_state=0, **OPTIONS)], expected_failed_checks=lambda _: NOT_OURS
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", ["precomputed", "Precomputed", "PRECOMPUTED", kernels.Precomputed()])
def test_the_tag_says_that_input_is_pairwise_however_the_kernel_is_typed(name):
    given = estimator().set_params(kernel=name)
    assert get_tags(given).input_tags.pairwise
    assert not hasattr(given, "score")
    assert_allclose(given.fit(K).eigenvalues_, estimator().fit(K).eigenvalues_)


def test_other_kernels_are_not_pairwise():
    for kernel in ("gaussian", "no kernel", kernels.Linear(), np.dot):
        assert not get_tags(KernelPCA(kernel=kernel)).input_tags.pairwise
    assert get_tags(estimator(kernel=kernels.Precomputed())).input_tags.pairwise
    assert not get_tags(KernelPCA()).input_tags.pairwise
    assert not get_tags(KernelPCA(kernel=KERNEL)).input_tags.pairwise
    assert clone(estimator()).get_params()["kernel"] == "precomputed"


def test_commands(path, tmp_path):
    gram, model, new = as_zarr(tmp_path, K, (50, 50)), tmp_path / "model.zarr", tmp_path / "new.npy"
    np.save(new, K_NEW)
    typed = ("fit", gram, model, "--kernel", "precomputed", "--method", "exact", "--components", R)
    shown = run(*typed)
    assert shown.exit_code == 0, shown.output
    assert re.search(r"^kernel +precomputed$", shown.stdout, re.M)
    assert ("largest relative residual" in shown.stdout) == (path != "held")
    assert "nothing to do" in run(*typed).stderr
    assert run("transform", model, new, tmp_path / "scores.zarr").exit_code == 0
    expected = scores(load_model(str(model)), K_NEW)
    assert_allclose(zarr.open(tmp_path / "scores.zarr" / "scores")[:], expected, atol=1e-12)
    facts = json.loads(run("info", model, "--json").stdout)
    assert (facts["kernel"], facts["columns"], facts["method"]) == ({"name": "precomputed"}, N, "exact")
    assert facts["features"] == "given-kernels"
    assert info(str(model))["components"] == R
    planned = run("plan", gram, "--kernel", "precomputed", "--method", "exact", "--components", R, "--json")
    assert json.loads(planned.stdout)["bytes_read"] >= K.nbytes


@pytest.mark.parametrize(
    ("damage", "options", "code"),
    [
        (lambda values: None, [], 0),
        (lambda values: None, ["--method", "nystroem"], 2),
        (lambda values: None, ["--memory", "100 MB"], 4),
        (one_entry, [], 3),
    ],
)
def test_exit_codes(damage, options, code, path, tmp_path):
    values = K.copy()
    damage(values)
    gram = as_zarr(tmp_path, values, (50, 50))
    typed = ["fit", gram, tmp_path / "model.zarr", "--kernel", "precomputed", "--method", "exact", "--components", R]
    assert run(*typed, *options).exit_code == code
    if not code:
        (Path(gram) / "c/2/3").unlink()
        assert run(*typed, "--overwrite").exit_code == 7
        wide = as_npy(tmp_path, K_NEW)
        assert run("fit", wide, *typed[2:], "--overwrite").exit_code == 2
