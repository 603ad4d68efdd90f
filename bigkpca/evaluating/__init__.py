"""Measure the error of a model: from exact rows, from pre-images, and by cross-validation."""
