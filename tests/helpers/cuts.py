"""A run that is cut off before one of its steps, as by a kill: from then on it changes nothing, whatever it tries."""

import os
import sys
from contextlib import contextmanager, suppress
from functools import cache

from bigkpca.data.stores import clients

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink")
_watched = []  # the Steps of the run that is at work


class Cut(BaseException):
    """This run was killed."""


class Steps:
    """Steps of a run: what changes a local disk, of which Python tells before it does it, and requests to an object
    store, each of which asks for its library before it is sent."""

    def __init__(self, monkeypatch):
        library = clients._library
        monkeypatch.setattr(clients, "_library", lambda: (_step(), library())[1])
        _listen()
        self.count = 0

    @contextmanager
    def cut(self, most):
        """Let so many steps pass, and none after."""
        self._most, self.count = most, 0
        _watched.append(self)
        try:
            with suppress(Cut):
                yield
        finally:
            _watched.clear()

    def step(self):
        self.count += 1
        if self.count > self._most:
            raise Cut


def _step():
    if _watched:
        _watched[0].step()


@cache
def _listen():
    def hook(event, arguments):
        opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES
        if _watched and (event in CHANGES or opened):
            _step()

    sys.addaudithook(hook)  # which no Python takes off again
