"""Files from others: whatever they hold, they load to something that works, or are refused with an error of bigkpca."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bigkpca
from bigkpca import kernels
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.data.opening import open_rows
from bigkpca.errors import BigKPCAError, CorruptionError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.execution.projection import score_rows
from bigkpca.spec import FitSpec
from bigkpca.storage.block_arrays import open_main, read_manifest
from bigkpca.storage.describe import info
from bigkpca.storage.models import load_model
from bigkpca.workflows.scores import open_scores
from tests.storage import hostile
from tests.storage.outputs import FIT, X

KINDS: dict[str, dict[str, Any]] = {
    "landmarks": {"kernel": kernels.Gaussian(1.0) + 2 * kernels.Linear(), "landmarks": "uniform", "standardize": True},
    "waves": {"method": "rff", "preimage": "ridge:size=5"},
    "axes": {"method": "rff-pca", "preimage": "mds:rows=30"},
    "sketch": {"method": "rff", "kernel": "polynomial", "degree": 2, "preimage": "linear"},
    "exact": {"method": "exact", "size": "auto", "dtype": "float32"},
    "given": {"method": "exact", "size": "auto", "kernel": "precomputed"},
}


Models = dict[str, dict[str, bytes]]


def examples(count: int) -> Any:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def few_and_many(count: int) -> Any:
    """Some examples and, marked slow, thirty times as many."""
    many = pytest.param(30 * count, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])
    return pytest.mark.parametrize("count", [count, many])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """The files of one model of each kind."""
    folder, found = tmp_path_factory.mktemp("kinds"), {}
    for kind, options in KINDS.items():
        rows = np.abs(X[:40]) if kind != "given" else X[:40] @ X[:40].T
        bigkpca.fit(rows, folder / f"{kind}.zarr", **FIT | options)
        found[kind] = hostile.files(folder / f"{kind}.zarr")
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "model.zarr"


def check_model(path: Path) -> bool:
    """Whether the model at `path` loads; then its uses give results, or errors of bigkpca."""
    try:
        model = load_model(path)
    except BigKPCAError as error:
        assert str(path) in str(error)
        assert len(str(error)) < 2000
        return False
    rows = ArrayRows(np.resize(np.abs(X), (7, model.columns)))
    try:
        assert score_rows(rows, model, Engine(threads=1), Silent()).shape == (7, model.components)
        info(str(path))
        FitSpec.of(model)
    except BigKPCAError:
        pass
    str(model)
    return True


@few_and_many(50)
def test_a_model_with_another_attribute(models: Models, place: Path, count: int) -> None:
    @examples(count)
    @given(kind=st.sampled_from(list(KINDS)), changes=hostile.DRAWS)
    def each(kind: str, changes: Any) -> None:
        path = hostile.put(place, models[kind])
        hostile.forge(path, hostile.changed(hostile.attribute(path), changes))
        check_model(place)

    each()


@few_and_many(40)
def test_a_model_with_other_metadata_of_an_array(models: Models, place: Path, count: int) -> None:
    @examples(count)
    @given(kind=st.sampled_from(list(KINDS)), number=st.integers(0, 100), changes=hostile.DRAWS)
    def each(kind: str, number: int, changes: Any) -> None:
        path = hostile.put(place, models[kind])
        names = hostile.attribute(path)["arrays"]
        file = Path(path, names[number % len(names)], "zarr.json")
        file.write_text(json.dumps(hostile.changed(json.loads(file.read_text()), changes)))
        check_model(place)

    each()


@few_and_many(40)
def test_a_model_with_another_array(models: Models, place: Path, count: int) -> None:
    """Shapes, types and values that the digest vouches for."""
    values = st.sampled_from([0.0, -1.0, 1e308, 5e-324, np.nan, np.inf, 2.0])
    shapes = st.sampled_from([(), (1,), (2,), (3,), (4,), (10,), (3, 3), (10, 3), (10, 4), (3, 10), (1, 1), (5, 2)])
    types = st.sampled_from(["f8", "f4", "i4", "u1", "b1", "i8"])

    @examples(count)
    @given(kind=st.sampled_from(list(KINDS)), number=st.integers(0, 100), shape=shapes, kind_of=types, value=values)
    def each(kind: str, number: int, shape: tuple[int, ...], kind_of: str, value: float) -> None:
        path = hostile.put(place, models[kind])
        names = hostile.attribute(path)["arrays"]
        name = names[number % len(names)]
        old = np.asarray(zarr.open_array(f"{path}/{name}", mode="r")[...])
        new = np.full(shape or old.shape, value if np.isfinite(value) or kind_of[0] == "f" else 0)
        with np.errstate(over="ignore", invalid="ignore"):
            hostile.set_array(path, name, new.astype(kind_of))
        check_model(place)

    each()


@few_and_many(60)
def test_a_model_with_damaged_files(models: Models, place: Path, count: int) -> None:
    @examples(count)
    @given(kind=st.sampled_from(list(KINDS)), number=st.integers(0, 200), at=st.integers(0, 5000), how=st.integers(0, 3))
    def each(kind: str, number: int, at: int, how: int) -> None:
        content = dict(models[kind])
        name = sorted(content)[number % len(content)]
        at %= len(content[name]) + 1
        before, after = content[name][:at], content[name][at:]
        content[name] = [before, before + b"\xff" + after[1:], before + b"\0" * 9 + after, b"["*at][how]
        if number % 7 == 0:
            del content[name]
        hostile.put(place, content)
        check_model(place)

    each()


def test_a_model_with_arrays_swapped(models: Models, place: Path) -> None:
    for kind, content in models.items():
        names = hostile.attribute(hostile.put(place, content))["arrays"]
        for one, other in itertools.pairwise(names[:: 1 if kind == "landmarks" else 3]):
            path = hostile.put(place, content)
            os.rename(f"{path}/{one}", f"{path}/kept")
            os.rename(f"{path}/{other}", f"{path}/{one}")
            os.rename(f"{path}/kept", f"{path}/{other}")
            hostile.forge(path)
            check_model(place)
        assert check_model(Path(hostile.put(place, content))), kind
