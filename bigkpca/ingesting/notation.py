"""How texts write numbers and dates: separators, signs, date formats and missing values; and the options that would
read given texts."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from bigkpca.errors import Array, SpecError

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "#NA", "NULL", "null", "None", "NaN", "nan", "-NaN", "-nan")
"""Texts that mean a missing value, as in pandas and Arrow: in text files unless quoted, and wherever numbers, dates and
the like are stored as text."""


@dataclass(frozen=True)
class Notation:
    """The way in which texts write values.

    decimal, thousands: separators of numbers. na_values: further texts, and numbers, that mean a missing value.
    date_format: of dates, as for `datetime.strptime`; ISO 8601 if empty. signs: whether numbers can have a currency
    symbol, which is ignored, or a percent sign, which divides by 100.
    """

    decimal: str = "."
    thousands: str = ""
    na_values: tuple[str, ...] = ()
    date_format: str = ""
    signs: bool = False

    def __post_init__(self) -> None:
        for name, mark in (("decimal", self.decimal), ("thousands", self.thousands or "_")):
            if len(mark) != 1 or mark.isalnum() or mark in "+-":
                raise SpecError(f"{name}={mark!r}: must be one character, such as a comma or a point")
        if self.decimal == self.thousands:
            raise SpecError(f"decimal and thousands are both {self.decimal!r}: they must differ")
        if self.date_format:
            _check_format(self.date_format)

    @property
    def numbers(self) -> Array:
        """The numbers among `na_values`, as Python or this notation writes them."""
        found = []
        for text in self.na_values:
            for written in (text, text.replace(self.thousands, "").replace(self.decimal, ".")):
                with suppress(ValueError):
                    found.append(float(written))
                    break
        return np.array(found)

    @property
    def missing(self) -> tuple[str, ...]:
        """All texts that mean a missing value."""
        return MISSING + self.na_values

    @property
    def plain(self) -> bool:
        """Whether Arrow reads the numbers as they are."""
        return self.decimal == "." and not self.thousands and not self.signs

    def to_json(self) -> dict[str, Any]:
        """The entries that differ from the defaults."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) != each.default}
        return {**own, "na_values": list(self.na_values)} if self.na_values else own

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Notation:
        return cls(**{**values, "na_values": tuple(values.get("na_values", ()))})


ISO = Notation()
_MOMENT = datetime(2013, 5, 17, 16, 8, 9, tzinfo=UTC)


def _read(text: str, date_format: str) -> datetime:
    """The date in a text. Raises ValueError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.13.0 takes %y for a format without a year
        return datetime.strptime(text, date_format)


def _check_format(given: str) -> None:
    """Raise SpecError unless a format writes and reads the year of a date."""
    try:
        year = _read(_MOMENT.strftime(given), given).year
    except ValueError as error:
        raise SpecError(f"date_format={given!r} cannot be read: {error}") from error
    if year != _MOMENT.year:
        raise SpecError(f"date_format={given!r} has no year: write it as in '%d/%m/%Y'")


def without_missing(texts: Any, notation: Notation) -> Any:
    """Texts without blanks at both ends; null where they mean a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(texts)
    known = pa.array(notation.missing, texts.type)
    return pc.if_else(pc.is_in(texts, known), pa.scalar(None, texts.type), texts)


def parsed_numbers(texts: Any, notation: Notation) -> Any:
    """Texts as float64, null where missing. Raises pyarrow.ArrowInvalid for any other text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if notation.plain:
        try:
            return texts.cast(pa.float64())
        except pa.ArrowInvalid:  # for blanks, words, and texts that mean missing values
            return without_missing(texts, notation).cast(pa.float64())
    texts = without_missing(texts, notation)
    if not pc.all(written_numbers(texts, notation)).as_py() and texts.null_count < len(texts):
        raise pa.ArrowInvalid("a text is not a number")
    bare = _without_signs(texts) if notation.signs else texts
    if notation.thousands:
        bare = pc.replace_substring(bare, notation.thousands, "")
    values = pc.replace_substring(bare, notation.decimal, ".").cast(pa.float64())
    return pc.if_else(pc.ends_with(texts, "%"), pc.divide(values, 100.0), values) if notation.signs else values


def plain_numbers(texts: Any, notation: Notation) -> Any:
    """Texts that are numbers in a notation with a decimal point and no thousands mark; others as they are."""
    import pyarrow.compute as pc

    if notation.plain:
        return texts
    bare = pc.replace_substring(texts, notation.thousands, "") if notation.thousands else texts
    bare = pc.replace_substring(bare, notation.decimal, ".")
    return pc.if_else(written_numbers(texts, replace(notation, signs=False)), bare, texts)


def spelled(texts: Any, notation: Notation) -> Any:
    """Texts as Arrow writes the numbers and truth values of typed columns: 1.5 for 1,5, 1 for 1.0, true for True.

    What different numbers or codes can be stays different: 01234, 1.10.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.replace_substring_regex(plain_numbers(texts, notation), r"^([+-]?[0-9]+)\.0$", r"\1")
    lowered = pc.utf8_lower(texts)
    return pc.if_else(pc.is_in(lowered, pa.array(["true", "false"])), lowered, texts)


