"""The first rows of a stream, kept until there are as many as the sample of a fit, so that kernel and landmarks can be
chosen again from all of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import numpy as np

from bigkpca.data.rows import ArrayRows, Rows, SampleWeights
from bigkpca.data.sample_weights import check_weights
from bigkpca.errors import Array
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import LEAST_WEIGHT, read_rows
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.merge import addition_of, check_addition, columns_of, extend
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec, resolve_shape

_GROWTH = 1.5  # of the number of rows: fits at each step read three times as many rows as the last of them


@dataclass(frozen=True)
class Gathered:
    """Rows X (n, d) in memory, and their weights (n,), if there are any. A model was fitted to the first `fitted` of
    them, and the others were added to it."""

    X: Array
    weights: Array | None
    fitted: int

    @property
    def rows(self) -> ArrayRows:
        held = None if self.weights is None else SampleWeights(self.weights, len(self.X))
        return ArrayRows(self.X, where="the rows of all calls", weights=held)

    def aged(self, decay: float) -> Gathered:
        """The rows with all weights times `decay`."""
        return self if decay == 1 else replace(self, weights=decay * _ones_if_none(self.weights, self.X))

    def followed_by(self, other: Gathered) -> Gathered:
        """These rows and then those of the other."""
        weights = None
        if not self.weights is other.weights is None:
            weights = np.concatenate([_ones_if_none(each.weights, each.X) for each in (self, other)])
        return Gathered(np.concatenate([self.X, other.X]), weights, self.fitted)


def _ones_if_none(weights: Array | None, X: Array) -> Array:
    return np.ones(len(X)) if weights is None else weights


def gathered(rows: Rows, spec: FitSpec, engine: Engine) -> Gathered | None:
    """The rows of a first fit, in memory; None if they are enough. Raises DataError for NaN, infinity and wrong
    weights."""
    return None if rows.shape[0] >= _enough(rows, spec) else _read(rows, engine)


def _enough(rows: Rows, spec: FitSpec) -> int:
    """The number of rows that a fit draws its sample of if there are many more: 20,000, or 64 MB as float32, but at
    least the number of landmarks."""
    return resolve_shape(spec, sys.maxsize, rows.shape[1], rows.dtype).sample


def _read(rows: Rows, engine: Engine) -> Gathered:
    n, weights = rows.shape[0], None
    if rows.weights is not None:
        weights = rows.weights.of(0, n)
        check_weights(weights, 0, rows.where)
    return Gathered(read_rows(rows, np.arange(n), engine), weights, n)


def add_rows(
    model: Model,
    held: Gathered | None,
    rows: Rows,
    spec: FitSpec,
    engine: Engine,
    limit: int | None = None,
    decay: float = 1.0,
) -> tuple[Model, Gathered | None]:
    """Add rows to a model, as `extend` does, or fit again if the model `held` all of its rows.

    The fit is that of all rows, in their order. It is due when their number has grown by half, when the new ones are
    far from all landmarks, for the last time when there are enough, and at each call if a tolerance or uniform
    landmarks require it. Returns the model with the rows that are held from then on, None if there are enough.

    Raises the errors of `fit_rows` and `extend`, and warns as they do.
    """
    if held is None:
        return extend(model, rows, spec, engine, limit, decay), None
    check_addition(model, rows, spec)
    held, enough = held.aged(decay), _enough(rows, spec)
    if rows.shape[0] >= enough:  # which are not read into memory
        found = _fitted_again(model, rows, spec, engine, limit)
        if held.weights is None or held.weights.max() >= LEAST_WEIGHT:
            found = extend(found, held.rows, spec, engine, limit)
        return found, None
    held = held.followed_by(_read(rows, engine))
    count = len(held.X)
    if count < min(_GROWTH * held.fitted, enough) and spec.tol is None and not spec.method_value.uniform:
        addition = addition_of(model, rows, spec, engine, limit, decay)
        if addition.far is None:
            return addition.done(engine), held
    named = replace(held.rows, names=model.names, one_hot=model.one_hot)
    found = _fitted_again(model, named, spec, engine, limit)
    return found, None if count >= enough else replace(held, fitted=count)


def _fitted_again(model: Model, rows: Rows, spec: FitSpec, engine: Engine, limit: int | None) -> Model:
    """A fit to rows with the columns of an earlier model."""
    engine.progress.note(f"kernel and landmarks are chosen again from {rows.shape[0]:,} rows")
    found = fit_rows(rows, spec, engine, limit=limit)
    return replace(found, provenance={**found.provenance, **columns_of(model)})
