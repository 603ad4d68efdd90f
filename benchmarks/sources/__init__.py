"""Every experiment and figure of the package's sources, repeated with its public interface.

Each script writes NAME.svg, the figure, and NAME.csv, its table, and prints the table. `docs/sources.md` compares the
results with those of the source.
"""
