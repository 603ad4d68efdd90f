"""Folders of files, and the columns that are in the names of folders, as in year=2013/month=1/part-0.parquet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from bigkpca.data.beside import LABELS
from bigkpca.data.stores import NODE_FILES
from bigkpca.errors import SpecError, require
from bigkpca.ingesting.beside import Names
from bigkpca.ingesting.columns import AS_TEXT, TableColumn, TableFrame, kind_of
from bigkpca.ingesting.formats.arrow import beside_of, dtype_of
from bigkpca.ingesting.notation import quoted

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def files_in(folder: Path) -> list[Path]:
    """The files below a folder, in the order of their paths, as pyarrow finds them: without those whose name, or whose
    folder's name, begins with a dot or an underscore. Raises SpecError if there are none, and for Zarr arrays."""
    if any((folder / name).exists() for name in NODE_FILES):
        raise SpecError(f"{folder} is a folder that holds a Zarr array or group, which needs no ingest")
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    seen = [path for path in paths if not any(part.startswith((".", "_")) for part in path.parts)]
    if not seen:
        raise SpecError(f"{folder} is a folder without files to ingest")
    return sorted(seen, key=str)


@dataclass(frozen=True)
class Key:
    """The values of a key in the names of all folders: their Arrow type, and a note if it does not keep the texts."""

    type: Any
    note: str = ""


def keys_of(paths: Sequence[Path]) -> tuple[list[dict[str, str | None]], dict[str, Key]]:
    """The keys in the names of the folders of each path, e.g. of year=2013/month=1/part-0.parquet, and their types:
    whole numbers or dates if all values of a key are, otherwise text, as in pyarrow and polars."""
    texts = [
        {
            unquote(name): None if value == _NO_VALUE else unquote(value)
            for name, mark, value in (part.partition("=") for part in path.parts[:-1])
            if mark
        }
        for path in paths
    ]
    if not any(texts):
        return texts, {}
    require("pyarrow", "tables", str(paths[0]))
    import pyarrow as pa

    found = {}
    for name in dict.fromkeys(name for each in texts for name in each):
        values = [each[name] for each in texts if name in each]
        found[name] = Key(_narrowest(values))
        padded = next((value for value in values if value and re.match("[+-]?0[0-9]", value)), None)
        if padded is not None and pa.types.is_integer(found[name].type):
            keep = f"to keep the text, use --categorical {quoted(name)}"
            found[name] = replace(found[name], note=f"reading {name}={padded} in its path as a number ({keep})")
    return texts, found


def _narrowest(texts: Sequence[str | None]) -> Any:
    """The Arrow type of whole numbers or dates, if all texts can be read as such, or else of text."""
    import pyarrow as pa

    digits = all(text is None or re.fullmatch("[+-]?[0-9]+", text) for text in texts)  # Arrow takes 0x10, too
    for kind in (pa.int32(), pa.int64()) if digits else (pa.date32(),):
        with suppress(pa.ArrowInvalid):
            return pa.array(texts, pa.string()).cast(kind).type
    return pa.string()


def with_keys(frame: TableFrame, texts: Mapping[str, str | None], keys: Mapping[str, Key], names: Names) -> TableFrame:
    """The frame with a column for each key, after its own; a key replaces a column of the same name, as in pyarrow.

    texts: of this frame. names: of the columns and keys with values beside the rows. Categories and levels are the
    texts, such as 01234, and so are dates of a given format.
    """
    import pyarrow as pa

    if frame.names is None:
        raise SpecError(f"{frame.where} has no column names, so {', '.join(texts)} in its path cannot be columns")
    own = [k for k, j in enumerate(frame.columns) if frame.names[j] not in texts]
    added = dict(enumerate(texts, start=len(frame.names)))
    more = {j: keys[name] for j, name in added.items() if name not in names.values()}

    def read(columns: Mapping[int, TableColumn]) -> Iterator[Any]:
        stored = {j: column for j, column in columns.items() if j not in added} or {frame.columns[0]: AS_TEXT}
        values = {}
        for j in added.keys() & columns.keys():
            text, column = pa.scalar(texts[added[j]], pa.string()), columns[j]
            words = column.kind in ("text", "ordinal") or column.notation.date_format
            values[j] = text if words else text.cast(keys[added[j]].type)
        for batch in frame.read(stored):
            found = dict(zip(stored, batch.columns, strict=True))
            found |= {j: pa.repeat(value, len(batch)) for j, value in values.items()}
            yield pa.record_batch([found[j] for j in columns], names=[str(j) for j in columns])

    beside, all_names = dict(frame.beside), (*frame.names, *texts)
    for kind, name in names.items():
        if name in texts:
            text = keys[name].note and kind is LABELS  # 01234 is a text
            number = len(frame.names) + list(texts).index(name)
            beside[kind] = beside_of(kind, number, all_names, pa.string() if text else keys[name].type, frame.where)
    return replace(
        frame,
        columns=(*(frame.columns[k] for k in own), *more),
        names=all_names,
        kinds=(*(frame.kinds[k] for k in own), *(kind_of(key.type) for key in more.values())),
        types=(*(frame.types[k] for k in own), *(str(key.type) for key in more.values())),
        dtypes=(*(frame.dtypes[k] for k in own), *(dtype_of(key.type) for key in more.values())),
        beside=beside,
        read=read,
        notes_as={**frame.notes_as, **{j: ("number", key.note) for j, key in more.items() if key.note}},
    )
