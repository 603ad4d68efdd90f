"""Short representations of values: a few lines of text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from bigkpca.errors import Array

_SHORT = 6  # arrays with more entries are shown by dtype and shape
_ROUNDED = 1e-12  # of a share: the last digit of a float must not turn 50 % into 50.1 %
_DECIMALS = 7  # with more, powers of ten are shorter
_LONG = 1e15  # a float has no more digits
_LINES = 3  # components that are listed


def brief(value: Any) -> str:
    """A dataclass in one line, for its __repr__; long arrays by dtype and shape."""
    shown = []
    for part in fields(value):
        held = getattr(value, part.name)
        long = isinstance(held, np.ndarray) and held.size > _SHORT
        if part.repr:
            shown.append(f"{part.name}=<{held.dtype} {held.shape}>" if long else f"{part.name}={held!r}")
    return f"{type(value).__name__}({', '.join(shown)})"


def number(value: float) -> str:
    """A number with five significant digits."""
    return f"{value:.5g}"


def at_most(value: float, digits: int = 5) -> float:
    """The value rounded up to this many significant digits, so that a proven upper bound stays true in print."""
    found = float(f"{value:.{digits}g}")
    if found >= value or not np.isfinite(value):
        return found
    unit = 10.0 ** (math.floor(math.log10(abs(found))) + 1 - digits)
    return float(f"{found + unit:.{digits}g}")


def at_least(value: float, digits: int = 5) -> float:
    """The value rounded down to this many significant digits."""
    return -at_most(-value, digits)


def plus_minus(value: float | None, error: float | None) -> str:
    """A value and its standard error, of which two digits are shown; five digits of the value without an error, and
    nothing for a value that is not known: None or NaN."""
    if value is None or error is None or np.isnan(value):
        return ""
    if not (np.isfinite(value) and 0 < error < np.inf):
        return number(value)
    decimals = max(0, 1 - int(np.floor(np.log10(error))))
    if decimals >= _DECIMALS or abs(value) >= _LONG:
        return f"{value:.6g} ± {error:.1e}"
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def share_at_least(share: float, digits: int = 2) -> str:
    """A share in percent, rounded down in its last digit."""
    units = 10 ** (digits + 2)
    return f"{math.floor(share * units * (1 + _ROUNDED)) / units:.{digits}%}"


def share_at_most(share: float, digits: int = 2) -> str:
    """A share in percent, rounded up in its last digit."""
    units = 10 ** (digits + 2)
    return f"{math.ceil(share * units * (1 - _ROUNDED)) / units:.{digits}%}"


def counted(words: Sequence[str]) -> str:
    """The number of occurrences of each word, e.g. "10 solid, 2 fair"."""
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))


@dataclass(frozen=True)
class Summary:
    """A title, facts by name, and columns of numbers or words, one entry for each component."""

    title: str
    facts: Mapping[str, str]
    columns: Mapping[str, Array | Sequence[Any] | None] = field(default_factory=dict)

    def text(self) -> str:
        """A few lines of text, with the leading components."""
        width = max(map(len, self.facts))
        lines = [self.title, *(f"  {name:<{width}}  {fact}" for name, fact in self.facts.items())]
        known = {name: values for name, values in self.columns.items() if values is not None}
        count = max(map(len, known.values()), default=0)
        table = [["component", *known]]
        table += [[str(j + 1), *(_cell(values[j]) for values in known.values())] for j in range(min(count, _LINES))]
        if count:
            widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            lines += ["  " + "  ".join(f"{cell:>{w}}" for cell, w in zip(row, widths, strict=True)) for row in table]
        if count > _LINES:
            lines.append(f"  ... {count - _LINES} more")
        return "\n".join(lines)


def _cell(value: Any) -> str:
    """Text as it is, a number with five digits, and nothing for a number that is not known."""
    if isinstance(value, str):
        return value
    return "" if value is None or np.isnan(value) else number(value)


class ShowsSummary:
    """Mixin for dataclasses (with repr=False) whose representation is their summary."""

    def summary(self) -> Summary:
        """The summary to show."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.summary().text()
