"""Plans: passes, tasks, bytes read and peak memory of a run, computed before anything runs."""

from __future__ import annotations

from bigkpca.execution.planning.base import INTERPRETER_BYTES, Plan, check_peak
from bigkpca.execution.planning.fits import largest_size_that_fits, plan_fit, plan_resolved, sample_bytes, smallest
from bigkpca.execution.planning.model_use import plan_evaluate, plan_reconstruct, plan_transform

__all__ = [
    "INTERPRETER_BYTES",
    "Plan",
    "check_peak",
    "largest_size_that_fits",
    "plan_evaluate",
    "plan_fit",
    "plan_reconstruct",
    "plan_resolved",
    "plan_transform",
    "sample_bytes",
    "smallest",
]
