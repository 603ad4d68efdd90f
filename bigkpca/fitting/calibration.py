"""Rows that take no part in a fit, by which other rows are judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bigkpca.data.rows import ArrayRows, Rows
from bigkpca.data.sample_weights import number_and_weight, without
from bigkpca.errors import Array, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import read_sets
from bigkpca.execution.projection import scores_and_residuals_of_rows
from bigkpca.fitting.sample import NO_ROWS, drawn_numbers
from bigkpca.numerics.calibration import Calibration
from bigkpca.numerics.landmarks import RowNumbers
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import CALIBRATION, random_stream
from bigkpca.spec import FitSpec


def without_calibration(rows: Rows, spec: FitSpec, engine: Engine) -> tuple[Rows, Array]:
    """The rows that are fitted, and the numbers of the calibration rows: at most half of all, drawn with equal chances
    from the rows of positive weight, or the last ones. Raises SpecError if there are fewer than three rows."""
    count = spec.calibration_rows
    if not count:
        return rows, NO_ROWS
    own = spec.landmarks.numbers if isinstance(spec.landmarks, RowNumbers) else NO_ROWS
    if spec.calibration == "last":
        numbers = np.arange(rows.shape[0])[::-1][: 2 * count + len(own)]
    else:
        numbers = drawn_numbers(rows, 2 * count + len(own), spec.random_state, CALIBRATION, engine, equal=True)[0]
    numbers = numbers[~np.isin(numbers, own)]
    if len(numbers) < 3:
        raise SpecError(
            f"calibration_rows={count}: {rows.where} has too few rows to set some aside: add rows, or set it to 0"
        )
    numbers = np.sort(numbers[: min(count, len(numbers) // 2)])
    return without(rows, numbers), numbers


def calibrated(model: Model, X: Array, weight: float, engine: Engine) -> Model:
    """The model with a calibration, made from rows X (c, d) that took no part in its fit, in the units of the data;
    `weight` is the sum of the weights of the fitted rows."""
    scores, residuals = scores_and_residuals_of_rows(ArrayRows(X), model, engine)
    return replace(model, calibration=Calibration(X, weight / model.solution.eigenvalues, scores, residuals))


def calibration_rows_with(
    model: Model, rows: Rows, seed: int, engine: Engine, *, last: bool
) -> tuple[Rows, Array | None]:
    """The new rows that are added to a model, and the calibration rows X (c, d) of old and new rows together: as many
    as before, of which each new row, in proportion to the weights, replaces a random one, or the oldest if they are the
    `last` ones. None for a model without calibration."""
    held, sums = model.calibration, model.sums
    if held is None:
        return rows, None
    assert sums is not None
    n, new = number_and_weight(rows)
    old = sums.weight * (1 + held.count / sums.count)  # with the rows that are set aside
    stream = random_stream(seed, CALIBRATION, sums.count << 32)
    count = min(int(held.count * new / (old + new) + stream.random()), n // 2)
    if last:
        numbers, kept = np.arange(n - count, n), np.arange(count, held.count)
    else:
        seeds = int(stream.integers(2**32))
        numbers = np.sort(drawn_numbers(rows, count, seeds, CALIBRATION, engine, equal=True)[0])
        kept = np.sort(stream.permutation(held.count)[len(numbers) :])
    (own,) = read_sets(rows, engine, numbers)
    return without(rows, numbers), np.concatenate([held.rows[kept], own])


def joint_calibration_rows(parts: Sequence[tuple[float, Calibration | None]], seed: int) -> Array | None:
    """Calibration rows (c, d) of several models, in proportion to the weights of their rows; None if one has none."""
    total, found = sum(weight for weight, _ in parts), []
    for number, (weight, held) in enumerate(parts):
        if held is None:
            return None
        count = max(1, round(held.count * weight / total))
        found.append(held.rows[np.sort(random_stream(seed, CALIBRATION, number << 32).permutation(held.count)[:count])])
    return np.concatenate(found)
