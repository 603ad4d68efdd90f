"""Maximisation of the objective F by fixed-point steps, which are shortened until F does not fall."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.kernels import squared_norms
from bigkpca.numerics.preimages.base import Preimages
from bigkpca.numerics.preimages.objective import Objective

_SMALLEST_STEP = 2.0**-12
_STEPS = (0.1, 4.0)  # bounds of the step length after a successful step; up to 10 converges no sooner
_ROUNDING = 1e-14


@dataclass(frozen=True)
class _Rows:
    """Arrays with one entry for each row of a batch."""

    def of(self, chosen: Array) -> Self:
        """The entries of some rows of the batch."""
        return type(self)(*(getattr(self, part.name)[chosen] for part in fields(self)))


@dataclass(frozen=True)
class _Given(_Rows):
    """For each row: its number, the weights gamma of its φ^, and its start."""

    number: Array  # (b,)
    gamma: Array  # (b, D)
    start: Array  # (b, d)


@dataclass(frozen=True)
class _Place(_Rows):
    """For each row: the iterate Z, F there, the fixed point that the next step aims at, whether that is reliable."""

    Z: Array  # (b, d)
    value: Array  # (b,)
    target: Array  # (b, d)
    sound: Array  # (b,), bool

    def instead(self, better: Array, other: _Place) -> _Place:
        """This place, with the rows that are `better` replaced by those of the other place."""
        pairs = [(getattr(self, part.name), getattr(other, part.name)) for part in fields(self)]
        return _Place(*(np.where(better[:, None] if a.ndim == 2 else better, b, a) for a, b in pairs))


def climb(goal: Objective, Z: Array, gamma: Array, *, hold: float, tol: float, most: int) -> Preimages:
    """Increase F from rows Z (b, d), by at most `most` steps.

    The first step goes to the fixed point image / weight. Later steps follow the same direction, with a length that the
    last step suggests; a step is halved while F would fall. `hold` adds the gradient weight of a landmark at the start.
    A row has converged when its fixed point is within `tol` lengths of the kernel; finished rows leave the batch.
    """
    rows, iterations, converged = Z.copy(), np.full(len(Z), most), np.zeros(len(Z), bool)
    given, step = _Given(np.arange(len(Z)), gamma, Z), np.ones(len(Z))
    here = _place(goal, Z, given, hold)
    for iteration in range(most + 1):
        # Never before the first step: with a very wide kernel every row is within tol, and one step is enough.
        arrived = (squared_norms(here.target - here.Z) <= (tol * goal.length) ** 2) & (iteration > 0)
        finished = arrived | (step < _SMALLEST_STEP) | (iteration == most)
        if finished.any():
            numbers = given.number[finished]
            rows[numbers], iterations[numbers], converged[numbers] = here.Z[finished], iteration, arrived[finished]
            given, here, step = given.of(~finished), here.of(~finished), step[~finished]
        if not len(step):
            break
        there = _place(goal, here.Z + step[:, None] * (here.target - here.Z), given, hold)
        better = there.sound & (there.value >= here.value - _ROUNDING * np.abs(here.value))
        step = np.where(better, _next_step(here, there), step / 2)
        here = here.instead(better, there)
    return Preimages(rows, converged, iterations, np.zeros(len(Z), bool))


def _next_step(here: _Place, there: _Place) -> Array:
    """Length of the next step relative to the distance of the fixed point, (b,): |s|² / s'y.

    s is the last move, y the change that it made to the vector from the iterate to the fixed point (Barzilai and
    Borwein 1988).
    """
    moved = there.Z - here.Z
    shrunk = np.einsum("ij,ij->i", moved, (here.target - here.Z) - (there.target - there.Z))
    squares = squared_norms(moved)
    return np.clip(np.divide(squares, shrunk, out=np.ones(len(squares)), where=shrunk > 0), *_STEPS)


def _place(goal: Objective, Z: Array, given: _Given, hold: float) -> _Place:
    """Evaluate F and the fixed point at rows Z (b, d)."""
    at = goal.at(Z, given.gamma)
    sound = at.weight > goal.least * at.total
    weight = np.where(sound, at.weight, 1) + hold
    value = at.value - hold / 2 * squared_norms(Z - given.start)
    return _Place(Z, value, (at.image + hold * given.start) / weight[:, None], sound)
