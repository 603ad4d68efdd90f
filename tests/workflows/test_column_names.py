"""Names of columns in models: recorded, compared with those of later rows, and kept on disk."""

import re
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest

import bigkpca
from bigkpca import KernelPCA
from bigkpca.errors import SpecError
from bigkpca.ingesting import ingest
from bigkpca.storage import models
from tests.data.cases import refused
from tests.helpers.commands import run
from tests.helpers.named import FRAME, TURNED, X, parquet


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Datasets of the same rows: straight, with columns turned, and without names; and a model of the first."""
    path = tmp_path_factory.mktemp("names")
    ingest([parquet(path / "a.parquet", FRAME)], path / "straight.zarr")
    ingest([parquet(path / "b.parquet", TURNED)], path / "turned.zarr")
    np.save(path / "nameless.npy", X)
    bigkpca.fit(path / "straight.zarr", path / "model.zarr", n_components=2, size=20)
    return path


TURNED_MESSAGE = (
    r"has its columns in another order than the model: column 0 \(counted from 0\) is 'c', not 'a'; pass rows with "
    r"the columns on which the model was fitted, in the same order \(`bigkpca info MODEL --json`"
)


def test_rows_of_other_columns_are_refused_and_told_apart(folder, tmp_path):
    model, out = folder / "model.zarr", tmp_path / "out.zarr"
    stored, frame, loaded = folder / "turned.zarr", pl.DataFrame(dict(TURNED)), models.load_model(str(model))
    for rows in (stored, frame):
        refused(bigkpca.transform, (model, rows, out, SpecError, TURNED_MESSAGE))
        refused(bigkpca.arrays.scores, (loaded, rows, SpecError, TURNED_MESSAGE))
    refused(bigkpca.denoise, (model, TURNED, out, SpecError, TURNED_MESSAGE))
    refused(partial(bigkpca.evaluate, sample=20), (model, stored, SpecError, TURNED_MESSAGE))
    refused(bigkpca.arrays.residuals, (loaded, TURNED, SpecError, TURNED_MESSAGE))
    refused(
        bigkpca.transform,
        (model, FRAME[["a", "c"]], out, SpecError, "lacks the column 'b' of the model; pass"),
        (model, FRAME.assign(id=1.0), out, SpecError, "has the column 'id', unlike the model; pass"),
    )
    assert not out.exists()
    kpca = KernelPCA(2, size=20, random_state=0).fit(folder / "straight.zarr")
    for method in (kpca.transform, kpca.denoise, kpca.residual, kpca.score, kpca.partial_fit):
        refused(method, (folder / "turned.zarr", SpecError, TURNED_MESSAGE))


def test_the_same_columns_and_rows_without_names_pass(folder, tmp_path):
    rows = (folder / "straight.zarr", folder / "nameless.npy", FRAME, pl.DataFrame(dict(FRAME)), X)
    for number, data in enumerate(rows):
        assert bigkpca.transform(folder / "model.zarr", data, tmp_path / f"{number}.zarr").shape == (60, 2)
    for path in (folder / "straight.zarr", folder / "model.zarr"):
        assert re.search("column names +a, b, c", run("info", path).output)
        assert bigkpca.info(path)["column_names"] == ["a", "b", "c"]


def test_models_record_names_which_added_rows_must_have():
    for options in ({}, {"method": "rff"}, {"method": "exact"}):
        named, nameless = (KernelPCA(2, random_state=0, **{"size": 20, **options}).fit(rows) for rows in (FRAME, X))
        assert (named.model_.names, nameless.model_.names) == (("a", "b", "c"), None), options
        if "method" not in options:
            assert named.partial_fit(FRAME[:30]).model_.names == ("a", "b", "c")
    numbered = pd.DataFrame(X)  # whose names are no text
    assert KernelPCA(2, size=20, random_state=0).fit(numbered).model_.names is None


def test_a_fit_to_a_frame_whose_columns_were_renamed_is_another(tmp_path):
    def fit(frame, **options):
        return bigkpca.fit(frame, tmp_path / "model.zarr", n_components=2, size=20, **options)

    assert fit(FRAME).names == fit(FRAME).names == ("a", "b", "c")
    renamed = FRAME.rename(columns={"a": "z"})
    refused(fit, (renamed, SpecError, "already holds"))
    assert fit(renamed, overwrite=True).names == ("z", "b", "c")
    assert fit(X).names == ("z", "b", "c")  # the same rows, without names of their own
