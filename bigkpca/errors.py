"""Every exception of the package, and the checks that more than one module needs.

An error says what is wrong, where, and what to do. Its class fixes the exit code of the command line:

    BigKPCAError
    ├── SpecError            2   a path, an option, a name or a shape that does not fit
    ├── DataError            3   values that no kernel PCA can use; RoundingError, sums that no data have
    ├── MemoryLimitError     4   does not fit the memory that was allowed
    ├── LockedError          5   another run works on the same output
    ├── IncompleteError      6   interrupted; the same command goes on where it stopped
    └── CorruptionError      7   stored bytes that do not decode, or are gone
"""

from __future__ import annotations

import difflib
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class BigKPCAError(Exception):
    """Root of every error raised on purpose."""

    exit_code = 1


class SpecError(BigKPCAError, ValueError):
    """What was asked for does not exist, does not fit together, or is in the way."""

    exit_code = 2


class DataError(BigKPCAError, ValueError):
    """The data hold values that cannot be used: NaN, infinity, text, nothing at all, or one point only."""

    exit_code = 3


class RoundingError(DataError):
    """Sums that no data have: rounding, or a kernel that is not what it claims to be."""


class MemoryLimitError(BigKPCAError):
    """The plan needs more memory than was allowed."""

    exit_code = 4


class LockedError(BigKPCAError):
    """Another run holds the lock of this output."""

    exit_code = 5


class IncompleteError(BigKPCAError):
    """Work that stopped half-way; running the same command again finishes it."""

    exit_code = 6


class CorruptionError(BigKPCAError):
    """Stored bytes that do not decode, or that should be there and are not."""

    exit_code = 7


class IndefiniteKernelWarning(UserWarning):
    """The kernel is not positive semidefinite on these rows; its negative part was dropped."""


class NarrowKernelWarning(UserWarning):
    """The length of the kernel is so small that the Gram matrix is close to the identity."""


class RoundingWarning(UserWarning):
    """Rounding moves leading eigenvalues by more than a few hundredths."""


class UnseenClusterWarning(UserWarning):
    """Rows that are similar to each other and to no landmark would make a component of their own."""


class UniformLandmarksWarning(UserWarning):
    """Formulas for landmarks drawn uniformly were used for others."""


class UnlikeWorkersWarning(UserWarning):
    """Workers of a cluster whose processors round differently: repeated runs may differ in last digits."""


class ToleranceWarning(UserWarning):
    """Memory or time ended the growth of a model before it met its tolerance."""


def unknown_name(what: str, name: str, known: Collection[str]) -> SpecError:
    """The error for a name that is not known, with the nearest one that is."""
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return SpecError(f"unknown {what} {name!r}: {hint}known are {', '.join(sorted(known))}")


def names_apart(names: Sequence[str], expected: Sequence[str], whose: str) -> str | None:
    """In words, how names of columns differ from those expected, which are those of `whose`; None where they do not."""
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


def _listed(names: Sequence[str], most: int = 5) -> str:
    further = f" and {len(names) - most} more" if len(names) > most else ""
    return ("the column " if len(names) == 1 else "the columns ") + ", ".join(map(repr, names[:most])) + further


def column_called(number: int, names: Sequence[str] | None) -> str:
    """What messages call a column: its number, counted from 0, with its name where it has one."""
    return f"column {number}" + ("" if names is None else f" ({names[number]!r})")


def check_numeric(dtype: np.dtype[Any], where: str) -> None:
    """Raise DataError unless rows of this dtype are real numbers."""
    if dtype.kind not in "buif":
        raise DataError(
            f"{where} holds {dtype} values: rows must be real numbers (integer, float or bool); "
            "encode text and categories as numbers first"
        )


def check_overflow(values: Array, where: str) -> None:
    """Raise DataError where finite rows gave kernel values that the dtype of block work cannot hold."""
    if not np.isfinite(values).all():
        raise DataError(
            f"{where}: kernel values overflow: some row is far larger than the rest; remove it, scale the columns, or "
            "fit with dtype float64"
        )


def check_finite(
    X: Array, first_row: int, where: str, first_column: int = 0, names: Sequence[str] | None = None
) -> None:
    """Raise DataError naming the first NaN or infinity of X, whose first entry stands at (first_row, first_column).
    names are those of all columns.

    The sum of a block is finite unless one of its values is not, or it overflows; so the slow search
    runs only where there is something to find.
    """
    if X.dtype.kind != "f" or X.size == 0:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an overflow here only starts the search
        if np.isfinite(X.sum()):
            return
    bad = np.argwhere(~np.isfinite(X))
    if len(bad):
        row, column = bad[0]
        value = "NaN" if np.isnan(X[row, column]) else "infinity"
        raise DataError(
            f"{where}: row {first_row + row}, {column_called(first_column + column, names)} is {value} (both counted "
            "from 0); remove or impute such rows first"
        )
