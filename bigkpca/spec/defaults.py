"""Defaults that functions, commands and job files share."""

from __future__ import annotations

TIMEOUT = 600.0  # seconds without a finished block, after which a run ends
TIMEOUT_WRITTEN = f"{TIMEOUT / 60:g} min"
SEEDS = 3  # of each method and size that are compared
TIME_BUDGET = "10 min"  # of a comparison
SCORED_PREIMAGE = "ridge"  # of cross-validation
SAMPLED_ROWS = 500  # with exact kernels, which evaluate a model: intervals of a few percent of large eigenvalues
