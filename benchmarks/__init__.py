"""Small scripts that each print tables: python -m benchmarks NAME."""
