"""Draw a report of a model: one self-contained HTML page with its facts and figures.

drawing   figures as SVG in the colours of the page
page      facts, the table of components, and the page
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

from bigkpca import plots
from bigkpca.data.opening import path_of
from bigkpca.data.stores import AnyPath, last_name, store_of
from bigkpca.errors import BigKPCAError, SpecError
from bigkpca.execution.progress import Progress, shown
from bigkpca.numerics.model import Model
from bigkpca.plots.models import picture_shape
from bigkpca.plots.rows import draw_scores, rows_of, shown_scores, values_of_rows
from bigkpca.plots.runs import runs_with_drift
from bigkpca.plots.style import INSTALL, installed
from bigkpca.reporting.page import MARK, facts_of, render
from bigkpca.reporting.svg import VARIABLES, figure_of, svg_of
from bigkpca.storage import output
from bigkpca.storage.models import AnyModel, model_digest, model_of
from bigkpca.workflows.flags import flagged_rows
from bigkpca.workflows.inputs import dataset_at, feature_store

_WIDTH, _HEIGHT = 4.8, 3.6  # inches; the page scales figures to the width of a card
_MOST_COMPONENTS, _PLANES, _MEANT = 60, 4, 6  # components of the spectrum, of maps, and whose meaning is drawn


def report(
    model: AnyModel,
    out: AnyPath,
    *,
    scores: Any = None,
    labels: Any = None,
    image_shape: Sequence[int] | None = None,
    overwrite: bool = False,
    progress: Progress | bool = False,
) -> str:
    """Write an HTML report of a model, and return its path: what was fitted, how accurate the approximation of kernel
    PCA is, what the components capture, and those figures of `bigkpca.plots` that apply.

    Parameters
    ----------
    model : str, path, Model or KernelPCA
        The model, or the path where it is saved.
    out : str or path
        The HTML file to write.
    scores : str, path or array_like of shape (n, r), optional
        Scores of any rows: a feature store written by `transform`, the output of a job, whose drift is then drawn by
        run, or an array. By default, a bounded sample of the fitted rows is projected, if they still exist.
    labels : str, path or array_like of shape (n,), optional
        Labels or values of the rows, as `color` of `bigkpca.plots.scores`. By default the array `y` of the dataset, if
        there is one.
    image_shape : sequence of int, optional
        Shape of a row as a picture in pixels, (H, W) or (H, W, 3). By default the shape before ingest, if the dataset
        records one.
    overwrite : bool, default=False
        Replace another report at `out`. Other files are never replaced.
    progress : bool or Progress
        True shows bars, or lines where there is no terminal; a Progress receives progress and notes.

    Raises
    ------
    SpecError
        If scores, labels or image shape do not fit the model or each other, if something else is at `out`, or without
        Matplotlib.
    CorruptionError, IncompleteError, LockedError
        As in `transform`.

    Notes
    -----
    Makes no pass over the data: reads at most 65,536 scores or 20,000 rows, in evenly spaced stretches, and flags. The
    same call on the same files draws the same page.
    """
    progress = shown(progress)
    if not installed():
        raise SpecError(f"a report needs matplotlib: {INSTALL}")
    fitted, path = model_of(model), path_of(model) or ""
    out = output.output_path(out, path, fitted.provenance["identity"]["path"], path_of(scores))
    output.check_file(out, "bigkpca report", MARK)
    if not out.lower().endswith((".html", ".htm")):
        raise SpecError(f"{out}: a report is a page of HTML: take a name that ends in .html")
    store = store_of(out)
    with store.writer(out):
        page = _page(fitted, path, scores, labels, image_shape, progress).encode()
        if store.exists(out):
            with store.open(out) as file:
                if file.read() == page:
                    progress.note(f"{out} exists already, of the same model and rows: nothing to do")
                    return out
            if not overwrite:
                raise SpecError(
                    f"{out} already exists: it is another report; choose another output path, or replace it with "
                    "--overwrite (overwrite=True in Python)"
                )
        store.write(out, page)
    return out


def _page(
    model: Model,
    path: str,
    scores: Any,
    labels: Any,
    image_shape: Sequence[int] | None,
    progress: Progress,
) -> str:
    """The HTML of a report."""
    shape, facts, stored = picture_shape(model, image_shape), facts_of(model, path), model.provenance["identity"]
    drawn: dict[str, Callable[..., Any]] = {"Spectrum": partial(plots.spectrum, model, n_components=_MOST_COMPONENTS)}
    if model.captured is not None and len(model.variables) > 1:
        drawn["What all scores explain of columns"] = partial(plots.columns, model)
    rows, gone = None, ""
    try:
        rows = rows_of(model)
    except BigKPCAError as error:
        gone = str(error)
    if rows is not None or scores is not None:
        found = shown_scores(model, None, scores, progress)
        facts["rows shown"] = f"{len(found.scores):,} of {found.total:,}"
        if labels is None and dataset_at(found.source) and store_of(f"{found.source}/y").is_folder(f"{found.source}/y"):
            labels = found.source  # whose labels are `y`
        values = None if labels is None else values_of_rows(labels, found)
        for j in range(0, min(found.scores.shape[1] - 1, _PLANES), 2):
            name = f"Scores of components {j + 1} and {j + 2}"
            drawn[name] = partial(draw_scores, Y=found.scores, pair=(j, j + 1), values=values)
    elif labels is not None:
        raise SpecError(f"labels need rows, and there are none: {gone}")
    else:
        facts["rows shown"] = f"none: {gone}"
    if rows is not None and rows.fingerprint()["stamp"] != stored["stamp"]:
        facts["data"] += ", written again since the fit: its rows may be others"
    for number in range(1, min(_MEANT, model.components) + 1):
        if rows is not None and model.columns == 2 and model.features.kernel.on_vectors:
            drawn[f"Contours of component {number}"] = partial(plots.contours, model, rows, number)
        elif model.decoder is not None:
            name = f"Pre-images along component {number}"
            drawn[name] = partial(plots.component, model, number, image_shape=image_shape)
    place = None if scores is None else feature_store(scores)
    if place is not None and (flagged := flagged_rows(place)) is not None:
        facts["unusual rows"] = flagged.share.compared(model.check_calibrated())
        most = zip(flagged.numbers, flagged.statistic, flagged.reasons, strict=True)
        facts["most unusual"] = ", ".join(f"row {row} ({value:.4g}, {why})" for row, value, why in most)
        drawn["Unusual rows"] = partial(plots.unusual, model, scores=place)
    if scores is not None and (runs := runs_with_drift(scores)):
        above, last = sum(each["figure"] > each["threshold"] for each in runs), runs[-1]
        facts["drift"] = f"{last['figure']:.3f} in run {last['run']}; {above} of {len(runs)} runs above the threshold"
        drawn["Drift of each run"] = partial(plots.drift, scores)
    facts |= {"digest of the model": model_digest(model), "stamp of the data": str(stored["stamp"])}
    facts["drawn by"] = f"bigkpca {version('bigkpca')}"
    figures = []
    for number, (name, draw) in enumerate(drawn.items()):
        strip = shape is not None and name.startswith("Pre-images")
        with figure_of(_WIDTH, 0.4 + _WIDTH / 5 * shape[0] / shape[1] if shape and strip else _HEIGHT) as figure:
            axes = figure.add_subplot()
            draw(axes=axes)
            axes.set_title("")
            figures.append((name, svg_of(figure, f"figure-{number}", name, VARIABLES)))
        progress.note(f"drawn: {name}")
    return render("Kernel PCA of " + (last_name(stored["path"] or "") or "an array"), facts, figures, model)
