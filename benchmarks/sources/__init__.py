"""Every experiment and figure of the package's sources, repeated with its public interface.

Each script prints its table and writes NAME.csv; where the source has a figure, it draws NAME.svg. `docs/sources.md`
compares the results with those of the source.
"""
