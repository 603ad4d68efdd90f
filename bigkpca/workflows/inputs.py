"""Open labels and scores passed by the user, and check that rows stay as they are while they are read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from bigkpca.data.npy import check_on_disk
from bigkpca.data.opening import open_rows, open_uncounted, path_of
from bigkpca.data.rows import ArrayRows, Rows
from bigkpca.data.stores import parent, store_of
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import Array, FillValuesWarning, SpecError, changed
from bigkpca.numerics.model import Model
from bigkpca.numerics.preimages import check_width
from bigkpca.storage import groups, models


def check_unchanged(rows: Rows, before: dict[str, Any]) -> None:
    """Raise IncompleteError if the fingerprint of the rows is no longer `before`."""
    if before["path"] is None:  # of an array in memory, or of what only Zarr reads
        now = rows.fingerprint() if isinstance(rows, ZarrRows) else before
    else:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FillValuesWarning)  # a run warns at its start
                opened = open_rows(before["path"], rows.name)  # afresh, since stores cache their listings
        except SpecError as error:  # which is gone
            raise changed(rows.where) from error
        if isinstance(rows, ZarrRows) and isinstance(opened, ZarrRows) and opened.count >= rows.count and rows.pinned:
            opened = opened.pin(rows.count)  # others may have added rows
        now = opened.fingerprint()
    if now != before:
        raise changed(rows.where)


@contextmanager
def unchanged(rows: Rows) -> Iterator[None]:
    """While entered, these rows are read. Raises IncompleteError at the end if they are stored and were changed."""
    before = None if isinstance(rows, ArrayRows) else rows.fingerprint()
    yield
    if before is not None:
        check_unchanged(rows, before)


def dataset_at(path: str | None) -> Mapping[str, Any] | None:
    """The description of a dataset at this path, if there is one."""
    about = None if path is None else groups.describe(path)
    return about if about and about["format"] == "dataset" else None


def open_labels(given: str, source: str | None) -> tuple[Any, str, list[Any]]:
    """An array of labels, not yet read, its location, and the names of the categories that it numbers, if any: a .npy
    file, a Zarr array, a dataset, or an array of the input."""
    store = store_of(given)
    if given.endswith(".npy") and store.exists(given) and not store.is_folder(given):
        check_on_disk(given)
        try:
            return np.load(given, mmap_mode="r", allow_pickle=False), given, []
        except ValueError as error:
            raise SpecError(f"labels cannot be read from {given}: {error}") from error
    if store.is_folder(given):
        return groups.open_values(given), given, _categories(given.removesuffix("/y"))
    if source is None or "/" in given or not store_of(source).is_folder(source):
        raise SpecError(
            f"no labels at {given}: give a .npy file, a Zarr array, a dataset with labels, or the name of an array "
            "beside the rows"
        )
    found = groups.open_values(source, given)
    return found, source, _categories(parent(found.where)) if given == "y" else []


def _categories(path: str) -> list[Any]:
    return list((dataset_at(path) or {}).get("categories", []))


def names_of(labels: Array, categories: list[Any], where: str) -> Array:
    """The names of labels (b,) stored as category numbers. Raises SpecError for a number without a name."""
    try:
        return np.array(categories)[labels]
    except IndexError as error:
        raise SpecError(f"{where} has labels that do not number its {len(categories)} categories: {error}") from error


def open_scores(model: Model, scores: Any, *, counted: bool = True) -> Rows:
    """Open scores of a model, `counted` if their number is needed. Raises SpecError for another width, and for a
    feature store of another model."""
    path = feature_store(scores)
    if path is not None:
        made_by, own = str((groups.describe(path) or {}).get("model")), models.model_digest(model)
        if made_by != own:
            raise SpecError(
                f"{path} holds scores of the model {made_by[:12]}, but this is the model {own[:12]} (digests): use the "
                "model that made the scores, or transform again"
            )
    rows = open_rows(scores) if counted else open_uncounted(scores)
    check_width(rows.shape, model.components, rows.where)
    return rows


def feature_store(scores: Any) -> str | None:
    """The path of the feature store that holds these scores; None for other scores."""
    place = path_of(scores)
    if place is None:
        return None
    place = store_of(place).resolved(place)
    return next(
        (each for each in (place, parent(place)) if (groups.describe(each) or {}).get("format") == "features"), None
    )
