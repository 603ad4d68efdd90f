"""Merge models with the same features that were fitted to different rows, from paths to path."""

from __future__ import annotations

from collections.abc import Iterable

from bigkpca.data.stores import AnyPath, is_path
from bigkpca.errors import SpecError
from bigkpca.execution.options import RunOptions
from bigkpca.fitting import merge as merging
from bigkpca.numerics.model import Model
from bigkpca.storage import models
from bigkpca.storage.models import AnyModel
from bigkpca.workflows.fit import save


def merge(parts: Iterable[AnyModel], out: AnyPath | None = None, *, overwrite: bool = False) -> Model:
    """The model of the rows of all `parts`, which have the same features: parallel fits without a cluster.

    Fit one part of the rows, then the others with `like=` that model, anywhere and in any order, and merge. Sums over
    rows add up, and a small eigenproblem is solved again:

        Σ over all rows (v_i - c)(v_i - c)' = Σ over parts Σ over their rows (v_i - c)(v_i - c)'

    Parameters
    ----------
    parts : models
        Two or more: paths, Models, or fitted KernelPCA, each of other rows.
    out : path, optional
        Folder of the merged model; by default it is not saved.
    overwrite : bool
        Replace a model at `out`.

    Returns
    -------
    Model
        The features, options, names of columns, pre-image and signs are those of the first part.

    Raises
    ------
    SpecError
        Fewer than two models; models with different features, of the same rows, of the exact method, of the randomized
        solver, or with pre-images that are trained; something else at `out`.
    CorruptionError
        A model that is damaged.
    LockedError
        Another run writes `out`.

    Notes
    -----
    No pass over the data. Models are read one at a time; sums of at most log2 of them are held, at most 8 D² bytes each
    for D landmarks or random features. The sums are those of a fit of all rows with the same features: to the bit where
    every part but the last has the same number of blocks, a power of two, and blocks have the same number of rows, else
    to rounding. Bounds of the certificate hold for all rows: those with 95 % confidence from rows that each fit had set
    aside. As after `partial_fit`, there is no reference to measure the drift of later rows against. Source:
    `docs/numerics.md`, section 2.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(3000, 5))
    >>> first = bigkpca.fit(X[:1500], "first.zarr", components=2, size=100)
    >>> second = bigkpca.fit(X[1500:], "second.zarr", like=first)
    >>> bigkpca.merge([first, "second.zarr"], "merged.zarr").sums.count
    3000
    """
    if is_path(parts):
        raise SpecError(f"merge takes the models in a list, e.g. merge([{str(parts)!r}, ...]), and then the output")
    with RunOptions().engine() as engine:
        merged = merging.merge(map(models.model_of, parts), engine)
    if out is not None:
        save(merged, out, overwrite=overwrite)
    return merged
