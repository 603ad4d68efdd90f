"""A preload of Dask workers: what one of them is told to do inside a block, as a fault does.

The file that `BIGKPCA_TEST_FAULT` names says what happens, at which moment, in which block, and how often in all
workers together; nothing happens while it is not there. Each time leaves a file beside it, which holds the worker's id.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

NAME = "BIGKPCA_TEST_FAULT"


@dataclass(frozen=True)
class Fault:
    """What happens to a worker: `moment` is reading, computing or writing; `what` one of the functions below."""

    moment: str
    what: str
    row: int | None = None  # of the block in which it happens; None for any
    times: int = 1

    def arm(self, folder: Path) -> None:
        """Make it happen from now on."""
        for old in folder.glob("fault*"):
            old.unlink()
        (folder / "new").write_text(json.dumps(asdict(self)))
        (folder / "new").rename(folder / "fault")


def happened(folder: Path) -> list[int]:
    """Process ids of the workers to which it happened."""
    return [int(path.read_text()) for path in sorted(folder.glob("fault-*")) if path.read_text()]


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exited() -> None:
    os._exit(3)


def segfault() -> None:
    ctypes.string_at(0)


def full_memory() -> None:
    """A gigabyte, for a while."""
    held = [os.urandom(1 << 20) * 64 for _ in range(16)]
    del held


def stalled() -> None:
    file = Path(os.environ[NAME])
    while file.exists():
        time.sleep(0.02)


def slow() -> None:
    time.sleep(0.3)


def _at(moment: str, start: int | None, stop: int | None) -> None:
    """Let happen what is to happen now."""
    file = Path(os.environ[NAME])
    try:
        fault = Fault(**json.loads(file.read_text()))
    except FileNotFoundError:
        return
    if fault.moment != moment:
        return
    if fault.row is not None and start is not None and stop is not None and not start <= fault.row < stop:
        return
    for number in range(fault.times):
        try:
            sign = os.open(f"{file}-{number:03}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            if fault.what == "slow" and Path(f"{file}-{number:03}").read_text() == str(os.getpid()):
                slow()
                return
            continue
        os.write(sign, str(os.getpid()).encode())
        os.close(sign)
        globals()[fault.what]()
        return


def dask_setup(worker: Any) -> None:
    """Called by the worker as it starts."""
    from bigkpca.data.zarr import ZarrRows
    from bigkpca.numerics.features.base import FeatureMap

    block, evaluation, replace = ZarrRows.block, FeatureMap.evaluation, os.replace

    def reading(self: Any, start: int, stop: int, *given: Any) -> Any:
        _at("reading", start, stop)
        return block(self, start, stop, *given)

    def computing(self: Any, *given: Any) -> Callable[[Any], Any]:
        evaluate = evaluation(self, *given)

        def evaluated(X: Any) -> Any:
            found = evaluate(X)
            _at("computing", None, None)
            return found

        return evaluated

    def writing(source: Any, target: Any) -> None:
        if "/c/" in str(target):
            _at("writing", None, None)
        replace(source, target)

    for holder, name, changed in ((ZarrRows, "block", reading), (FeatureMap, "evaluation", computing)):
        setattr(holder, name, changed)
    os.replace = writing
