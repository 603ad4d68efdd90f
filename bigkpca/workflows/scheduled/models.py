"""The models of a job: the first at the path that it names, those of refits beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bigkpca.data.rows import take
from bigkpca.data.stores import last_name, parent, store_of
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import SpecError
from bigkpca.execution.options import RunOptions
from bigkpca.execution.projection import check_columns
from bigkpca.fitting.reference import with_reference
from bigkpca.numerics.drift import REFERENCE_ROWS
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec
from bigkpca.spec.job import Job
from bigkpca.storage import models
from bigkpca.workflows.fit import fit_and_save, save
from bigkpca.workflows.scheduled.input_rows import Interval, rows_drawn


def model_path(job: Job, number: int) -> str:
    """The path of a model: "model.zarr", then "model-2.zarr" and so on."""
    first = job.model.path
    if number == 1:
        return first
    name, _, suffix = last_name(first).rpartition(".")
    return f"{parent(first)}/{name}-{number}.{suffix}" if name else f"{first}-{number}"


def first_model(job: Job, rows: ZarrRows, run: RunOptions) -> Model:
    """The model at the path of the job, or else the fit of these rows."""
    path = model_path(job, 1)
    model = _stored(path)
    if model is None:
        return fit_and_save(rows, job.model.spec, path, run)
    _check_options(job, model, path)
    check_columns(rows, model)
    return model


def fitted_again(job: Job, number: int, rows: ZarrRows, run: RunOptions, recent: Interval) -> Model:
    """Fit a model of all rows, where some of them drifted, and save it.

    Its reference is made of these `recent` rows: if later ones are like them, that is what the model was fitted for.
    The rows before them have one of their own, since the recent ones may have been one bad batch. Chance hides more
    where these are fewer; then they have none.
    """
    path = model_path(job, number)
    model = fit_and_save(rows, job.model.spec, path, run)
    with run.engine() as engine:

        def compared_with(first: int, stop: int) -> Model:
            X = take(rows, rows_drawn(first, stop, REFERENCE_ROWS, job.seed))
            return with_reference(model, X, rows.shape[0], job.seed, engine, job.model.spec)

        own = compared_with(recent.first, recent.stop)
        if recent.first >= min(len(recent), REFERENCE_ROWS):
            own = replace(own, earlier=compared_with(0, recent.first).reference)
    save(own, path, overwrite=True)
    return own


def model_of_version(job: Job, version: Mapping[str, Any]) -> Model:
    """The model that made a version. Raises SpecError where the path of the job leads to another one, or none."""
    path = model_path(job, version["model"]["number"])
    model = _stored(path)
    if model is None:
        raise SpecError(
            f"{path} is gone, the model by which features in {job.output.path} were extracted: restore it, or name "
            "another output"
        )
    if (own := models.model_digest(model)) != version["model"]["digest"]:
        raise SpecError(
            f"{job.output.path} holds features of the model {version['model']['digest'][:12]}, and {path} is the model "
            f"{own[:12]} (digests): restore that model, or name another output"
        )
    _check_options(job, model, path)
    return model


def _stored(path: str) -> Model | None:
    """The model at a path, after the end of a publication that was cut off; None where there is none."""
    store = store_of(path)
    if store.is_moving(path):
        with store.writer(path):
            store.recover(path)
    return models.load_model(path) if store.exists(path) else None


def next_number(job: Job, versions: Sequence[Mapping[str, Any]], begun: int | None) -> int:
    """The number of the model of a refit: the one that a run began which was cut off, or the next whose path is free:
    other models there may belong to other jobs, even with the same rows and options.
    """
    number = 1 + max((each["model"]["number"] for each in versions), default=1)
    while number != begun and store_of(model_path(job, number)).exists(model_path(job, number)):
        number += 1
    return number


def _check_options(job: Job, model: Model, path: str) -> None:
    """Raise SpecError where the job sets options of a fit that are not those of the model."""
    own, asked = FitSpec.of(model).to_dict(), job.model.spec.to_dict()
    other = [name for name in sorted(job.model.given) if own.get(name) != asked.get(name)]
    if other:
        both = ", ".join(f"{name} = {own.get(name)!r} there and {asked.get(name)!r} in the job" for name in other)
        raise SpecError(
            f"{path} was fitted with other options: {both}. Take these out of the job, or name another model and output"
        )
