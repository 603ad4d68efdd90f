"""Where benchmarks ran: the machine, the versions of libraries, and the commit."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path

import scipy.linalg  # noqa: F401  with NumPy it loads the BLAS that threadpoolctl asks
from threadpoolctl import threadpool_info

_LIBRARIES = ("numpy", "scipy", "zarr", "dask", "scikit-learn", "dask-ml", "nystrompca", "bigkpca")
_ROOT = Path(__file__).resolve().parents[1]
PEERS = _ROOT / "build" / "peers"  # peers with libraries of their own, which no other process imports


def described() -> dict[str, str]:
    """What a reader has to know of the machine, the libraries and the code."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory / 1e9:.0f} GB",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": platform.python_version(),
        **{library: _version(library) for library in _LIBRARIES},
        "BLAS": "; ".join(sorted(_libraries_of_products())),
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def cores_of_others() -> Callable[[], float | None]:
    """A function that returns how many cores other programs have kept busy on average since this call; None where the
    system does not say. Programs that this one started count as its own once they have ended."""
    started, others = time.monotonic(), _seconds_of_others()

    def since() -> float | None:
        now = _seconds_of_others()
        if others is None or now is None:
            return None
        return max(now - others, 0.0) / max(time.monotonic() - started, 1e-9)

    return since


def _seconds_of_others() -> float | None:
    """CPU seconds since the start of the machine, without those of this process and of ended ones that it started."""
    try:
        fields = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:9]
    except OSError:  # not Linux
        return None
    idle, waiting = fields[3:5]
    busy = sum(map(int, fields)) - int(idle) - int(waiting)
    return busy / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


def _processor() -> str:
    """The model of the processor, as the system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(library: str) -> str:
    installed = [*distributions(name=library), *distributions(name=library, path=[str(PEERS)])]
    return installed[0].version if installed else "not installed"


def _libraries_of_products() -> set[str]:
    """Every BLAS that is loaded, with its version and the type of core that it computes for."""
    found = (each for each in threadpool_info() if each["user_api"] == "blas")
    return {f"{each['internal_api']} {each['version']}, for {each.get('architecture', 'any')}" for each in found}


def _commit() -> str:
    """The commit of the code, and whether it was changed since."""
    try:
        commit, changes = (_git(*words) for words in (("rev-parse", "HEAD"), ("status", "--porcelain")))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + (" + changes" if changes else "")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True).stdout.strip()
