"""Reader of FASTA files, also compressed by gzip: sequences of letters, each behind a line that begins with ">"."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from bigkpca.data.blocks import READ_BYTES
from bigkpca.errors import DataError
from bigkpca.ingesting.formats.base import decoding, refuse_labels, refuse_member
from bigkpca.ingesting.tables.columns import Kind
from bigkpca.ingesting.tables.frame import Frame

SEQUENCE = "sequence"
SUFFIXES = tuple(f"{end}{packed}" for end in (".fasta", ".fa", ".fna", ".faa") for packed in ("", ".gz"))
_NOTE = "letters of sequences are read as capital ones, since small ones mark what was masked"


def fasta(path: Path, member: str | None, labels: str | None) -> Frame:
    """The sequences of a FASTA file, as one column of text."""
    refuse_member(path, member)
    refuse_labels(path, labels)

    def read(kinds: Mapping[int, Kind]) -> Iterator[Any]:
        import pyarrow as pa

        held: list[str] = []
        size = 0
        for sequence in _sequences(path):
            held.append(sequence)
            size += len(sequence)
            if size >= READ_BYTES:
                yield pa.record_batch([pa.array(held, pa.string())], names=[SEQUENCE])
                held, size = [], 0
        if held:
            yield pa.record_batch([pa.array(held, pa.string())], names=[SEQUENCE])

    return Frame(
        where=str(path),
        columns=(0,),
        names=(SEQUENCE,),
        kinds=("text",),
        types=("text",),
        dtypes=(None,),
        rows=None,
        labels=None,
        read=read,
        notes=(_NOTE,),
        text=SEQUENCE,
    )


def _sequences(path: Path) -> Iterator[str]:
    """The sequences, one after the other. Raises DataError for text in front of the first name, or no text."""
    parts: list[str] | None = None
    with decoding(path), _opened(path) as file:
        try:
            for line in map(str.strip, file):
                if line.startswith(">"):
                    if parts is not None:
                        yield "".join(parts).upper()
                    parts = []
                elif line and parts is None:
                    raise DataError(f"{path} is no FASTA file: it begins with {line[:20]!r}, not with a line '>name'")
                elif line and parts is not None:
                    parts.append(line)
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not text: {error}") from error
    if parts is not None:
        yield "".join(parts).upper()


def _opened(path: Path) -> IO[str]:
    """Open a text file, decompressed where it is in gzip."""
    return gzip.open(path, "rt", encoding="ascii") if path.name.lower().endswith(".gz") else path.open(encoding="ascii")
