"""The same rows as every kind of input."""

from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import zarr

from tests.helpers.stores import as_npy, as_zarr

X = np.random.default_rng(0).normal(size=(103, 7))


def in_chunks(folder, **options):
    return as_zarr(folder, X, **{"chunks": (10, 4), "zarr_format": 3} | options)


def as_group(folder, name):
    path = str(folder / "group.zarr")
    zarr.create_group(path).create_array(name, data=X, chunks=(10, 7))
    return path


KINDS = {
    "numpy": lambda folder: X,
    "list": lambda folder: X.tolist(),
    "pandas": lambda folder: pd.DataFrame(X),
    "polars": lambda folder: pl.DataFrame(X),
    "dask": lambda folder: da.from_array(X, chunks=(17, 3)),
    "zarr v3": in_chunks,
    "zarr v2": lambda folder: in_chunks(folder, zarr_format=2),
    "sharded zarr": lambda folder: in_chunks(folder, chunks=(10, 7), shards=(40, 7)),
    "zarr object": lambda folder: zarr.open_array(in_chunks(folder), mode="r"),
    "group with x": lambda folder: as_group(folder, "x"),
    "group with one array": lambda folder: as_group(folder, "anything"),
    "npy": lambda folder: as_npy(folder, X),
    "Fortran npy": lambda folder: as_npy(folder, np.asfortranarray(X)),
    "path object": lambda folder: Path(as_npy(folder, X)),
}


def in_memory_zarr(values):
    return zarr.create_array(zarr.storage.MemoryStore(), data=values, chunks=(10, 7))


def fsspec_store(tmp_path):
    # A store of a new name, since the memory of fsspec is one for all.
    return zarr.storage.FsspecStore.from_url(f"memory://{tmp_path.name}/{id(tmp_path)}/g")
