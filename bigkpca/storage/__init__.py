"""Formats on disk: datasets, models and arrays written block by block, and how output is published."""
