"""What a fit needs, and how far memory lets a size grow."""

from __future__ import annotations

from bigkpca.data.rows import Rows
from bigkpca.errors import (
    MemoryLimitError,
)
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import largest_size_that_fits, plan_fit, smallest
from bigkpca.fitting.size_search import Room
from bigkpca.spec import FitSpec


def check_fits(rows: Rows, spec: FitSpec, engine: Engine, limit: int | None) -> None:
    """Raise MemoryLimitError where a fit needs more than `limit` bytes in a process, or than workers may use.

    With a tolerance the size grows as far as memory allows: a size of 10 is what must fit.
    """
    if spec.tol is not None:
        room_for(rows, spec, engine, limit)
        return
    plan = plan_fit(rows, spec, engine.threads)
    if spec.precomputed:
        plan.check(limit, "store the matrix in smaller chunks, ask for fewer components, or allow more")
    elif limit is not None and plan.peak_bytes > limit:
        plan.check(limit, _smaller(rows, spec, engine.threads, limit))
    engine.check_memory(lambda threads: plan_fit(rows, spec, threads).peak_bytes)


def _smaller(rows: Rows, spec: FitSpec, threads: int, limit: int) -> str:
    """What to do where a fit needs more than `limit` bytes: the size that would fit, else how much the least needs."""
    if spec.own_landmarks is not None:
        return f"give fewer than {spec.own_landmarks} landmarks, or allow more"
    size = largest_size_that_fits(rows, spec, threads, limit)
    if size is None:
        return f"{smallest(rows, spec, threads)}: allow more"
    return f"{'nystroem' if spec.exact else spec.method_value.name} with a size of {size} would fit"


def room_for(rows: Rows, spec: FitSpec, engine: Engine, limit: int | None) -> Room:
    """How far memory lets the size grow: this process's limit, and those of workers."""
    room = Room(spec.feature_count(*rows.shape))
    limits = [] if limit is None else [(f"the memory limit of {limit / 1e6:.0f} MB", engine.threads, limit)]
    limits += [
        (f"the memory of worker {address}", threads, bytes_) for address, threads, bytes_ in engine.worker_limits()
    ]
    for name, threads, allowed in limits:
        if plan_fit(rows, spec.model_copy(update={"size": room.most}), threads).peak_bytes > allowed:
            size = largest_size_that_fits(rows, spec, threads, allowed)
            if size is None:
                raise MemoryLimitError(f"{smallest(rows, spec, threads)}, above {name}: allow more")
            room = Room(size - size % 2, name)
    return room
