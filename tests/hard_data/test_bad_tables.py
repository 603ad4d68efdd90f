"""Tables that cannot be rows of a model: what is told, and that nothing is written."""

import numpy as np
import pytest
import xarray as xr

import bigkpca
from bigkpca import KernelPCA

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))


def test_rows_that_are_no_numbers(tmp_path):
    words = np.array(["abc", "de", "fghij"], dtype=object)
    text = r"the array contains the text 'abc' at \[0(, 0)?\] \(counted from 0\): rows must be numbers.* --categorical"
    kpca = KernelPCA(2, size=20).fit(X)
    for rows, message in (
        (words, text),
        ([[word] for word in words], text),
        ([[1.0, 2.0], [3.0]], "the rows do not form an array, since they differ in length"),
    ):
        with pytest.raises(ValueError, match=message):
            bigkpca.fit(rows, tmp_path / "m.zarr", n_components=2, size=20)
        with pytest.raises(ValueError, match=message):
            bigkpca.transform(kpca.model_, rows, tmp_path / "s.zarr")
    assert not list(tmp_path.iterdir())


def test_texts_of_numbers_are_numbers():
    texts = X.astype(str).astype(object)
    scores = KernelPCA(2, size=20, random_state=0).fit_transform(texts)
    np.testing.assert_allclose(scores, KernelPCA(2, size=20, random_state=0).fit_transform(X), rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_data_arrays_that_are_not_tables_of_the_fitted_columns():
    field = xr.DataArray(RNG.normal(size=(30, 3, 4)), dims=("time", "lat", "lon"))
    field = field.assign_coords(lat=np.arange(3), lon=np.arange(4))
    stacked = field.stack(feature=["lat", "lon"])
    kpca = KernelPCA(2, size=20, random_state=0).fit(stacked)
    for rows, message in (
        (field, r"has the dims \('time', 'lat', 'lon'\): rows must be two-dimensional; stack"),
        (stacked.transpose("feature", "time"), "has 30 columns, but the model was fitted on 12|has 30 features"),
        (stacked.isel(feature=slice(None, None, -1)), "Feature names must be in the same order as they were in fit"),
        (field.isel(lat=0), "Feature names unseen at fit time"),
    ):
        with pytest.raises(ValueError, match=message):
            kpca.transform(rows)
