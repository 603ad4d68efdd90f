"""Errors that may pass are tried again, for a while; others are not."""

import errno
import logging
from types import SimpleNamespace

import pytest

from bigkpca.data import json_files, retrying
from bigkpca.data.retrying import UnreachableError, error_of, retried, retrying_for
from bigkpca.errors import CorruptionError, IncompleteError, SpecError

MISSING = FileNotFoundError(errno.ENOENT, "No such file or directory", "a/chunk")
PASSING = [
    MISSING,
    NotADirectoryError(errno.ENOTDIR, "Not a directory", "a/chunk"),
    OSError(errno.EIO, "Input/output error", "a/chunk"),
    OSError(errno.ESTALE, "Stale file handle", "a/chunk"),
    TimeoutError(errno.ETIMEDOUT, "Connection timed out"),
    OSError(errno.EMFILE, "Too many open files"),
    ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
    UnreachableError("s3://b/x: the server does not answer, even after retries: run the same command again"),
]


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """The pauses between tries, which take no time here: the clock moves by them alone."""
    found = []
    monkeypatch.setattr(retrying, "time", SimpleNamespace(sleep=found.append, monotonic=lambda: sum(found)))
    monkeypatch.setattr(retrying, "_noted", {})
    return found


def failing(errors):
    """An action that raises these errors, one at each try, and then succeeds."""

    def act():
        if errors:
            raise errors.pop(0)
        return "done"

    return act


def test_what_may_pass_is_tried_again(pauses):
    for number, error in enumerate(PASSING, 1):
        assert retried(failing([error, error]), "x.zarr") == "done", error
        assert pauses == pytest.approx([0.1, 0.2] * number), error


def test_other_errors_are_raised_at_once(pauses):
    for error in (PermissionError(errno.EACCES, "no"), OSError(errno.ENOSPC, "full"), ValueError("no")):
        with pytest.raises(type(error)):
            retried(failing([error]), "x.zarr")
    with pytest.raises(FileNotFoundError):  # where no error is given for missing files
        retried(failing([MISSING]), "x.zarr", None)
    assert pauses == []


def test_errors_that_last_are_told_with_the_file(pauses):
    for seconds, error, kind, message in (
        (60, MISSING, CorruptionError, "x.zarr: a/chunk is missing, and did not reappear within 60 seconds; restore"),
        (10, PASSING[2], IncompleteError, "x.zarr: a/chunk: Input/output error, still after 10 seconds; run"),
        (10, PASSING[-1], UnreachableError, "does not answer"),
    ):
        del pauses[:]
        with retrying_for(seconds), pytest.raises(kind, match=message) as raised:
            retried(failing([error] * 1000), "x.zarr", CorruptionError)
        assert raised.value.__cause__ is not raised.value  # which could not be pickled
        assert seconds - 10 <= sum(pauses) <= seconds
        assert max(pauses) <= 5.0


def test_it_is_noted_once(caplog):
    with caplog.at_level(logging.WARNING, "bigkpca"):
        retried(failing([MISSING] * 4), "x.zarr")
        retried(failing([MISSING] * 4), "x.zarr")
        retried(failing([PASSING[-1]]), "s3://b/x.zarr")
    assert caplog.messages == [
        "x.zarr: a/chunk: No such file or directory; trying again",
        "s3://b/x.zarr: s3://b/x: the server does not answer, even after retries; trying again",
    ]


def test_a_small_file_that_its_folder_lists_is_there(tmp_path, monkeypatch):
    assert json_files.read_if_there(f"{tmp_path}/manifest.json") is None
    assert json_files.read_if_there(f"{tmp_path}/nowhere/manifest.json") is None
    (tmp_path / "manifest.json").write_bytes(b"{}")
    read, errors = json_files.read_small, [MISSING]

    def once_invisible(path):
        if errors:
            raise errors.pop()
        return read(path)

    monkeypatch.setattr(json_files, "read_small", once_invisible)
    assert json_files.read_if_there(f"{tmp_path}/manifest.json") == b"{}"


def test_what_errors_of_the_system_mean():
    for number, kind, message in (
        (errno.ENOSPC, IncompleteError, "the disk is full while writing out"),
        (errno.EDQUOT, IncompleteError, "the disk is full while writing out"),
        (errno.EROFS, SpecError, "a/chunk: no: this user needs permission to write out"),
        (errno.ESTALE, IncompleteError, "a/chunk: no: run the same command again when it is reachable"),
        (errno.ENOENT, IncompleteError, "a/chunk: no: run the same command again when it is reachable"),
    ):
        found = error_of(OSError(number, "no", "a/chunk"), "out")
        assert isinstance(found, kind), number
        assert message in str(found)
    assert error_of(OSError(errno.EXDEV, "no"), "out") is None
