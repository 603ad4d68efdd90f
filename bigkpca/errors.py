"""Exceptions and warnings of the package, and checks shared by several modules.

A message states what is wrong, where, and what to do. The class of an error determines the exit code of the command
line, `exit_code`.
"""

from __future__ import annotations

import difflib
import errno
import sys
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # NumPy takes most of the time of `bigkpca --help`
    import numpy as np

    Array = np.ndarray[Any, Any]
else:
    Array = Any


class BigKPCAError(Exception):
    """Base class of all errors that the package raises deliberately.

    Attributes
    ----------
    exit_code : int
        Exit code of the command line.
    """

    exit_code = 1


class SpecError(BigKPCAError, ValueError):
    """An option, path, name or shape does not exist, conflicts with others, or is already in use (exit code 2)."""

    exit_code = 2


class DataError(BigKPCAError, ValueError):
    """The data are unusable for kernel PCA: NaN, infinity, text, no rows, only equal rows, or sums that no data can
    have, due to rounding or a kernel that is not positive semidefinite (exit code 3)."""

    exit_code = 3


class DriftError(DataError):
    """New rows are unlike those that the model was fitted on, and the job treats this as a failure (exit code 3)."""


class MemoryLimitError(BigKPCAError):
    """The planned work needs more memory than the limit, or the memory of a device is full (exit code 4)."""

    exit_code = 4


class LockedError(BigKPCAError):
    """Another run holds the lock on this output (exit code 5)."""

    exit_code = 5


class IncompleteError(BigKPCAError):
    """Work was interrupted; rerunning the same command completes it (exit code 6)."""

    exit_code = 6


class ChangedError(IncompleteError):
    """Stored rows changed while they were read (exit code 6)."""


class CorruptionError(BigKPCAError):
    """Stored bytes are missing, do not decode, or differ from what was written (exit code 7)."""

    exit_code = 7


class IndefiniteKernelWarning(UserWarning):
    """The kernel is not positive semidefinite on these rows; components with negative eigenvalues were dropped."""


class NarrowKernelWarning(UserWarning):
    """The kernel length is so small that the Gram matrix is close to the identity."""


class RoundingWarning(UserWarning):
    """Rounding changes leading eigenvalues by more than a few hundredths of their value."""


class FarRowsWarning(UserWarning):
    """Rows that are added to a model are far from all its landmarks, so that components of them are missing."""


class UniformLandmarksWarning(UserWarning):
    """Formulas for uniformly drawn landmarks were used with other landmarks."""


class UnlikeWorkersWarning(UserWarning):
    """Workers of a cluster have processors that round differently: repeated runs can differ in the last digits."""


class DominantVariableWarning(UserWarning):
    """One column makes nearly all of the distances between rows, so that the components show little else."""


class FlaggedShareWarning(UserWarning):
    """More rows are flagged than chance explains, so some are unlike those of the fit."""


class RepeatedRowsWarning(UserWarning):
    """A frame that equals the rows appended last was not appended again."""


class ToleranceWarning(UserWarning):
    """No size that memory allows meets the tolerance of a fit."""


class FillValuesWarning(UserWarning):
    """Some chunks of a Zarr array are not stored, so their values are its fill value."""


