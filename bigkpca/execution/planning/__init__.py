"""Plans: passes, tasks, bytes read, peak memory and time of a run, computed before anything runs."""

from __future__ import annotations

from bigkpca.execution.planning.base import Plan, check_peak, process_bytes
from bigkpca.execution.planning.duration import Threads, measured_speed, not_timed, timed
from bigkpca.execution.planning.plans import (
    largest_size_that_fits,
    plan_evaluate,
    plan_fit,
    plan_reconstruct,
    plan_resolved,
    plan_transform,
    sample_bytes,
    smallest,
    worker_bytes,
)

__all__ = [
    "Plan",
    "Threads",
    "check_peak",
    "largest_size_that_fits",
    "measured_speed",
    "not_timed",
    "plan_evaluate",
    "plan_fit",
    "plan_reconstruct",
    "plan_resolved",
    "plan_transform",
    "process_bytes",
    "sample_bytes",
    "smallest",
    "timed",
    "worker_bytes",
]
