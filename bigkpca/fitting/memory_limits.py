"""Memory that a fit needs, and the largest size that fits."""

from __future__ import annotations

from dataclasses import replace

from bigkpca.data.rows import ArrayRows, Rows
from bigkpca.errors import DeviceMemoryError, MemoryLimitError
from bigkpca.execution.engine import Engine, KeptFeatures
from bigkpca.execution.planning import largest_size_that_fits, plan_resolved, smallest, worker_bytes
from bigkpca.fitting.features import SizeLimits
from bigkpca.spec import ResolvedFit

_FEATURE_BYTES = 96_000_000  # 60,000 rows with 400 landmarks; small compared with what a process needs anyway
_TIMES_ROWS = 2  # times the size of rows in memory: a machine that holds these has memory of that order
_LEAST_SHARE = 1 / 3  # of all features: fewer are not worth the memory


def check_fits(rows: Rows, fit: ResolvedFit, engine: Engine, limit: int | None) -> SizeLimits:
    """The largest size within the memory limits of this process and of the workers. Raises MemoryLimitError if a fit
    needs more than `limit` bytes in a process, or than the workers may use; with a tolerance, if even a size of 10
    does. Raises DeviceMemoryError if a device has too little memory."""
    found, device = SizeLimits(fit.size, memory=limit), engine.device
    if fit.spec.tol is not None:
        own = [] if limit is None else [(f"the memory limit of {limit / 1e6:.0f} MB", engine.threads, limit)]
        own += [(f"the memory of worker {at}", threads, most) for at, threads, most in engine.worker_limits()]
        limits = [(*each, "peak_bytes") for each in own]
        if device and engine.client is None and (free := device.free_bytes()) is not None:
            limits.append((f"the free memory of {device}", engine.threads, free, "device_bytes"))
        for name, threads, allowed, of in limits:
            if getattr(plan_resolved(rows, fit.changed(size=found.largest), threads, device), of) > allowed:
                size = largest_size_that_fits(rows, fit, threads, allowed, device, of)
                if size is None:
                    too_large = f"{smallest(rows, fit, threads, device, of)}, above {name}"
                    if of == "device_bytes":
                        raise DeviceMemoryError(f"{too_large}: use another device, or stop other programs that use it")
                    raise MemoryLimitError(f"{too_large}: allow more")
                found = replace(found, largest=size - size % 2, limited_by=name)
        return found
    plan = plan_resolved(rows, fit, engine.threads, device)
    if fit.spec.precomputed:
        plan.check(limit, "store the matrix in smaller chunks, request fewer components, or allow more")
    elif limit is not None and plan.peak_bytes > limit:
        size = largest_size_that_fits(rows, fit, engine.threads, limit, device)
        if fit.spec.own_landmarks is not None:
            advice = f"give fewer than {fit.spec.own_landmarks} landmarks, or allow more"
        elif size is None:
            advice = f"{smallest(rows, fit, engine.threads, device)}: allow more"
        else:
            method = "nystroem" if fit.spec.exact else fit.spec.method_value.name
            advice = f"{method} with a size of {size} would fit"
        plan.check(limit, advice)
    engine.check_memory(
        lambda threads: worker_bytes(rows, fit, threads, device),
        lambda threads: plan_resolved(rows, fit, threads, device).device_bytes,
    )
    return found


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
