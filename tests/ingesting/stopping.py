"""Ingests that stop at one moment or another."""

import zarr

from bigkpca.data.stores import LocalDisk
from bigkpca.ingesting import streaming as ingest_module


class Stop(BaseException):
    """As Ctrl-C, at a moment of the test's choice."""


def stop_at(monkeypatch, module, name, call=1):
    real, calls = getattr(module, name), []

    def stopping(*args, **kwargs):
        calls.append(args)
        if len(calls) == call:
            raise Stop
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, stopping)


MOMENTS = [
    (ingest_module, "_codes", 1),
    (LocalDisk, "sync", 1),
    (zarr.core.attributes.Attributes, "__setitem__", 1),
]
