"""The pass over a table that finds its categories, and the means or medians that stand for missing values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bigkpca.errors import Array, DataError, column_called
from bigkpca.execution.progress import Progress
from bigkpca.ingesting.tables import Encoding, Unreadable
from bigkpca.ingesting.tables.columns import Frame, TableColumn, numbers, texts_of, unread_values
from bigkpca.ingesting.tables.reading import columns_to_read, kept_rows, no_rows, problems
from bigkpca.numerics.random_streams import MEDIANS, random_stream

MOST_CATEGORIES = 1000  # of one column
_SAMPLE = 100_000  # values of a column, of which its median is taken,
_SAMPLE_BYTES = 64_000_000  # or as many as fit in this for all columns, with 16 bytes each


def learnt(frames: Sequence[Frame], encoding: Encoding, whose: str, progress: Progress, *, words: bool) -> Encoding:
    """The encoding with the categories of its columns of text, and with what stands for missing values.

    Rows that are left out count for nothing. One pass over the files, where there is something to learn. words: whether
    a column whose first rows are of another kind becomes text where later ones hold words, which takes two more passes.
    Raises DataError that lists what cannot be read, and columns of no value or of more than 1000 categories.
    """
    filled = encoding.missing in ("mean", "median")
    unsure = words and any(frame.from_first_rows for frame in frames)
    if not (filled or unsure or any(column.of_text for column in encoding.columns)):
        return encoding
    found: dict[str, str] = {}
    try:
        learners = _look_at_all(frames, encoding, whose, progress)
    except _Misfit as misfit:
        found = _words(frames, encoding, whose) if words else {}
        if not found:
            raise misfit.problems(encoding) from misfit.__cause__
        for where in found.values():
            progress.note(f"{where}: the column is read as text")
        columns = [replace(each, kind="text") if each.name in found else each for each in encoding.columns]
        encoding = replace(encoding, columns=tuple(columns))
        try:
            learners = _look_at_all(frames, encoding, whose, progress)
        except _Misfit as second:
            raise second.problems(encoding) from second.__cause__
    pairs = list(zip(learners, encoding.columns, strict=True))
    faults = [
        fault + (f" ({found[column.name]})" if column.name in found else "")
        for learner, column in pairs
        if (fault := learner.fault(column, filled=filled))
    ]
    if faults:
        alone = encoding.columns[0].kind == "characters"
        raise DataError(f"{whose}: {'; '.join(faults)}" + ("" if alone else ": leave such columns out with --drop"))
    columns_learnt = (learner.learnt(column, encoding.missing) for learner, column in pairs)
    return replace(encoding, columns=tuple(columns_learnt))


class _Misfit(Exception):
    """A file holds a value that the encoding cannot read; which one is searched for afterwards."""

    def __init__(self, frame: Frame, places: dict[int, TableColumn]) -> None:
        super().__init__(frame.where)
        self.frame, self.places = frame, places

    def problems(self, encoding: Encoding) -> DataError:
        return DataError(problems(self.frame, self.places, encoding, of_dataset=False))


def _look_at_all(frames: Sequence[Frame], encoding: Encoding, whose: str, progress: Progress) -> list[_Learner]:
    """What learnt from the values of each column, in one pass over all files. Raises _Misfit."""
    most = int(min(_SAMPLE, max(5000, _SAMPLE_BYTES // 16 // len(encoding.columns))))
    learners: list[_Learner] = []
    for k, column in enumerate(encoding.columns):
        if column.of_text:
            learners.append(_Texts() if column.kind == "text" else _Characters())
        else:
            learners.append(_Numbers(most, random_stream(k, MEDIANS)))
    rows = [frame.rows or 0 for frame in frames]
    progress.start("look at the columns", sum(rows) if all(rows) else 0)
    try:
        for frame in frames:
            _look(frame, encoding, whose, learners, progress)
    finally:
        progress.finish()
    return learners


def _look(frame: Frame, encoding: Encoding, whose: str, learners: Sequence[_Learner], progress: Progress) -> None:
    """Give all learners the values of their columns in a file, of the rows that are kept."""
    import pyarrow as pa

    places = encoding.places(frame, whose)
    rows = left = 0
    try:
        for batch in frame.read(columns_to_read(frame, places)):
            taken = [
                texts_of(batch.column(k)) if column.of_text else numbers(batch.column(k), column.kind)
                for k, column in enumerate(encoding.columns)
            ]
            kept = kept_rows(batch, [missing for _, missing in taken], encoding, frame)
            for learner, (values, missing) in zip(learners, taken, strict=True):
                learner.add(values, kept & ~missing)
            rows, left = rows + len(batch), left + int(kept.sum())
            progress.advance(len(batch))
    except (Unreadable, pa.ArrowInvalid) as error:
        raise _Misfit(frame, places) from error
    if not left:
        raise no_rows(frame.where, dropped=rows > 0)


def _words(frames: Sequence[Frame], encoding: Encoding, whose: str) -> dict[str, str]:
    """Columns whose kind is that of the first rows, and whose later rows hold words: the first of these, as messages
    say it. One pass over the files."""
    found: dict[str, str] = {}
    for frame in (each for each in frames if each.from_first_rows):
        places = encoding.places(frame, whose)
        first = 0
        for batch in frame.read(columns_to_read(frame, places)):
            for k, (j, column) in enumerate(places.items()):
                if column.of_text or column.name in found:
                    continue
                unread = unread_values(batch.column(k), column.kind)
                if unread.any():
                    i = int(unread.argmax())
                    called = f"row {first + i}, {column_called(j, frame.names)}"
                    word = batch.column(k)[i].as_py()
                    found[column.name] = f"{frame.where}: {called}, is {word!r}, unlike the first rows"
            first += len(batch)
    return found


@dataclass
class _Texts:
    """The texts of a column, and in how many rows each is; none where they are too many."""

    counts: Counter[str] = field(default_factory=Counter)
    too_many: bool = False

    def add(self, texts: Any, kept: Array) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.too_many:
            return
        found = pc.value_counts(texts.filter(pa.array(kept)))
        for text, count in zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True):
            self.counts[text] += count
        self.too_many = len(self.counts) > MOST_CATEGORIES

    def fault(self, column: TableColumn, *, filled: bool) -> str | None:
        if self.too_many:
            return f"column {column.name!r} has more than {MOST_CATEGORIES} different texts"
        return None if self.counts else f"column {column.name!r} has no value"

    def learnt(self, column: TableColumn, missing: str) -> TableColumn:
        """The column with its categories, in alphabetical order."""
        categories = tuple(sorted(self.counts))
        shares = np.array([self.counts[text] for text in categories]) / self.counts.total()
        fills = {"mean": shares, "median": (shares > 0.5).astype(float)}.get(missing, np.empty(0))
        return replace(column, categories=categories, fills=tuple(fills.tolist()))


@dataclass
class _Characters:
    """The characters of the texts of a column, and the length of the longest."""

    found: set[str] = field(default_factory=set)
    longest: int = 0

    def add(self, texts: Any, kept: Array) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = texts.filter(pa.array(kept))
        self.found.update("".join(texts.to_pylist()))
        self.longest = max(self.longest, pc.max(pc.utf8_length(texts)).as_py() or 0)

    def fault(self, column: TableColumn, *, filled: bool) -> str | None:
        if "\0" in self.found:
            return f"column {column.name!r} has texts with the character of number 0, which marks their end"
        return None if self.longest else f"column {column.name!r} has no value"

    def learnt(self, column: TableColumn, missing: str) -> TableColumn:
        """The column with its characters, in the order of their numbers in Unicode."""
        return replace(column, categories=tuple(sorted(self.found)), length=self.longest)


@dataclass
class _Numbers:
    """Sum, count and a uniform sample of the values of a column: those with the smallest random keys."""

    most: int
    rng: np.random.Generator
    count: int = 0
    total: float = 0.0
    drawn: Array = field(default_factory=lambda: np.empty((2, 0)))  # keys and values
    further: list[Array] = field(default_factory=list)  # the same, of the last batches

    def add(self, values: Array, kept: Array) -> None:
        """Take the numbers in that are kept. Raises Unreadable where one is infinite."""
        found = values[kept].astype(np.float64)
        if not np.isfinite(found).all():
            raise Unreadable
        self.count += len(found)
        self.total += float(found.sum())
        self.further.append(np.stack([self.rng.random(len(found)), found]))
        if sum(each.shape[1] for each in self.further) > self.most:
            self._draw()

    def _draw(self) -> None:
        """Keep the values with the smallest keys."""
        drawn = np.concatenate([self.drawn, *self.further], axis=1)
        if drawn.shape[1] > self.most:
            drawn = drawn[:, np.argpartition(drawn[0], self.most)[: self.most]]
        self.drawn, self.further = drawn, []

    def fault(self, column: TableColumn, *, filled: bool) -> str | None:
        return f"column {column.name!r} has no value" if filled and not self.count else None

    def learnt(self, column: TableColumn, missing: str) -> TableColumn:
        """The column with what stands for a missing value."""
        if missing not in ("mean", "median"):
            return column
        self._draw()
        value = self.total / self.count if missing == "mean" else float(np.median(self.drawn[1]))
        return replace(column, fills=(value,))


_Learner = _Texts | _Characters | _Numbers
