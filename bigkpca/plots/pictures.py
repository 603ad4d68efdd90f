"""Rows as pictures, side by side."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.workflows.inputs import dataset_at

MAX_SIDE = 96  # pixels in a report; larger pictures are subsampled, so that the page stays small
_MIN_SIDE = 24  # pixels; those of smaller pictures are repeated, so that gaps look narrow
_GAP = 1


@dataclass(frozen=True)
class PictureFrame:
    """How rows become pictures: the shape (H, W) or (H, W, 3), and the values shown as black and white."""

    shape: tuple[int, ...]
    black: float
    white: float

    @classmethod
    def of(cls, shape: tuple[int, ...], rows: Array) -> PictureFrame:
        """The frame in which the rows (m, d) use the whole range of grey, but for 0.1 % at either end."""
        black, white = np.percentile(rows, [0.1, 99.9]).tolist()
        if white == black:  # nearly all values are the same
            black, white = float(rows.min()), float(rows.max())
        return cls(shape, black, white if white > black else black + 1)

    def pictures(self, rows: Array, max_side: int = MAX_SIDE) -> Array:
        """Pictures (m, h, w, 3), uint8, of rows (m, d)."""
        scaled = np.clip((rows.astype(np.float64) - self.black) / (self.white - self.black), 0, 1)
        side = max(self.shape[:2])
        step, times = max(1, math.ceil(side / max_side)), max(1, _MIN_SIDE // side)
        found = (scaled * 255).round().astype(np.uint8).reshape(len(rows), *self.shape[:2], -1)[:, ::step, ::step]
        found = found.repeat(times, axis=1).repeat(times, axis=2)
        return np.broadcast_to(found, (*found.shape[:3], 3))

    def sheet(self, *lines: Array, cmap: Any = None, max_side: int = MAX_SIDE) -> Array:
        """One line of pictures for each array of rows (m, d), below each other, as one picture (h, w, 4), uint8, with
        transparent gaps. With a colour map of Matplotlib, greys have its colours."""
        drawn = [self.pictures(rows, max_side) for rows in lines]
        if cmap is not None and self.shape[2:] != (3,):
            from matplotlib import colormaps

            colors = (255 * colormaps.get_cmap(cmap)(np.arange(256))[:, :3]).round().astype(np.uint8)
            drawn = [colors[pictures[..., 0]] for pictures in drawn]
        h, w = drawn[0].shape[1:3]
        padded = [np.pad(pictures, ((0, 0), (0, _GAP), (0, _GAP), (0, 0))) for pictures in drawn]
        image = np.concatenate([np.concatenate(list(line), axis=1) for line in padded])
        seen = np.pad(np.full((h, w), 255, np.uint8), ((0, _GAP), (0, _GAP)))
        alpha = np.tile(seen, (len(lines), len(lines[0])))[..., None]
        return np.ascontiguousarray(np.concatenate([image, alpha], axis=2)[:-_GAP, :-_GAP])

    def strip(self, *lines: Array) -> str:
        """The sheet of these lines as the data URI of a PNG."""
        from matplotlib.image import imsave

        file = io.BytesIO()
        imsave(file, self.sheet(*lines), format="png")
        return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def image_shape(given: Sequence[int] | None, columns: int) -> tuple[int, ...] | None:
    """The shape, which must be (H, W) or (H, W, 3) and fit the number of columns. Raises SpecError."""
    if given is None:
        return None
    shape = tuple(given)
    if not _is_picture(shape):
        raise SpecError(f"image shape {shape}: give height and width, e.g. 28,28, and 3 after them for colours")
    if math.prod(shape) != columns:
        raise SpecError(
            f"an image shape of {' × '.join(map(str, shape))} makes {math.prod(shape)} values, and rows have {columns}"
        )
    return shape


def recorded_shape(path: str | None, columns: int) -> tuple[int, ...] | None:
    """The shape of a row as a picture before ingest, as the dataset at this path records it; None if there is none."""
    shape = tuple((dataset_at(path) or {}).get("row_shape") or ())
    return shape if _is_picture(shape) and math.prod(shape) == columns else None


def _is_picture(shape: Sequence[int]) -> bool:
    """Whether rows of this shape can be shown as pictures."""
    return len(shape) in (2, 3) and min(shape) >= 1 and tuple(shape[2:]) in ((), (1,), (3,))
