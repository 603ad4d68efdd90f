"""Collect the data of a report: scores, rows, labels, residuals and columns of a bounded number of rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from bigkpca.data.rows import Rows
from bigkpca.data.stores import AnyPath, store_of
from bigkpca.errors import Array, SpecError
from bigkpca.evaluating import fitted_to
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.progress import Progress
from bigkpca.numerics.linear_pca import Captured, captured
from bigkpca.numerics.model import Model
from bigkpca.plots.outliers import JudgedRows, stored_judged_rows
from bigkpca.plots.pictures import image_shape, recorded_shape
from bigkpca.plots.rows import (
    RowLabels,
    as_labels,
    input_rows,
    manifest_of,
    named,
    project_rows,
    read_scores,
    sampled_rows,
    source_of,
    stored_values,
    values_of_rows,
)
from bigkpca.plots.runs import DriftOfRun, drift_of_runs
from bigkpca.plots.tables import ShownColumn, shown_columns
from bigkpca.storage import groups
from bigkpca.storage.models import model_digest
from bigkpca.workflows.flags import FlaggedRows, flagged_rows
from bigkpca.workflows.inputs import dataset_at, feature_store, labels_path, open_scores


@dataclass(frozen=True)
class ReportData:
    """Data of a report; None for what is not available, with a note that says why.

    `numbers` (m,), ascending, are the row numbers shown, out of `total` rows, with `scores` (m, r) and `residual` (m,).
    `shape` is (H, W) or (H, W, 3) of a row as a picture. `columns` are those of the table that rows were made of;
    `sample` are positions (k,) and rows (k, d), from which relations of scores to columns are computed, and `captured`,
    what the scores explain of all columns together. `seen` if the model was fitted to these rows, None if that is not
    known. `judged` are the shown rows with their flags, and `flagged` the most unusual ones of all rows, if scores were
    written with flags.
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
    judged: JudgedRows | None = None
    flagged: FlaggedRows | None = None


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
    place, source = None if scores is None else feature_store(scores), source_of(model, scores)
    rows, notes = input_rows(source, model, array)
    if opened is None and rows is None:
        if labels is not None:
            raise SpecError("labels need rows, and there are none: " + notes[0] + "; give their scores")
        return ReportData(0, np.empty(0, np.intp), None, None, None, None, shape, tuple(notes), captured=model.captured)
    if opened is not None:
        shown = read_scores(opened, model, progress)
        if rows is not None and rows.shape[0] < shown.total:
            notes.append(f"{rows.where} has fewer rows than there are scores, so that no row of it is shown")
            rows = None
    else:
        assert rows is not None
        shown = project_rows(rows, model, progress)
    total, numbers, found = shown.total, shown.numbers, shown.scores
    columns = () if rows is None else shown_columns(rows.names, dataset_at(source["path"]), rows.where)
    found_labels, residual = _labels(labels, source["path"], total, numbers), None
    if place is not None and manifest_of(place).get("residual"):
        residual = stored_values(groups.open_values(place, "residual"), numbers).astype(np.float64)
    flagged = None if place is None else flagged_rows(place)
    judged = None if place is None or flagged is None else stored_judged_rows(place, shown, model)
    if shape is None:
        shape = recorded_shape(source["path"], model.columns)
    sample, explained, own = None, None, None
    if rows is not None:
        own = fitted_to(model, rows.fingerprint)
        at, X = sample = sampled_rows(rows, numbers, progress)
        if own and model.captured is not None and model.captured.components == found.shape[1]:
            explained = model.captured  # of rows that took no part in the fit
        else:
            with single_threaded_blas:
                explained = captured(model.features, X, found[at], seen=own)
    return ReportData(
        total,
        numbers,
        found,
        rows,
        found_labels,
        residual,
        shape,
        tuple(notes),
        drift_of_runs(scores) or (),
        columns,
        sample,
        explained or model.captured,
        own,
        judged,
        flagged,
    )


def request_digest(
    model: Model, scores: Any, labels: AnyPath | None, shape: Sequence[int] | None, array: str | None
) -> str:
    """A digest of everything that a report depends on, from time stamps of files. Raises SpecError."""
    opened = None if scores is None else open_scores(model, scores)
    source = source_of(model, scores)
    rows, _ = input_rows(source, model, array)
    place = None if labels is None else labels_path(labels)
    record = {
        "bigkpca": version("bigkpca"),
        "model": model_digest(model),
        "scores": opened and opened.fingerprint(),
        "rows": rows and rows.fingerprint(),
        "labels": place and store_of(place).absolute(place),
        "stamp of labels": _labels_stamp(labels, source["path"]),
        "shape": shape and list(shape),
        "drift": [asdict(each) for each in drift_of_runs(scores) or ()],
    }
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _labels(given: AnyPath | None, source: str | None, total: int, numbers: Array) -> RowLabels | None:
    """The labels that were given, or else the array `y` of the dataset."""
    if given is None:
        if source is None or dataset_at(source) is None or not store_of(source).is_folder(f"{source}/y"):
            return None
        # Rows may have been appended since; the earlier ones keep their numbers.
        return as_labels(named(stored_values(groups.open_values(source, "y"), numbers), source))
    return as_labels(values_of_rows(labels_path(given), source, total, numbers))


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
