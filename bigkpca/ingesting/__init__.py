"""Ingestion: files of any supported format and tables in memory, streamed into one dataset on disk, chunk by chunk.

files -> checked pieces of at most 4 MB -> whole chunks -> sync -> the manifest, which publishes them

Memory does not depend on the number of rows. A dataset appears at its path when it is complete, and readers use as many
rows as its manifest names. So after a crash the previous state is still intact, and rerunning the command finishes
the work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import zarr

from bigkpca.data.beside import BESIDE, LABELS, WEIGHTS, Beside
from bigkpca.data.blocks import power_of_two
from bigkpca.data.rows import little_endian
from bigkpca.data.stores import AnyPath, expanded, is_path, last_name, store_of
from bigkpca.data.zarr import read, whole
from bigkpca.errors import Array, CorruptionError, DataError, RepeatedRowsWarning, SpecError, warn
from bigkpca.execution.progress import Progress, shown, shown_pass
from bigkpca.ingesting.columns import ColumnOptions, Encoding, Missing
from bigkpca.ingesting.formats.base import USUAL, Allowed
from bigkpca.ingesting.notation import Notation
from bigkpca.ingesting.source import Files, Source, kind_of
from bigkpca.spec.units import parse_bytes
from bigkpca.storage import groups, output, records
from bigkpca.storage.output import NewArray, Output, group_path

_CHUNK_BYTES, _CHUNK_ROWS = 2**21, 65536


def chunk_rows(row_bytes: int, given: int | None = None) -> int:
    """Rows per chunk: the given number, or else the largest power of two within 2 MiB and 65536 rows."""
    return given or min(_CHUNK_ROWS, power_of_two(_CHUNK_BYTES // row_bytes))


@dataclass
class Chunks:
    """Rows collected in memory until they fill a chunk, which is then written once, by one assignment.

    array: in the folder of `place`; its stored shape grows only when all rows are written. start: number of the first
    row held.
    """

    array: zarr.Array[Any]
    place: Output
    start: int
    held: Array
    filled: int

    @classmethod
    def after(cls, place: Output, name: str, rows: int) -> Chunks:
        """Continue after the first rows of an array; rows of an incomplete chunk are read back, to be written again."""
        path = f"{place.folder}/{name}"
        array = groups.open_array(path)
        held = np.empty((array.chunks[0], *array.shape[1:]), array.dtype)
        filled = rows % len(held)
        if filled:
            held[:filled] = read(whole(array), path, rows - filled, rows)
        return cls(array, place, rows - filled, held, filled)

    def add(self, values: Array) -> None:
        """Add rows, and write full chunks."""
        while len(values):
            taken = values[: len(self.held) - self.filled]
            self.held[self.filled : self.filled + len(taken)] = taken
            self.filled += len(taken)
            values = values[len(taken) :]
            if self.filled == len(self.held):
                self.flush()

    def flush(self) -> int:
        """Write the rows held; return the number of rows."""
        stop = self.start + self.filled
        if self.filled:
            self.place.check_claim()
            groups.with_rows(self.array, stop)[self.start : stop] = self.held[: self.filled]
            self.start, self.filled = stop, 0
        return stop


@dataclass(frozen=True)
class Ingested:
    """A finished dataset, whether it has labels and sample weights, and whether an earlier run had finished it."""

    path: str
    rows: int
    columns: int
    row_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    labels: bool
    already_done: bool
    sample_weight: bool = False


def ingest(
    sources: Any,
    destination: AnyPath,
    *,
    member: str | None = None,
    labels: str | None = None,
    sample_weight: str | None = None,
    dtype: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    missing: Missing = "refuse",
    categories: Literal["one-hot"] | None = None,
    categorical: str | Sequence[str] = (),
    numeric: str | Sequence[str] = (),
    ordinal: Mapping[str, Sequence[str]] | None = None,
    max_categories: int | None = None,
    na_values: str | Sequence[str] = (),
    decimal: str = ".",
    thousands: str | None = None,
    date_format: str | Mapping[str, str] | None = None,
    encoding: str | None = None,
    text: str | None = None,
    like: AnyPath | None = None,
    block_rows: int | None = None,
    append: bool = False,
    overwrite: bool = False,
    memory: str | int | None = None,
    progress: Progress | bool = False,
) -> Ingested:
    """Stream files or tables into the dataset `destination`: x (n, d), the rows of all sources in order, and if there
    are any, their labels y (n,) and weights sample_weight (n,).

    Axes after the first are flattened. Columns with names (Parquet, CSV with a header) are matched by name in all files
    after the first, and the names are kept; the index of a pandas frame is left out. Booleans become 0 and 1, dates
    become days since 1970-01-01 (in UTC if they have a time zone), and times of day and durations become hours.
    Repeating the call changes nothing, or resumes a run that was stopped.

    Parameters
    ----------
    sources : path, data frame, or list of these
        Files in the formats listed in `docs/getting-started.md`, folders of such files, and tables of pandas, polars
        and pyarrow, all with the same columns. Folders named like year=2013 become columns. A polars LazyFrame, and a
        pyarrow Dataset or RecordBatchReader, are read once and copied to a temporary file (in `TMPDIR`).
    destination : path
        Folder of the dataset.
    member : str, optional
        Name of the array inside .npz and .h5 files.
    labels : str, optional
        A file with one label for each row of all sources, or the name of an array or column, which is kept beside the
        rows. Text becomes codes, numbered by first appearance.
    sample_weight : str, optional
        A file with the weights of all rows, or the name of an array or column with them, which is kept beside the rows:
        finite numbers of at least 0, for `bigkpca.fit(..., sample_weight="sample_weight")`.
    dtype : str, optional
        Dtype to cast to; by default, all sources must have the same dtype.
    columns, drop : sequence of str, optional
        Names of the columns to use, in this order, or of the columns to leave out.
    missing : {"refuse", "drop", "mean", "median"}
        Treatment of missing values (empty fields, NA, NaN, null; in quotes, these are words): an error that lists
        them; dropping their rows; or filling in the mean or median of their column. A category counts as a column of 0
        and 1. The median is that of a uniform sample if a column has more than 100,000 values (5000 or more for wide
        tables).
    categories : {"one-hot"}, optional
        Turn each distinct text of a text column, at most 1000, into a column of 0 and 1, in alphabetical order. Columns
        of a CSV file in which at least half of the distinct texts are numbers or dates are refused.
    categorical : str or sequence of str, optional
        Columns that become categories, also without `categories`: text of any kind, and codes such as ZIP codes, whose
        texts are kept as they are written, except that 1.0 becomes 1, and True becomes true, as in Parquet.
    numeric : str or sequence of str, optional
        Columns that are read as numbers, with or without a currency symbol, which is ignored, or a percent sign, which
        divides by 100.
    ordinal : dict of str to sequence of str, optional
        The levels of columns, lowest first, which become 0, 1, 2 and so on. A level such as None is not missing.
    max_categories : int, optional
        Keep only this many of the most frequent texts of each column as categories; all others become the category
        `(other)`, also those that first appear in rows added later.
    na_values : str or sequence of str, optional
        Further texts, also in quotes, and numbers that mean a missing value.
    decimal, thousands : str, optional
        Decimal and thousands separators of numbers that are stored as text, as in all CSV files.
    date_format : str or dict of str to str, optional
        Format of the dates that are not in ISO 8601, as for `datetime.strptime` ("%d/%m/%Y"), for all columns of CSV
        files in which it occurs (or of whole numbers, if all of the first rows have it), or for each named column.
    encoding : str, optional
        Encoding of CSV files ("cp1252"), unless they begin with the mark of UTF-8, UTF-16 or UTF-32; by default UTF-8.
        Unlike the other options, it is not kept for further files.
    text : str, optional
        Name of a text column: rows are the numbers of its characters, padded with zeros, for string kernels
        (`kernels.Spectrum`). For FASTA files, this is always the sequence.
    like : path, optional
        Use the columns, categories, means and medians of this dataset. `append` always does so.
    block_rows : int, optional
        Rows per chunk.
    append : bool
        Add the rows to a finished dataset with the same columns, dtype and kind of labels, and with weights if it has
        some. Rows that were appended last are not added again. Frames are recognised by their values, and a
        `RepeatedRowsWarning` is issued for them.
    overwrite : bool
        Replace an existing dataset: on a local disk once the new one is finished, in an object store before it is
        begun.
    memory : str or int, optional
        Memory limit of this process ("4 GB", or bytes); by default 2 GB. Files whose rows, columns or lines need more
        are refused based on their headers, before they are read.
    progress : bool or Progress
        True shows bars or, without a terminal, lines; a Progress object receives the number of rows read, and notes; by
        default nothing is shown.

    Returns
    -------
    Ingested
        Path, shape and dtype of the dataset, and whether it already existed.

    Raises
    ------
    SpecError
        Files or names that do not exist, or options that conflict.
    DataError
        Values that are not finite numbers, listed by column; rows are counted from 0 in each file. Tables of types that
        Arrow does not have.
    CorruptionError
        Files that do not decode.
    MemoryLimitError
        Rows, columns or lines need more memory than is allowed.
    LockedError
        Another run is writing `destination`.
    IncompleteError
        The disk is full, or an earlier ingest did not finish.

    Notes
    -----
    One pass over the files, preceded by another one if categories, means or medians are learnt, and by two more if
    words first appear late in a column of a text file. Memory does not depend on the number of rows.
    """
    progress = shown(progress)
    single = date_format if isinstance(date_format, str) else ""
    formats = {} if date_format is None or isinstance(date_format, str) else date_format
    choice = ColumnOptions(
        None if columns is None else tuple(columns),
        tuple(drop),
        missing,
        categories,
        text,
        _several(categorical),
        _several(numeric),
        tuple((name, _several(levels)) for name, levels in (ordinal or {}).items()),
        max_categories,
        Notation(decimal, thousands or "", _several(na_values), single),
        tuple(formats.items()),
    )
    if like is not None and (append or choice != ColumnOptions()):
        raise SpecError("like takes all column settings from a dataset: leave out append and other column options")
    given = None if like is None else expanded(like)
    sources = sources if isinstance(sources, Sequence) and not is_path(sources) else [sources]
    allowed = USUAL if memory is None else Allowed(parse_bytes(memory))
    notation = _notation(expanded(destination) if append else given)
    beside = {LABELS: labels, WEIGHTS: sample_weight}
    files = Files.open(sources, member, beside, dtype, choice, allowed, encoding, notation, progress)
    out = group_path(
        destination, *(each["path"] for each in files.identity["sources"]), *map(expanded, filter(is_path, sources))
    )
    path = store_of(out).absolute(out)
    if block_rows is not None and block_rows < 1:
        raise SpecError(f"block_rows={block_rows}: must be at least 1")
    record = {
        "format": "dataset",
        **files.identity,
        "like": given and store_of(given).absolute(given),
        "block_rows": block_rows,
    }
    if append and overwrite:
        raise SpecError("append adds to a dataset, but overwrite replaces it: choose one")
    try:
        if append:
            done = _append(files, path, record, allowed, progress)
        else:
            done = _create(files, path, record, allowed, overwrite, progress)
    except (DataError, CorruptionError):
        files.check_unchanged()  # a file that changes between passes can have values that the first did not see
        raise
    group, about = finished(path)
    return Ingested(
        path=path,
        rows=about["rows"],
        columns=about["columns"],
        row_shape=tuple(about["row_shape"]),
        dtype=np.dtype(_array(group, "x").dtype),
        labels=LABELS.array in about["arrays"],
        sample_weight=WEIGHTS.array in about["arrays"],
        already_done=done,
    )


def finished(path: str) -> tuple[zarr.Group, dict[str, Any]]:
    """A dataset and its manifest. Raises SpecError for anything else, IncompleteError if it is not finished."""
    group, about = groups.open_group(path, "dataset"), groups.describe(path) or {}
    records.check_dataset(about, path)
    return group, about


def _create(
    files: Files, path: str, record: Mapping[str, Any], allowed: Allowed, overwrite: bool, progress: Progress
) -> bool:
    """Make a new dataset; return whether it already existed. Text and gzip cannot be read from the middle, so an
    interrupted run restarts from the first row."""
    with output.opened(path, record, overwrite=overwrite, note=progress.note) as place:
        if place.done:
            return True
        try:
            about = _made(files, place, record, allowed, progress)
        except BaseException:
            place.discard()
            raise
        place.publish(about)
    return False


def _made(
    files: Files, place: Output, record: Mapping[str, Any], allowed: Allowed, progress: Progress
) -> dict[str, Any]:
    """Write all rows of a new dataset, and return what describes it."""
    source = _like(files, record["like"], progress) if record["like"] else files.source(None, None, None, progress)
    source.note(progress)
    rows = chunk_rows(source.columns * source.dtype.itemsize, record["block_rows"])
    source.check_memory(allowed, rows)
    arrays = {"x": NewArray((source.columns,), source.dtype, ("row", "column"), compress=True)}
    for kind, dtype in source.beside.items():
        stored = np.int32 if dtype.kind == "U" else dtype.newbyteorder("=")
        arrays[kind.array] = NewArray((), stored, ("row",), compress=True)
    place.create(arrays, 0, rows)
    about: dict[str, Any] = {"columns": source.columns, "row_shape": list(source.tables[0].row_shape)}
    if source.names is not None:
        about["column_names"] = list(source.names)
    if source.encoding is not None and not source.encoding.says_nothing:
        about["encoding"] = source.encoding.to_json()
    about |= _fill(place, source, 0, {}, progress)
    files.check_unchanged()
    return about


def _several(values: Any) -> tuple[str, ...]:
    """Names or texts, of which a single one need not be in a list, as text."""
    if values is None:
        return ()
    return tuple(map(str, values)) if isinstance(values, Iterable) and not isinstance(values, str) else (str(values),)


def _notation(path: str | None) -> Notation | None:
    """The notation in which the files of the dataset at `path` are read; None if there is no such dataset."""
    about = None if path is None else groups.describe(path)
    if about is None or "encoding" not in about:
        return None
    records.check(about["encoding"], records.ENCODING, str(path))
    return Encoding.from_json(about["encoding"]).notation


def _like(files: Files, path: str, progress: Progress) -> Source:
    """The rows of the files with the columns of the finished dataset at `path`."""
    _, about = finished(path)
    encoding = None
    if "encoding" in about:
        records.check(about["encoding"], records.ENCODING, path)
        encoding = Encoding.from_json(about["encoding"])
    names = tuple(about["column_names"]) if "column_names" in about else None
    if names is None and files.names is not None:
        progress.note(f"{path} has no column names: assuming that the new rows have its columns in the same order")
    source = files.source(encoding, names, path, progress)
    if encoding is None and source.encoding is not None and not source.encoding.plain:
        raise SpecError(f"{path} holds plain numbers, but the new rows have dates, times or text: make a new dataset")
    return source


def _append(files: Files, path: str, record: Mapping[str, Any], allowed: Allowed, progress: Progress) -> bool:
    """Add rows to a finished dataset; return whether the same rows were already added last."""
    with output.growing(path, record, progress.note) as place:
        group, about = finished(path)
        *earlier, last = about["provenance"]
        identity = files.identity
        options = [each.option for each in BESIDE]
        named = {key: identity[key] for key in options if key == LABELS.option or identity[key] is not None}
        before = {key: last[key] for key in options if key in last}
        same_names, added_last = before in ({}, named), about["sources"][-len(last["sources"]) :]
        if earlier and same_names and added_last == identity["sources"]:
            place.release()
            if frames := [each["table"] for each in identity["sources"] if each["path"] is None]:
                warn(
                    f"{path}: these rows were appended last, so the {frames[0]} is not added again; to add equal rows "
                    "once more, write them to a new file and append it",
                    RepeatedRowsWarning,
                )
            return True
        try:
            source = _appended(files, path, record, group, about, allowed, progress)
            categories = {text: code for code, text in enumerate(about.get("categories", []))}
            added = _fill(place, source, about["rows"], categories, progress)
            files.check_unchanged()
        except BaseException:
            place.discard()  # so that other rows can be added in an object store
            raise
        (entry,) = added["provenance"]
        provenance = [*about["provenance"], entry | named]
        place.publish({**added, "sources": about["sources"] + identity["sources"], "provenance": provenance})
    return False


def _appended(
    files: Files,
    path: str,
    record: Mapping[str, Any],
    group: zarr.Group,
    about: Mapping[str, Any],
    allowed: Allowed,
    progress: Progress,
) -> Source:
    """The rows to be added to a dataset. Raises SpecError if they do not fit it."""
    if files.choice.identity not in ({}, about.get("table")):
        raise SpecError(f"{path} keeps its original columns: leave out column options when you append")
    source = _like(files, path, progress)
    source.note(progress)
    x = _array(group, "x")
    pairs = {
        "columns": (source.columns, x.shape[1]),
        "dtype": (source.dtype.name, x.dtype.name),
        **{each.option: (kind_of(source.beside.get(each)), _kind_there(each, group, about)) for each in BESIDE},
        "block_rows": (record["block_rows"] or x.chunks[0], x.chunks[0]),
    }
    for what, (here, there) in pairs.items():
        if here != there:
            raise SpecError(f"{path}: cannot append, since {what} is {there} there and {here} in the new rows")
    source.check_memory(allowed, x.chunks[0])
    return source


def _kind_there(each: Beside, group: zarr.Group, about: Mapping[str, Any]) -> str:
    """The kind of values that a dataset holds beside its rows."""
    if each is LABELS and "categories" in about:
        return "text"
    return kind_of(np.dtype(_array(group, each.array).dtype) if each.array in about["arrays"] else None)


def _array(group: zarr.Group, name: str) -> zarr.Array[Any]:
    array = group[name]
    assert isinstance(array, zarr.Array)
    return array


def _fill(place: Output, source: Source, start: int, categories: dict[str, int], progress: Progress) -> dict[str, Any]:
    """Write all rows of the source from row `start` on; return the attributes that describe them."""
    x = Chunks.after(place, "x", start)
    beside = {each: Chunks.after(place, each.array, start) for each in source.beside}
    digest = hashlib.sha256()
    with shown_pass(progress, "ingest", source.expected) as advance:
        for X, values_of in source.pieces():
            digest.update(little_endian(X))
            x.add(X)
            for each, values in values_of.items():
                beside[each].add(_codes(values, categories))
            advance(len(X))
        for each, values in source.separate_pieces():
            beside[each].add(_codes(values, categories))
    stop = x.flush()
    source.check_counts({each: chunks.flush() - start for each, chunks in beside.items()}, stop - start)
    names = [last_name(path) for path in source.paths]
    entry = {"sources": names, "rows": [start, stop], "sha256": digest.hexdigest()}
    counts = source.counts
    if counts.values or counts.rows_dropped:
        columns = ", ".join(f"{count:,} in {name!r}" for name, count in counts.values.most_common())
        rule = "" if source.encoding is None else source.encoding.missing
        dropped = f"dropped {counts.rows_dropped:,} rows"
        done = dropped if rule == "drop" else f"filled in the {rule} of the column"
        others = " and ".join(f"{each.noun}s" for each in beside)
        progress.note(f"missing values: {columns or others}; {done}")
        entry["missing"] = {"values": dict(counts.values), "rows_dropped": counts.rows_dropped}
    filled: dict[str, Any] = {"rows": stop, "provenance": [entry]}
    if categories:
        filled["categories"] = list(categories)
    return filled | {"arrays": ["x", *(each.array for each in beside)]}


def _codes(values: Array, categories: dict[str, int]) -> Array:
    """Numbers unchanged; text as its code in `categories`, which grows by first appearance."""
    if values.dtype.kind != "U":
        return values
    return np.array([categories.setdefault(text, len(categories)) for text in values.tolist()], np.int32)
