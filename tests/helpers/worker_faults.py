"""A preload of Dask workers: what one of them is told to do inside a block, as a fault does.

The file that `BIGKPCA_TEST_FAULT` names says what happens, at which moment, in which block, and how often in all
workers together; nothing happens while it is not there. Each time leaves a file beside it, which holds the worker's id.
"""

import ctypes
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

NAME = "BIGKPCA_TEST_FAULT"


@dataclass(frozen=True)
class Fault:
    """What happens to a worker: `moment` is reading, computing or writing; `what` is one of WHAT."""

    moment: str
    what: str
    row: int | None = None  # of the block in which it happens; None for any
    times: int = 1

    def arm(self, folder):
        """Make it happen from now on."""
        for old in folder.glob("fault*"):
            old.unlink()
        (folder / "new").write_text(json.dumps(asdict(self)))
        (folder / "new").rename(folder / "fault")


def happened(folder):
    """Process ids of the workers to which it happened."""
    return [int(path.read_text()) for path in sorted(folder.glob("fault-*")) if path.read_text()]


def stalled():
    while Path(os.environ[NAME]).exists():
        time.sleep(0.02)


WHAT = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exited": lambda: os._exit(3),
    "segfault": lambda: ctypes.string_at(0),
    "full_memory": lambda: len([os.urandom(1 << 20) * 64 for _ in range(16)]),  # a gigabyte, for a while
    "stalled": stalled,
    "slow": lambda: time.sleep(0.3),  # at every block of that worker
}


def _at(moment, start=None, stop=None):
    """Let happen what is to happen now."""
    file = Path(os.environ[NAME])
    try:
        fault = Fault(**json.loads(file.read_text()))
    except FileNotFoundError:
        return
    elsewhere = None not in (fault.row, start, stop) and not start <= fault.row < stop
    if fault.moment != moment or elsewhere:
        return
    for number in range(fault.times):
        sign = Path(f"{file}-{number:03}")
        try:
            with sign.open("x") as new:
                new.write(str(os.getpid()))
        except FileExistsError:
            if fault.what != "slow" or sign.read_text() != str(os.getpid()):
                continue
        WHAT[fault.what]()
        return


def dask_setup(worker):
    """Called by the worker as it starts."""
    from bigkpca.data.zarr import ZarrRows
    from bigkpca.numerics.features import FeatureMap

    block, evaluation, replace = ZarrRows.block, FeatureMap.evaluation, os.replace

    def reading(self, start, stop, *given):
        _at("reading", start, stop)
        return block(self, start, stop, *given)

    def computing(self, *given):
        evaluate = evaluation(self, *given)

        def evaluated(X):
            found = evaluate(X)
            _at("computing")
            return found

        return evaluated

    def writing(source, target):
        if "/c/" in str(target):
            _at("writing")
        replace(source, target)

    ZarrRows.block, FeatureMap.evaluation, os.replace = reading, computing, writing
