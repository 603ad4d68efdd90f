"""Folders of files, and the columns that are in the names of folders, as in year=2013/month=1/part-0.parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from bigkpca.data.stores import NODE_FILES
from bigkpca.errors import SpecError, require
from bigkpca.ingesting.columns import Kind, TableFrame, kind_of
from bigkpca.ingesting.formats.arrow import arrow_labels, dtype_of

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


def keys_of(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """The keys in the names of the folders of each path, e.g. of year=2013/month=1/part-0.parquet, as Arrow scalars:
    whole numbers or dates if all values of a key are, otherwise text."""
    texts = [dict(part.split("=", 1) for part in path.parts[:-1] if "=" in part) for path in paths]
    if not any(texts):
        return [{}] * len(paths)
    require("pyarrow", "tables", str(paths[0]))
    import pyarrow as pa

    found: list[dict[str, Any]] = [{} for _ in paths]
    for name in dict.fromkeys(name for each in texts for name in each):
        values = [None if each[name] == _NO_VALUE else unquote(each[name]) for each in texts if name in each]
        scalars = iter(_narrowest(pa.array(values, pa.string())))
        for own, each in zip(found, texts, strict=True):
            if name in each:
                own[unquote(name)] = next(scalars)
    return found


def _narrowest(texts: Any) -> Any:
    """Texts as whole numbers or dates, if all of them can be read as such."""
    import pyarrow as pa

    for kind in (pa.int32(), pa.int64(), pa.date32()):
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            continue
    return texts


def with_keys(frame: TableFrame, keys: Mapping[str, Any], labels: str | None) -> TableFrame:
    """The frame with a column for each key, after its own; a key replaces a column of the same name, as in pyarrow.

    labels: the name of the key that holds the labels, if one does.
    """
    import pyarrow as pa

    if frame.names is None:
        raise SpecError(f"{frame.where} has no column names, so {', '.join(keys)} in its path cannot be columns")
    width, names = len(frame.names), list(keys)
    own = [k for k, j in enumerate(frame.columns) if frame.names[j] not in keys]
    more = {width + k: value.type for k, (name, value) in enumerate(keys.items()) if name != labels}

    def read(kinds: Mapping[int, Kind]) -> Iterator[Any]:
        stored = {j: kind for j, kind in kinds.items() if j < width} or {frame.columns[0]: "text"}
        places = {j: k for k, j in enumerate(stored)}
        for batch in frame.read(stored):
            columns = [
                batch.column(places[j]) if j < width else pa.repeat(keys[names[j - width]], len(batch)) for j in kinds
            ]
            yield pa.record_batch(columns, names=[str(j) for j in kinds])

    key = None
    if labels is not None and labels in keys:
        key = arrow_labels(width + names.index(labels), pa.field(labels, keys[labels].type), frame.where)
    return replace(
        frame,
        columns=(*(frame.columns[k] for k in own), *more),
        names=(*frame.names, *names),
        kinds=(*(frame.kinds[k] for k in own), *map(kind_of, more.values())),
        types=(*(frame.types[k] for k in own), *map(str, more.values())),
        dtypes=(*(frame.dtypes[k] for k in own), *map(dtype_of, more.values())),
        labels=key or frame.labels,
        read=read,
    )
