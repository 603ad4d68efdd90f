"""The time of commands that do little: help, shell completion, imports, and a fit of a few rows."""

import compileall
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import bigkpca
from benchmarks.results import Found, Table, Target
from benchmarks.timing import child, interleaved, seconds_of, spread

_IMPORT = """
import time
{first}
started = time.perf_counter()
{timed}
print(time.perf_counter() - started)
"""
_BASE = "import sklearn.base, sklearn.utils.metaestimators, sklearn.utils.validation"
_COMPLETION = {"_BIGKPCA_COMPLETE": "bash_complete", "COMP_WORDS": "bigkpca fit --kern", "COMP_CWORD": "3"}
_COMPLETE = "from bigkpca.cli import main; main(prog_name='bigkpca')"
_SIDES = {  # what is measured, and the most seconds that it should take
    "python": ("Python alone", None),
    "help": ("bigkpca --help", 0.15),
    "completion": ("completion of bigkpca fit --kernel", 0.3),
    "package": ("import bigkpca", 0.1),
    "estimator": ("from bigkpca import KernelPCA, beyond the base of scikit-learn", 0.35),
    "peer": ("from sklearn.decomposition import KernelPCA, beyond the same", None),
    "fit": ("bigkpca fit of the 1797 digits, the whole command", 1.5),
}


def imports(timed: str, first: str = "") -> float:
    """Seconds of imports in a new process, after others."""
    return float(child(_IMPORT.format(first=first, timed=timed))[0])


def command(*words: str, **environment: str) -> float:
    """Seconds of a whole process of Python."""
    run = [sys.executable, *words]
    return seconds_of(lambda: subprocess.run(run, stdout=subprocess.DEVNULL, check=True, env=os.environ | environment))


def main(folder: Path, rows: int = 1797, repeats: int = 10) -> Found:
    data, model = folder / f"digits-{rows}.npy", folder / "startup-model.zarr"
    np.save(data, load_digits().data[:rows])
    compileall.compile_dir(str(Path(bigkpca.__file__).parent), quiet=1)  # as pip does when it installs

    def fit() -> float:
        shutil.rmtree(model, ignore_errors=True)
        return command("-m", "bigkpca.cli", "fit", "-q", str(data), str(model))

    seconds = interleaved(
        repeats,
        python=lambda: command("-c", "pass"),
        help=lambda: command("-m", "bigkpca.cli", "--help"),
        completion=lambda: command("-c", _COMPLETE, **_COMPLETION),
        package=lambda: imports("import bigkpca"),
        estimator=lambda: imports("from bigkpca import KernelPCA", _BASE),
        peer=lambda: imports("from sklearn.decomposition import KernelPCA", _BASE),
        fit=fit,
    )
    shutil.rmtree(model, ignore_errors=True)
    middle = {key: statistics.median(values) for key, values in seconds.items()}
    lines = [[what, middle[key], spread(seconds[key])] for key, (what, _) in _SIDES.items()]
    title = f"Commands on {rows} rows and imports, each in a separate process; medians of {repeats}"
    yield Table(title, ["what", "seconds", "least to most"], lines)
    for key, (what, most) in _SIDES.items():
        if most:
            yield Target(what, middle[key], "at most", most, "s")
