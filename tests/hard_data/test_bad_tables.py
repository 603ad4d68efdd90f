"""Tables that cannot be rows of a model, one after the other: what is told, and that nothing is written."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr

import bigkpca
from bigkpca import KernelPCA

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
FRAME = pd.DataFrame(X, columns=list("abcd"))
SPARSE = sp.csr_array(np.where(X > 1, X, 0))
SPARSE.data[5] = np.nan
WORDS = np.array(["abc", "de", "fghij"], dtype=object)
TEXT = r"the array holds the text 'abc' at \[0(, 0)?\] \(counted from 0\): rows are numbers.* --categories .* --text"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.zarr"
    bigkpca.fit(FRAME, path, components=2, size=20)
    return path


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (FRAME.assign(c=[1, "a"] * 30), r"the frame holds object values in column 2 \('c'\)"),
        (FRAME.assign(c=pd.Timestamp("2020-01-01")), r"the frame holds datetime64.* values in column 2 \('c'\)"),
        (FRAME.astype(object).assign(c=[None] + [1.0] * 59), r"row 0, column 2 \('c'\) is NaN"),
        (SPARSE, r"the sparse matrix: row \d+, column \d is NaN"),
        (WORDS, TEXT),
        (WORDS[:, None], TEXT),
        (WORDS.astype(str)[:, None], TEXT),
        (WORDS.tolist(), TEXT),
        ([[word] for word in WORDS], TEXT),
    ],
    ids=["mixed", "dates", "None", "sparse NaN", "texts", "a column", "of NumPy", "a list", "lists"],
)
@pytest.mark.parametrize("use", ["fit", "transform", "estimator"])
def test_rows_that_are_no_numbers(use, rows, message, model, tmp_path):
    uses = {
        "fit": lambda: bigkpca.fit(rows, tmp_path / "m.zarr", components=2, size=20),
        "transform": lambda: bigkpca.transform(model, rows, tmp_path / "s.zarr"),
        "estimator": lambda: KernelPCA(2, size=20).fit(rows),
    }
    with pytest.raises(ValueError, match=message):
        uses[use]()
    assert not (tmp_path / "m.zarr").exists()
    assert not (tmp_path / "s.zarr").exists()


def test_texts_of_numbers_are_numbers():
    texts = X.astype(str).astype(object)
    scores = KernelPCA(2, size=20, random_state=0).fit_transform(texts)
    np.testing.assert_allclose(scores, KernelPCA(2, size=20, random_state=0).fit_transform(X), rtol=1e-9, atol=1e-12)


def test_rows_of_different_lengths(model, tmp_path):
    with pytest.raises(ValueError, match="the rows are no array, since they differ in length"):
        bigkpca.transform(model, [[1.0, 2.0], [3.0]], tmp_path / "s.zarr")


@pytest.mark.parametrize(
    ("frame", "message", "own"),
    [
        (FRAME[list("dcba")], r"another order than the model: column 0 .* is 'd', not 'a'", "in the same order"),
        (FRAME.assign(z=1.0), "has the column 'z', unlike the model", "unseen at fit time"),
        (FRAME[list("abc")], "lacks the column 'd' of the model", "now missing"),
    ],
    ids=["order", "new", "missing"],
)
def test_columns_that_the_model_does_not_have(frame, message, own, model, tmp_path):
    with pytest.raises(ValueError, match=message):
        bigkpca.transform(model, frame, tmp_path / "s.zarr")
    with pytest.raises(ValueError, match=message):
        KernelPCA.load(model).to_sklearn().transform(frame)
    with pytest.raises(ValueError, match=own):  # the words of scikit-learn
        KernelPCA.load(model).transform(frame)
    assert not list(tmp_path.iterdir())


def test_data_arrays_without_the_dimension_that_was_fitted():
    field = xr.DataArray(RNG.normal(size=(30, 3, 4)), dims=("time", "lat", "lon"))
    field = field.assign_coords(lat=np.arange(3), lon=np.arange(4))
    stacked = field.stack(feature=["lat", "lon"])
    kpca = KernelPCA(2, size=20, random_state=0).fit(stacked)
    for rows, message in (
        (field, r"has the dims \('time', 'lat', 'lon'\): rows must be two-dimensional; stack"),
        (stacked.transpose("feature", "time"), "fitted on columns along 'feature', which must be the last one"),
        (field.isel(lat=0), r"has the dims \('time', 'lon'\): the model was fitted on columns along 'feature'"),
        (stacked.isel(feature=slice(None, None, -1)), "the coordinates of the dim 'feature' are not those"),
    ):
        with pytest.raises(ValueError, match=message):
            kpca.transform(rows)


def test_an_export_in_the_way_stays(tmp_path):
    (tmp_path / "a.csv").write_text("mine")
    with pytest.raises(ValueError, match=r"a\.csv exists: take another name, or replace it with --overwrite"):
        bigkpca.export(X, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "mine"


def test_a_category_that_the_first_files_do_not_have(tmp_path):
    (tmp_path / "a.csv").write_text("w,a\nu,1\nv,2\n")
    (tmp_path / "b.csv").write_text("w,a\nu,1\nz,2\n")
    bigkpca.ingest(tmp_path / "a.csv", tmp_path / "a.zarr", categories="one-hot")
    with pytest.raises(ValueError, match=r"b\.csv: row 1, column 0 \('w'\) is 'z', none of the 2 categories"):
        bigkpca.ingest(tmp_path / "b.csv", tmp_path / "b.zarr", like=tmp_path / "a.zarr")
    assert not (tmp_path / "b.zarr").exists()
