"""The pass over a table that finds its categories, and the means or medians that stand for missing values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bigkpca.errors import Array, DataError
from bigkpca.execution.progress import Progress
from bigkpca.ingesting.tables.columns import TableColumn, missing_texts, numbers
from bigkpca.ingesting.tables.encoding import Encoding, Unreadable
from bigkpca.ingesting.tables.frame import Frame
from bigkpca.ingesting.tables.reading import problems

MOST_CATEGORIES = 1000  # of one column
_SAMPLE = 100_000  # values of a column, of which its median is taken,
_SAMPLE_BYTES = 64_000_000  # or as many as fit in this for all columns, with 16 bytes each


def learnt(frames: Sequence[Frame], encoding: Encoding, whose: str, progress: Progress) -> Encoding:
    """The encoding with the categories of its columns of text, and with what stands for missing values.

    The mean of a category is its share of the rows, its median 1 where it has more than half of them. The median of
    numbers is that of a uniform sample, where there are more of them than it holds.

    One pass over the files, where there is something to learn. Raises DataError that lists what cannot be read, and
    columns of no value or of more than 1000 categories.
    """
    filled = encoding.missing in ("mean", "median")
    if not filled and not any(column.of_text for column in encoding.columns):
        return encoding
    most = int(min(_SAMPLE, max(5000, _SAMPLE_BYTES // 16 // len(encoding.columns))))
    learners = [_learner(column, most, k) for k, column in enumerate(encoding.columns)]
    progress.start("look at the columns", sum(frame.rows or 0 for frame in frames))
    try:
        for frame in frames:
            _look(frame, encoding, whose, learners, progress)
    finally:
        progress.finish()
    pairs = list(zip(learners, encoding.columns, strict=True))
    faults = [fault for learner, column in pairs if (fault := learner.fault(column, filled=filled))]
    if faults:
        raise DataError(f"{whose}: {'; '.join(faults)}: leave such columns out with --drop")
    columns = (learner.learnt(column, encoding.missing) for learner, column in pairs)
    return replace(encoding, columns=tuple(columns))


def _learner(column: TableColumn, most: int, number: int) -> _Texts | _Characters | _Numbers:
    """What learns from the values of a column; for medians of at most `most` values."""
    if column.of_text:
        return _Texts() if column.kind == "text" else _Characters()
    return _Numbers(column, most, np.random.default_rng([0, number]))


def _look(
    frame: Frame,
    encoding: Encoding,
    whose: str,
    learners: Sequence[_Texts | _Characters | _Numbers],
    progress: Progress,
) -> None:
    """Give all learners the values of their columns in a file."""
    import pyarrow as pa

    places = encoding.places(frame, whose)
    try:
        for batch in frame.read({j: column.kind for j, column in places.items()}):
            for k, learner in enumerate(learners):
                learner.add(batch.column(k))
            progress.advance(len(batch))
    except (Unreadable, pa.ArrowInvalid) as error:
        raise DataError(problems(frame, places, encoding)) from error


@dataclass
class _Texts:
    """The texts of a column, and in how many rows each is; none where they are too many."""

    counts: Counter[str] = field(default_factory=Counter)
    too_many: bool = False

    def add(self, values: Any) -> None:
        """Count the texts of an array of Arrow."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.too_many:
            return
        texts = values.cast(pa.string())
        found = pc.value_counts(texts.filter(pc.invert(missing_texts(texts))))
        for text, count in zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True):
            self.counts[text] += count
        self.too_many = len(self.counts) > MOST_CATEGORIES

    def fault(self, column: TableColumn, *, filled: bool) -> str | None:
        """Why the texts cannot be categories."""
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

    def add(self, values: Any) -> None:
        """Take in the texts of an array of Arrow."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = values.cast(pa.string())
        texts = texts.filter(pc.invert(missing_texts(texts)))
        self.found.update("".join(texts.to_pylist()))
        self.longest = max(self.longest, pc.max(pc.utf8_length(texts)).as_py() or 0)

    def fault(self, column: TableColumn, *, filled: bool) -> str | None:
        """Why the texts cannot be rows."""
        if "\0" in self.found:
            return f"column {column.name!r} has texts with the character of number 0, which marks their end"
        return None if self.longest else f"column {column.name!r} has no value"

    def learnt(self, column: TableColumn, missing: str) -> TableColumn:
        """The column with its characters, in the order of their numbers in Unicode."""
        return replace(column, categories=tuple(sorted(self.found)), length=self.longest)


@dataclass
class _Numbers:
    """Sum, count and a uniform sample of the values of a column: those with the smallest random keys."""

    column: TableColumn
    most: int
    rng: np.random.Generator
    count: int = 0
    total: float = 0.0
    drawn: Array = field(default_factory=lambda: np.empty((2, 0)))  # keys and values
    further: list[Array] = field(default_factory=list)  # the same, of the last batches

    def add(self, values: Any) -> None:
        """Take the values of an array of Arrow in. Raises Unreadable where one is infinite."""
        found, missing = numbers(values, self.column.kind)
        found = found[~missing].astype(np.float64)
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
        """Why nothing can stand for missing values."""
        return f"column {column.name!r} has no value" if filled and not self.count else None

    def learnt(self, column: TableColumn, missing: str) -> TableColumn:
        """The column with what stands for a missing value."""
        if missing not in ("mean", "median"):
            return column
        self._draw()
        value = self.total / self.count if missing == "mean" else float(np.median(self.drawn[1]))
        return replace(column, fills=(value,))
