"""Collect the data of a report: scores, rows, labels, residuals and columns of a bounded number of rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np

from bigkpca.data.blocks import tile_rows
from bigkpca.data.opening import open_rows, path_of
from bigkpca.data.rows import Rows, take
from bigkpca.data.stores import AnyPath, store_of
from bigkpca.data.versions import JOB
from bigkpca.errors import Array, BigKPCAError, CorruptionError, SpecError
from bigkpca.evaluating import fitted_to
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.progress import Progress, shown_pass
from bigkpca.ingesting.columns import Encoding, Kind
from bigkpca.numerics.linear_pca import Captured, captured, spread
from bigkpca.numerics.model import Model
from bigkpca.reporting.drawing import PALETTE, image_shape, is_picture
from bigkpca.storage import block_arrays, groups, records
from bigkpca.storage.jobs import read_records
from bigkpca.storage.models import model_digest
from bigkpca.workflows.inputs import dataset_at, feature_store, labels_path, names_of, open_labels, open_scores

_LONGEST = 40  # characters of a text that are shown


@dataclass(frozen=True)
class ShownColumn:
    """A column of the table that rows were made of: where its numbers are in a row, and what they mean."""

    name: str
    place: slice
    kind: Kind = "number"
    categories: tuple[str, ...] = ()
    unit: str | None = None

    def words(self, rows: Array) -> list[str]:
        """The values of rows (k, d) as they were in the table; a filled category as such."""
        values = rows[:, self.place].astype(np.float64)
        if self.kind == "text":
            whole = values.max(axis=1) == 1
            return [
                self.categories[j] if sure else "missing" for j, sure in zip(values.argmax(axis=1), whole, strict=True)
            ]
        if self.kind == "characters":
            letters = ("", *self.categories)
            texts = ["".join(letters[int(code)] for code in row) for row in values]
            return [text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…" for text in texts]
        if self.kind == "date":
            moments = [(day, np.datetime64(round(day * 86_400), "s")) for day in values[:, 0]]
            return [
                str(moment.astype("datetime64[D]")) if day == np.floor(day) else str(moment)[:16].replace("T", " ")
                for day, moment in moments  # with the time of day where there is one
            ]
        if self.kind == "ordinal":
            return [self.categories[round(min(max(value, 0), len(self.categories) - 1))] for value in values[:, 0]]
        numbers = [f"{value + 0.0:.4g}".replace("-", "−") for value in values[:, 0]]  # 0.0 makes no sign of -0.0
        if self.kind == "boolean":
            return [{"0": "no", "1": "yes"}.get(each, each) for each in numbers]
        return numbers

    def nearest(self, rows: Array) -> list[str]:
        """The values of rows (k, d) that need not be rows of the table, such as pre-images: of categories, the nearest
        one."""
        rows = rows.astype(np.float64)
        if self.kind == "text":
            rows[:, self.place] = np.eye(len(self.categories))[rows[:, self.place].argmax(axis=1)]
        elif self.kind == "boolean":
            rows[:, self.place] = rows[:, self.place] >= 0.5
        return self.words(rows)


@dataclass(frozen=True)
class Relation:
    """How scores go with a column: the share of their variance that it explains by a straight line, with this
    correlation; or by the means of its categories, which are lowest and highest at the `ends`.
    """

    column: ShownColumn
    share: float
    correlation: float | None
    ends: tuple[str, str] | None


def shown_columns(names: Sequence[str] | None, about: Mapping[str, Any] | None, path: str) -> tuple[ShownColumn, ...]:
    """The columns of rows with these names, with what their dataset records. Raises CorruptionError."""
    if names is None:
        return ()
    if about is None or "encoding" not in about:
        return tuple(ShownColumn(name, slice(j, j + 1)) for j, name in enumerate(names))
    records.check(about["encoding"], records.ENCODING, path)
    found, at = [], 0
    for column in Encoding.from_json(about["encoding"]).columns:
        width = len(column.names)
        found.append(ShownColumn(column.name, slice(at, at + width), column.kind, column.categories, column.unit))
        at += width
    if at != len(names):
        raise CorruptionError(f"{path} describes {at} columns, and has {len(names)}; ingest it again")
    return tuple(found)


def relations(rows: Array, y: Array, columns: Sequence[ShownColumn]) -> list[Relation]:
    """How scores y (m,) go with each column of their rows (m, d), largest share first."""
    centred, found = y - y.mean(), []
    total = float(centred @ centred)
    for column in columns:
        values = rows[:, column.place].astype(np.float64)
        if column.kind == "text":
            counts = values.sum(axis=0)
            means = np.divide(values.T @ centred, counts, out=np.zeros(len(counts)), where=counts > 0)
            there = np.flatnonzero(counts > 0)
            share = min(1.0, float(counts @ means**2) / total) if total else 0.0
            ends = (there[means[there].argmin()], there[means[there].argmax()]) if len(there) else (0, 0)
            found.append(Relation(column, share, None, (column.categories[ends[0]], column.categories[ends[1]])))
        elif column.kind != "characters":  # whose numbers have no order
            x = values[:, 0] - values[:, 0].mean()
            size = float(np.sqrt(x @ x) * np.sqrt(total))
            correlation = float(np.clip(x @ centred / size, -1, 1)) if size else 0.0
            found.append(Relation(column, correlation**2, correlation, None))
    return sorted(found, key=lambda each: -each.share)


_MAX_SCORES = 65_536  # rows shown, if their scores are given
_MAX_PROJECTED = 20_000  # rows shown, if they must be projected first
_MAX_PRODUCTS = 5e10  # rows x features x columns: a few seconds, even for models that keep all their rows
_SAMPLE_VALUES = 4e6  # values of rows, from which relations to columns are computed
_FEWEST_SAMPLED = 8
_MAX_BYTES = 64_000_000  # of scores in memory
_PARTS = 32  # of a reading of rows, after which progress is shown
_STRETCHES = 64  # of consecutive rows


@dataclass(frozen=True)
class RowLabels:
    """The label of each row as text, and the distinct labels in the order of the legend."""

    values: Array  # (m,), text
    names: tuple[str, ...]


@dataclass(frozen=True)
class DriftOfRun:
    """How far the new rows of a scheduled run were from those of the fit."""

    run: int
    finished: str  # UTC, ISO 8601
    figure: float
    threshold: float
    outside: int
    rows: int


@dataclass(frozen=True)
class ReportData:
    """Data of a report; None for what is not available, with a note that says why.

    `numbers` (m,), ascending, are the row numbers shown, out of `total` rows, with `scores` (m, r) and `residual` (m,).
    `shape` is (H, W) or (H, W, 3) of a row as a picture. `columns` are those of the table that rows were made of;
    `sample` are positions (k,) and rows (k, d), from which relations of scores to columns are computed, and `captured`,
    what the scores explain of all columns together. `seen` if the model was fitted to these rows, None if that is not
    known.
    """

    total: int
    numbers: Array
    scores: Array | None
    rows: Rows | None
    labels: RowLabels | None
    residual: Array | None
    shape: tuple[int, ...] | None
    notes: tuple[str, ...]
    drift: tuple[DriftOfRun, ...] = ()
    columns: tuple[ShownColumn, ...] = ()
    sample: tuple[Array, Array] | None = None
    captured: Captured | None = None
    seen: bool | None = None


def collect_report_data(
    model: Model,
    scores: Any,
    labels: AnyPath | None,
    shape: Sequence[int] | None,
    array: str | None,
    progress: Progress,
) -> ReportData:
    """Collect what is available; reads at most 65,536 rows. Raises SpecError for what does not fit."""
    shape = image_shape(shape, model.columns)
    opened = None if scores is None else open_scores(model, scores)
    place, source = None if scores is None else feature_store(scores), _source(model, scores)
    rows, notes = _input(source, model, array)
    if opened is None and rows is None:
        if labels is not None:
            raise SpecError("labels need rows, and there are none: " + notes[0] + "; give their scores")
        return ReportData(0, np.empty(0, np.intp), None, None, None, None, shape, tuple(notes), captured=model.captured)
    max_rows_in_memory = _MAX_BYTES // (8 * model.components)
    if opened is not None:
        total = opened.shape[0]
        numbers = spread_row_numbers(total, min(_MAX_SCORES, max_rows_in_memory))
        progress.note(f"reading {len(numbers):,} of {total:,} scores")
        found = _taken(opened, numbers, "reading scores", progress).astype(np.float64)
        if rows is not None and rows.shape[0] < total:
            notes.append(f"{rows.where} has fewer rows than there are scores, so that no row of it is shown")
            rows = None
    else:
        assert rows is not None
        total = rows.shape[0]
        affordable = int(_MAX_PRODUCTS / (model.features.size * model.columns))
        numbers = spread_row_numbers(total, min(_MAX_PROJECTED, max_rows_in_memory, max(1000, affordable)))
        found = _projected(model, rows, numbers, progress)
    columns = () if rows is None else shown_columns(rows.names, dataset_at(source["path"]), rows.where)
    found_labels, residual = _labels(labels, source["path"], total, numbers), None
    if place is not None and _manifest(place).get("residual"):
        residual = _values(groups.open_values(place, "residual"), numbers).astype(np.float64)
    if shape is None:  # then that of rows before ingest flattened them
        recorded = tuple((dataset_at(source["path"]) or {}).get("row_shape") or ())
        shape = recorded if is_picture(recorded) and np.prod(recorded) == model.columns else None
    sample, explained, own = None, None, None
    if rows is not None:
        own = fitted_to(model, rows.fingerprint)
        at = spread(len(numbers), max(_FEWEST_SAMPLED, int(_SAMPLE_VALUES / rows.shape[1])))
        sample = at, _taken(rows, numbers[at], "reading rows", progress)
        if own and model.captured is not None and model.captured.components == found.shape[1]:
            explained = model.captured  # of a model without the rows that are judged
        else:
            with single_threaded_blas:
                explained = captured(model.features, sample[1], found[at], seen=own)
    return ReportData(
        total,
        numbers,
        found,
        rows,
        found_labels,
        residual,
        shape,
        tuple(notes),
        _drift(scores),
        columns,
        sample,
        explained or model.captured,
        own,
    )


def _drift(scores: Any) -> tuple[DriftOfRun, ...]:
    """The drift of each run of the job with this output; none where scores are not the output of a job."""
    path = None if scores is None else path_of(scores)
    if path is None or (groups.describe(path) or {}).get("format") != JOB:
        return ()
    names = [each.name for each in fields(DriftOfRun)]
    found = [{**record, **record["drift"]} for record in read_records(path)[0] if isinstance(record.get("drift"), dict)]
    return tuple(DriftOfRun(*(each[name] for name in names)) for each in found if all(name in each for name in names))


def request_digest(
    model: Model, scores: Any, labels: AnyPath | None, shape: Sequence[int] | None, array: str | None
) -> str:
    """A digest of everything that a report depends on, from time stamps of files. Raises SpecError."""
    opened = None if scores is None else open_scores(model, scores)
    source = _source(model, scores)
    rows, _ = _input(source, model, array)
    place = None if labels is None else labels_path(labels)
    record = {
        "bigkpca": version("bigkpca"),
        "model": model_digest(model),
        "scores": opened and opened.fingerprint(),
        "rows": rows and rows.fingerprint(),
        "labels": place and store_of(place).absolute(place),
        "stamp of labels": _labels_stamp(labels, source["path"]),
        "shape": shape and list(shape),
        "drift": [asdict(each) for each in _drift(scores)],
    }
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def spread_row_numbers(n: int, most: int) -> Array:
    """At most `most` of n row numbers, ascending: all, or 64 evenly spaced stretches, so that few chunks are read."""
    if n <= most:
        return np.arange(n)
    length = max(1, most // _STRETCHES)
    starts = np.linspace(0, n - length, min(_STRETCHES, most)).astype(np.intp)
    return np.unique(starts[:, None] + np.arange(length))


def _source(model: Model, scores: Any) -> Mapping[str, Any]:
    """The fingerprint of the rows that the scores belong to, or else of the rows that were fitted."""
    place = None if scores is None else feature_store(scores)
    source: Mapping[str, Any] = _manifest(place)["input"] if place else model.provenance["identity"]
    return source


def _manifest(path: str) -> Mapping[str, Any]:
    manifest = block_arrays.read_manifest(path)
    assert manifest is not None  # open_scores raises an error for unfinished stores
    return manifest


def _input(source: Mapping[str, Any], model: Model, array: str | None) -> tuple[Rows | None, list[str]]:
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


def _projected(model: Model, rows: Rows, numbers: Array, progress: Progress) -> Array:
    """Scores (m, r) of the rows with these numbers."""
    step, found = tile_rows(model.columns, model.features.size, 8), []
    with shown_pass(progress, "projecting", len(numbers)) as advance, single_threaded_blas:
        for start in range(0, len(numbers), step):
            X = take(rows, numbers[start : start + step])
            found += list(model.project([X], len(X)))
            advance(len(X))
    return np.concatenate(found).astype(np.float64)


def _taken(rows: Rows, numbers: Array, title: str, progress: Progress) -> Array:
    """The rows with these ascending numbers, read in a few dozen parts."""
    found = []
    with shown_pass(progress, title, len(numbers)) as advance:
        for part in np.array_split(numbers, min(_PARTS, len(numbers))):
            found.append(take(rows, part))
            advance(len(part))
    return np.concatenate(found)


def _values(array: Any, numbers: Array) -> Array:
    """Values (m,) of an array (n,) at ascending numbers: one read for each stretch of consecutive numbers."""
    stretches = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return np.concatenate([np.asarray(array[int(part[0]) : int(part[-1]) + 1]) for part in stretches])


def _labels(given: AnyPath | None, source: str | None, total: int, numbers: Array) -> RowLabels | None:
    """The labels that were given, or else the array `y` of the dataset."""
    if given is None:
        if source is None or dataset_at(source) is None or not store_of(source).is_folder(f"{source}/y"):
            return None
        # Rows may have been appended since; the earlier ones keep their numbers.
        return _as_labels(_values(groups.open_values(source, "y"), numbers), source)
    values, where = open_labels(labels_path(given), source)
    if values.shape != (total,):
        held = f"{values.shape[0]:,} labels" if values.ndim == 1 else f"an array of shape {values.shape}"
        raise SpecError(f"{where} holds {held}, and there are {total:,} rows: one label for each row is needed")
    return _as_labels(_values(values, numbers), where)


def _labels_stamp(given: AnyPath | None, source: str | None) -> list[Any]:
    """Paths, sizes and time stamps of the files that hold the labels; empty if there are none."""
    if given is None and source is None:
        return []
    place = "y" if given is None else labels_path(given)
    if source is not None and (given is None or not store_of(place).exists(place)):
        place = f"{source}/{place}"
    inside = f"{place}/y"
    place = inside if store_of(inside).is_folder(inside) else place
    store = store_of(place)
    if store.exists(place) and not store.is_folder(place):
        return [("", store.file(place).stamp)]
    return sorted((name, file.stamp) for name, file in store.files(place).items())


def _as_labels(values: Array, where: str) -> RowLabels:
    """Values as labels: names of categories, numbers, or bins of numbers that hardly repeat; at most twelve."""
    categories = (dataset_at(where) or {}).get("categories")
    if categories:
        values = names_of(values, categories, where)
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
