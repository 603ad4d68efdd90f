"""Rows that figures show: a bounded number of them, their scores, and their labels or values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from bigkpca.data.blocks import tile_rows
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import Rows, take
from bigkpca.data.stores import expanded, is_path
from bigkpca.errors import Array, BigKPCAError, SpecError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.progress import Progress, shown_pass
from bigkpca.numerics.linear_pca import spread
from bigkpca.numerics.model import Model
from bigkpca.plots.style import PALETTE
from bigkpca.storage import groups
from bigkpca.workflows.inputs import dataset_at, feature_store, names_of, open_labels

MAX_SCORES = 65_536  # rows shown, if their scores are given
_MAX_PROJECTED = 20_000  # rows shown, if they must be projected first
_MAX_PRODUCTS = 5e10  # rows x features x columns: a few seconds, even for models that keep all their rows
_SAMPLE_VALUES = 4e6  # values of rows, from which relations to columns are computed
_FEWEST_SAMPLED = 8
_MAX_BYTES = 64_000_000  # of scores in memory
_PARTS = 32  # of a reading of rows, after which progress is shown
_STRETCHES = 64  # of consecutive rows


@dataclass(frozen=True)
class ShownScores:
    """Scores (m, r), float64, of the rows with these ascending `numbers` (m,), of `total` rows."""

    total: int
    numbers: Array
    scores: Array


def read_scores(scores: Rows, model: Model, progress: Progress) -> ShownScores:
    """At most 65,536 of these scores."""
    total = scores.shape[0]
    numbers = spread_row_numbers(total, min(MAX_SCORES, _MAX_BYTES // (8 * model.components)))
    progress.note(f"reading {len(numbers):,} of {total:,} scores")
    return ShownScores(total, numbers, taken(scores, numbers, "reading scores", progress).astype(np.float64))


def project_rows(rows: Rows, model: Model, progress: Progress, most: int = _MAX_PROJECTED) -> ShownScores:
    """Scores of at most `most` of these rows, and of fewer if that would take long."""
    total, affordable = rows.shape[0], int(_MAX_PRODUCTS / (model.features.size * model.columns))
    most = min(most, _MAX_BYTES // (8 * model.components), max(1000, affordable))
    numbers = spread_row_numbers(total, most)
    step, found = tile_rows(model.columns, model.features.size, 8), []
    with shown_pass(progress, "projecting", len(numbers)) as advance, single_threaded_blas:
        for start in range(0, len(numbers), step):
            X = take(rows, numbers[start : start + step])
            found += list(model.project([X], len(X)))
            advance(len(X))
    return ShownScores(total, numbers, np.concatenate(found).astype(np.float64))


def spread_row_numbers(n: int, most: int) -> Array:
    """At most `most` of n row numbers, ascending: all, or 64 evenly spaced stretches, so that few chunks are read."""
    if n <= most:
        return np.arange(n)
    length = max(1, most // _STRETCHES)
    starts = np.linspace(0, n - length, min(_STRETCHES, most)).astype(np.intp)
    return np.unique(starts[:, None] + np.arange(length))


def taken(rows: Rows, numbers: Array, title: str, progress: Progress) -> Array:
    """The rows with these ascending numbers, read in a few dozen parts."""
    found = []
    with shown_pass(progress, title, len(numbers)) as advance:
        for part in np.array_split(numbers, min(_PARTS, len(numbers))):
            found.append(take(rows, part))
            advance(len(part))
    return np.concatenate(found)


def sampled_rows(rows: Rows, numbers: Array, progress: Progress) -> tuple[Array, Array]:
    """Positions (k,) of some of the rows with these numbers, as many as hold four million values, and the rows
    (k, d)."""
    at = spread(len(numbers), max(_FEWEST_SAMPLED, int(_SAMPLE_VALUES / rows.shape[1])))
    return at, taken(rows, numbers[at], "reading rows", progress)


def source_of(model: Model, scores: Any) -> Mapping[str, Any]:
    """The fingerprint of the rows that the scores belong to, or else of the rows that were fitted."""
    place = None if scores is None else feature_store(scores)
    source: Mapping[str, Any] = manifest_of(place)["input"] if place else model.provenance["identity"]
    return source


def manifest_of(path: str) -> Mapping[str, Any]:
    """The manifest of a finished feature store."""
    return groups.describe(path) or {}


def input_rows(source: Mapping[str, Any], model: Model, array: str | None = None) -> tuple[Rows | None, list[str]]:
    """The rows with this fingerprint if they still exist, and notes about them."""
    if source["path"] is None:
        return None, ["the rows were in memory and were not kept"]
    try:
        rows = open_rows(source["path"], array)
    except BigKPCAError as error:
        return None, [f"the rows cannot be read ({error})"]
    if rows.shape[1] != model.columns:
        return None, [f"{rows.where} has {rows.shape[1]} columns now, and the model takes {model.columns}"]
    if rows.fingerprint()["stamp"] != source["stamp"]:
        return rows, [f"{rows.where} was written again since: its rows may be others than those of the fit"]
    return rows, []


def values_of_rows(given: Any, source: str | None, total: int, numbers: Array) -> Array:
    """The values, or names in place of numbers of categories, of the rows with these ascending numbers, (m,): from an
    array (total,) in memory, or from a path, or the name of an array beside the rows at `source`.

    Raises SpecError if there are none, or not one for each row.
    """
    values, where = open_labels(expanded(given), source) if is_path(given) else (np.asarray(given), "color")
    if values.shape != (total,):
        held = f"{values.shape[0]:,} labels" if values.ndim == 1 else f"an array of shape {values.shape}"
        raise SpecError(f"{where} holds {held}, and there are {total:,} rows: one label for each row is needed")
    found = stored_values(values, numbers)
    if is_path(given):
        return named(found, where)
    return found.astype(str) if found.dtype.kind in "OT" else found


def named(values: Array, where: str) -> Array:
    """The values; names in place of the numbers of categories that the dataset at `where` describes."""
    categories = (dataset_at(where) or {}).get("categories")
    return names_of(values, categories, where) if categories else values


def stored_values(array: Any, numbers: Array) -> Array:
    """Values (m,) of an array (n,) at ascending numbers: one read for each stretch of consecutive numbers."""
    stretches = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return np.concatenate([np.asarray(array[int(part[0]) : int(part[-1]) + 1]) for part in stretches])


@dataclass(frozen=True)
class RowLabels:
    """The label of each row as text, and the distinct labels in the order of the legend."""

    values: Array  # (m,), text
    names: tuple[str, ...]


def as_labels(values: Array) -> RowLabels:
    """Values as labels: text, numbers, or bins of numbers that hardly repeat; at most twelve."""
    distinct, counts = np.unique(values, return_counts=True)
    most = len(PALETTE)
    if values.dtype.kind == "f" and len(distinct) > most:
        # Five bins, each with a fifth of the rows.
        edges = np.quantile(values, np.linspace(0, 1, 6))
        names = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges)]
        band = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, 4)
        return RowLabels(np.array(names)[band], tuple(dict.fromkeys(names[i] for i in np.unique(band))))
    words = values.astype(str)
    if len(distinct) > most:
        common = np.sort(distinct[np.argsort(-counts, kind="stable")[: most - 1]])
        words = np.where(np.isin(values, common), words, "other")
        return RowLabels(words, (*common.astype(str).tolist(), "other"))
    return RowLabels(words, tuple(distinct.astype(str).tolist()))


def coloring(values: Array) -> RowLabels | Array:
    """Labels, or the values themselves if they are dates or numbers with more than twelve distinct values.

    Raises SpecError if no value is finite.
    """
    if values.dtype.kind in "iufM" and not np.isfinite(values).any():
        raise SpecError("color has no finite value: pass numbers, labels, or nothing")
    return values if values.dtype.kind in "iufM" and len(np.unique(values)) > len(PALETTE) else as_labels(values)
