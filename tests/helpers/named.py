"""Rows with names of columns, and files of them."""

import numpy as np
import pandas as pd
import zarr

X = np.random.default_rng(3).normal(size=(60, 3)) * [1, 2, 3]
FRAME = pd.DataFrame(X, columns=list("abc"))
TURNED = FRAME[["c", "b", "a"]]


def csv(path, frame, *, header=True):
    frame.to_csv(path, index=False, header=header)
    return path


def parquet(path, frame):
    frame.to_parquet(path)
    return path


def stored(path):
    """The arrays of a dataset (w has the weights of the rows), its names, and the texts of its labels."""
    group = zarr.open_group(str(path), mode="r")
    about = group.attrs["bigkpca"]
    about = {"names": about.get("column_names"), "categories": about.get("categories")}
    beside = {key: group[name][:] if name in group else None for key, name in (("y", "y"), ("w", "sample_weight"))}
    return {"x": group["x"][:], **beside, **about}


WRITERS = {"csv": csv, "parquet": parquet}
