"""Models on disk: plain arrays and one JSON attribute, loaded without executing anything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np

from bigkpca.data.blocks import power_of_two
from bigkpca.data.rows import little_endian
from bigkpca.data.stores import AnyPath, expanded, is_path, store_of
from bigkpca.errors import Array, CorruptionError, IncompleteError, SpecError
from bigkpca.numerics.aligned import all_aligned
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.model import Model
from bigkpca.storage import groups
from bigkpca.storage.model_arrays import AGAIN, read_arrays
from bigkpca.storage.model_parts import assembled

_SHARD_BYTES = 2**24
_TRIES = 3  # to read a model that others replace meanwhile


def save_model(model: Model, path: str) -> str:
    """Write the model into the new folder `path`, force it to disk, and return its digest.

    Identical models are identical bytes: no time, host, scheduler or worker count is stored.
    Raises SpecError for a kernel that is a function, before anything is written.
    """
    check_savable(model.features.kernel)
    about, arrays = _parts(model)
    about["digest"] = _digest(about, arrays)
    group = groups.create_group(path, about)
    for name, values in sorted(arrays.items()):
        shape = values.shape
        names = ["row", "column"][: len(shape)]
        row_bytes = max(1, values[:1].nbytes)
        most = power_of_two(_SHARD_BYTES // row_bytes)  # a shard is encoded whole in memory
        # Of whole chunks, so that the last one may reach beyond the rows: few divisors of their number are near 1 MB.
        chunk = max(1, min(shape[0], power_of_two(groups.CHUNK_BYTES // row_bytes)))
        rows = max(1, min(-(-shape[0] // chunk) * chunk, most))
        stored = groups.create_array(group, name, shape, values.dtype, rows, names, compress=False)
        stored[...] = values
    store_of(path).sync(path)
    return str(about["digest"])


def check_savable(kernel: Kernel) -> None:
    """Raise SpecError for a kernel that is, or contains, a function."""
    if not kernel.savable:
        raise SpecError(
            "a model whose kernel is a function cannot be saved: no file can hold code safely; "
            "use a kernel of bigkpca.kernels, or sums, products and scalings of them"
        )


class FittedEstimator(Protocol):
    """A KernelPCA after its fit."""

    @property
    def model_(self) -> Model:
        """The fitted model."""


AnyModel = AnyPath | Model | FittedEstimator


def model_of(given: AnyModel) -> Model:
    """The model of a Model, a fitted KernelPCA, or a path.

    Raises SpecError for anything else, and as `load_model`.
    """
    if is_path(given):
        return load_model(given)
    model = getattr(given, "model_", given)
    if isinstance(model, Model):
        aligned: Model = all_aligned(model)  # it may have come from another process
        return aligned
    name = type(given).__name__
    if hasattr(given, "get_params"):  # an estimator
        raise SpecError(f"this {name} has no model: give a fitted KernelPCA")
    raise SpecError(f"a {name} is not a model: give what fit returned, the path of a model, or a fitted KernelPCA")


def load_model(path: AnyPath) -> Model:
    """Load the model at `path`.

    Raises SpecError if there is none, CorruptionError if its content does not match its digest, or is not that of a
    model, IncompleteError if it is replaced again and again while it is read. The file may come from anybody: nothing
    in it is executed, and nothing is read that its files cannot hold.
    """
    path = expanded(path)
    for _ in range(_TRIES):
        before = groups.describe(path)
        try:
            return _loaded(path)
        except CorruptionError:
            if groups.describe(path) == before:
                raise
    raise IncompleteError(f"{path} was replaced while it was read: run the same command again")


def _loaded(path: str) -> Model:
    group = groups.open_group(path, "model")
    about = groups.describe(path) or {}
    arrays = read_arrays(group, path, about.get("arrays", []))
    known = {key: value for key, value in about.items() if key not in ("digest", "format_version")}
    if _digest(known, arrays) != about.get("digest"):
        raise CorruptionError(f"{path}: its content does not match its digest; {AGAIN}")
    try:
        return assembled(known, arrays)
    except SpecError as error:
        raise CorruptionError(f"{path} is not a model that this bigkpca can use: {error}; {AGAIN}") from error


def model_digest(model: Model) -> str:
    """SHA-256 of the canonical JSON and of the array values in name order."""
    return _digest(*_parts(model))


def _parts(model: Model) -> tuple[dict[str, Any], dict[str, Array]]:
    features, solution, sums = model.features, model.solution, model.sums
    about: dict[str, Any] = {
        "format": "model",
        "bigkpca": version("bigkpca"),
        "features": features.parameters(),
        "kernel": features.kernel.to_dict(),
        "total_variance": solution.total_variance,
        "negative": solution.negative,
        "unexplained": solution.unexplained,
        "sums": sums and {"count": sums.count, "trace": sums.trace, "largest": _finite(sums.largest)},
        "certificate": model.certificate.numbers(),
        "decoder": model.decoder and model.decoder.parameters(),
        **model.provenance,
    }
    arrays = {
        **features.arrays(),
        "mean": solution.mean,
        "components": solution.components,
        "eigenvalues": solution.eigenvalues,
    }
    arrays |= {f"certificate_{name}": values for name, values in model.certificate.arrays().items()}
    if model.decoder:
        arrays |= {f"decoder_{name}": values for name, values in model.decoder.arrays().items()}
    if sums:
        arrays |= {f"sums_{name}": getattr(sums, name) for name in ("about", "total", "products")}
    for kind in ("reference", "earlier"):  # models without one have no such entry: older ones keep their digest
        if (reference := getattr(model, kind)) is not None:
            about[kind] = {"rows": reference.rows}
            arrays |= {f"{kind}_{name}": getattr(reference, name) for name in reference.shapes}
    about["arrays"] = sorted(arrays)
    return about, arrays


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None  # which JSON cannot say


def _digest(about: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(arrays):
        values = arrays[name]
        digest.update(f"{name} {values.dtype.newbyteorder('<').str} {values.shape}".encode())
        digest.update(little_endian(values))
    return digest.hexdigest()
