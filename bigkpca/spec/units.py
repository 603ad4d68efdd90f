"""Amounts of memory and time, scheduler addresses, and defaults shared by functions, commands and job files."""

from __future__ import annotations

import re

from bigkpca.errors import SpecError

TIMEOUT = 600.0  # seconds without a finished block after which a run stops
TIMEOUT_WRITTEN = f"{TIMEOUT / 60:g} min"
SEEDS = 3  # per method and size in a comparison
SAMPLED_ROWS = 2000  # with exact kernels in an evaluation: errors are known to about 3 % of themselves


def check_scheduler(address: str) -> None:
    """Raise SpecError unless this looks like the address of a scheduler."""
    scheme, _, host = address.rpartition("://")
    name, _, port = host.rpartition(":")
    known = scheme in ("", "tcp", "tls", "ws", "wss") and name and "/" not in name and port.isdecimal()
    if not (known or scheme == "inproc"):
        raise SpecError(f"{address!r} is not the address of a Dask scheduler, such as tcp://10.0.0.1:8786")


def parse_bytes(text: str | int) -> int:
    """Bytes in "2 GB" (decimal) or "2 GiB" (binary). Raises SpecError for anything else, also for text without a
    unit."""
    import dask.utils

    try:
        if isinstance(text, str) and not re.search("[0-9].*[A-Za-z]", text):  # Dask takes numbers and units alone
            raise ValueError(text)
        found = int(dask.utils.parse_bytes(text))
    except (ValueError, OverflowError) as error:
        raise SpecError(f"{text!r} is not an amount of memory with its unit, such as '2 GB' or '500 MB'") from error
    if found <= 0:
        raise SpecError(f"{text!r}: an amount of memory must be positive")
    return found


def parse_seconds(text: str | float) -> float:
    """Seconds in "10 min", "1.5 h" or 90. Raises SpecError for anything else."""
    import dask.utils

    try:
        if isinstance(text, str) and not re.search("[0-9]", text):  # Dask reads a unit alone as 1 of that unit
            raise ValueError(text)
        written = re.sub(r"mins?$", "minutes", text.strip()) if isinstance(text, str) else text
        seconds = float(dask.utils.parse_timedelta(written))
    except (KeyError, ValueError, OverflowError) as error:
        raise SpecError(f"{text!r} is not a time such as '90 s' or '10 min'") from error
    if not seconds > 0:
        raise SpecError(f"{text!r}: a time must be positive")
    return seconds
