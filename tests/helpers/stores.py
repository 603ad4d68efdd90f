"""Arrays written to disk as users have them, and how often their chunks are read."""

import numpy as np
import zarr

from bigkpca.data.zarr import ZarrRows


def as_zarr(folder, values, chunks, name="stored.zarr", **options):
    """A Zarr array of these values in place of what was there."""
    path = str(folder / name)
    array = zarr.create_array(path, shape=values.shape, dtype=values.dtype, chunks=chunks, overwrite=True, **options)
    array[:] = values
    return path


def as_npy(folder, values, name="stored.npy"):
    np.save(folder / name, values)
    return str(folder / name)


def counted_reads(monkeypatch, chunks, chunk_rows):
    """How often each of so many chunks of stored rows is read from now on."""
    counts, block = np.zeros(chunks, int), ZarrRows.block

    def counting(self, start, stop):
        counts[start // chunk_rows : (stop - 1) // chunk_rows + 1] += 1
        return block(self, start, stop)

    monkeypatch.setattr(ZarrRows, "block", counting)
    return counts
