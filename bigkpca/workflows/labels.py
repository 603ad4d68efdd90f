"""Open the labels of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bigkpca.data.npy import check_on_disk
from bigkpca.data.stores import expanded, is_path, store_of
from bigkpca.errors import SpecError
from bigkpca.storage import groups


def dataset_at(path: str | None) -> Mapping[str, Any] | None:
    """The description of a dataset at this path, if there is one."""
    about = None if path is None else groups.describe(path)
    return about if about and about["format"] == "dataset" else None


def labels_path(labels: Any) -> str:
    """The path or name of labels that a user gave. Raises SpecError for the labels themselves."""
    if not is_path(labels):
        raise SpecError(
            f"labels are a path or a name, not {type(labels).__name__}: write values with np.save('labels.npy', "
            "labels) and give that path"
        )
    return expanded(labels)


def open_labels(given: str, source: str | None) -> tuple[Any, str]:
    """An array of labels, unread, and its location: a .npy file, a Zarr array, a dataset, or an array of the input."""
    store = store_of(given)
    if given.endswith(".npy") and store.exists(given) and not store.is_folder(given):
        check_on_disk(given)
        try:
            return np.load(given, mmap_mode="r", allow_pickle=False), given
        except ValueError as error:
            raise SpecError(f"labels cannot be read from {given}: {error}") from error
    if store.is_folder(given):
        return groups.open_values(given, "y"), given
    if source is None or "/" in given or not store_of(source).is_folder(source):
        raise SpecError(
            f"no labels at {given}: give a .npy file, a Zarr array, a dataset with labels, or the name of an array "
            "beside the rows"
        )
    return groups.open_values(source, given), source
