"""Rows, wherever they come from: memory, data frames, Dask, Zarr, .npy files."""
