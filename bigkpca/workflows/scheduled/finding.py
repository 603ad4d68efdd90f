"""What a run of a job finds: the features that are there, the rows that arrived, and what a killed run began."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bigkpca.data.blocks import split
from bigkpca.data.opening import open_rows
from bigkpca.data.zarr import ZarrRows, whole
from bigkpca.errors import CorruptionError, DataError, FillValuesWarning, SpecError
from bigkpca.spec.job import Job, JobInput
from bigkpca.storage import groups, output, records

ELSEWHERE = "name another output.path, where all rows are extracted"
_OF_JOB: dict[str, records.Check] = {
    "rows_sha256": records.listed(records.is_str),
    "tail": records.listed(records.is_str),
}
_MANIFEST: dict[str, records.Check] = {
    **records.OUTPUT,
    "made_by": lambda value: isinstance(value, dict),
    "job": lambda value: isinstance(value, dict) and not records.wrong(value, _OF_JOB),
}


@dataclass(frozen=True)
class Found:
    """What a run finds."""

    job: Job
    out: str
    about: Mapping[str, Any]  # the manifest of the features; empty before the first night
    rows: ZarrRows  # whose features there will be
    to_fit: bool  # the model does not exist yet, so this run fits it
    stored: int  # rows that are stored by now
    room: int  # rows for which the input has room

    @property
    def done(self) -> int:
        """Rows that have features."""
        return int(self.about.get("rows", 0))

    @property
    def new(self) -> range:
        """The rows that the run extracts."""
        return range(self.done, self.rows.count)


def look(job: Job, out: str) -> Found:
    """What a run finds now. Reads no rows. Raises SpecError for paths with something else, and CorruptionError if there
    are fewer rows than before, or others."""
    about, model = features_at(out), job.model.path
    found, done = _open_input(job.input), about.get("rows", 0)
    if found.count < done:
        raise CorruptionError(
            f"{found.where} has {found.count:,} rows, but features of {done:,} were extracted: rows were removed. "
            f"Restore them, or {ELSEWHERE}"
        )
    if about and found.dtype.str != about["input"]["dtype"]:
        raise CorruptionError(
            f"{found.where} holds {found.dtype.str}, but features were extracted from {about['input']['dtype']}: it "
            f"was replaced. Restore it, or {ELSEWHERE}"
        )
    to_fit = groups.describe(model) is None
    if about and to_fit:
        raise SpecError(
            f"{model}, the model that extracted the features in {out}, is gone: restore it, or name another output"
        )
    stored = _stored_rows(found, about)
    if not stored:
        raise DataError(
            f"{found.where} has room for {found.count:,} rows, but the first of them are not stored yet: run again "
            "when they are"
        )
    claim, rows = output.claimed(model if to_fit else out) or {}, stored
    match claim.get("identity" if to_fit else "input"):
        case {"shape": [int(claimed), *_]} if done < claimed <= stored:
            rows = claimed  # with which a run began that was killed
    return Found(job, out, about, found.pin(rows), to_fit, stored, found.count)


def features_at(out: str) -> dict[str, Any]:
    """The manifest of the features of a job; empty before there are any. Raises SpecError if something else is there,
    CorruptionError if the manifest is damaged."""
    about = groups.describe(out)
    if about is None:
        output.check_place(out, {}, overwrite=False)
        return {}
    if "job" not in about:
        raise SpecError(
            f"{out} is a bigkpca {groups.named(about['format'])}, which runs of a job never replace: choose another "
            "output path for the job"
        )
    groups.open_group(out, "features")  # raises SpecError for other format versions
    records.check(about, _MANIFEST, out, f"restore it, or {ELSEWHERE}")
    if len(about["job"]["rows_sha256"]) != len(split(about["rows"], about["block_rows"])):
        raise CorruptionError(f"{out}: its manifest does not have a digest of each block: restore it, or {ELSEWHERE}")
    return about


def _open_input(given: JobInput) -> ZarrRows:
    """The rows of a job, of which some may not be stored yet. Raises SpecError for rows that cannot grow."""
    if "job" in (groups.describe(given.path) or {}):
        raise SpecError(
            f"{given.path} is the output of a job, whose last block is computed again whenever rows are added: name "
            "the rows themselves"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FillValuesWarning)  # chunks that are not stored are not read yet
        rows = open_rows(given.path)
    if not isinstance(rows, ZarrRows):
        raise SpecError(
            f"{given.path} is not a Zarr array or dataset, as a job needs for appended rows: make a dataset of it with "
            "bigkpca ingest, and add rows with bigkpca ingest --append"
        )
    return rows if rows.pinned else replace(rows, array=whole(rows.array))


def _stored_rows(found: ZarrRows, about: Mapping[str, Any]) -> int:
    """How many rows are stored: those that the manifest of a dataset names. Other programs make room first and can then
    store later chunks first, so rows end at the first chunk that is not stored."""
    done = about.get("rows", 0)
    if found.pinned or not found.room_in_last_chunk(done):
        return max(done, found.stored_rows(done))
    before, now = about["job"]["tail"], found.chunk_stamps(done - 1)
    # If the chunk of the last extracted row is unchanged in some columns, room was made for more rows that are not
    # written yet.
    waits = any(one == other for one, other in zip(before, now, strict=False))
    return int(done) if waits else max(done, found.stored_rows(done))
