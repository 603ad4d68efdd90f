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

    A step goes to the fixed point image / weight, or a half, a quarter ... of the way where F would fall there. `hold`
    pulls each row back to its start, as a landmark there would. A row has converged when the way left is at most `tol`
    lengths of the kernel; rows that are finished leave the batch.
    """
    rows, iterations, converged = Z.copy(), np.full(len(Z), most), np.zeros(len(Z), bool)
    given, step = _Given(np.arange(len(Z)), gamma, Z), np.ones(len(Z))
    here = _place(goal, Z, given, hold)
    for iteration in range(most + 1):
        arrived = squared_norms(here.target - here.Z) <= (tol * goal.length) ** 2
        finished = arrived | (step < _SMALLEST_STEP) | (iteration == most)
        if finished.any():
            numbers = given.number[finished]
            rows[numbers], iterations[numbers], converged[numbers] = here.Z[finished], iteration, arrived[finished]
            given, here, step = given.of(~finished), here.of(~finished), step[~finished]
        if not len(step):
            break
        there = _place(goal, here.Z + step[:, None] * (here.target - here.Z), given, hold)
        better = there.sound & (there.value >= here.value - _ROUNDING * np.abs(here.value))
        here = here.instead(better, there)
        step = np.where(better, np.minimum(2 * step, 1), step / 2)
    return Preimages(rows, converged, iterations, np.zeros(len(Z), bool))


def _place(goal: Objective, Z: Array, given: _Given, hold: float) -> _Place:
    at = goal.at(Z, given.gamma)
    sound = at.weight > goal.least * at.total
    weight = np.where(sound, at.weight, 1) + hold
    value = at.value - hold / 2 * squared_norms(Z - given.start)
    return _Place(Z, value, (at.image + hold * given.start) / weight[:, None], sound)
