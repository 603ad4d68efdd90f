"""Runs the scripts of the sources, or those that are named, and prints where their figures are."""

import argparse
import csv
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from benchmarks.suite import called
from bigkpca.errors import DominantVariableWarning, FewerComponentsWarning, NarrowKernelWarning

SCRIPTS = (  # in the order of the thesis, then the other sources
    *("low_rank_image", "contours", "usps_scatter", "usps_preimages", "preimage_starts", "complexity"),
    *("error_bounds", "example1", "large_sizes", "example2", "side_claims", "random_draws"),
    *("polynomial_toy", "denoising", "nearest_mean", "regression", "basic_patterns"),
    *("explicit_maps", "principal_axes", "dna_similarities"),
)


def run(name: str, folder: Path, **options: int) -> None:
    """Run a script with those of the options that it has; print its tables and write them as CSV. Of what the settings
    of the sources bring about, such as kernels that are too narrow, nothing is warned."""
    with warnings.catch_warnings():
        for kind in (NarrowKernelWarning, DominantVariableWarning, FewerComponentsWarning):
            warnings.simplefilter("ignore", kind)
        for table in called(import_module(f"benchmarks.sources.{name}").main, {"folder": folder, **options}):
            print(f"\n{table.printed()}", flush=True)
            path = folder / (f"{name}_{table.suffix}.csv" if table.suffix else f"{name}.csv")
            with path.open("w", newline="") as file:
                csv.writer(file).writerows([table.header, *table.rows])


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sources", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these, of {', '.join(SCRIPTS)}")
    parser.add_argument("--rows", type=int, help="rows at most  [those of the source]")
    parser.add_argument("--repeats", type=int, help="seeds  [those of the source]")
    parser.add_argument("--folder", type=Path, default=Path("build") / "sources", help="where results are written")
    given = parser.parse_args(argv)
    if unknown := set(given.names) - {*SCRIPTS}:
        parser.error(f"no script {', '.join(unknown)}")
    given.folder.mkdir(parents=True, exist_ok=True)
    options = {option: getattr(given, option) for option in ("rows", "repeats") if getattr(given, option) is not None}
    for name in given.names or SCRIPTS:
        print(f"\n== {name}", flush=True)
        run(name, given.folder, **options)
    print("\nFigures:", *sorted(map(str, given.folder.glob("*.svg"))), sep="\n")


if __name__ == "__main__":
    main()
