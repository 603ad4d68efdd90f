"""Read amounts of memory and time."""

from __future__ import annotations

import re

from dask.utils import parse_bytes as _parse_bytes
from dask.utils import parse_timedelta

from bigkpca.errors import SpecError


def parse_bytes(text: str | int) -> int:
    """Bytes in "2 GB" (decimal) or "2 GiB" (binary). Raises SpecError for anything else."""
    try:
        found = int(_parse_bytes(_with_digit(text)))
    except (ValueError, OverflowError) as error:
        raise SpecError(f"{text!r} is not an amount of memory such as '2 GB' or '500 MB'") from error
    if found <= 0:
        raise SpecError(f"{text!r}: an amount of memory must be positive")
    return found


def lacks_unit(text: str) -> bool:
    """Whether an amount of memory is a number alone, which nobody means to be bytes."""
    return text.strip().replace(".", "").isdecimal()


def parse_seconds(text: str | float) -> float:
    """Seconds in "10 min", "1.5 h" or 90. Raises SpecError for anything else."""
    try:
        given = _with_digit(text)
        seconds = float(
            parse_timedelta(re.sub(r"mins?$", "minutes", given.strip()) if isinstance(given, str) else given)
        )
    except (KeyError, ValueError, OverflowError) as error:
        raise SpecError(f"{text!r} is not a time such as '90 s' or '10 min'") from error
    if not seconds > 0:
        raise SpecError(f"{text!r}: a time must be positive")
    return seconds


def _with_digit(text: str | float) -> str | float:
    """What was given. Raises ValueError for a unit without a number, which Dask takes for one of it."""
    if isinstance(text, str) and not re.search("[0-9]", text):
        raise ValueError(text)
    return text
