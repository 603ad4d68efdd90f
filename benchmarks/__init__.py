"""Small scripts that each print one table: python -m benchmarks.NAME. Ratios are of medians in one run."""
