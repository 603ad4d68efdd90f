"""Dims, coordinates and multi-indexes of DataArrays: what a model keeps of them, and what it gives back."""

import json

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import bigkpca
from bigkpca import KernelPCA
from bigkpca.data.labels import MOST_BYTES, Labels, are_stored_labels, bytes_of_labels, header_from
from bigkpca.data.stores import MOST_JSON_BYTES
from bigkpca.errors import SpecError
from bigkpca.fitting import fit
from bigkpca.storage.models import _parts, assembled
from tests.helpers.lazy import refuse

FIELD = xr.DataArray(
    np.random.default_rng(0).normal(size=(60, 3, 4)),
    dims=("time", "lat", "lon"),
    coords={
        "time": pd.date_range("2000", periods=60),
        "lat": np.float32([-10.1, 0, 10.1]),
        "lon": [0, 90, 180, 270],
        "zone": ("lat", ["s", "eq", "north"]),
        "land": (("lat", "lon"), np.eye(3, 4, dtype=bool)),
    },
)
KINDS = {
    "stacked": FIELD.stack(cell=["lat", "lon"]),
    "times": FIELD[:, 0, 0].drop_vars(["lat", "lon", "zone", "land"]).expand_dims(x=30).rename(time="band"),
    "names": FIELD[:, :, 0].drop_vars(["lon", "land"]),
    "bare": xr.DataArray(FIELD.values.reshape(60, 12), dims=("t", "c")),
}


def fresh():
    return KernelPCA(3, size=40, random_state=0)


def loaded(kpca, path):
    kpca.save(path)
    return KernelPCA.load(path)


@pytest.mark.parametrize(
    "kind", ["stacked", "names", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("times", "bare"))]
)
def test_a_loaded_model_gives_back_the_dims_coordinates_and_multi_index_of_the_columns(kind, tmp_path):
    rows = KINDS[kind]
    if kind == "times":
        rows = rows + xr.DataArray(np.random.default_rng(1).normal(size=rows.shape), dims=rows.dims)
    kpca = fresh().fit(rows)
    again = loaded(kpca, tmp_path / "m.zarr")
    scores = kpca.transform(rows)
    back = again.inverse_transform(scores)
    xr.testing.assert_identical(back, kpca.inverse_transform(scores))
    assert {name: each.dtype for name, each in back.coords.items()} == {
        name: each.dtype for name, each in rows.coords.items()
    }
    xr.testing.assert_identical(again.inverse_transform(again.transform(rows.chunk())).compute(), back)


def test_columns_of_other_coordinates_are_refused_after_a_load_as_before(tmp_path):
    again = loaded(fresh().fit(KINDS["stacked"]), tmp_path / "m.zarr")
    with pytest.raises(SpecError, match="the coordinates of the dim 'cell' differ from the fitted ones"):
        again.transform(FIELD.assign_coords(lat=[1.0, 2, 3]).stack(cell=["lat", "lon"]))
    with pytest.raises(SpecError, match="the model was fitted on columns along 'cell'"):
        again.transform(FIELD.stack(other=["lat", "lon"]))
    assert again.transform(KINDS["stacked"].values).shape == (60, 3)
    assert not hasattr(again.fit(KINDS["stacked"].values), "_columns_like")
    assert again.inverse_transform(xr.DataArray(np.zeros((2, 3)), dims=("t", "r"))).dims == ("t", "feature")


@pytest.mark.full
def test_functions_store_labels_like_the_estimator(tmp_path):
    rows, options = KINDS["stacked"], {"n_components": 3, "size": 40}
    model = bigkpca.fit(rows.chunk(time=30), tmp_path / "m.zarr", **options)
    assert model.provenance["column_labels"]["levels"] == ["lat", "lon"]
    assert (
        bigkpca.fit(rows, tmp_path / "n.zarr", **options).provenance["column_labels"]
        == (bigkpca.fit(rows, tmp_path / "n.zarr", **options).provenance["column_labels"])
    )
    other = rows.rename(cell="place")
    with pytest.raises(
        SpecError, match=r"a model made with other options \(column_labels\.dim is 'cell' there and 'place' here\)"
    ):
        bigkpca.fit(other, tmp_path / "n.zarr", **options)
    part = bigkpca.fit(rows.values + 1, tmp_path / "p.zarr", like=model)
    assert part.provenance["column_labels"] == model.provenance["column_labels"]
    merged = KernelPCA._of(bigkpca.merge([model, part]))
    assert merged.inverse_transform(fresh().fit_transform(rows)).unstack("cell").dims == ("time", "lat", "lon")


