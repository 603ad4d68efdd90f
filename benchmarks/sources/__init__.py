"""Every experiment and figure of the package's sources, repeated with its public interface.

Each script writes NAME.csv, its table, prints it, and draws NAME.svg where the source has a figure. `docs/sources.md` compares the
results with those of the source.
"""
