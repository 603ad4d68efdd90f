"""Reads that fail: the n-th time that one of some files is opened, an error, or another file than the true one.

Python tells of each file before it opens it (`sys.addaudithook`), so that this works below every library that opens
files in Python, in this process and in others. A folder holds what is to happen, so that processes share one count of
reads: `Reads.environment` makes processes that are started then take part.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

NAME = "BIGKPCA_TEST_READS"  # the folder, in the environment
ROOT = Path(__file__).resolve().parents[2]
ONCE = {f"{name} once": getattr(errno, name) for name in ("ENOENT", "EIO", "ESTALE", "ETIMEDOUT", "EMFILE")}
DAMAGE = ("truncated", "other version", "zero length")
# What happens at the read: an error, an error at all reads of that file from then on, no file from then on, another
# file from then on (`stale` has size and time of the true one), or this process stops.
FAULTS = (*ONCE, "EIO always", "ENOENT always", *DAMAGE, "stale", "stop")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_LATER = 10**9  # nanoseconds by which the other version of a file is younger


@dataclass(frozen=True)
class _Plan:
    """What happens at which read of these files, of which `twin` has other versions by the same names."""

    files: list[str]
    what: str = ""
    at: int = 0
    root: str = ""
    twin: str = ""


class Reads:
    """Reads of files below `root`, of which `twin` holds other versions; `folder`, for notes, is beside both."""

    def __init__(self, folder: Path, root: Path, twin: Path | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self._root, self._twin = folder, root, twin or root
        (folder / "site").mkdir(exist_ok=True)
        (folder / "site" / "sitecustomize.py").write_text("from tests.helpers import reads\nreads.watch()\n")

    @property
    def environment(self) -> dict[str, str]:
        """Of processes whose reads count."""
        held = [str(self._folder / "site"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        return {NAME: str(self._folder), "PYTHONPATH": os.pathsep.join(filter(None, held))}

    @contextmanager
    def fault(self, files: Sequence[Path], what: str = "", at: int = 0) -> Iterator[None]:
        """While entered, this happens at the read of that number, from 1, of these files; then all is as before."""
        plan = _Plan([str(file) for file in files], what, at, str(self._root), str(self._twin))
        for name in ("count", "happened"):
            (self._folder / name).unlink(missing_ok=True)
        (self._folder / "new").write_text(json.dumps(asdict(plan)))
        os.replace(self._folder / "new", self._folder / "plan")
        try:
            yield
        finally:
            self.heal()

    def heal(self) -> None:
        """End what happens, and put the true file back: the same one, with its times."""
        (self._folder / "plan").unlink(missing_ok=True)
        if (held := self._folder / "held").exists():
            assert self.happened is not None
            os.replace(held, self.happened)

    @property
    def happened(self) -> str | None:
        """The file that was read when it happened."""
        found = self._folder / "happened"
        return found.read_text() if found.exists() else None

    @property
    def count(self) -> int:
        """Reads since `fault` was entered."""
        found = self._folder / "count"
        return int(found.read_text() or 0) if found.exists() else 0

    def replace(self, file: Path) -> None:
        """Show the other version of a file, as the fault does, until `heal`."""
        (self._folder / "happened").write_text(str(file))
        _show(self._folder, str(file), "other version", _Plan([], root=str(self._root), twin=str(self._twin)))


def watch() -> None:
    """Let this process take part, for as long as it runs; what happens depends on the environment at each read."""
    global _watching
    if not _watching:
        _watching = True
        sys.addaudithook(_hook)


_watching = False
_busy = threading.local()  # while a thread reads the plan
_known: dict[str, tuple[Any, _Plan, frozenset[str]]] = {}


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or (folder := os.environ.get(NAME)) is None or getattr(_busy, "now", False):
        return
    path, _, flags = arguments
    if isinstance(path, int) or path is None or (isinstance(flags, int) and flags & _WRITES):
        return
    name = os.path.abspath(os.fsdecode(path))
    if not name.startswith(os.path.dirname(folder) + os.sep):
        return
    _busy.now = True
    try:
        _read(Path(folder), name)
    finally:
        _busy.now = False


def _read(folder: Path, name: str) -> None:
    """One of the files may be opened: let happen what is to happen."""
    try:
        plan, files = _plan_of(folder)
    except FileNotFoundError:
        return
    if name not in files:
        return
    if (number := _counted(folder)) == plan.at:
        (folder / "happened").write_text(name)
    elif not (plan.what == "EIO always" and number > plan.at > 0 and (folder / "happened").read_text() == name):
        return
    if plan.what in ONCE:
        raise _error(ONCE[plan.what], name)
    if plan.what == "EIO always":
        raise _error(errno.EIO, name)
    if plan.what == "stop":
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # which this thread gets before it goes on
    elif plan.what == "ENOENT always":
        os.replace(name, folder / "held")
    else:
        _show(folder, name, plan.what, plan)


def _plan_of(folder: Path) -> tuple[_Plan, frozenset[str]]:
    status = os.stat(folder / "plan")
    version = status.st_ino, status.st_mtime_ns
    if str(folder) not in _known or _known[str(folder)][0] != version:
        plan = _Plan(**json.loads((folder / "plan").read_text()))
        _known[str(folder)] = version, plan, frozenset(plan.files)
    return _known[str(folder)][1:]


def _counted(folder: Path) -> int:
    """The number of this read, in all processes."""
    with (folder / "count").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or 0) + 1
        file.truncate(0)
        file.write(str(number))
    return number


def _error(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), name)


def _show(folder: Path, name: str, what: str, plan: _Plan) -> None:
    """Another file in place of this one, at once; the true one is held."""
    true, status = Path(name).read_bytes(), os.stat(name)
    other = plan.twin + name.removeprefix(plan.root)
    content = {"truncated": true[: len(true) * 2 // 3], "zero length": b""}.get(what)
    (folder / "shown").write_bytes(Path(other).read_bytes() if content is None else content)
    later = 0 if what == "stale" else _LATER
    os.utime(folder / "shown", ns=(status.st_atime_ns, status.st_mtime_ns + later))
    os.link(name, folder / "held")
    os.replace(folder / "shown", name)
