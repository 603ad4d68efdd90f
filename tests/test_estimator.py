"""The scikit-learn face: its contract, every kind of input, and what means the same there or is refused."""

import copy
import runpy
from functools import partial

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy.spatial.distance import cdist
from sklearn.decomposition import KernelPCA as Peer
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import bigkpca
from bigkpca import KernelPCA, kernels, landmarks
from bigkpca.errors import DataError, FewerComponentsWarning, MemoryLimitError, SpecError
from bigkpca.numerics.bandwidth import scale_gamma
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


def squared(A, B, weight=1.0):
    return (1 + weight * (A @ B.T)) ** 2


def test_partial_fit_adds_rows_and_records_what_it_solves(X, small, tmp_path):
    for kernel in ("gaussian", partial(squared, weight=1e-3)):
        kpca = KernelPCA(3, kernel=kernel, size=30, random_state=0).fit(X[:80])
        landmarks_before = kpca.landmarks_
        kpca.partial_fit(X[80:])
        assert kpca.model_.moments.count == 150
        np.testing.assert_array_equal(kpca.landmarks_, landmarks_before)
    small.set_params(kernel=kernels.Gaussian(20.0) + 0.5 * kernels.Laplacian(300.0), landmarks=landmarks.Uniform())
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
    with pytest.raises(MemoryLimitError, match="1 MB are allowed"):
        copy.copy(small).set_params(memory_limit="1 MB").partial_fit(X[80:])
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


def test_gamma_by_scale_is_that_of_scikit_learn(X, tmp_path):
    varying = X[:, X.std(axis=0) > 0].shape[1]
    for options, expected in (
        ({"method": "rff"}, 1 / (64 * X.var())),
        ({"kernel": "polynomial"}, 1 / (64 * X.var())),
        ({"standardize": True}, 1 / varying),  # d var = number of columns that vary
    ):
        found = KernelPCA(3, gamma="scale", size=20, random_state=0, **options).fit(X)
        assert found.gamma_ == pytest.approx(expected, rel=1e-3)
        assert "variance of the sampled rows" in found.model_.provenance["choices"][0]["reason"]
    for unit in (1e-120, 1.0, 1e120):
        np.testing.assert_allclose(scale_gamma(X * unit), 1 / (64 * X.var()) / unit / unit, rtol=1e-9)
    with pytest.raises(DataError, match="gamma='scale' needs rows that vary"):
        scale_gamma(np.ones((5, 2)))
    model = bigkpca.fit(X, tmp_path / "model.zarr", n_components=2, size=20, gamma="scale")
    again = KernelPCA.load(tmp_path / "model.zarr")
    assert (again.gamma, again.kernel_) == ("scale", model.features.kernel)
    for options, message in (
        ({"kernel": "cosine", "gamma": "scale"}, "the cosine kernel has no gamma"),
        ({"gamma": "scales"}, "gamma='scales': Input should be a valid number.*'scale'"),
    ):
        with pytest.raises(SpecError, match=message):
            KernelPCA(**options).fit(X)


def test_eigenvectors_of_refined_models_and_precomputed_matrices_are_of_all_rows_and_others_have_none(X):
    refined = KernelPCA(3, size=75, refine=2, sigma=25.0, random_state=0).fit(X)
    scores, expected = refined.eigenvectors_ * np.sqrt(refined.eigenvalues_), refined.transform(X)
    np.testing.assert_allclose(scores, expected, atol=2e-2 * np.abs(expected).max())
    K = kernels.Gaussian(20.0)(X, X)
    ours = KernelPCA(3, kernel="precomputed").fit(K)
    theirs = Peer(3, kernel="precomputed").fit(K)
    np.testing.assert_allclose(np.abs(ours.eigenvectors_), np.abs(theirs.eigenvectors_), atol=1e-8)
    for method in ("nystroem", "rff"):
        kpca = KernelPCA(3, method=method, size=40, random_state=0).fit(X)
        assert not hasattr(kpca, "eigenvectors_")
        with pytest.raises(AttributeError, match="only models fitted with method='exact' or refine"):
            _ = kpca.eigenvectors_


def test_kernel_pca_consistent_transform(X):
    rows = X.copy()
    kpca = KernelPCA(3, size=30, random_state=0).fit(rows)
    before = kpca.transform(X)
    rows[:, 0] = 666  # the rows of the fit are nobody's any more
    np.testing.assert_array_equal(kpca.transform(X), before)


@pytest.mark.filterwarnings("ignore::bigkpca.errors.DominantVariableWarning")
@pytest.mark.filterwarnings("ignore::bigkpca.errors.FewerComponentsWarning")
def test_components_that_are_rounding_are_never_kept():
    X = np.array([[1 - 1e-30, 1], [1, 1], [1, 1 - 1e-20], [2, 3.0]])  # a line of two points
    for count in (None, 2):
        kpca = KernelPCA(count, kernel="linear", method="exact").fit(X)
        assert kpca.n_components_ == 1
        assert kpca.transform(X).shape == (4, 1)
    X = np.array([[5.0, 1.0], [5 + 1e-8, 1e-8], [5 + 1e-8, 0]])
    kpca = KernelPCA(2, kernel="linear", method="exact").fit(X)
    assert np.isfinite(kpca.eigenvalues_).all()
    assert kpca.eigenvalues_.min() > 1e-12 * kpca.eigenvalues_.max()


def test_kernel_pca_raise_not_fitted_error():
    for method in ("transform", "inverse_transform", "denoise", "residual", "score", "save"):
        with pytest.raises(NotFittedError):
            getattr(KernelPCA(2), method)(np.zeros((3, 2)))
