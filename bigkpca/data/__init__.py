"""Uniform access to rows in memory, data frames, Dask, Zarr and .npy files."""
