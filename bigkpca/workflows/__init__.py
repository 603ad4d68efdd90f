"""Fit, transform, reconstruct, denoise and evaluate, from path to path."""
