"""Weights of columns as typed: what is refused before any row is read, and in which words."""

import numpy as np
import pandas as pd
import pytest

import bigkpca
from bigkpca import KernelPCA
from bigkpca.data.rows import ArrayRows, OneHot
from bigkpca.errors import SpecError
from bigkpca.spec import FitSpec
from bigkpca.spec.column_weights import checked_weights, for_columns
from tests.data.cases import case

NAMES = ("distance", "origin=JFK", "origin=LGA", "delay")
ROWS = ArrayRows(np.zeros((3, 4)), names=NAMES, one_hot=(OneHot("origin", 1, 3),), where="flights.zarr")


def test_weights_are_recorded_in_one_form():
    assert list(checked_weights({"b": 2, "a": np.float32(0.5)}).items()) == [("a", 0.5), ("b", 2.0)]
    assert checked_weights(pd.Series({"a": 2})) == {"a": 2.0}
    assert checked_weights(pd.Series([1, 2])) == checked_weights(np.array([1, 2])) == (1.0, 2.0)
    assert checked_weights({}) is checked_weights(None) is None
    for value in ({"a": 2}, [1, 2]):
        spec = FitSpec.checked(column_weights=value)
        assert FitSpec.from_dict(spec.to_dict(), None) == spec


def test_names_stand_for_columns_and_for_all_columns_of_categories():
    assert for_columns({"origin": 4, "delay": 0.5}, ROWS) == (1, 4, 4, 0.5)
    assert for_columns({"origin=LGA": 4}, ROWS) == (1, 1, 4, 1)
    assert for_columns((1, 2, 3, 4), ROWS) == (1, 2, 3, 4)


def test_weights_that_do_not_fit_the_rows_are_refused():
    unnamed = ArrayRows(ROWS.values)
    for weights, rows, message in (
        ({"orign": 2}, ROWS, "'orign', which is not a column of flights.zarr: did you mean 'origin'"),
        ({"origin=LGB": 2}, ROWS, "'origin=LGB', which is not a column of flights.zarr: did you mean 'origin'"),
        ({"origin": 2, "origin=JFK": 3}, ROWS, "for 'origin' and for 'origin=JFK', which are the same column or parts"),
        ({"delay": 2}, unnamed, "the array has no column names, .* one weight for each of its 4 columns"),
        ((1.0, 2.0), ROWS, "2 column weights were given, but flights.zarr has 4 columns: give one for each"),
        ((0.0,) * 4, ROWS, "all column weights are 0, which leaves no column of flights.zarr: give a positive one"),
    ):  # fmt: skip
        with case(weights), pytest.raises(SpecError, match=message):
            for_columns(weights, rows)
    many = ArrayRows(np.zeros((2, 20)), names=tuple(f"c{j:02}" for j in range(20)))
    with pytest.raises(SpecError, match=r"its columns are c00, .*, c07, \.\.\.$"):
        for_columns({"zzz": 1}, many)


def test_they_are_refused_before_a_row_is_read(tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text("a,kind\n" + "1,u\n2,v\n" * 20)
    bigkpca.ingest(tmp_path / "t.csv", tmp_path / "t.zarr", categorical="kind")
    monkeypatch.setattr("bigkpca.data.zarr.ZarrRows.fingerprint", lambda _: {"path": None})  # of the last chunk's rows
    monkeypatch.setattr("bigkpca.data.zarr.read", lambda *_: pytest.fail("read"))
    for call in (bigkpca.sigma, bigkpca.plan, lambda *a, **k: KernelPCA(**k).fit(*a)):
        with pytest.raises(SpecError, match=r"'knd', which is not a column of .*t.zarr: did you mean 'kind'"):
            call(tmp_path / "t.zarr", column_weights={"knd": 2})
    with pytest.raises(SpecError, match="did you mean 'kind'"):
        bigkpca.fit(tmp_path / "t.zarr", tmp_path / "m.zarr", column_weights={"knd": 2})
    assert not (tmp_path / "m.zarr").exists()
