"""Everything that writes an output, and other inputs for the same outputs."""

import numpy as np

import bigkpca
from bigkpca.ingesting import ingest

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 4))
FIT = {"n_components": 3, "size": 10, "random_state": 0}


def writes(transform_block, fit=FIT, **ingested):
    """Each command that writes an output, with options of which some may be others."""
    block = {"block_rows": transform_block}
    return {
        "ingest": lambda out, **how: ingest(["a.npy"], out, **ingested, **how),
        "fit": lambda out, **how: bigkpca.fit("d.zarr", out, **fit, **how),
        "transform": lambda out, **how: bigkpca.transform("m.zarr", "d.zarr", out, **block, **how),
        "reconstruct": lambda out, **how: bigkpca.reconstruct("m.zarr", "s.zarr", out, **block, **how),
        "denoise": lambda out, **how: bigkpca.denoise("m.zarr", "d.zarr", out, **block, **how),
    }


WRITES = writes(32, block_rows=16)
OTHERS = writes(64, FIT | {"size": 12}, dtype="float32")  # of the same kind, and not the same
