"""Draw a report of a model: one self-contained HTML page on how good it is and what it found.

report_data    scores, rows, labels and columns of a bounded number of rows, and how scores go with columns
drawing        Matplotlib figures as inline SVG with text alternatives
figures        the figures of a report, most of them those of `bigkpca.plots`
text           the sentences
page           titles, cards and tables, and the HTML page
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from bigkpca.data.opening import path_of
from bigkpca.data.stores import AnyPath, last_name, store_of
from bigkpca.errors import SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import plan_fit
from bigkpca.execution.progress import Progress, shown
from bigkpca.numerics.model import Model
from bigkpca.plots.style import INSTALL
from bigkpca.reporting import page, text
from bigkpca.reporting.page import MARK, render
from bigkpca.reporting.report_data import ReportData, collect_report_data, request_digest
from bigkpca.spec import FitSpec
from bigkpca.storage import groups, output
from bigkpca.storage.describe import model_info
from bigkpca.storage.models import AnyModel, model_of


def report(
    model: AnyModel,
    out: AnyPath,
    *,
    scores: Any = None,
    labels: AnyPath | None = None,
    image_shape: Sequence[int] | None = None,
    array: str | None = None,
    overwrite: bool = False,
    progress: Progress | bool = False,
) -> str:
    """Write an HTML report of a model.

    The report says how accurate the approximation of kernel PCA is and, separately, what the components capture, beside
    linear PCA. It shows scores, pre-images along components, the rows with the largest residuals and the flagged
    rows, as far as these are available.

    Parameters
    ----------
    model : str, path, Model or KernelPCA
        The model, or the path where it is saved.
    out : str or path
        The HTML file to write.
    scores : str, path or array_like of shape (n, r), optional
        Scores of any rows: a feature store written by `transform`, the output of a job, whose drift is then drawn by
        run, or an array. By default, a bounded sample of the fitted rows is projected, if they still exist.
    labels : str or path, optional
        Labels of the rows, (n,): a .npy file, a Zarr array, a dataset, or the name of an array beside the rows. By
        default the array `y` of the dataset, if there is one.
    image_shape : sequence of int, optional
        Shape of a row as a picture in pixels, (H, W) or (H, W, 3). By default the shape before ingest, if the dataset
        records one.
    array : str, optional
        Name of the array of the rows inside a Zarr group.
    overwrite : bool, default=False
        Replace another report at `out`. Other files are never replaced.
    progress : bool or Progress
        True shows bars, or lines where there is no terminal; a Progress receives
        progress and notes.

    Returns
    -------
    str
        The path of the report.

    Raises
    ------
    SpecError
        If scores, labels or image shape do not fit the model or each other, if something else is at `out`, or if
        matplotlib or jinja2 is not installed. Raised before anything is drawn where possible.
    CorruptionError
        If the model does not match its digest.
    IncompleteError
        If scores are not finished, or the disk is full.
    LockedError
        If another process is writing `out`.

    Notes
    -----
    Reads at most 65,536 scores or 20,000 rows, in evenly spaced stretches, however many there are, and the flags of all
    rows, if the scores have some; makes no pass over the data. Writes `out` only, whole or not at all. The same call on
    the same files does nothing.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 4))
    >>> model = bigkpca.fit(X, "model.zarr", n_components=3)
    >>> bigkpca.report(model, "report.html")
    'report.html'
    """
    progress = shown(progress)
    if not installed():
        raise SpecError(f"a report needs matplotlib and jinja2: {INSTALL}")
    fitted, path = model_of(model), path_of(model) or ""
    out = output.output_path(out, path, fitted.provenance["identity"]["path"], path_of(scores))
    output.check_local(out)
    if not output.check_file(out, lambda head: MARK.encode() in head, "report.html"):
        raise SpecError(
            f"{out} exists and was not made by bigkpca report, so it is never replaced: choose another output path, "
            "or move it away yourself"
        )
    if not out.lower().endswith((".html", ".htm")):
        raise SpecError(f"{out}: a report is a page of HTML: take a name that ends in .html")
    digest = request_digest(fitted, scores, labels, image_shape, array)
    mark = f'<meta name="bigkpca-request" content="{digest}">'
    store = store_of(out)
    with store.writer(out):
        if store.exists(out) and mark.encode() in output.head(out):
            progress.note(f"{out} exists already, of the same model and rows: nothing to do")
            return out
        if store.exists(out) and not overwrite:
            raise SpecError(
                f"{out} already exists: it is another report; choose another output path, or replace it with "
                "--overwrite (overwrite=True in Python)"
            )
        data = collect_report_data(fitted, scores, labels, image_shape, array, progress)
        store.write(out, _page(fitted, path, data, mark, progress).encode())
    return out


def installed() -> bool:
    """Whether the libraries that a report needs are installed."""
    return all(find_spec(name) for name in ("matplotlib", "jinja2"))


def _page(model: Model, path: str, data: ReportData, mark: str, progress: Progress) -> str:
    facts = model_info(model, path)
    drawn = (page.capture, page.score_plots, page.components, page.preimages, page.novelty, page.unusual, page.drift)
    found = []
    for draw in (lambda *_: page.quality(model), *drawn):
        if (section := draw(model, data)) is not None:
            found.append(section)
            progress.note(f"drawn: {section.title}")
    source = model.provenance["identity"]["path"]
    written_by = (groups.describe(path) or {}).get("bigkpca", version("bigkpca"))
    plan = None if data.rows is None else plan_fit(data.rows, FitSpec.of(model), Engine().threads)
    return render(
        request=mark,
        title="Kernel PCA of " + (last_name(source) if source else "an array"),
        tiles=text.tiles(model, data),
        findings=text.findings(model, data) + page.named_columns(data) + text.dominant_column(model, data),
        sections=found,
        provenance=text.provenance(model, facts, written_by, plan),
        choices=facts["choices"],
        digests={"stamp of the data": model.provenance["identity"]["stamp"], "digest of the model": facts["digest"]},
        spec=json.dumps(model.provenance["spec"], indent=1),
        left_out=list(page.left_out(model, data)),
    )
