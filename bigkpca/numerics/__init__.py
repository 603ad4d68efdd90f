"""Values in, values out: the mathematics of kernel PCA, with no disk, no Dask, no clock and no global state."""
