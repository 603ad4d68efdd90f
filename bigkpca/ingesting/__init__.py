"""Ingestion: files of arrays, tables and tables in memory, streamed into one dataset on disk, chunk by chunk.

files -> checked pieces of at most 4 MB -> whole chunks -> sync -> the manifest, which publishes them

`arrays` and `tables` read the formats, `sources` opens and checks what the user passes, and `encoder` makes numbers of
the columns of tables.

A dataset appears at its path when it is complete, and readers use as many rows as its manifest names. So after a crash
the previous state is still intact, and rerunning the command finishes the work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from bigkpca.data.blocks import Block, power_of_two
from bigkpca.data.sample_weights import BESIDE, LABELS, WEIGHTS
from bigkpca.data.stores import AnyPath, expanded, is_path, last_name, store_of
from bigkpca.errors import Array, CorruptionError, DataError, RepeatedRowsWarning, SpecError, warn
from bigkpca.execution.progress import Progress, shown, shown_pass
from bigkpca.ingesting.encoder import OF_TEXT, Column, ColumnOptions, Encoder, Missing
from bigkpca.ingesting.sources import (
    Inputs,
    Piece,
    encoder_of,
    open_inputs,
    pieces_of_arrays,
    pieces_of_tables,
    separate_pieces,
    storable,
)
from bigkpca.ingesting.tables import CsvOptions
from bigkpca.storage import groups, output, records
from bigkpca.storage.groups import NewArray
from bigkpca.storage.output import Output, group_path

_CHUNK_BYTES, _CHUNK_ROWS = 2**21, 65536
_HELD_BYTES = 2**22  # of whole chunks that are written at once, since Zarr compresses them in parallel


def chunk_rows(row_bytes: int, given: int | None = None) -> int:
    """Rows per chunk: the given number, or else the largest power of two within 2 MiB and 65536 rows."""
    return given or min(_CHUNK_ROWS, power_of_two(_CHUNK_BYTES // row_bytes))


@dataclass(frozen=True)
class Ingested:
    """A finished dataset, whether it has labels and sample weights, and whether an earlier run had finished it.
    encoded: how each column of a table became numbers; empty for arrays."""

    path: str
    rows: int
    columns: int
    row_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    labels: bool
    already_done: bool
    sample_weight: bool = False
    encoded: tuple[Column, ...] = ()


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
    categorical: str | Sequence[str] = (),
    max_categories: int | None = None,
    missing: Missing = "refuse",
    text: str | None = None,
    csv: Mapping[str, Any] | None = None,
    like: AnyPath | None = None,
    block_rows: int | None = None,
    append: bool = False,
    overwrite: bool = False,
    progress: Progress | bool = False,
) -> Ingested:
    """Stream files or tables into the dataset `destination`: x (n, d), the rows of all sources in order, and if there
    are any, their labels y (n,) and weights sample_weight (n,).

    Axes of arrays after the first are flattened. Columns of tables are matched by name. Numbers and booleans are used
    as they are; dates become days since 1970-01-01, in UTC if they have a time zone. Repeating the call changes
    nothing, or finishes a run that was stopped. One pass over the files is preceded by another one if categories, means
    or characters are learned. Memory does not depend on the number of rows.

    Parameters
    ----------
    sources : path, table, or list of these
        Files: .npy, .npz, IDX, CSV and other delimited text, Parquet, Feather, FASTA; text, IDX and .npy may be
        compressed by gzip. Folders of such files, whose names such as year=2013 become columns. Tables of pandas,
        polars (also lazy), pyarrow and DuckDB, and all objects with `__arrow_c_stream__` or `__arrow_c_array__`; they
        are copied to a temporary file first (in `TMPDIR`).
    destination : path
        Folder of the dataset.
    member : str, optional
        Name of the array inside .npz files.
    labels, sample_weight : str, optional
        A file with one value for each row of all sources, or the name of an array or column, which is kept beside the
        rows. Labels of text become codes, numbered by first appearance. Weights are finite numbers of at least 0, for
        `bigkpca.fit(..., sample_weight="sample_weight")`.
    dtype : str, optional
        Dtype to cast to; by default that of the arrays, or the common one of the columns.
    columns, drop : sequence of str, optional
        Names of the columns to use, in this order, or of the columns to leave out.
    categorical : str or sequence of str, optional
        Columns that become categories, of text or of codes: a column of 0 and 1 for each distinct value, in
        alphabetical order. Text is refused otherwise.
    max_categories : int, optional
        Keep only this many of the most frequent values of each of these columns; all others, also of rows added later,
        become the category `(other)`. By default, all are kept, at most 1000.
    missing : {"refuse", "mean"}
        Treatment of missing values (empty fields, NA, null, NaN): an error, or the mean of the column, of a category
        its share.
    text : str, optional
        Name of a text column: rows are the numbers of its characters, padded with zeros, for string kernels
        (`kernels.Spectrum`). For FASTA files, this is always the sequence.
    csv : mapping, optional
        How text is read: `delimiter`, `encoding`, `decimal_point`, `skip_rows`, `header` (False: there is none),
        `null_values` (besides the usual ones), `timestamp_parsers` (formats of dates), other options of
        `pyarrow.csv`, and `column_types`, a mapping such as {"zip": "string"} from columns to types of Arrow. Others
        are found from the first megabyte; whole numbers are read as float64.
    like : path, optional
        Use the columns, categories and means of this dataset. `append` always does so.
    block_rows : int, optional
        Rows per chunk.
    append : bool
        Add the rows to a finished dataset with the same columns, and with labels and weights if it has some: by default
        from the array or column of the same name. Rows that were appended last are not added again: tables are
        recognised by their values, with a `RepeatedRowsWarning`.
    overwrite : bool
        Replace an existing dataset: on a local disk once the new one is finished, in an object store before it is
        begun.
    progress : bool or Progress
        True shows bars or, without a terminal, lines; a Progress object receives the number of rows read, and notes.

    Returns
    -------
    Ingested
        Path, shape and dtype of the dataset, how its columns were encoded, and whether it already existed.

    Raises
    ------
    SpecError
        Files or names that do not exist, or options that conflict.
    DataError
        Values that are missing, infinite or of another type than the rest of their column; types without numbers.
    CorruptionError
        Files that do not decode.
    MemoryLimitError
        A line of more than 1 MB, more than 10,000 columns of a table, or parts of arrays above 300 MB.
    LockedError
        Another run is writing `destination`.
    IncompleteError
        The disk is full, a file changed, or an earlier ingest did not finish.
    """
    progress = shown(progress)
    if append and (overwrite or like is not None):
        raise SpecError(
            "append adds to a dataset: leave out overwrite, which replaces it, and like, whose columns it takes"
        )
    if block_rows is not None and block_rows < 1:
        raise SpecError(f"block_rows={block_rows}: must be at least 1")
    used, unused, codes = _several(columns or ()), _several(drop), _several(categorical)
    options = ColumnOptions(used, unused, codes, max_categories, missing, text)
    model = destination if append else like
    if model is not None and options.changed:
        raise SpecError(f"{model} has the columns of a dataset: leave out all other options of columns")
    encoder = None if model is None else _encoder_at(expanded(model))
    beside = {LABELS: labels, WEIGHTS: sample_weight}
    if append:  # values beside the rows come from where those of the first rows came from
        before = _finished(expanded(destination))["options"]
        beside = {kind: name or before.get(kind.option) for kind, name in beside.items()}
    many = sources if isinstance(sources, list | tuple) else [sources]
    of_text = [column.name for column in (encoder.columns if encoder else ()) if column.kind in OF_TEXT]
    reading = CsvOptions(csv or {}, (*options.categorical, text, *of_text), beside[LABELS])
    with ExitStack() as scratch:
        inputs = open_inputs(many, beside, reading, scratch, progress.note)
        request = {
            "sources": inputs.identity,
            "options": options.changed | {kind.option: name for kind, name in inputs.named.items()},
            "csv": {name: repr(value) for name, value in (csv or {}).items()},
            "member": member,
        }
        record = {
            "format": "dataset",
            **request,
            "dtype": None if dtype is None else storable(dtype).name,
            "like": None if like is None else store_of(expanded(like)).absolute(expanded(like)),
            "block_rows": block_rows,
        }
        read = [str(each["path"]) for each in inputs.identity if each["path"] is not None]
        out = group_path(destination, *read, *map(expanded, filter(is_path, many)))
        path = store_of(out).absolute(out)
        if append:
            opening = output.growing(path, record, progress.note)
        else:
            opening = output.opened(path, record, overwrite=overwrite, note=progress.note)
        with opening as place:
            repeated = place.before is not None and place.before["provenance"][-1].get("request") == request
            if done := place.done or repeated:
                place.release()
            else:
                _make(place, inputs, options, encoder, request, progress)
    about = _finished(path)
    if done and append and (frames := [each["table"] for each in inputs.identity if each["path"] is None]):
        warn(
            f"{path}: these rows were appended last, so the {frames[0]} is not added again; to add equal rows once "
            "more, write them to a new file and append it",
            RepeatedRowsWarning,
        )
    return Ingested(
        path=path,
        rows=about["rows"],
        columns=about["columns"],
        row_shape=tuple(about["row_shape"]),
        dtype=np.dtype(groups.open_array(f"{path}/x").dtype),
        labels=LABELS.array in about["arrays"],
        sample_weight=WEIGHTS.array in about["arrays"],
        already_done=done,
        encoded=Encoder.from_json(about["encoding"]).columns if "encoding" in about else (),
    )


def _finished(path: str) -> dict[str, Any]:
    """The manifest of a dataset. Raises SpecError for anything else, IncompleteError if it is not finished."""
    groups.open_group(path, "dataset")
    about = groups.describe(path) or {}
    records.check(about, records.DATASET, path)
    return about


def _several(values: str | Iterable[str]) -> tuple[str, ...]:
    """Names, of which a single one need not be in a list."""
    return (values,) if isinstance(values, str) else tuple(map(str, values))


def _encoder_at(path: str) -> Encoder | None:
    """The encoder of the dataset at a path; None if it was made of arrays."""
    about = _finished(path)
    if "encoding" not in about:
        return None
    records.check(about["encoding"], records.ENCODING, path)
    return Encoder.from_json(about["encoding"])


def _make(
    place: Output,
    inputs: Inputs,
    options: ColumnOptions,
    known: Encoder | None,
    request: Mapping[str, Any],
    progress: Progress,
) -> None:
    """Write all rows, and publish them. Text and gzip cannot be read from the middle, so an interrupted run starts from
    the first row."""
    try:
        _check_kind(place, inputs, options, known)
        if known is None and inputs.of_tables:
            known = encoder_of(inputs, options, place.record["dtype"], progress)
        about = _filled(place, inputs, known, progress)
    except BaseException as error:
        place.discard()  # so that others can be ingested
        if isinstance(error, DataError | CorruptionError):
            inputs.check_unchanged()  # a file that changes between passes can have values that the first did not see
        raise
    inputs.check_unchanged()
    if place.before is None:
        place.publish(about | {"sources": request["sources"]})
        return
    (entry,) = about["provenance"]
    joined = {
        "provenance": [*place.before["provenance"], entry | {"request": request}],
        "sources": [*place.before["sources"], *request["sources"]],
    }
    place.publish(about | joined)


def _check_kind(place: Output, inputs: Inputs, options: ColumnOptions, known: Encoder | None) -> None:
    """Raise SpecError for options, or columns of a known dataset, that arrays or these tables do not have."""
    where = inputs.opened[0].where
    if not inputs.of_tables:
        if options.changed:
            raise SpecError(f"{where} is an array of numbers: options of columns are for tables")
        if known is not None or place.record["like"] is not None:
            raise SpecError(f"{where} is an array, whose columns have no names: ingest a table, without like")
        return
    if place.record["member"] is not None:
        raise SpecError(f"{where} is a table, which has no members: leave out member (--member)")
    if known is None:
        if place.before is not None or place.record["like"] is not None:
            raise SpecError(f"{where} is a table, but the dataset was made of arrays: ingest arrays")
        return
    for table in inputs.opened:
        if lacking := [column.name for column in known.columns if column.name not in table.names]:
            raise SpecError(f"{table.where} lacks the columns {', '.join(map(repr, lacking[:8]))} of the dataset")


def _filled(place: Output, inputs: Inputs, encoder: Encoder | None, progress: Progress) -> dict[str, Any]:
    """Write all rows behind those that are there, and return what describes them."""
    first, record = inputs.opened[0], place.record
    if encoder is None:
        rows = pieces_of_arrays(inputs.opened, record["member"], inputs.named, record["dtype"])
    else:
        rows = pieces_of_tables(inputs.opened, encoder, inputs.named)
    streams: list[Iterator[Piece]] = []
    heads: Piece = {}
    separate = [(separate_pieces(kind, file), file.where) for kind, file in inputs.separate.items()]
    for pieces, where in [(rows, first.where), *separate]:
        head = next(pieces, None)
        if head is None:
            raise DataError(f"{where} has no rows")
        streams.append(chain([head], pieces))
        heads |= head
    if place.before is None:
        _create(place, heads)
    else:
        _check_fits(place, heads)
    about = place.before or {"rows": 0}
    start, codes = about["rows"], {text: code for code, text in enumerate(about.get("categories", []))}
    chunks = {name: _Chunks(place, name, start) for name in heads}
    with shown_pass(progress, "ingest", inputs.rows) as advance:
        for piece in chain(*streams):
            for name, values in piece.items():
                if not _same_type(values, heads[name]):
                    raise SpecError(
                        f"{name} is {_type_of(heads[name])} and, from row {chunks[name].stop - start} on, "
                        f"{_type_of(values)}: convert all to one type first"
                    )
                chunks[name].add(_codes(values, codes))
            advance(len(piece.get("x", ())))
    for each in chunks.values():
        each.flush()
    stop = chunks["x"].stop
    for kind, file in inputs.separate.items():
        if (count := chunks[kind.array].stop - start) != stop - start:
            raise SpecError(
                f"{file.where} holds {count:,} {kind.noun}s for {stop - start:,} rows: it needs one for each"
            )
    names = [last_name(each["path"] or each["table"]) for each in inputs.identity]
    shape = columns = heads["x"].shape[1:]
    if encoder is None:
        shape = first.arrays[first.chosen(record["member"], inputs.named.values())].shape[1:]
    found = {
        "rows": stop,
        "columns": columns[0],
        "row_shape": list(shape),
        "arrays": list(heads),
        "provenance": [{"sources": names, "rows": [start, stop]}],
    }
    if codes:
        found["categories"] = list(codes)
    if encoder is not None:
        found |= {"column_names": list(encoder.names), "encoding": encoder.to_json()}
    return found


def _create(place: Output, heads: Piece) -> None:
    """Create the arrays of a new dataset for rows, and values beside them, like these."""
    X = heads["x"]
    arrays = {
        name: NewArray(np.int32 if values.dtype.kind == "U" else values.dtype, values.shape[1:], compress=True)
        for name, values in heads.items()
    }
    place.create(arrays, 0, chunk_rows(X.shape[1] * X.dtype.itemsize, place.record["block_rows"]))


def _check_fits(place: Output, heads: Piece) -> None:
    """Raise SpecError for rows, or values beside them, that cannot be added to a dataset."""
    path, about, X = place.path, _finished(place.path), heads["x"]
    x = groups.open_array(f"{path}/x")
    there: dict[str, Any] = {"columns": x.shape[1], "dtype": x.dtype.name, "block_rows": x.chunks[0]}
    here: dict[str, Any] = {"columns": X.shape[1], "dtype": X.dtype.name, "block_rows": place.record["block_rows"]}
    here["block_rows"] = here["block_rows"] or x.chunks[0]
    for kind in BESIDE:
        there[kind.option] = here[kind.option] = "none"
        if kind.array in about["arrays"]:
            of_text = kind is LABELS and "categories" in about
            there[kind.option] = "text" if of_text else groups.open_array(f"{path}/{kind.array}").dtype.name
        if kind.array in heads:
            here[kind.option] = _type_of(heads[kind.array])
    for what, of_new in here.items():
        if of_new != there[what]:
            raise SpecError(f"{path}: cannot append, since {what} is {there[what]} there and {of_new} in the new rows")


def _type_of(values: Array) -> str:
    return "text" if values.dtype.kind == "U" else values.dtype.name


def _same_type(values: Array, head: Array) -> bool:
    """Whether values can be stored with those at the head: both are text, or numbers that its type holds."""
    if "U" in (values.dtype.kind, head.dtype.kind):
        return values.dtype.kind == head.dtype.kind
    return np.can_cast(values.dtype, head.dtype)


class _Chunks:
    """Rows of an array of an output from row `start` on, collected in memory until they fill some chunks, which are
    then written at once."""

    def __init__(self, place: Output, name: str, start: int) -> None:
        array = groups.open_array(f"{place.folder}/{name}")
        row_bytes = math.prod(array.shape[1:]) * array.dtype.itemsize
        rows = array.chunks[0] * max(1, _HELD_BYTES // (array.chunks[0] * row_bytes))
        self._held = np.empty((rows, *array.shape[1:]), array.dtype)
        self._place, self._name, self.stop, self._filled = place, name, start, 0

    def add(self, values: Array) -> None:
        """Add rows, and write full chunks."""
        most = len(self._held)
        while len(values):
            taken = values[: most - self.stop % most]
            self._held[self._filled : self._filled + len(taken)] = taken
            self._filled += len(taken)
            self.stop += len(taken)
            values = values[len(taken) :]
            if self.stop % most == 0:
                self.flush()

    def flush(self) -> None:
        """Write the rows held."""
        if self._filled:
            block = Block(0, self.stop - self._filled, self.stop)
            self._place.write(block, {self._name: self._held[: self._filled]})
            self._filled = 0


def _codes(values: Array, categories: dict[str, int]) -> Array:
    """Numbers unchanged; text as its code in `categories`, which grows by first appearance."""
    if values.dtype.kind != "U":
        return values
    return np.array([categories.setdefault(text, len(categories)) for text in values.tolist()], np.int32)
