"""Check what files record about outputs, models and their rows: they may come from anyone, or be damaged.

A record is JSON. The types of its entries are defined here, once. A path in a record is text to show and to compare;
only `report` opens one, to read rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from bigkpca.errors import CorruptionError

Check = Callable[[Any], bool]


def is_text(value: Any) -> bool:
    """Whether it is text that can be a path; no path contains a zero byte."""
    return isinstance(value, str) and "\0" not in value


def is_str(value: Any) -> bool:
    """Whether it is any text."""
    return isinstance(value, str)


def is_count(value: Any) -> bool:
    """Whether it is a positive whole number that is possible as a size of an array."""
    return type(value) is int and 0 < value < 2**62


def is_name(value: Any) -> bool:
    """Whether it can be the name of an array: others could lead out of a folder."""
    return isinstance(value, str) and value.isidentifier()


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(is_count(length) for length in value)


def _are_blocks(value: Any) -> bool:
    """Whether it lists names, starts and stops of columns, one after the other."""
    at = 0
    for each in value if isinstance(value, list) else [None]:
        match each:
            case [str(), int(start), int(stop)] if at <= start < stop:
                at = stop
            case _:
                return False
    return True


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def listed(check: Check) -> Check:
    """A check for lists in which each entry passes `check`."""
    return lambda value: isinstance(value, list) and all(check(each) for each in value)


def _record(checks: Mapping[str, Check]) -> Check:
    """A check for records in which each entry passes its own check."""
    return lambda value: isinstance(value, dict) and not wrong(value, checks)


is_rows = _record(  # a fingerprint
    {
        "path": _optional(is_text),
        "shape": _is_shape,
        "dtype": lambda value: isinstance(value, str) and re.fullmatch(r"[<>|=][buif]\d{1,2}", value) is not None,
        "stamp": _optional(is_text),
    }
)
# The entries of manifests: of scores and reconstructed rows, of an output to which rows can be added, and of a dataset.
OUTPUT: dict[str, Check] = {"model": is_text, "input": is_rows, "block_rows": is_count, "rows": is_count}
GROWING: dict[str, Check] = {"rows": is_count, "arrays": listed(is_name)}
DATASET: dict[str, Check] = {
    "rows": is_count,
    "columns": is_count,
    "arrays": listed(is_str),
    "row_shape": listed(is_count),
}
# What a dataset made from a table records about its columns.
_COLUMN: dict[str, Check] = {
    "name": is_str,
    "kind": lambda value: value in ("number", "boolean", "date", "category", "characters"),
    "arrow": is_str,
    "categories": listed(is_str),
    "length": is_count,
    "fills": listed(lambda value: type(value) in (int, float)),
    "missing": lambda value: type(value) is int,
}
ENCODING: dict[str, Check] = {
    "dtype": lambda value: (
        isinstance(value, str) and re.fullmatch(r"bool|u?int(8|16|32|64)|float(16|32|64)", value) is not None
    ),
    "columns": listed(lambda value: _record(_COLUMN)(value) and value.keys() == _COLUMN.keys()),
}
# What a model records about its fit: at least, and at most.
FITTED: dict[str, Check] = {
    "identity": is_rows,
    "spec": lambda value: isinstance(value, dict) and _optional(is_count)(value.get("block_rows")),
    "choices": listed(_record({"option": is_str, "reason": is_str})),
}
PROVENANCE: dict[str, Check] = {
    **FITTED,
    "column_names": listed(is_str),
    "one_hot": _are_blocks,
    "like": is_text,
    "devices": listed(is_str),
    "bigkpca": is_text,
    "added": listed(lambda value: isinstance(value, dict) and _is_shape(value.get("shape"))),
}


def wrong(record: Mapping[str, Any], checks: Mapping[str, Check], *, partial: bool = False) -> str | None:
    """The first entry of a record that is missing or of another type, in words; with `partial`, none is required."""
    for key, fits in checks.items():
        if key not in record and not partial:
            return f"{key} is missing"
        if key in record and not fits(record[key]):
            return f"{key} is {record[key]!r:.80}"
    return None


def check(record: Any, checks: Mapping[str, Check], where: str, advice: str = "make it again") -> None:
    """Raise CorruptionError, naming the entry, unless a record has all entries with the right types."""
    found = wrong(record, checks) if isinstance(record, dict) else f"it is {record!r:.80}"
    if found is not None:
        raise CorruptionError(f"{where} is not a valid record: {found}; {advice}")
