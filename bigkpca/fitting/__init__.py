"""Fit kernel PCA: from rows to a model."""