class FewerComponentsWarning(UserWarning):
    """The model has fewer components than requested, because the rows or features have no more."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of user code that called this package, directly or through scikit-learn."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("bigkpca", "sklearn"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def require(library: str, extra: str, what: str) -> None:
    """Raise SpecError, with the command that installs the extra, if the library that `what` needs is missing."""
    try:
        import_module(library)
    except ImportError as error:
        raise SpecError(f"{what} needs {library}: pip install 'bigkpca[{extra}]'") from error


_MAY_PASS = {
    getattr(errno, name)
    for name in (
        *("ENOENT", "ENOTDIR", "EIO", "ESTALE", "ETIMEDOUT", "EMFILE", "ENFILE", "EAGAIN", "EINTR", "EREMOTEIO"),
        *("ENOTCONN", "EHOSTDOWN", "ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "EHOSTUNREACH", "ENETDOWN"),
        *("ENETUNREACH", "ENODEV", "ENXIO"),
    )
    if hasattr(errno, name)
}


def meaning_of(error: OSError, path: str) -> BigKPCAError | None:
    """What an error of the system means for a user who is writing the output at `path`; None if that is not known."""
    place = error.filename or path
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return IncompleteError(f"the disk is full while writing {path}: make room and run the same command again")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return SpecError(
            f"{place}: {error.strerror}: this user needs permission to write {path} and to read its inputs"
        )
    if error.errno in _MAY_PASS:
        return IncompleteError(f"{place}: {error.strerror}: run the same command again when it is reachable")
    return None


def unreadable(error: OSError, where: str) -> BigKPCAError:
    """What an error of the system means for a user who reads the data at `where`."""
    file, said = error.filename or "a file", error.strerror or error
    if isinstance(error, FileNotFoundError):
        return CorruptionError(f"{where}: {file} is missing; restore it or make the data again")
    if isinstance(error, PermissionError):
        return SpecError(f"{where}: {file}: {said}: this user needs permission to read it")
    if error.errno in _MAY_PASS:
        return IncompleteError(f"{where}: {file}: {said}; run the same command again when it is reachable")
    return CorruptionError(f"{where}: {file}: {said}; restore it or make the data again")


def changed(where: str) -> ChangedError:
    """The error for stored rows that are no longer those that were opened."""
    return ChangedError(f"{where} changed while it was being read: run again when nothing writes to it")


def unknown_name(what: str, name: str, known: Collection[str]) -> SpecError:
    """A SpecError for an unknown name of some kind (`what`), which suggests the nearest known name."""
    near = nearest(name, known)
    hint = f"did you mean {near!r}? " if near else ""
    return SpecError(f"unknown {what} {name!r}: {hint}known are {', '.join(sorted(known))}")


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name most similar to an unknown one; None if no name is similar."""
    found = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return found[0] if found else None


def names_apart(names: Sequence[str], expected: Sequence[str], whose: str) -> str | None:
    """How column names differ from the expected ones, which belong to `whose`, as a phrase that starts with a verb;
    None if both are the same, in the same order."""
    lost, more = Counter(expected) - Counter(names), Counter(names) - Counter(expected)
    if lost or more:
        lacks = [f"lacks {_listed(list(lost))} of {whose}"] if lost else []
        return " and ".join([*lacks, *([f"has {_listed(list(more))}, unlike {whose}"] if more else [])])
    at = next((j for j, (one, other) in enumerate(zip(names, expected, strict=True)) if one != other), None)
    if at is None:
        return None
    return (
        f"has its columns in another order than {whose}: column {at} (counted from 0) is {names[at]!r}, "
        f"not {expected[at]!r}"
    )


def _listed(names: Sequence[str]) -> str:
    """ "the columns 'a', 'b' ...": at most five names, then a count."""
    further = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ("the column " if len(names) == 1 else "the columns ") + ", ".join(map(repr, names[:5])) + further


def column_called(number: int, names: Sequence[str] | None) -> str:
    """The number of a column, counted from 0, with its name if it has one, for messages."""
    return f"column {number}" + ("" if names is None else f" ({names[number]!r})")


def check_numeric(dtype: np.dtype[Any], where: str) -> None:
    """Raise DataError unless rows of this dtype are real numbers (integer, float or bool)."""
    if dtype.kind not in "buif":
        raise DataError(
            f"{where} holds {dtype} values: rows must be real numbers (integer, float or bool); "
            "encode text and categories as numbers first"
        )


def check_overflow(values: Array, where: str) -> None:
    """Raise DataError if kernel values (of finite rows) exceed the range of their dtype."""
    import numpy as np

    if not np.isfinite(values).all():
        raise DataError(
            f"{where}: kernel values overflow: some row is far larger than the rest, or some weight of a column; "
            "remove it, scale the columns, or fit with dtype float64"
        )


def check_finite(X: Array, first_row: int, where: str, names: Sequence[str] | None = None) -> None:
    """Raise DataError naming the first NaN or infinity in X (b, d), a part of the data `where` that starts at this
    row; `names` are the names of all columns."""
    import numpy as np

    if X.dtype.kind != "f" or X.size == 0:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        if np.isfinite(X.sum()):  # not if a value is not finite, or if the sum overflows: then the slow search runs
            return
    bad = np.argwhere(~np.isfinite(X))
    if len(bad):
        row, column = bad[0]
        value, advice = "NaN" if np.isnan(X[row, column]) else "infinity", "remove or impute such rows first"
        raise DataError(
            f"{where}: row {first_row + row}, {column_called(column, names)} is {value} (both counted from 0); {advice}"
        )
