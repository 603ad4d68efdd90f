"""Every experiment and figure of the package's sources, repeated with its public interface.

    python -m benchmarks.sources                # all of them, into build/sources
    python -m benchmarks.sources.contours       # one of them

Each script writes NAME.svg, the figure, and NAME.csv, its table, and prints the table. `docs/sources.md` tells what
the source reports, what these get, and why they differ.
"""