def test_what_cannot_be_stored_is_left_out_with_a_note(monkeypatch, tmp_path, capsys):
    rows = KINDS["bare"].assign_coords(
        gap=("c", [np.nan, -np.inf, *range(10)]),
        lazy=("c", da.ones(12)),
        mixed=("c", np.array([1, "a"] * 6, object)),
        complex=("c", np.ones(12) * 1j),
        good=("c", np.arange(12)),
        text=("c", np.array(list("abcdefghijkl"), np.dtypes.StringDType())),
        **{"a/b": ("c", np.arange(12))},
    )
    found = Labels.of(rows, 1)
    assert set(found.left_out) == {"mixed", "complex"}
    assert set(found.coords) == set(found.stored()["coords"]) == {"good", "gap", "lazy", "text", "a/b"}
    restored = header_from(found.stored(), 12, rows)
    np.testing.assert_array_equal(restored["gap"], rows["gap"])
    monkeypatch.setattr(fit, "MOST_BYTES", 3 * 96)
    bigkpca.fit(rows, tmp_path / "m.zarr", n_components=2, size=30, progress=True)
    assert "columns that are not stored: mixed, complex, text, a/b (only numbers, text" in capsys.readouterr().err
    kept = bigkpca.load(tmp_path / "m.zarr").provenance["column_labels"]
    assert set(kept["coords"]) == {"good", "gap", "lazy"}
    assert "levels" not in Labels.of(KINDS["stacked"], 1, 100).stored()
    unknown = rows.assign_coords(lazy=("c", da.zeros(12, chunks=12, dtype=object).map_blocks(refuse, dtype=object)))
    assert "lazy" in Labels.of(unknown, 1, 12 * 100 - 1).left_out
    short = rows.assign_coords(lazy=("c", da.from_array(np.array(["a" * 1000] * 12, object), 12)))
    assert "lazy" in Labels.of(short, 1, 12 * 4 * 1000 - 1).left_out


@pytest.mark.full
def test_coordinates_of_millions_of_columns_are_kept():
    count = 1_500_000
    grid = xr.DataArray(np.broadcast_to(np.float32(0), (1, count)), dims=("time", "cell"))
    grid = grid.assign_coords(lat=("cell", np.linspace(-90, 90, count)), lon=("cell", np.arange(count) % 1440 / 4))
    found = Labels.of(grid, 1, MOST_BYTES)
    assert not found.left_out
    assert len(json.dumps(found.stored())) < MOST_JSON_BYTES
    assert bytes_of_labels(grid, 1) == 16 * count


def test_attributes_of_coordinates_are_kept_and_told_apart(tmp_path):
    attrs = {"units": "degrees_north", "range": np.float32([-90, 90]), "pair": (1, 2)}
    field = FIELD.copy()
    field["lat"].attrs = attrs | {"gap": np.nan, "of": object()}
    rows = field.stack(cell=["lat", "lon"])
    kpca = fresh().fit(rows)
    back = loaded(kpca, tmp_path / "m.zarr").inverse_transform(kpca.transform(rows))
    assert back["lat"].attrs == {"units": "degrees_north", "range": [-90, 90], "pair": [1, 2]}
    assert Labels.of(rows, 1).identity != Labels.of(KINDS["stacked"], 1).identity


def test_functions_compare_coordinates_of_columns_like_the_estimator(tmp_path):
    rows = FIELD[:, 0].drop_vars(["lat", "zone", "land"])
    model = fresh().fit(rows).model_
    for moved, message in (
        (
            rows.assign_coords(lon=[0, 90, 180, 271]),
            r"in values: column 3 is 271 here, and 270 in the fit; select the col",
        ),
        (rows[:, ::-1], r"in order: column 0 is 270 here, and 0 in the fit; sort or reindex them"),
    ):
        for call in (bigkpca.transform, bigkpca.denoise):
            with pytest.raises(SpecError, match="the dim 'lon' differ from the fitted ones " + message):
                call(model, moved, tmp_path / "s.zarr")
    other = FIELD.assign_coords(lat=[1.0, 2, 3]).stack(cell=["lat", "lon"])
    with pytest.raises(SpecError, match=r"column 0 is 1\.0, 0 here, and -10\.1\d*, 0 in the fit; select"):
        bigkpca.transform(fresh().fit(KINDS["stacked"]).model_, other, tmp_path / "s.zarr")
    numbered = KINDS["bare"].rename(c="cell").assign_coords(cell=range(12))
    with pytest.raises(
        SpecError, match="in levels: they are cell here, and lat, lon in the fit; stack the same dims in the same order"
    ):
        bigkpca.transform(fresh().fit(KINDS["stacked"]).model_, numbered, tmp_path / "s.zarr")
    with pytest.raises(
        SpecError, match=r"the dims \('lon', 'time'\): the model was fitted on columns along 'lon', which"
    ):
        bigkpca.transform(model, rows.T, tmp_path / "s.zarr")
    assert not (tmp_path / "s.zarr").exists()


def test_columns_that_are_stacked_in_another_order_are_refused_though_their_numbers_are_equal():
    square = xr.DataArray(np.random.default_rng(0).normal(size=(60, 3, 3)), dims=("time", "y", "x"))
    square = square.assign_coords(y=range(3), x=range(3))
    kpca = fresh().fit(square.stack(cell=["y", "x"]))
    with pytest.raises(SpecError, match="in levels: they are x, y here, and y, x in the fit; stack the same dims in"):
        kpca.transform(square.stack(cell=["x", "y"]))


