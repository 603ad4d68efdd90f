"""Small scripts that each print tables: python -m benchmarks.NAME. One command runs them all: python -m benchmarks."""
