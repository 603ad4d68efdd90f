"""From a start to a maximum of the objective: fixed-point steps that are shortened until nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.kernels import squared_norms
from bigkpca.numerics.preimages.base import Preimages
from bigkpca.numerics.preimages.objective import Objective

_SMALLEST_STEP = 2.0**-12
_STEPS = (0.1, 4.0)  # the bounds of a step after one that went well; up to 10 finds no sooner
_ROUNDING = 1e-14


@dataclass(frozen=True)
class _Rows:
    """What belongs to each row of a batch."""

    def of(self, chosen: Array) -> Self:
        """Some rows of the batch."""
        return type(self)(*(getattr(self, part.name)[chosen] for part in fields(self)))


@dataclass(frozen=True)
class _Given(_Rows):
    """Whose rows they are, what they are to explain, and where they began."""

    number: Array  # (b,)
    gamma: Array  # (b, D)
    start: Array  # (b, d)


@dataclass(frozen=True)
class _Place(_Rows):
    """Rows Z, F there, the fixed point that they are pulled to, and whether that can be trusted."""

    Z: Array  # (b, d)
    value: Array  # (b,)
    target: Array  # (b, d)
    sound: Array  # (b,), bool

    def instead(self, better: Array, other: _Place) -> _Place:
        """This place with the better rows of the other one."""
        pairs = [(getattr(self, part.name), getattr(other, part.name)) for part in fields(self)]
        return _Place(*(np.where(better[:, None] if a.ndim == 2 else better, b, a) for a, b in pairs))


def climb(goal: Objective, Z: Array, gamma: Array, *, hold: float, tol: float, most: int) -> Preimages:
    """Rows of larger and larger F from rows Z (b, d), by at most `most` steps.

    The first step goes to the fixed point image / weight, later ones as far along that way as the last one suggests;
    or a half, a quarter ... of it where F would fall there. `hold` pulls each row back to its start, as a landmark
    there would. A row has converged when the way left is at most `tol` lengths of the kernel; rows that are finished
    leave the batch.
    """
    rows, iterations, converged = Z.copy(), np.full(len(Z), most), np.zeros(len(Z), bool)
    given, step = _Given(np.arange(len(Z)), gamma, Z), np.ones(len(Z))
    here = _place(goal, Z, given, hold)
    for iteration in range(most + 1):
        # Never before the first step: with a very wide kernel every row is within tol, and one step brings it home.
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
    """How far to go along the way from `there`, (b,): to where the way would be gone if it shrank as it did so far.

    |s|² / s'y with s the last move and y what it took off the way (Barzilai and Borwein 1988).
    """
    moved = there.Z - here.Z
    shrunk = np.einsum("ij,ij->i", moved, (here.target - here.Z) - (there.target - there.Z))
    squares = squared_norms(moved)
    return np.clip(np.divide(squares, shrunk, out=np.ones(len(squares)), where=shrunk > 0), *_STEPS)


def _place(goal: Objective, Z: Array, given: _Given, hold: float) -> _Place:
    at = goal.at(Z, given.gamma)
    sound = at.weight > goal.least * at.total
    weight = np.where(sound, at.weight, 1) + hold
    value = at.value - hold / 2 * squared_norms(Z - given.start)
    return _Place(Z, value, (at.image + hold * given.start) / weight[:, None], sound)
