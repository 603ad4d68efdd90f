"""How much memory an ingest takes, by the width of its rows: known from headers, before anything is read."""

from __future__ import annotations

from dataclasses import dataclass

from bigkpca.data.blocks import READ_BYTES
from bigkpca.errors import MemoryLimitError
from bigkpca.execution.planning.base import process_bytes

_COLUMN_BYTES = 18_000  # that Arrow was seen to take for each column of CSV, to guess types (10,000 to 100,000 columns)
_LINE_BYTES = 48  # for each byte of the longest line: Arrow reads text in blocks of 16 of them
_ADVICE = "allow more with --memory (memory= in Python), or leave columns out of the file"


@dataclass(frozen=True)
class Allowed:
    """Bytes that this process may take."""

    bytes: int

    def check_table(self, where: str, columns: int) -> None:
        """Raise MemoryLimitError where so many columns of a table of several types, or of text, take more."""
        self._check(f"{where}: {columns:,} columns", columns * _COLUMN_BYTES, _ADVICE)

    def check_line(self, where: str, length: int, fields: int) -> None:
        """Raise MemoryLimitError where a line of text of so many bytes and fields takes more."""
        what = f"{where}: a line of {length / 1e6:,.1f} MB or more, with {fields:,} columns"
        needed = max(length * _LINE_BYTES, fields * _COLUMN_BYTES)
        self._check(what, needed, f"{_ADVICE}; is a line break missing?")

    def check_rows(self, where: str, row_bytes: int, shard_rows: int, held: int) -> None:
        """Raise MemoryLimitError where rows of this size take more: `held` bytes of the reader, a batch, a shard."""
        needed = 2 * max(READ_BYTES, row_bytes) + 2 * shard_rows * row_bytes + held
        what = f"{where}: rows of {row_bytes / 1e6:,.1f} MB, {shard_rows:,} in a shard"
        if held:
            what += f", from parts of {held / 1e6:,.1f} MB"
        self._check(what, needed, "allow more with --memory (memory= in Python), or fewer rows with --block-rows")

    def _check(self, what: str, needed: int, advice: str) -> None:
        needed += process_bytes()
        if needed > self.bytes:
            raise MemoryLimitError(
                f"{what}, need {needed / 1e6:,.0f} MB in this process, {self.bytes / 1e6:,.0f} MB are allowed: {advice}"
            )


# Without a limit of the user: files may come from anybody, and a header may claim anything.
USUAL = Allowed(2_000_000_000)