def written_numbers(texts: Any, notation: Notation) -> Any:
    """Which texts of an Arrow array are numbers in a notation; null where the text is null. Groups of digits have three
    digits, or two except the last, as in India, and the first does not start with 0."""
    import pyarrow.compute as pc

    mark, point = re.escape(notation.thousands), re.escape(notation.decimal)
    whole = r"[0-9]+" + (rf"|[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{2,3}})*{mark}[0-9]{{3}}" if mark else "")
    pattern = rf"^[+-]?(?:(?:{whole})(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?$"
    return pc.match_substring_regex(_without_signs(texts) if notation.signs else texts, pattern)


def _without_signs(texts: Any) -> Any:
    """Texts without a currency symbol before or after the number, or a percent sign after it."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(
        pc.replace_substring_regex(texts, r"^([+-]?)\p{Sc}\s*", r"\1"), r"([0-9.,'])\s*[\p{Sc}%]$", r"\1"
    )


def parsed_dates(texts: Any, notation: Notation) -> Any:
    """Texts as timestamps in microseconds, in UTC if they have a time zone, null where missing. Raises
    pyarrow.ArrowInvalid."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = without_missing(texts, notation)
    if notation.date_format:
        coded = texts.dictionary_encode()
        moments = pa.array([_moment(each, notation.date_format) for each in coded.dictionary.to_pylist()], _timestamp())
        return moments.take(coded.indices)
    # Arrow reads these to microseconds, one by one, since some can have a time zone.
    texts = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
    in_zone = zoned(texts)
    none = pa.scalar(None, texts.type)
    in_utc = pc.if_else(in_zone, texts, none).cast(pa.timestamp("us", "UTC")).cast(_timestamp())
    return pc.coalesce(pc.if_else(in_zone, none, texts).cast(_timestamp()), in_utc)


def zoned(texts: Any) -> Any:
    """Which dates in ISO 8601 have a time zone."""
    import pyarrow.compute as pc

    return pc.match_substring_regex(texts, r":.*(Z|[+-]\d\d(:?\d\d)?)$")


def are_iso_dates(texts: Any) -> bool:
    """Whether all texts are dates in ISO 8601."""
    import pyarrow as pa

    try:
        parsed_dates(pa.array(texts, pa.string()), ISO)
    except pa.ArrowInvalid:
        return False
    return True


def _timestamp() -> Any:
    import pyarrow as pa

    return pa.timestamp("us")


def _moment(text: str, date_format: str) -> datetime:
    """The date in a text, in UTC, without a time zone. Raises pyarrow.ArrowInvalid."""
    import pyarrow as pa

    try:
        found = _read(text, date_format)
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error
    return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)


def written_dates(texts: Iterable[str], date_format: str, *, again: bool = False) -> list[bool]:
    """Which texts are dates of a format. again: the date must also format back to the same text, so that not every
    number of six digits is a date."""

    def fits(text: str) -> bool:
        try:
            found = _read(text, date_format)
        except ValueError:
            return False
        return not again or found.strftime(date_format) == text

    return [fits(text) for text in texts]


_NUMBERS = tuple(
    Notation(decimal, thousands, signs=signs)
    for decimal, thousands in ((".", ""), (",", ""), (".", ","), (",", "."), (".", " "), (",", " "), (".", "'"))
    for signs in (False, True)
)
_DAYS = (
    *(f"{day}{mark}{month}{mark}%Y" for mark in "/.-" for day, month in (("%d", "%m"), ("%m", "%d"))),
    *("%Y/%m/%d", "%Y.%m.%d", "%d/%m/%y", "%m/%d/%y", "%d-%b-%Y", "%d-%b-%y"),
    *("%d %b %Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y"),
)
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", "T%H:%M:%S")
_EXAMPLES, _FIRST = 50, 3  # texts that formats of dates are tried on, and those of which one must fit at once
_LONGEST = 60  # characters of a text that can be a number or a date
_NO_YES = (("no", "yes"), ("n", "y"), ("off", "on"), ("f", "t"), ("false", "true"))


