"""Everything that writes an output, and other inputs for the same outputs."""

import numpy as np

import bigkpca
from bigkpca.ingesting.streaming import ingest

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 4))
FIT = {"components": 3, "size": 10, "seed": 0}
WRITES = {
    "ingest": lambda out, **how: ingest(["a.npy"], out, block_rows=16, **how),
    "fit": lambda out, **how: bigkpca.fit("d.zarr", out, **FIT, **how),
    "transform": lambda out, **how: bigkpca.transform("m.zarr", "d.zarr", out, block_rows=32, **how),
    "reconstruct": lambda out, **how: bigkpca.reconstruct("m.zarr", "s.zarr", out, block_rows=32, **how),
    "denoise": lambda out, **how: bigkpca.denoise("m.zarr", "d.zarr", out, block_rows=32, **how),
}
OTHERS = {  # of the same kind, and not the same
    "ingest": lambda out, **how: ingest(["a.npy"], out, dtype="float32", **how),
    "fit": lambda out, **how: bigkpca.fit("d.zarr", out, **FIT | {"size": 12}, **how),
    "transform": lambda out, **how: bigkpca.transform("m.zarr", "d.zarr", out, block_rows=64, **how),
    "reconstruct": lambda out, **how: bigkpca.reconstruct("m.zarr", "s.zarr", out, block_rows=64, **how),
    "denoise": lambda out, **how: bigkpca.denoise("m.zarr", "d.zarr", out, block_rows=64, **how),
}


def bigkpca_array():
    import zarr

    return zarr.open_group("d.zarr", mode="r")["x"]