def test_coordinates_are_compared_in_the_narrower_precision_and_text_is_shown_in_quotes():
    values = np.array([0.1, np.nan, 1e300, *range(9)])
    rows = KINDS["bare"].assign_coords(c=values)
    with np.errstate(over="ignore"):
        narrow = rows.assign_coords(c=values.astype("f4"))
    scores = fresh().fit(rows).transform(rows.values)
    for fitted, given in ((rows, narrow), (narrow, rows)):
        np.testing.assert_array_equal(fresh().fit(fitted).transform(given), scores)
    kpca, texts = fresh().fit(rows.assign_coords(c=range(12))), [str(number) for number in range(12)]
    with pytest.raises(SpecError, match="in values: column 0 is '0' here, and 0 in the fit; select the columns"):
        kpca.transform(rows.assign_coords(c=texts))
    near = rows.assign_coords(c=np.nextafter(np.float32(0.1), 1) + np.arange(12, dtype="f4"))
    with pytest.raises(SpecError, match=r"column 0 is 0\.1000000[0-9]+ here, and 0\.1 in the fit"):
        fresh().fit(rows).transform(near)


@pytest.mark.full
def test_columns_without_an_index_and_dims_that_are_numbers_are_accepted():
    rows = KINDS["bare"]
    for fitted, given in ((rows, KINDS["stacked"].rename(cell="c", time="t")), (rows.rename(t=0, c=1),) * 2):
        assert fresh().fit(fitted).transform(given).shape == (60, 3)
    gap = rows.assign_coords(c=[np.nan, *range(11)])
    assert fresh().fit(gap).transform(gap.chunk()).shape == (60, 3)


def test_scores_along_a_dim_with_the_name_of_the_columns_give_rows_back():
    kpca = fresh().fit(KINDS["names"])
    scores = kpca.transform(KINDS["names"]).rename(time="lat")
    back = kpca.inverse_transform(scores)
    assert back.dims == ("lat", "lat_")
    np.testing.assert_array_equal(back["lat_"], KINDS["names"]["lat"])


def test_identities_tell_labels_apart():
    first = Labels.of(KINDS["stacked"], 1).identity
    assert first == Labels.of(KINDS["stacked"].copy(), 1).identity
    assert Labels.of(KINDS["stacked"], 1).left_out == ()
    for other in (
        FIELD.assign_coords(lat=[1.0, 2, 3]).stack(cell=["lat", "lon"]),
        FIELD.stack(place=["lat", "lon"]),
        KINDS["stacked"].reset_index("cell"),
        KINDS["stacked"].drop_vars("land"),
    ):
        assert Labels.of(other, 1).identity != first


GOOD = Labels.of(KINDS["stacked"], 1).stored()


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {"dim": 1},
        {"coords": []},
        {"levels": "lat"},
        {"levels": ["nowhere"]},
        {"levels": [1]},
        {"coords": {"a": {"dtype": "<i8", "values": [1, 2]}}},
        {"coords": {"a": {"dtype": "<i8", "values": "é"}}},
        {"coords": {"a": {"dtype": "<i8", "values": "AAAA"}}},  # three bytes
        {"coords": {"a": {"dtype": "|O", "values": "AAAAAAAAAAA="}}},
        {"coords": {"a": {"values": "AAAA"}}},
        {"coords": {"a": {"dtype": "|u1", "values": "A"}}},
        {"coords": {"a": {"dtype": "|u1", "values": "AAAA", "attrs": []}}},
        {"coords": {"a": {"dtype": "|b4", "values": "AAAA"}}},
        {"coords": {"a": {"dtype": "|b1", "values": "AAAC"}}},  # a byte of 2
        {"coords": {"a": {"dtype": "<U1", "values": "/////w=="}}},  # no character
        {"coords": {"a": {"dtype": "<U0", "values": ""}}},
    ],
)
def test_labels_that_a_model_cannot_have_are_refused(wrong, tmp_path):
    plain = {"dim": "c", "coords": {"a": {"dtype": "|u1", "values": "AAAA", "attrs": {"units": "m"}}}}
    assert are_stored_labels(GOOD)
    assert are_stored_labels(plain)
    assert not are_stored_labels({**plain, **wrong} if wrong else wrong)


def test_a_model_with_labels_of_other_columns_is_damaged():
    about, arrays = _parts(fresh().fit(KINDS["stacked"]).model_)
    kept = {key: value for key, value in about.items() if key != "column_labels"}
    assert about["column_labels"] == GOOD
    for coords, message in (
        ({"a": {"dtype": "<i8", "values": "AAAAAAAAAAA="}}, "the coordinates of the columns do not have 12 values"),
        ({"a": 5}, "column_labels is"),
    ):
        with pytest.raises(SpecError, match=message):
            assembled({**kept, "column_labels": {"dim": "c", "coords": coords}}, arrays)
    assert header_from(GOOD, 12, FIELD).indexes["cell"].equals(KINDS["stacked"].indexes["cell"])
