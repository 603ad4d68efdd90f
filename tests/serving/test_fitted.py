"""The light estimator: the scores of KernelPCA, pickled, without Dask and Zarr."""

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bigkpca import KernelPCA
from bigkpca.errors import DataError, SpecError
from tests.helpers.commands import finished
from tests.serving.cases import CASES, NEW, X, fitted, largest_difference

NULLABLE = pd.DataFrame(NEW).astype("Float64")
NULLABLE.iloc[2, 7] = pd.NA
INFINITE = np.where(np.arange(64) == 4, np.inf, NEW)


def copied(kpca):
    """The light estimator after a journey through a file."""
    return pickle.loads(pickle.dumps(kpca.to_sklearn()))


@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_the_model(name):
    kpca = fitted(name)
    light = copied(kpca)
    expected, found = kpca.transform(NEW), light.transform(NEW)
    assert found.dtype == expected.dtype
    assert largest_difference(found, expected) < (1e-5 if found.dtype == np.float32 else 1e-10)
    assert list(light.get_feature_names_out()) == list(kpca.get_feature_names_out())
    assert light.n_features_in_ == 64


def test_pre_images_are_those_of_the_model():
    kpca = fitted("gaussian")
    Y = kpca.transform(X)
    np.testing.assert_allclose(copied(kpca).inverse_transform(Y), kpca.inverse_transform(Y), rtol=1e-9, atol=1e-9)
    without = KernelPCA(2, kernel="cosine", size=50).fit(X)
    assert not hasattr(without.to_sklearn(), "inverse_transform")


def test_it_imports_neither_dask_nor_zarr(tmp_path):
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(fitted("gaussian").to_sklearn()))
    np.save(tmp_path / "rows.npy", NEW)
    code = (
        "import pickle, sys, numpy as np\n"
        f"light = pickle.load(open({str(tmp_path / 'model.pkl')!r}, 'rb'))\n"
        f"light.transform(np.load({str(tmp_path / 'rows.npy')!r}))\n"
        "heavy = {'dask', 'distributed', 'zarr', 'click', 'rich', 'pydantic', 'onnx'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = finished(sys.executable, "-c", code, timeout=120)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_threads_share_one_estimator():
    light, expected = copied(fitted("gaussian")), fitted("gaussian").transform(X)
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda part: light.transform(X[part % 4 :: 4]), range(80))
    assert max(largest_difference(each, expected[part % 4 :: 4]) for part, each in enumerate(found)) < 1e-10


def test_it_stands_in_pipelines_and_is_cloned():
    scaler = StandardScaler().fit(X)
    kpca = KernelPCA(3, size=50, random_state=0).fit(scaler.transform(X))
    light = kpca.to_sklearn()
    line = make_pipeline(scaler, light)
    assert largest_difference(line.fit(X).transform(NEW), kpca.transform(scaler.transform(NEW))) < 1e-10
    np.testing.assert_array_equal(clone(light).transform(X), light.transform(X))


@pytest.mark.filterwarnings("ignore::bigkpca.errors.DominantVariableWarning")
def test_frames_are_compared_by_name():
    frame = pd.DataFrame(X[:, :3], columns=list("abc"))
    light = copied(KernelPCA(2, size=50, random_state=0).fit(frame))
    assert list(light.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_array_equal(light.transform(frame), light.transform(frame.to_numpy()))
    with pytest.raises(SpecError, match="the frame lacks the column 'a' of the model and has the column 'z'"):
        light.transform(frame.rename(columns={"a": "z"}))
    with pytest.raises(SpecError, match="the frame has its columns in another order"):
        light.transform(frame[["c", "b", "a"]])


def test_what_cannot_be_scored_or_become_rows():
    light = fitted("gaussian").to_sklearn()
    width, other_scores = r"shape \(60, 5\): the model takes \(n, 64\)", r"scores of shape \(3, 4\)"
    for method, values, error, message in (
        (light.transform, NEW[:, :5], SpecError, width),
        (light.transform, sp.csr_array(NEW[:, :5]), SpecError, width),
        (light.transform, NEW[:0], DataError, "there are no rows"),
        (light.transform, np.where(NEW[3, 4] == NEW, np.nan, NEW), DataError, r"row 0, column \d+ is NaN"),
        (light.transform, INFINITE, DataError, "row 0, column 4 is infinity"),
        (light.transform, sp.csc_array(INFINITE), DataError, "row 0, column 4 is infinity"),
        (light.transform, np.full((2, 64), "x"), DataError, "contain values that are not numbers .*'x'"),
        (light.transform, NULLABLE, DataError, "contain values that are not numbers .*NAType"),
        (light.transform, sp.csr_array(NEW + 5j), DataError, "the rows contain complex128 values"),
        (light.inverse_transform, np.zeros((3, 4)), SpecError, other_scores),
        (light.inverse_transform, np.zeros((0, 5)), DataError, "there are no scores"),
        (light.inverse_transform, np.full((3, 5), np.nan), DataError, "row 0, column 0 is NaN"),
        (light.inverse_transform, np.full((3, 5), 1j), DataError, "the scores contain complex128 values"),
    ):
        with pytest.raises(error, match=message):
            method(values)


def test_sparse_rows_have_the_scores_of_dense_ones():
    light = copied(fitted("gaussian"))
    for kind, dtype in (("csr_array", "f8"), ("csc_matrix", "u1"), ("coo_array", "f8"), ("lil_array", "f8")):
        rows = np.tile(NEW, (5, 1)).astype(dtype)  # more than are made dense at once
        found, expected = light.transform(getattr(sp, kind)(rows)), light.transform(rows.astype(np.float64))
        np.testing.assert_array_equal(found, expected, kind)
    assert largest_difference(found, fitted("gaussian").transform(rows)) < 1e-10
    scores = light.transform(NEW)
    np.testing.assert_array_equal(light.inverse_transform(sp.csr_array(scores)), light.inverse_transform(scores))
