"""The time of commands that do little: help, shell completion, imports, and a fit of a few rows."""

import compileall
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
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
_OURS, _THEIRS = (f"from {package} import KernelPCA" for package in ("bigkpca", "sklearn.decomposition"))
_COMPLETION = {"_BIGKPCA_COMPLETE": "bash_complete", "COMP_WORDS": "bigkpca fit --kern", "COMP_CWORD": "3"}
_COMPLETE = "from bigkpca.cli import main; main(prog_name='bigkpca')"


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

    sides: dict[str, tuple[Callable[[], float], float | None]] = {  # and the most seconds that they should take
        "Python alone": (lambda: command("-c", "pass"), None),
        "bigkpca --help": (lambda: command("-m", "bigkpca.cli", "--help"), 0.15),
        "completion of bigkpca fit --kernel": (lambda: command("-c", _COMPLETE, **_COMPLETION), 0.3),
        "import bigkpca": (lambda: imports("import bigkpca"), 0.1),
        f"{_OURS}, beyond the base of scikit-learn": (lambda: imports(_OURS, _BASE), 0.35),
        f"{_THEIRS}, beyond the same": (lambda: imports(_THEIRS, _BASE), None),
        "bigkpca fit of the 1797 digits, the whole command": (fit, 1.5),
    }
    seconds = interleaved(repeats, **{what: side for what, (side, _) in sides.items()})
    shutil.rmtree(model, ignore_errors=True)
    middle = {what: statistics.median(took) for what, took in seconds.items()}
    title = f"Commands on {rows} rows and imports, each in a separate process; medians of {repeats}"
    lines = [[what, middle[what], spread(took)] for what, took in seconds.items()]
    yield Table(title, ["what", "seconds", "least to most"], lines)
    for what, (_, most) in sides.items():
        if most:
            yield Target(what, middle[what], "at most", most, "s")
