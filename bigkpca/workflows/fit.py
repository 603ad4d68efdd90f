"""Fit a model and save it, from path to path."""

from __future__ import annotations

from time import monotonic
from typing import Any

from bigkpca.data.opening import open_rows
from bigkpca.errors import SpecError
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.progress import Progress, Silent
from bigkpca.execution.units import parse_bytes, parse_seconds
from bigkpca.fitting.fit import fit_within
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec
from bigkpca.storage import destination, durable, groups, locks, models, paths
from bigkpca.workflows.block_writer import Path, check_unchanged


def fit(
    data: Any,
    out: Path,
    *,
    array: str | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    time_budget: str | float | None = None,
    overwrite: bool = False,
    progress: Progress = Silent(),
    **options: Any,
) -> Model:
    """Fit `data` (a path, or anything that KernelPCA.fit takes) and save the model at `out`.

    options are the fields of FitSpec: components, kernel, sigma, method, size, seed, ... The same call on a
    finished `out` does nothing. With `tol`, `memory` and `time_budget` ("10 min", or seconds) end the growth of the
    size; the model records the size reached, and that size gives the same bits. Passes over the data: the bounded
    sample and one more, and both again in float64 where the rounding of float32 would count.
    Raises SpecError, DataError, MemoryLimitError, LockedError, CorruptionError.

    Rows that share a sentinel are far from all others, and told from each other all the same:

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 5)).astype("f4")
    >>> X[rng.random(3000) < 0.05, 2] = -9999
    >>> model = bigkpca.fit(X, "model.zarr", components=2, size=300)
    >>> model.solution.eigenvalues.round(0), model.certificate.trust
    (array([199., 195.]), ('solid', 'solid'))
    >>> [choice["option"] for choice in model.provenance["choices"]]
    ['sigma', 'landmarks', 'directions']

    Here 117 of the 295 directions that the landmarks span are left out, which may be mostly rounding in float32.
    """
    spec = FitSpec.checked(**options)
    deadline = None if time_budget is None else monotonic() + parse_seconds(time_budget)
    if deadline is not None and spec.tol is None:
        raise SpecError("a time budget ends the growth of the size: give a tolerance, tol, with it")
    if not isinstance(spec.kernel, str):
        models.check_savable(spec.kernel)
    rows = open_rows(data, array)
    fingerprint = rows.fingerprint()
    out = paths.group_path(out, fingerprint["path"])
    record = {"format": "model", "spec": spec.to_dict(), "identity": fingerprint}
    with locks.lock(out), durable.room_on_disk(out):
        if rows.names is not None and "column_names" in (groups.describe(out) or {}):  # models of before have none
            record["column_names"] = list(rows.names)
        place = destination.open_destination(out, record, overwrite=overwrite, whole=True)
        if place.state == "done":
            progress.note(f"{out} is there already, fitted from the same rows and options: nothing to do")
            there = models.load_model(out)
            if rows.names is not None and there.names is None:
                progress.note(f"{out} knows no names of columns: remove it and fit again to have later rows compared")
            return there
        with open_engine(scheduler, workers) as engine:
            limit = None if memory is None else parse_bytes(memory)
            model = fit_within(rows, spec, engine, limit, progress, fingerprint, deadline)
        check_unchanged(rows, fingerprint)
        _save(model, place)
    return model


def save(model: Model, path: Path, *, overwrite: bool = False) -> None:
    """Save a model; nothing happens where it is saved already. SpecError if something else is there, which `overwrite`
    replaces where it is a model, or if the kernel is a function."""
    out = paths.group_path(path)
    with locks.lock(out), durable.room_on_disk(out):
        record = {"format": "model", "digest": models.model_digest(model)}
        place = destination.open_destination(out, record, overwrite=overwrite, whole=True)
        if place.state != "done":
            _save(model, place)


def _save(model: Model, place: destination.Destination) -> None:
    with place.made() as scratch:
        models.save_model(model, scratch)
    place.put_in_place()
