"""Runs the scripts of the sources, or those that are named, and prints where their figures are."""

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

SCRIPTS = (  # in the order of the thesis, then the other sources
    *("low_rank_image", "contours", "usps_scatter", "usps_preimages", "preimage_starts", "complexity"),
    *("error_bounds", "example1", "large_sizes", "example2", "side_claims", "random_draws"),
    *("polynomial_toy", "denoising", "nearest_mean", "regression", "basic_patterns"),
    *("explicit_maps", "principal_axes", "dna_similarities"),
)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sources", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these, of {', '.join(SCRIPTS)}")
    parser.add_argument("--rows", help="rows at most  [those of the source]")
    parser.add_argument("--repeats", help="seeds  [those of the source]")
    parser.add_argument("--folder", default=str(Path("build") / "sources"), help="where results are written")
    given = parser.parse_args(argv)
    if unknown := set(given.names) - {*SCRIPTS}:
        parser.error(f"no script {', '.join(unknown)}")
    options = {"--rows": given.rows, "--repeats": given.repeats, "--folder": given.folder}
    passed = [text for option, value in options.items() if value is not None for text in (option, value)]
    for name in given.names or SCRIPTS:
        print(f"\n== {name}", flush=True)
        import_module(f"benchmarks.sources.{name}").main(passed)
    print("\nFigures:", *sorted(map(str, Path(given.folder).glob("*.svg"))), sep="\n")


if __name__ == "__main__":
    main()
