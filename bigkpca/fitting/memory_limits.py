"""Memory that a fit needs, and the largest size that fits."""

from __future__ import annotations

from collections.abc import Callable

from bigkpca.data.rows import ArrayRows, Rows
from bigkpca.execution.engine import Engine, KeptFeatures
from bigkpca.execution.plan import over_limit, plan_resolved, worker_bytes
from bigkpca.spec import ResolvedFit

_FEATURE_BYTES = 96_000_000  # 60,000 rows with 400 landmarks; small compared with what a process needs anyway
_TIMES_ROWS = 2  # times the size of rows in memory: a machine that holds these has memory of that order
_LEAST_SIZE = 10  # that is advised
_LEAST_SHARE = 1 / 3  # of all features: fewer are not worth the memory


def check_fits(rows: Rows, fit: ResolvedFit, engine: Engine, limit: int | None) -> None:
    """Raise MemoryLimitError if a fit needs more than `limit` bytes in a process, or than the workers may use."""
    device = engine.device

    def needed(fit: ResolvedFit) -> int:
        return plan_resolved(rows, fit, engine.threads, device).peak_bytes

    peak = needed(fit)
    if limit is not None and peak > limit:
        raise over_limit(peak, limit, _advice(fit, limit, needed))
    engine.check_memory(lambda threads: worker_bytes(rows, fit, threads, device))


def _advice(fit: ResolvedFit, limit: int, needed: Callable[[ResolvedFit], int]) -> str:
    """What to do if a fit needs more than the limit."""
    if fit.spec.precomputed:
        return "request fewer components, or allow more"
    if fit.spec.given_landmarks is not None:
        return f"give fewer than {fit.spec.given_landmarks} landmarks, or allow more"
    size = largest_size_that_fits(fit, limit, needed)
    if size is None:
        smallest = needed(_sized(fit, _LEAST_SIZE))
        return f"even a size of {_LEAST_SIZE} needs {smallest / 1e6:.0f} MB: allow more"
    return f"{'nystroem' if fit.spec.exact else fit.spec.method_value.name} with a size of {size} would fit"


def largest_size_that_fits(fit: ResolvedFit, limit: int, needed: Callable[[ResolvedFit], int]) -> int | None:
    """The largest size, to two digits, whose fit needs at most `limit` bytes; even if features come in pairs. None if
    no size does."""
    step = 2 if fit.spec.method_value.pairs else 1
    powers = reversed(range(len(str(fit.size))))
    sizes = (digits * 10**power for power in powers for digits in range(99, _LEAST_SIZE - 1, -1))
    smaller = (size for size in sizes if size < fit.size and size % step == 0)
    return next((size for size in smaller if needed(_sized(fit, size)) <= limit), None)


def _sized(fit: ResolvedFit, size: int) -> ResolvedFit:
    """The fit with this size; with landmarks instead of the exact method."""
    return fit.changed(size=size, **({"method": "nystroem"} if fit.spec.exact else {}))


def make_room(kept: KeptFeatures | None, rows: Rows, fit: ResolvedFit, limit: int | None) -> None:
    """Make room for features that the pass of a fit keeps for scores: what `limit` leaves beside the plan.

    Without a limit: 96 MB or, for rows in memory, twice their size, if a third of all features fits; otherwise nothing
    is kept. Methods without such a pass keep nothing.
    """
    if kept is None or kept.most_bytes is not None:
        return
    kept.most_bytes = 0
    if fit.spec.precomputed or fit.spec.exact or fit.matrix_free:
        return
    if limit is None:
        room = max(_FEATURE_BYTES, _TIMES_ROWS * rows.held_bytes if isinstance(rows, ArrayRows) else 0)
        if room >= _LEAST_SHARE * fit.n * fit.size * fit.dtype.itemsize:
            kept.most_bytes = room
    else:
        most = fit if fit.spec.dtype else fit.changed(dtype="float64")  # which a second fit may need
        kept.most_bytes = max(0, limit - plan_resolved(rows, most, Engine().threads).peak_bytes)
