"""Values on their way into tasks and out of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.numerics.aligned import all_aligned


class Carried:
    """What goes into a task or comes out of one. Its arrays are aligned wherever it arrives, also in another process.

    Rows are left as they are: they may be many, and align what is read of them. To Dask it is opaque, which would
    otherwise search each argument for graphs, for milliseconds.
    """

    def __init__(self, value: Any) -> None:
        self.value: Any = value if isinstance(value, ArrayRows) else all_aligned(value)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        from distributed.protocol import pickle

        buffers: list[Any] = []
        # Before protocol 5, messages hold arrays within, and these are copied out of them anyway.
        keep = buffers.append if protocol >= 5 else None
        return _unpacked, (pickle.dumps(self.value, buffer_callback=keep), buffers)


def _unpacked(packed: bytes, buffers: list[Any]) -> Carried:
    """What a message held: arrays begin where NumPy puts a copy of them, whatever object they are part of."""
    from distributed.protocol import pickle

    return Carried(pickle.loads(packed, buffers=[np.array(np.frombuffer(buffer, np.uint8)) for buffer in buffers]))
