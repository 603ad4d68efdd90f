"""The scikit-learn face: its contract, and every kind of input."""

import copy
import pickle
import runpy

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy.spatial.distance import cdist
from sklearn.utils.estimator_checks import parametrize_with_checks

import bigkpca
from bigkpca import KernelPCA, arrays, kernels, landmarks, methods
from bigkpca.errors import FewerComponentsWarning, MemoryLimitError, SpecError
from tests.helpers.lazy import refuse


@pytest.fixture
def X(digits):
    return digits[:150].astype(np.float64)


@pytest.fixture
def small():
    return KernelPCA(6, size=60, random_state=0)


@parametrize_with_checks([KernelPCA(n_components=2, random_state=0)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


EQUAL_WEIGHTS = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]
WEIGHTS = [
    *(f"check_sample_weights_{name}" for name in ("pandas_series", "not_an_array", "list", "shape", "not_overwritten")),
    "check_all_zero_sample_weights_error",
    *EQUAL_WEIGHTS,
]


def refused(estimator):
    """Checks that a method does not pass, and why."""
    if estimator.method == "exact" or estimator.refine:
        return dict.fromkeys(WEIGHTS, "these options do not take weights")
    return dict.fromkeys(EQUAL_WEIGHTS if estimator.method == "columns" else (), "equal rows are other columns")


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::bigkpca.errors.NarrowKernelWarning")  # 30 columns of random numbers
@parametrize_with_checks(
    [
        KernelPCA(n_components=2, method="columns", standardize=True, random_state=0),
        KernelPCA(n_components=2, method="rff", solver="randomized", size=30, random_state=0),
        KernelPCA(n_components=2, method="rff-pca", size=30, random_state=0),
        KernelPCA(n_components=2, method="exact"),
        KernelPCA(n_components=2, size=20, refine=1, preimage="ridge", random_state=0),
    ],
    expected_failed_checks=refused,
)
def test_scikit_learn_contract_of_other_methods(estimator, check):
    check(estimator)


def test_dtypes_of_scores(digits):
    for dtype in (np.uint8, np.int16, np.float32, np.float64, np.int64, bool):
        kpca, rows = KernelPCA(6, size=20, random_state=0), digits[:100].astype(dtype)
        scores = kpca.fit_transform(rows)
        assert scores.dtype == (np.float64 if dtype in (np.float64, np.int64, bool) else np.float32)
        assert scores.tobytes() == kpca.fit(rows).transform(rows).tobytes()
    assert KernelPCA(2, dtype=np.float32, size=20).fit_transform(digits[:100] * 1.0).dtype == np.float32
    far = digits[:100].astype(np.float32) + np.float32(1e3)  # where rounding counts, so that the fit is in float64
    kpca = KernelPCA(2, size=20, kernel="polynomial", degree=2, random_state=0)
    scores = kpca.fit_transform(far)
    assert (scores.dtype, kpca.model_.features.dtype) == (np.float32, np.float64)
    assert kpca.transform(da.from_array(far)).dtype == np.float32
    assert scores.tobytes() == kpca.transform(da.from_array(far)).compute().tobytes() == kpca.transform(far).tobytes()
    tags = [KernelPCA(dtype=dtype).__sklearn_tags__().transformer_tags for dtype in (None, "float64")]
    assert [each.preserves_dtype for each in tags] == [["float64", "float32"], []]


def test_a_warning_of_fewer_components_points_at_the_line_of_the_user(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\nfrom sklearn.pipeline import make_pipeline\nfrom bigkpca import KernelPCA\n"
        "X = np.arange(30.0).reshape(10, 3)\n"
        "KernelPCA(2, kernel='linear', size=5).fit(X)\n"
        "make_pipeline(\n    KernelPCA(2, kernel='linear', size=5, random_state=0)\n).fit_transform(X)\n"
        "KernelPCA(kernel='linear', size=5).fit(X)\n"
    )
    with pytest.warns(FewerComponentsWarning) as caught:
        runpy.run_path(str(script))
    assert [(each.filename, each.lineno) for each in caught] == [(str(script), 5), (str(script), 8)]
    assert "2 components were requested, but 1 are kept: the others would be rounding errors" in str(caught[0].message)


def test_sum_adds_up_estimators(X):
    first = KernelPCA(3, size=20, random_state=0).fit(X[:60])
    second = KernelPCA(3, random_state=0).fit(X[60:], like=first)
    assert sum([first, second]).model_.moments.count == len(X)
    with pytest.raises(TypeError, match="unsupported operand"):
        1 + first


def test_every_kind_of_input_gives_the_same_model_and_stored_rows_lazy_scores(X, tmp_path):
    np.save(tmp_path / "rows.npy", X)
    array = zarr.create_array(str(tmp_path / "rows.zarr"), data=X, chunks=(50, 64))
    kpca = KernelPCA(6, size=60, random_state=0, method="rff-pca", standardize=True)
    expected = kpca.fit(X).transform(X)
    for data in (da.from_array(X, chunks=(77, 20)), array, str(tmp_path / "rows.zarr"), tmp_path / "rows.npy"):
        kpca.fit(data)
        with dask.config.set(scheduler=refuse):
            lazy = kpca.transform(data)
            with pytest.raises(AssertionError, match="computed although lazy"):
                lazy.compute()
        assert isinstance(lazy, da.Array)
        assert lazy.shape == (150, 6)
        # Chunks of Dask arrays are other blocks, which round in their own way.
        rounding = {"rtol": 1e-9, "atol": 1e-12} if isinstance(data, da.Array) else {"rtol": 0}
        np.testing.assert_allclose(lazy.compute(scheduler="threads"), expected, **rounding)
    np.testing.assert_array_equal(kpca.fit(pd.DataFrame(X)).transform(pd.DataFrame(X)), expected)


def test_attributes_and_components_as_a_share_of_variance_or_all(X, small):
    small.fit(X)
    assert small.eigenvalues_.shape == small.explained_variance_ratio_.shape == (small.n_components_,) == (6,)
    assert small.kernel_ == kernels.Gaussian(small.sigma_)
    assert list(small.get_feature_names_out()[:2]) == ["kernelpca0", "kernelpca1"]
    assert small.landmarks_.shape == (60, 64)
    assert X.min() - 1 <= small.landmarks_.min()
    assert small.landmarks_.max() <= X.max() + 1
    assert KernelPCA(3, method="rff", size=40, random_state=0).fit(X).landmarks_ is None
    ratios = KernelPCA(0.5, method="rff-pca", size=60, random_state=0).fit(X).explained_variance_ratio_
    assert ratios[:-1].sum() < 0.5 <= ratios.sum()
    assert 50 <= KernelPCA(None, size=60, random_state=0).fit(X).n_components_ <= 60


def test_save_and_load(X, tmp_path):
    kernel = kernels.Gaussian(20.0) + 0.5 * kernels.Laplacian(300.0)
    options = {"method": methods.Nystroem("thesis", rank=9), "landmarks": landmarks.Uniform(), "size": 50}
    fitted = KernelPCA(4, kernel=kernel, random_state=5, **options).fit(X)
    fitted.save(tmp_path / "model.zarr")
    loaded = KernelPCA.load(tmp_path / "model.zarr")
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.transform(X), fitted.transform(X))
    assert repr(pickle.loads(pickle.dumps(loaded))) == repr(fitted)
    fitted.save(tmp_path / "model.zarr")  # it is there
    other = KernelPCA(2, size=20, random_state=0).fit(X)
    with pytest.raises(SpecError, match="already holds"):
        other.save(tmp_path / "model.zarr")
    other.save(tmp_path / "model.zarr", overwrite=True)
    assert KernelPCA.load(tmp_path / "model.zarr").n_components_ == 2


