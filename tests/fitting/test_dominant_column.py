"""The warning of a column that makes nearly all of the distances between rows: where it is due, and for no image."""

import warnings

import numpy as np
import pandas as pd
import pytest
import zarr

import bigkpca
from bigkpca import KernelPCA, kernels
from bigkpca.errors import DominantVariableWarning
from bigkpca.numerics.dominance import dominant_columns
from tests.data.cases import case

RNG = np.random.default_rng(3)
FRAME = pd.DataFrame(
    {"distance": RNG.normal(900, 700, 120), "delay": RNG.normal(8, 30, 120), "kind": RNG.integers(0, 2, 120)}
)
OF_DISTANCE = (
    r"column 0 \('distance'\) makes 99\.\d% of the mean squared distance between rows, so the other columns hardly "
    r"matter: scale the columns with --standardize \(standardize=True in Python\), or set weights with --weight \("
)


def fit(data, **options):
    return KernelPCA(2, size=10, random_state=0, **options).fit(data)


@pytest.fixture
def table(tmp_path):
    FRAME.assign(kind=FRAME["kind"].map({0: "u", 1: "v"})).to_csv(tmp_path / "t.csv", index=False)
    bigkpca.ingest(tmp_path / "t.csv", tmp_path / "t.zarr", categorical="kind")
    return tmp_path / "t.zarr"


def test_a_fit_names_the_column_its_share_and_the_options(table):
    for data in (FRAME, table):
        with pytest.warns(DominantVariableWarning, match=OF_DISTANCE):
            fit(data)
    with pytest.warns(DominantVariableWarning, match=r"the array: column 0 makes 99"):
        fit(FRAME.to_numpy())  # a few unnamed columns of floating-point numbers


def test_options_that_help_end_it_and_those_that_do_not_leave_it(table):
    for options in ({"standardize": True}, {"column_weights": {"distance": 1 / 700, "delay": 1 / 30}}):
        fit(table, **options)
    message = "the column of categories 'kind' makes 9.* matter: set weights with --weight"
    light = {"column_weights": {"distance": 0.1, "delay": 0.1}, "standardize": True}
    with pytest.warns(DominantVariableWarning, match=message):
        fit(table, **light)
    fit(table, standardize=True, column_weights={"kind": 20})  # asked for


def test_images_and_columns_of_one_unit_are_never_warned_of(digits, tmp_path):
    lit = digits[:80].astype(np.float64)
    lit[:, 20] *= 1000  # even if a pixel does dominate
    zarr.save(str(tmp_path / "images.zarr"), lit)
    rows = FRAME.to_numpy()
    for name, data, options in (
        ("float", lit, {}),
        ("uint8, few", (rows[:, :2] % 250 * [1, 0.01]).astype(np.uint8), {}),
        ("zarr", str(tmp_path / "images.zarr"), {}),
        ("one column", rows[:, :1], {}),
        ("one column varies", np.column_stack([rows[:, 0], np.ones(120)]), {}),
        ("a function", rows, {"kernel": lambda X, Y: np.exp(-(((X[:, None] - Y) / [700, 30, 1]) ** 2).sum(-1))}),
        ("strings", rows.astype(int) % 4 * [1, 9, 1], {"kernel": kernels.Spectrum(2)}),
    ):
        with case(name), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            warnings.simplefilter("error", DominantVariableWarning)
            fit(data, **options)


def test_rounding_and_overflow_are_neither_errors_nor_warned_of():
    X = RNG.normal(size=(400, 5))
    assert dominant_columns(X * [1, 1, 1e10, 1, 1]).columns == slice(2, 3)  # beside which the others are rounding
    for rows in (X * 1e200, X * [1, 1e300, 1, 1, 1], np.full((3, 2), np.inf)):
        assert dominant_columns(rows) is None
