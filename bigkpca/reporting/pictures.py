"""Show rows as pictures: strips of them in one small embedded PNG."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array, SpecError

_MAX_SIDE = 96  # pixels; larger pictures are subsampled, so that the page stays small
_MIN_SIDE = 24  # pixels; those of smaller pictures are repeated, so that gaps look narrow
_GAP = 1


@dataclass(frozen=True)
class Frame:
    """How rows become pictures: the shape (H, W) or (H, W, 3), and the values shown as black and white."""

    shape: tuple[int, ...]
    black: float
    white: float

    @classmethod
    def of(cls, shape: tuple[int, ...], rows: Array) -> Frame:
        """The frame in which the rows (m, d) use the whole range of grey, but for 0.1 % at either end."""
        black, white = np.percentile(rows, [0.1, 99.9]).tolist()
        if white == black:  # nearly all values are the same
            black, white = float(rows.min()), float(rows.max())
        return cls(shape, black, white if white > black else black + 1)

    def pictures(self, rows: Array) -> Array:
        """Pictures (m, h, w, 3), uint8, of rows (m, d)."""
        scaled = np.clip((rows.astype(np.float64) - self.black) / (self.white - self.black), 0, 1)
        side = max(self.shape[:2])
        step, times = max(1, math.ceil(side / _MAX_SIDE)), max(1, _MIN_SIDE // side)
        found = (scaled * 255).round().astype(np.uint8).reshape(len(rows), *self.shape[:2], -1)[:, ::step, ::step]
        found = found.repeat(times, axis=1).repeat(times, axis=2)
        return np.broadcast_to(found, (*found.shape[:3], 3))

    def strip(self, *lines: Array) -> str:
        """One line of pictures for each array of rows (m, d), below each other, as a data URI."""
        pictures = [np.pad(self.pictures(rows), ((0, 0), (0, _GAP), (0, _GAP), (0, 0))) for rows in lines]
        image = np.concatenate([np.concatenate(list(line), axis=1) for line in pictures])
        seen = np.pad(np.full(self.pictures(lines[0][:1]).shape[1:3], 255, np.uint8), ((0, _GAP), (0, _GAP)))
        alpha = np.tile(seen, (len(lines), len(lines[0])))[..., None]  # gaps are transparent
        return _data_uri(np.concatenate([image, alpha], axis=2)[:-_GAP, :-_GAP])


def image_shape(given: Sequence[int] | None, columns: int) -> tuple[int, ...] | None:
    """The shape as given, checked.

    Raises SpecError unless it is (H, W) or (H, W, 3) and its product is the number of columns.
    """
    if given is None:
        return None
    shape = tuple(given)
    if not is_picture(shape):
        raise SpecError(f"image shape {shape}: give height and width, e.g. 28,28, and 3 after them for colours")
    if math.prod(shape) != columns:
        raise SpecError(
            f"an image shape of {' × '.join(map(str, shape))} makes {math.prod(shape)} values, and rows have {columns}"
        )
    return shape


def is_picture(shape: Sequence[int]) -> bool:
    """Whether rows of this shape can be shown as pictures."""
    return len(shape) in (2, 3) and min(shape) >= 1 and tuple(shape[2:]) in ((), (1,), (3,))


def _data_uri(image: Array) -> str:
    """An image (h, w, 4), uint8, as the data URI of a PNG."""
    from matplotlib.image import imsave

    file = io.BytesIO()
    imsave(file, np.ascontiguousarray(image), format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