def full(*values):
    return pytest.param(*values, marks=pytest.mark.full)


DRAWN = {"drawn_X": 900}  # all, since they are fewer than 2048
KEPT = [
    ({"preimage": "fixed-point"}, DRAWN),
    ({"preimage": "ridge"}, DRAWN | {"decoder_rows": 900}),
    ({"method": "rff"}, DRAWN | {"decoder_rows": 900}),
    full({"preimage": "denoising:rows=100", "noise": 1.0}, DRAWN | {"decoder_rows": 100}),
    full({"preimage": "mds"}, DRAWN | {"decoder_rows": 900}),
    full({"landmarks": "uniform"}, DRAWN | {"landmarks": 60}),
    full({"kernel": "polynomial"}, DRAWN | {"landmarks": 60}),
    full({"refine": 2}, {"landmarks": 900}),
]


@pytest.mark.parametrize(("options", "kept"), KEPT, ids=str)
def test_a_model_contains_the_rows_that_the_documentation_says(options, kept, digits, small, tmp_path):
    X = digits[:900].astype(np.float64)
    small.set_params(**options).fit(X).save(tmp_path / "m.zarr")
    found = {}
    for name, array in zarr.open_group(tmp_path / "m.zarr", mode="r").arrays():
        if array.ndim == 2 and array.shape[1] == X.shape[1]:
            forms = array[:], small.model_.features.unshifted(array[:])
            nearest = np.min([cdist(X, rows, "chebyshev").min(axis=0) for rows in forms], axis=0)
            found[name] = int((nearest < 1e-6).sum())
    assert {name: count for name, count in found.items() if count} == kept


def test_partial_fit_adds_rows_and_records_what_it_solves(X, small, tmp_path):
    for kernel in ("gaussian", lambda A, B: (1 + A @ B.T / 1000) ** 2):
        kpca = KernelPCA(3, kernel=kernel, size=30, random_state=0).fit(X[:80])
        landmarks_before = kpca.landmarks_
        kpca.partial_fit(X[80:])
        assert kpca.model_.moments.count == 150
        np.testing.assert_array_equal(kpca.landmarks_, landmarks_before)
    small.fit(X[:80]).set_params(n_components=4, noise=0.5, memory_limit="2 GB").partial_fit(X[80:])
    assert small.n_components_ == 4
    spec = small.model_.provenance["spec"]
    assert (spec["n_components"], spec["noise"], spec["size"]) == (4, 0.5, 60)
    small.save(tmp_path / "model.zarr")
    loaded = KernelPCA.load(tmp_path / "model.zarr")
    assert loaded.get_params() == small.set_params(memory_limit=None).get_params()
    np.testing.assert_array_equal(loaded.transform(X), small.transform(X))
    np.testing.assert_array_equal(loaded.partial_fit(X).transform(X), small.partial_fit(X).transform(X))


