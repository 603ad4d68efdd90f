"""The time of commands that do little: help, shell completion, imports, and a fit of a few rows."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import bigkpca
from benchmarks.common import arguments, child, interleaved, seconds_of, spread
from benchmarks.results import Results, Target, table

HELP = Target("bigkpca --help", "less", 0.15, "s")
IMPORT = Target("import bigkpca, beyond the libraries it imports at once", "less", 0.1, "s")
COMPLETION = Target("completion of bigkpca fit --kernel", "less", 0.3, "s")
ESTIMATOR = Target("from bigkpca import KernelPCA, beyond the base of scikit-learn", "less", 0.5, "s")
FIT = Target("bigkpca fit of the 1797 digits, the whole command", "less", 2.0, "s")

_OTHERS = """
import json, sys
import bigkpca
print(json.dumps([name for name in sys.modules if name.split(".")[0] not in ("bigkpca", "__main__")]))
"""
_BEYOND = """
import importlib, json, sys, time
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
started = time.perf_counter()
import bigkpca
print(time.perf_counter() - started)
"""
_BEYOND_BASE = """
import time
import sklearn.base, sklearn.utils.metaestimators, sklearn.utils.validation
started = time.perf_counter()
from {module} import KernelPCA
print(time.perf_counter() - started)
"""
_COMPLETING = {
    "_BIGKPCA_COMPLETE": "bash_complete",
    "COMP_WORDS": "bigkpca fit --kernel spe",
    "COMP_CWORD": "3",
}
_COMPLETE = "from bigkpca.cli import main; main(prog_name='bigkpca')"


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=1797, repeats=15)
    given.folder.mkdir(parents=True, exist_ok=True)
    rows, model = given.folder / f"digits-{given.rows}.npy", given.folder / "startup-model.zarr"
    np.save(rows, load_digits().data[: given.rows])
    others = child(_OTHERS)[0]

    compileall.compile_dir(str(Path(bigkpca.__file__).parent), quiet=1)  # as pip does when it installs

    def of_command(*words: str, **more: str) -> float:
        command, env = [sys.executable, *words], os.environ | more
        return seconds_of(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=env))

    def of_fit() -> float:
        shutil.rmtree(model, ignore_errors=True)
        return of_command("-m", "bigkpca.cli", "fit", "-q", str(rows), str(model))

    seconds = interleaved(
        given.repeats,
        python=lambda: of_command("-c", "pass"),
        help=lambda: of_command("-m", "bigkpca.cli", "--help"),
        completion=lambda: of_command("-c", _COMPLETE, **_COMPLETING),
        beyond=lambda: float(child(_BEYOND, others)[0]),
        estimator=lambda: float(child(_BEYOND_BASE.format(module="bigkpca"))[0]),
        peer=lambda: float(child(_BEYOND_BASE.format(module="sklearn.decomposition"))[0]),
        fit=of_fit,
    )
    shutil.rmtree(model, ignore_errors=True)
    names = {
        "python": "Python alone",
        "help": HELP.what,
        "completion": COMPLETION.what,
        "beyond": IMPORT.what,
        "estimator": ESTIMATOR.what,
        "peer": "from sklearn.decomposition import KernelPCA, beyond the same",
        "fit": f"bigkpca fit of {given.rows} digits, the whole command",
    }
    shown = table(
        f"Start of commands, each in a separate process; {len(json.loads(others))} modules of other libraries are "
        f"imported at once; medians of {given.repeats}",
        ["what", "seconds", "least to most"],
        [[names[key], statistics.median(values), spread(values)] for key, values in seconds.items()],
    )
    targets = {"help": HELP, "completion": COMPLETION, "beyond": IMPORT, "estimator": ESTIMATOR, "fit": FIT}
    return Results((shown,), tuple(each.measured(statistics.median(seconds[key])) for key, each in targets.items()))


if __name__ == "__main__":
    main()
