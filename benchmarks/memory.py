"""Peak resident memory of ingest, fit and transform as commands, at few and at many rows."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import MEDIAN_DISTANCE, arguments, child, repeated_dataset
from benchmarks.results import Results, table
from bigkpca.data.opening import open_rows
from bigkpca.execution.planning import plan_fit, plan_transform
from bigkpca.spec import FitSpec
from bigkpca.storage.models import load_model

_COMMAND = "import sys; from bigkpca.cli import main; main(sys.argv[1:], standalone_mode=False)"


def peaks(folder: Path, rows: int, size: int) -> dict[str, tuple[float, float | None]]:
    """Measured and planned peak in MB of each command on `rows` rows."""
    raw = repeated_dataset(folder, rows).replace(".zarr", ".npy")
    dataset, model, scores = (str(folder / name) for name in ("memory.zarr", "memory-model.zarr", "memory-scores.zarr"))
    sigma = str(MEDIAN_DISTANCE)
    measured = {
        "ingest": child(_COMMAND, "ingest", "-q", raw, dataset)[1],
        "fit": child(_COMMAND, "fit", "-q", dataset, model, "--size", str(size), "--sigma", sigma)[1],
        "transform": child(_COMMAND, "transform", "-q", model, dataset, scores)[1],
    }
    opened, spec = open_rows(dataset), FitSpec.checked(size=size)
    planned = {
        "ingest": None,
        "fit": plan_fit(opened, spec, 2).peak_bytes / 1e6,
        "transform": plan_transform(opened, load_model(model), None, 2).peak_bytes / 1e6,
    }
    for path in (dataset, model, scores):
        shutil.rmtree(path)
    return {name: (measured[name], planned[name]) for name in measured}


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=1_800_000)
    few, many = peaks(given.folder, given.rows // 30, given.size), peaks(given.folder, given.rows, given.size)
    shown = table(
        f"Peak resident memory in MB, {given.size} landmarks (planned in brackets)",
        ["command", f"{given.rows // 30} rows", f"{given.rows} rows", "ratio"],
        [[name, _shown(few[name]), _shown(many[name]), many[name][0] / few[name][0]] for name in few],
    )
    return Results((shown,))


def _shown(peak: tuple[float, float | None]) -> str:
    measured, planned = peak
    return f"{measured:.0f}" if planned is None else f"{measured:.0f} ({planned:.0f})"


if __name__ == "__main__":
    main()