def test_partial_fit_refuses_parameters_that_rows_cannot_change(X, small):
    before = small.fit(X[:80]).model_
    one = {"kernel": "laplacian", "method": "columns", "landmarks": "uniform", "solver": "dense", "preimage": "ridge"}
    one |= {"sigma": 3.0, "gamma": 1e-3, "size": 61, "residual_tol": 0.5, "block_rows": 100, "random_state": 1}
    one |= {"center": False, "standardize": True, "dtype": np.float32}
    changes = [{name: value} for name, value in one.items()]
    changes += [{"kernel": np.dot}, {"landmarks": np.eye(60, 64)}, {"size": "auto", "tol": 0.5}]
    for changed in changes:
        name = "|".join(changed)
        message = f"^({name})=.*, but the model was fitted with .*: set it back, or fit again"
        other = copy.copy(small).set_params(**changed)
        with pytest.raises(SpecError, match=message):
            other.partial_fit(X[80:])
        assert other.model_ is before
    function = KernelPCA(2, kernel=lambda A, B: A @ B.T, size=20, random_state=0).fit(X[:80])
    with pytest.raises(SpecError, match=r"^kernel=.*, but the model was fitted with"):
        function.set_params(kernel=lambda A, B: (A @ B.T) ** 2).partial_fit(X[80:])


def test_random_state_none_draws_and_records_a_seed_that_partial_fit_keeps(X):
    one, other = (KernelPCA(3, size=30, random_state=np.random.RandomState(0)) for _ in range(2))
    np.testing.assert_array_equal(one.fit_transform(X), other.fit(X).transform(X))  # which draw one seed each
    first, second = (KernelPCA(3, size=30).fit(X) for _ in range(2))
    seed = first.model_.provenance["spec"]["random_state"]
    assert seed != second.model_.provenance["spec"]["random_state"]
    again = KernelPCA(3, size=30, random_state=seed).fit(X)
    np.testing.assert_array_equal(again.transform(X), first.transform(X))
    for drawn in (first, KernelPCA(3, size=30, random_state=np.random.RandomState(0)).fit(X)):
        seed = drawn.model_.provenance["spec"]["random_state"]
        assert drawn.partial_fit(X).model_.provenance["spec"]["random_state"] == seed


def test_functions_that_take_a_model_take_a_fitted_estimator(X, small, tmp_path):
    small.fit(X)
    scores = bigkpca.transform(small, X, tmp_path / "scores.zarr")
    np.testing.assert_array_equal(scores[:], small.transform(X))
    stored = small.transform(X, out=tmp_path / "own.zarr")
    assert isinstance(stored, zarr.Array)
    np.testing.assert_array_equal(stored[:], scores[:])
    for view in (arrays.scores, arrays.feature_map):
        np.testing.assert_array_equal(view(small, X[:20]).compute(), view(small.model_, X[:20]).compute())
    with pytest.raises(SpecError, match="this KernelPCA has no model: pass a fitted KernelPCA"):
        bigkpca.evaluate(KernelPCA(), X)
    with pytest.raises(SpecError, match="a ndarray is not a model: pass what fit returned, the path of a model"):
        arrays.scores(X, X)


def test_a_memory_limit_refuses_and_changes_nothing(X):
    with pytest.raises(MemoryLimitError, match="1 MB are allowed"):
        KernelPCA(memory_limit="1 MB").fit(X)
    limited, free = (KernelPCA(3, size=30, random_state=0, memory_limit=limit).fit(X) for limit in ("2 GB", None))
    np.testing.assert_array_equal(limited.transform(X), free.transform(X))
    with pytest.raises(MemoryLimitError, match="1 MB are allowed"):
        limited.set_params(memory_limit="1 MB").partial_fit(X)


def test_partial_fit_is_missing_where_many_random_features_leave_no_moments():
    assert not hasattr(KernelPCA(method="rff", size=10_000), "partial_fit")
    assert hasattr(KernelPCA(method="rff", size=1000), "partial_fit")
    assert hasattr(KernelPCA(dtype="foo"), "partial_fit")  # which a fit refuses


@pytest.mark.parametrize("kind", ["pandas", "dask"])
def test_two_columns_of_one_name_are_refused(kind):
    frame = pd.DataFrame(np.zeros((20, 3)), columns=["a", "b", "a"])
    X = frame if kind == "pandas" else dd.from_pandas(frame, npartitions=2)
    with pytest.raises(SpecError, match="2 columns of the frame are named 'a', but KernelPCA identifies columns by"):
        KernelPCA(2).fit(X)
