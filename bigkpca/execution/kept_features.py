"""Features that the pass of a fit computed, kept in memory for the scores of the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Lock

from bigkpca.errors import Array


class KeptFeatures:
    """Features V (b, D) of tiles of rows, as many as fit into `most_bytes`, of one pass: the last that began.

    Scores made from them have the same bits as from features that are computed again, since tiles are the same.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = self._left = most_bytes
        self._tiles: dict[tuple[int, int], Array] = {}  # by first row and the row after the last
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[KeptFeatures], tuple[int]]:
        """In another process there is no place: what it kept would not come back."""
        return KeptFeatures, (0,)

    def begin(self) -> None:
        """Forget what another pass left, whose features may be others."""
        with self._lock:
            self._tiles, self._left = {}, self._most_bytes

    def keeping(self, start: int, tiles: Iterable[tuple[Array, Array]]) -> Iterator[tuple[Array, Array]]:
        """The tiles (V, diagonal) of consecutive rows from `start` on, of which V are kept as far as there is room."""
        for V, diagonal in tiles:
            stop = start + len(V)
            with self._lock:
                fits = V.nbytes <= self._left
                self._left -= V.nbytes * fits
            if fits:
                self._tiles[start, stop] = V.copy()  # as V is a work space
            yield V, diagonal
            start = stop

    def take(self, start: int, stop: int, height: int) -> list[Array] | None:
        """V of each tile of `height` rows from row `start` to `stop` - 1, which are kept no longer; None where one is
        missing."""
        spans = [(first, min(first + height, stop)) for first in range(start, stop, height)]
        if not all(span in self._tiles for span in spans):
            return None
        return [self._tiles.pop(span) for span in spans]
