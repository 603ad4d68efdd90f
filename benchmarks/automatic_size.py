"""Sizes grown to a tolerance, against the smallest size that is found to meet it by fitting one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.common import arguments, seconds_of, some_rows
from benchmarks.landmarks import DATA, dataset
from benchmarks.results import Results, table
from bigkpca import KernelPCA

TOLERANCE = 0.15
COMPONENTS = 20
_FIRST, _STEP = 0.4, 1.04  # sizes tried by brute force: from this share of the grown one, by this factor


def smallest_sufficient(path: str, grown: int, model: KernelPCA) -> int:
    """The first of ascending sizes whose certificate meets the tolerance."""
    size = max(1, int(_FIRST * grown))
    while model.set_params(size=size, tol=None).fit(path).certificate_.unexplained > TOLERANCE:
        size = max(size + 1, int(_STEP * size))
    return size


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=60_000, repeats=1)
    lines = []
    for name, (load, sigma, standardize) in DATA.items():
        rows = load()
        X = some_rows(rows, min(given.rows, len(rows)))
        path = dataset(X, given.folder / f"{name}-{len(X)}.zarr")
        for seed in range(given.repeats):
            model = KernelPCA(COMPONENTS, sigma=sigma, standardize=standardize, random_state=seed, tol=TOLERANCE)
            seconds = seconds_of(partial(model.fit, path))
            grown, error = model.model_.features.size, model.certificate_.unexplained
            fewest = smallest_sufficient(path, grown, model)
            again = seconds_of(partial(model.set_params(size=grown).fit, path))
            lines.append([name, len(X), seed, grown, error, fewest, grown / fewest, seconds, again])
    header = ["data", "rows", "seed", "size", "certified error", "smallest", "ratio", "seconds", "at that size"]
    return Results((table(f"Sizes grown to tol={TOLERANCE}, sigma = median distance", header, lines),))


if __name__ == "__main__":
    main()
