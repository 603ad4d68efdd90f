"""Normal noise for rows, generated on the fly from a key and the number of the row alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array


def row_noise(key: Array, first_row: int, rows: int, columns: int, copy: int = 0) -> Array:
    """Standard normal numbers for rows first_row, first_row + 1, ... of a table, (rows, columns), float32.

    Those of a row depend on its number, `copy` and the key (2,), uint64, alone, whatever other rows are asked for: the
    counter of Philox starts anew with each row. Pairs of normals by Box and Muller, from 24 bits each.
    """
    words = -(-columns // 2)  # of 64 bits, each a pair of normals
    steps = -(-words // 4)  # of the counter, each four words
    counter = np.array([first_row * steps, 0, 0, copy], np.uint64)
    raw = np.random.Philox(key=key, counter=counter).random_raw(rows * steps * 4).reshape(rows, steps * 4)[:, :words]
    radius = ((raw >> np.uint64(40)) + np.uint64(1)).astype(np.float32)
    radius *= np.float32(2.0**-24)
    np.log(radius, out=radius)
    radius *= np.float32(-2)
    np.sqrt(radius, out=radius)
    angle = (raw & np.uint64(2**24 - 1)).astype(np.float32)
    angle *= np.float32(2 * np.pi * 2.0**-24)
    noise = np.empty((rows, 2 * words), np.float32)
    np.multiply(radius, np.cos(angle), out=noise[:, :words])
    np.multiply(radius, np.sin(angle), out=noise[:, words:])
    return noise[:, :columns]


@dataclass(frozen=True)
class Noise:
    """Normal noise, independent in every column, on several copies of each row.

    deviation is in the units of the data.
    """

    deviation: float
    key: Array  # (2,), uint64
    copies: int

    def added(self, X: Array, first_row: int, copy: int) -> Array:
        """Rows X (b, d), the first of them number `first_row` of all, plus the noise of a copy."""
        return X + np.float32(self.deviation) * row_noise(self.key, first_row, X.shape[0], X.shape[1], copy)
