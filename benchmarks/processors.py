"""The same fits where BLAS and NumPy compute for other processors: how far eigenvalues and scores differ."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from benchmarks.data import MEDIAN_DISTANCE, mnist, some_rows
from benchmarks.results import Found, Table
from bigkpca.data.rows import ArrayRows
from bigkpca.execution.engine import Engine
from bigkpca.execution.projection import score_rows
from bigkpca.fitting.fit import fit_rows
from bigkpca.spec import FitSpec

CORE_TYPES = ("Haswell", "SkylakeX", "Zen", "Prescott")
FITS: dict[str, dict[str, Any]] = {
    "nystroem, k-means": {},
    "nystroem, uniform": {"landmarks": "uniform"},
    "nystroem, float64": {"landmarks": "uniform", "dtype": "float64"},
    "columns": {"method": "columns"},
    "rff": {"method": "rff"},
    "rff-pca": {"method": "rff-pca"},
    "exact": {"method": "exact"},
}
COMPONENTS = 20


def made(file: str, rows: int, size: int) -> None:
    """Fit all, and keep eigenvalues, scores and the core type of BLAS in a .npz file."""
    X = some_rows(mnist(), rows)
    found: dict[str, Any] = {}
    for name, options in FITS.items():
        own = {} if options.get("method") == "exact" else {"size": size}
        spec = FitSpec.checked(**{"n_components": COMPONENTS, "sigma": MEDIAN_DISTANCE, **own, **options})
        model = fit_rows(ArrayRows(X), spec, Engine())
        found[f"{name}/values"] = model.solution.eigenvalues
        found[f"{name}/scores"] = score_rows(ArrayRows(X), model, Engine())
    architecture = sorted({str(library["architecture"]) for library in threadpool_info() if "architecture" in library})
    np.savez(file, core=np.array("+".join(architecture)), **found)


def lowered() -> dict[str, str]:
    """The environment in which NumPy uses none of the instructions that it would choose for this processor."""
    return {"NPY_DISABLE_CPU_FEATURES": " ".join(np.show_config(mode="dicts")["SIMD Extensions"].get("found", ()))}


def main(folder: Path, rows: int = 4000, size: int = 500) -> Found:
    places = {"as it is": {}, **{core: {"OPENBLAS_CORETYPE": core} for core in CORE_TYPES}, "NumPy lowered": lowered()}
    found: dict[str, Any] = {}
    for place, environment in places.items():
        file = folder / f"processor-{place.replace(' ', '-')}.npz"
        code = f"from benchmarks.processors import made; made({str(file)!r}, {rows}, {size})"
        run = subprocess.run([sys.executable, "-c", code], env=os.environ | environment, check=False)
        if run.returncode:  # instructions that this processor does not have
            print(f"{place} does not run on this processor")
            continue
        found[place] = dict(np.load(file))
    here = found.pop("as it is")
    lines = []
    for name in FITS:
        line = [name]
        for other in found.values():
            values, scores = (np.abs(other[f"{name}/{what}"] - here[f"{name}/{what}"]) for what in ("values", "scores"))
            largest = np.abs(here[f"{name}/scores"]).max(axis=0)
            relative = (values / here[f"{name}/values"]).max(), (scores.max(axis=0) / largest).max()
            line.append(" / ".join(f"{difference:.0e}" if difference else "0" for difference in relative))
        lines.append(line)
    heads = [f"{place} ({other['core']})" for place, other in found.items()]
    title = f"MNIST {rows} rows, {size} landmarks or features, {COMPONENTS} components, against {here['core']}"
    yield Table(f"{title}: largest relative difference of eigenvalues / scores", ["fit", *heads], lines)
