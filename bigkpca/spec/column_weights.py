"""Weights of columns: checked as typed, and resolved to one weight for each column of given rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bigkpca.data.rows import Rows
from bigkpca.errors import SpecError, nearest

Weights = dict[str, float] | tuple[float, ...]
OPTION = "--weight (column_weights= in Python)"
_SHOWN = 8  # names of columns in a message


def checked_weights(value: Any) -> Weights | None:
    """Weights by name, or one for each column. Raises SpecError for anything but finite numbers of at least 0."""
    if value is None:
        return None
    pairs = dict(value.items()) if hasattr(value, "items") else None
    if pairs is not None and all(isinstance(name, str) for name in pairs):  # a mapping, or a Series with names
        return {name: _weight(each, repr(name)) for name, each in sorted(pairs.items())} or None
    values: Any = np.asarray(value)
    if isinstance(value, str) or values.ndim != 1:
        raise SpecError(
            f"column weights must be a mapping from names such as {{'distance': 2.5}}, or an array with one weight for "
            f"each column, not {value!r:.80}"
        )
    return tuple(_weight(each, f"column {j}") for j, each in enumerate(values.tolist()))


def _weight(value: Any, of: str) -> float:
    try:
        weight = float(value)
    except (TypeError, ValueError, OverflowError):
        weight = np.nan
    if isinstance(value, str | bool | np.bool) or not (np.isfinite(weight) and weight >= 0):
        raise SpecError(f"the weight of {of} is {value!r:.80}: give a finite number, 0 or more")
    return weight


def for_columns(weights: Weights, rows: Rows) -> tuple[float, ...]:
    """One weight for each column of these rows, (d,); the name of a column of categories stands for all its columns.

    Raises SpecError for names that the rows do not have, for weights of a column of categories and of a part of it, for
    another number of weights than columns, and if all are 0.
    """
    d = rows.shape[1]
    if isinstance(weights, tuple):
        if len(weights) != d:
            raise SpecError(
                f"{len(weights)} column weights were given, but {rows.where} has {d} columns: give one for each"
            )
        found = np.array(weights)
    else:
        found = _by_name(weights, rows)
    if not found.any():
        raise SpecError(f"all column weights are 0, which leaves no column of {rows.where}: give a positive one")
    return tuple(found.tolist())


def _by_name(weights: Mapping[str, float], rows: Rows) -> Any:
    if rows.names is None:
        raise SpecError(
            f"{rows.where} has no column names, by which weights could be given: pass an array with one weight for "
            f"each of its {rows.shape[1]} columns (column_weights= in Python)"
        )
    places: dict[str, list[int]] = {}
    for j, name in enumerate(rows.names):
        places.setdefault(name, []).append(j)
    places |= {each.name: list(range(each.start, each.stop)) for each in rows.one_hot}
    found, given = np.ones(rows.shape[1]), dict[int, str]()
    for name, weight in weights.items():
        if name not in places:
            near, shown = nearest(name, places), ", ".join([*places][:_SHOWN])
            hint = f"did you mean {near!r}?" if near else f"its columns are {shown}" + ", ..." * (len(places) > _SHOWN)
            raise SpecError(f"a weight is given for {name!r}, which is not a column of {rows.where}: {hint}")
        if twice := [given[j] for j in places[name] if j in given]:
            raise SpecError(
                f"weights are given for {twice[0]!r} and for {name!r}, which are the same column or parts of it: give "
                "one of them"
            )
        found[places[name]] = weight
        given |= dict.fromkeys(places[name], name)
    return found