def notations_of(texts: Sequence[str], own: Notation = ISO) -> list[Notation]:
    """The notations that read the most of these texts, if these are at least half of them: of all such, those that
    change the fewest entries of `own`, and then the simplest."""
    import pyarrow as pa
    import pyarrow.compute as pc

    short = [text for text in texts if len(text) <= _LONGEST]
    given = pa.array(short, pa.string())
    numbers = (*_NUMBERS, *(Notation(own.decimal, own.thousands, signs=signs) for signs in (False, True)))
    scores = {each: pc.sum(written_numbers(given, each)).as_py() or 0 for each in numbers}
    few = short[:_EXAMPLES]
    for day in _DAYS:
        if any(written_dates([text.partition(" ")[0] for text in few[:_FIRST]], day.partition(" ")[0])):
            for time in _TIMES:
                if any(written_dates(few[:_FIRST], day + time)):
                    fitting = sum(written_dates(few, day + time)) * len(short) // len(few)
                    scores[Notation(own.decimal, own.thousands, date_format=day + time)] = fitting
    most = max(scores.values())
    if 2 * most < len(texts) or not texts:
        return []
    here = {key: value for key, value in own.to_json().items() if key in ("decimal", "thousands", "date_format")}

    def changes(each: Notation) -> tuple[int, int]:
        there = each.to_json()
        return sum(there.get(key) != value for key, value in here.items()), len(there)

    best = [each for each, score in scores.items() if score == most]
    least = min(map(changes, best))
    return [each for each in best if changes(each) == least]


@dataclass(frozen=True)
class Remedy:
    """What reads a column, as a sentence in which its name follows `link`."""

    before: str
    link: str = " for "
    after: str = ""

    def said(self, names: str = "") -> str:
        return self.before + (self.link + names if names else "") + self.after


@dataclass(frozen=True)
class DateOptions:
    """How the command line gives the date format of a column. new: the options before another format. old: the option
    that another one replaces, or empty. named: whether this option names the column."""

    new: str
    old: str = ""
    named: bool = False


def remedy(
    name: str, texts: Sequence[str], own: Notation, dates: DateOptions, *, number: bool, others: Sequence[str]
) -> Remedy | None:
    """What reads a column whose unreadable texts are these; None if nothing is likely.

    own: how the column is read so far. number: whether as numbers or dates. others: texts of it that are read.
    """
    found = notations_of(texts, own) if number else []
    if options := [option for each in found if (option := _change(own, each, name, dates, others))]:
        return Remedy("use " + " or ".join(options[:2]))
    if own.date_format and texts and are_iso_dates(texts):
        return None if others else Remedy("leave out --date-format")
    lowered = {text.lower() for text in texts}
    for pair in _NO_YES:
        if lowered <= set(pair) and number and not others:
            levels = sorted(set(texts), key=lambda text: pair.index(text.lower()))
            return Remedy(f"use --ordinal {quoted(name)}=" + ",".join(levels))
    if others and not found and 0 < len(texts) <= _FIRST:
        words, verb = " and ".join(map(repr, texts)), "means" if len(texts) == 1 else "mean"
        option = f"--na-values {','.join(map(quoted, texts))}"
        return Remedy(f"if {words}", " in ", f" {verb} a missing value, use {option}")
    return None


def _change(own: Notation, other: Notation, name: str, dates: DateOptions, others: Sequence[str]) -> str:
    """The options of the command line that change a notation to another one; empty if none is missing, or if this
    replaces an option by which the other texts of the column are read."""
    here, there = own.to_json(), other.to_json()
    added = {key for key in there if there[key] != here.get(key)}
    changed = {key for key in ("thousands", "decimal") if key in here and here[key] != there.get(key)}
    replaced = _options(own, changed, name, dates)
    if other.date_format:
        replaced += [f"--numeric {quoted(name)}"] * own.signs + [dates.old] * bool(dates.old)
    elif own.date_format:  # numbers, which need no other format
        added.add("signs")
        replaced += [dates.old] * dates.named
    if (replaced or own.date_format) and not _all_read(others, other):
        return ""
    new = " ".join(_options(other, added, name, dates))
    return f"{new} instead of {' '.join(replaced)}" if new and replaced else new


def _options(notation: Notation, names: Collection[str], name: str, dates: DateOptions) -> list[str]:
    """The fields of these names as options of the command line."""
    options = {
        "signs": f"--numeric {quoted(name)}",
        "thousands": f"--thousands {quoted(notation.thousands)}",
        "decimal": f"--decimal {notation.decimal}",
        "date_format": f"{dates.new}{notation.date_format}'",
    }
    return [option for key, option in options.items() if key in names]


def _all_read(texts: Sequence[str], notation: Notation) -> bool:
    """Whether all texts are numbers, or dates, of a notation."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if notation.date_format:
        return all(written_dates(texts, notation.date_format))
    return not texts or bool(pc.all(written_numbers(pa.array(texts, pa.string()), notation)).as_py())


def quoted(text: str) -> str:
    """A name or text as an option takes it: in quotes if it has blanks or commas, or is empty."""
    if "," in text and len(text) > 1:
        return f"'\"{text}\"'"
    return text if re.fullmatch(r"[^\s'\"]+", text) else f'"{text}"' if "'" in text else f"'{text}'"
