"""Reads that fail: the n-th time that one of some files is opened, an error, or another file than the true one.

Python tells of each file before it opens it (`sys.addaudithook`), so that this works below every library that opens
files in Python, in this process and in others. A folder holds what is to happen, so that processes share one count of
reads: processes that are started with `Reads.environment` take part.
"""

import errno
import fcntl
import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.helpers.files import ROOT

NAME = "BIGKPCA_TEST_READS"  # the folder, in the environment
ONCE = {f"{name} once": getattr(errno, name) for name in ("ENOENT", "EIO", "ESTALE", "ETIMEDOUT", "EMFILE")}
DAMAGE = ("truncated", "other version", "zero length")
# What happens at the read: an error, an error at all reads of that file from then on, no file from then on, or another
# file from then on.
FAULTS = (*ONCE, "EIO always", "ENOENT always", *DAMAGE)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_LATER = 10**9  # nanoseconds by which the other version of a file is younger


class Reads:
    """Reads of files below `root`, of which `twin` holds other versions; `folder`, for notes, is beside both."""

    def __init__(self, folder, root, twin=None):
        folder.mkdir(exist_ok=True)
        self._folder, self._root, self._twin = folder, root, twin or root
        (folder / "site").mkdir(exist_ok=True)
        (folder / "site" / "sitecustomize.py").write_text("from tests.helpers import reads\nreads.watch()\n")

    @property
    def environment(self):
        """Of processes whose reads count."""
        held = [str(self._folder / "site"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        return {NAME: str(self._folder), "PYTHONPATH": os.pathsep.join(filter(None, held))}

    @contextmanager
    def fault(self, files, what="", at=0):
        """While entered, this happens at the read of that number, from 1, of these files; then all is as before."""
        plan = {"files": [*map(str, files)], "what": what, "at": at, "root": str(self._root), "twin": str(self._twin)}
        for name in ("count", "happened"):
            (self._folder / name).unlink(missing_ok=True)
        (self._folder / "new").write_text(json.dumps(plan))
        os.replace(self._folder / "new", self._folder / "plan")
        try:
            yield
        finally:
            if (held := self._folder / "held").exists():
                os.replace(held, self.happened)  # the true file, with its times
            (self._folder / "plan").unlink()

    @property
    def happened(self):
        """The file that was read when it happened."""
        found = self._folder / "happened"
        return found.read_text() if found.exists() else None

    @property
    def count(self):
        """Reads since `fault` was entered."""
        found = self._folder / "count"
        return int(found.read_text() or 0) if found.exists() else 0


@dataclass
class Events:
    """What happens in this process right before reads of chunks below a folder: actions by numbers of reads, from 1."""

    folder: Path
    actions: dict[int, Callable[[], object]] = field(default_factory=dict)
    count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def watched(self):
        """While entered, reads are counted."""
        watch()
        _events.append(self)
        try:
            yield self
        finally:
            _events.remove(self)

    def read(self, name):
        if name.startswith(f"{self.folder}{os.sep}") and "/c/" in name:
            with self.lock:
                self.count += 1
                action = self.actions.pop(self.count, None)
            if action:
                action()


_events: list[Events] = []
_busy = threading.local()  # while a thread reads the plan


@cache
def watch():
    """Let this process take part, for as long as it runs; what happens depends on the environment at each read."""
    sys.addaudithook(_hook)


def _hook(event, arguments):
    folder = os.environ.get(NAME)
    if event != "open" or (folder is None and not _events) or getattr(_busy, "now", False):
        return
    path, _, flags = arguments
    if isinstance(path, int) or path is None or (isinstance(flags, int) and flags & _WRITES):
        return
    name = os.path.abspath(os.fsdecode(path))
    _busy.now = True
    try:
        for each in _events:
            each.read(name)
        if folder and name.startswith(os.path.dirname(folder) + os.sep):
            _read(Path(folder), name)
    finally:
        _busy.now = False


def _read(folder, name):
    """A file is about to be opened: let happen what is to happen."""
    try:
        plan = json.loads((folder / "plan").read_text())
    except FileNotFoundError:
        return
    if name not in plan["files"] or not _happens(folder, name, plan):
        return
    what = plan["what"]
    if what in ONCE or what == "EIO always":
        code = ONCE.get(what, errno.EIO)
        raise OSError(code, os.strerror(code), name)
    if what == "ENOENT always":
        os.replace(name, folder / "held")
    else:
        _show_another(folder, name, plan)


def _happens(folder, name, plan):
    """Whether it happens at this read, which is counted in all processes."""
    with (folder / "count").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or 0) + 1
        file.truncate(0)
        file.write(str(number))
        if number == plan["at"]:
            (folder / "new").write_text(name)
            os.replace(folder / "new", folder / "happened")
            return True
        return plan["what"] == "EIO always" and number > plan["at"] > 0 and (folder / "happened").read_text() == name


def _show_another(folder, name, plan):
    """Another file in place of this one, at once; the true one is held."""
    true, status = Path(name).read_bytes(), os.stat(name)
    other = Path(plan["twin"] + name.removeprefix(plan["root"]))
    if plan["what"] == "truncated":
        content = true[: len(true) * 2 // 3]
    else:
        content = b"" if plan["what"] == "zero length" else other.read_bytes()
    (folder / "shown").write_bytes(content)
    os.utime(folder / "shown", ns=(status.st_atime_ns, status.st_mtime_ns + _LATER))
    os.link(name, folder / "held")
    os.replace(folder / "shown", name)
