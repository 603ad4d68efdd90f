"""The mathematics of kernel PCA, as pure functions and values: no disk, no Dask, no clock, no global state."""
