"""One self-contained HTML page that answers "is this good, and what did it find".

looked     what it is drawn from: scores, rows, labels of a bounded number of rows
pictures   rows as pictures
drawing    inline SVG in the colours of the page, with words that say what is seen
figures    what is drawn of a model
words      the sentences
sections   what stands below which title
page       the HTML around it
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bigkpca.errors import SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import plan_fit
from bigkpca.execution.progress import Progress, Silent
from bigkpca.numerics.model import Model
from bigkpca.reporting import sections, text
from bigkpca.reporting.page import MARK, render, request_mark
from bigkpca.reporting.report_data import ReportData, collect_report_data, request_digest
from bigkpca.spec import FitSpec
from bigkpca.storage import durable, groups, locks, paths
from bigkpca.storage.describe import model_info
from bigkpca.storage.models import AnyModel, model_of
from bigkpca.workflows.block_writer import Path as AnyPath

INSTALL = "pip install 'bigkpca[report]'"


def report(
    model: AnyModel,
    out: AnyPath,
    *,
    scores: Any = None,
    labels: AnyPath | None = None,
    image_shape: Sequence[int] | None = None,
    array: str | None = None,
    overwrite: bool = False,
    progress: Progress = Silent(),
) -> str:
    """Write a report of a model to the file `out`, and return its path.

    `scores` are those of any rows, in a feature store or an array; without them, a bounded sample of the fitted input
    is projected, if it is still there. `labels` is a .npy file, a Zarr array, a dataset, or the name of an array beside
    the rows, by default `y`. `image_shape` (H, W) shows rows as pictures, by default the shape that they had before
    ingest. `array` names the array of the rows inside a Zarr group. Reads at most 65,536 rows, however many there are.
    The same call on the same files does nothing; another report at `out` is replaced with `overwrite`, other files
    never. What is in the way is found before anything is drawn.

    Raises SpecError for what does not fit together, and where matplotlib or jinja2 is not installed.
    """
    check_installed()
    fitted, path = model_of(model), os.fspath(model) if isinstance(model, str | os.PathLike) else ""
    given = os.fspath(scores) if isinstance(scores, str | os.PathLike) else None
    out = paths.output_path(out, path, fitted.provenance["identity"]["path"], given)
    _check_place(out)
    mark = request_mark(request_digest(fitted, scores, labels, image_shape, array))
    with locks.lock(out), durable.room_on_disk(out):
        if os.path.exists(out) and mark.encode() in _head(out):
            progress.note(f"{out} is there already, of the same model and rows: nothing to do")
            return out
        if os.path.exists(out) and not overwrite:
            raise SpecError(
                f"{out} is in the way: it is another report; choose another output path, or replace it with "
                "--overwrite (overwrite=True in Python)"
            )
        data = collect_report_data(fitted, scores, labels, image_shape, array, progress)
        durable.publish_text(Path(out), _page(fitted, path, data, mark))
    return out


def installed() -> bool:
    """Whether what a report is drawn with is there."""
    return all(find_spec(name) for name in ("matplotlib", "jinja2"))


def check_installed() -> None:
    """Raise SpecError, with the line that installs them, unless matplotlib and jinja2 are there."""
    if not installed():
        raise SpecError(f"a report needs matplotlib and jinja2: {INSTALL}")


def _check_place(out: str) -> None:
    """Raise SpecError where no report can be written, before any work."""
    if not Path(out).absolute().parent.is_dir():
        raise SpecError(f"{out} cannot be written: its folder does not exist")
    if os.path.isdir(out):
        raise SpecError(f"{out} is a folder: give the name of a file, e.g. report.html")
    if os.path.exists(out) and MARK.encode() not in _head(out):
        raise SpecError(
            f"{out} exists and was not made by bigkpca report, so it is never replaced: choose another output path, "
            "or move it away yourself"
        )


def _head(out: str) -> bytes:
    with open(out, "rb") as file:
        return file.read(2000)


def _page(model: Model, path: str, data: ReportData, mark: str) -> str:
    facts = model_info(model, path)
    told = (sections.maps, sections.components, sections.preimages, sections.novelty)
    found = [sections.quality(model), *(tell(model, data) for tell in told)]
    source = model.provenance["identity"]["path"]
    written_by = (groups.describe(path) or {}).get("bigkpca", version("bigkpca"))
    plan = None if data.rows is None else plan_fit(data.rows, FitSpec.of(model), Engine().threads)
    return render(
        request=mark,
        title="Kernel PCA of " + (os.path.basename(source) if source else "an array"),
        verdict=text.verdict(model),
        findings=text.findings(model, data),
        sections=[section for section in found if section is not None],
        provenance=text.provenance(model, facts, written_by, plan),
        choices=facts["choices"],
        spec=json.dumps(model.provenance["spec"], indent=1),
        left_out=list(sections.left_out(model, data)),
    )
