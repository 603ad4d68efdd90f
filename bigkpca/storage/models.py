"""Models on disk: plain arrays and one JSON attribute, loaded without executing anything and with every part checked.

A model may come from anyone: its digest protects against accidents, not against malice. So Zarr sees only metadata of
the form that `groups.create_array` writes, without a compressor, and nothing is read that claims to be larger than its
files. Shapes are defined in the classes themselves (`shapes` of feature maps and decoders).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, fields
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np
import zarr
from zarr.storage import StorePath

from bigkpca.data.blocks import power_of_two
from bigkpca.data.rows import little_endian
from bigkpca.data.stores import AnyPath, expanded, is_path, parsed, read_json, store_of
from bigkpca.data.zarr import read, whole
from bigkpca.data.zarr_stores import zarr_store
from bigkpca.errors import Array, CorruptionError, IncompleteError, SpecError
from bigkpca.numerics import kernels, moments, preimages
from bigkpca.numerics.calibration import Calibration, Limit
from bigkpca.numerics.certificate import Certificate
from bigkpca.numerics.drawn_rows import DrawnRows
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import MAPS, FeatureMap, Shape, takes
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import all_aligned
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import ShiftedSums
from bigkpca.numerics.registry import check_plain, name_in
from bigkpca.storage import groups, records

AGAIN = "fit the model again with --overwrite (overwrite=True in Python)"
_TYPES = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"}
_MOST = 2**62  # largest length; products of two still fit the integers of Zarr's index


def read_arrays(path: str, names: Any) -> dict[str, Array]:
    """The arrays with these names in the model at `path`, in memory.

    Raises CorruptionError, naming the array, if one is missing, does not decode, or is larger than its files.
    """
    if not records.listed(records.is_name)(names):
        raise CorruptionError(f"{path}: its list of arrays is {names!r:.80}, not a list of plain names; {AGAIN}")
    files = store_of(path).files(path)
    if gone := sorted(name for name in names if f"{name}/zarr.json" not in files):
        what = " (the rows with which it compares others)" if "landmarks" in gone else ""
        raise CorruptionError(f"{path}: {', '.join(gone)}{what} are missing; restore them, or {AGAIN}")
    chunk_bytes: Counter[str] = Counter()
    for key, file in files.items():
        name, _, rest = key.partition("/")
        if rest.startswith("c/"):
            chunk_bytes[name] += file.bytes
    opened = {name: _opened(f"{path}/{name}", chunk_bytes[name]) for name in sorted(names)}
    return {name: read(array, f"{path}/{name}", 0, array.shape[0]) for name, array in opened.items()}


def _opened(where: str, stored: int) -> zarr.Array[Any]:
    """An array of a model, which fits in `stored` bytes. Only shape, type and rows of a chunk are taken from its file:
    chunks have a checksum, and no codec that could expand little data into much, whatever that says."""
    try:
        found = read_json(f"{where}/zarr.json")
        shape, kind, grid = found["shape"], found["data_type"], found["chunk_grid"]["configuration"]
        rows, *_ = grid["chunk_shape"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CorruptionError(f"{where}: an array does not decode ({error!r:.80}); {AGAIN}") from error
    lengths = isinstance(shape, list) and all(type(each) is int and 0 <= each < _MOST for each in shape)
    usual = lengths and len(shape) in (1, 2) and isinstance(kind, str) and kind in _TYPES
    if not (usual and type(rows) is int and 0 < rows <= max(1, shape[0])):
        raise CorruptionError(
            f"{where} has shape {shape!r:.80}, type {kind!r:.80} and chunks of {rows!r:.80} rows, as no array of a "
            f"model; {AGAIN}"
        )
    declared = math.prod(shape) * np.dtype(kind).itemsize
    if declared > stored:
        raise CorruptionError(
            f"{where}: an array does not decode (shape {tuple(shape)} takes {declared:,} bytes, but its files have "
            f"{stored:,}); {AGAIN}"
        )
    metadata: Any = parsed(groups.metadata_of(groups.NewArray(kind, tuple(shape[1:])), shape[0], rows))
    return whole(zarr.Array(zarr.AsyncArray(metadata, StorePath(zarr_store(where)))))


# The parts that are fields of a model: their classes, and the shapes of their arrays in the letters of that class.
_PARTS: dict[str, tuple[type, Mapping[str, Shape]]] = {
    "solution": (Solution, {"mean": ("D",), "components": ("D", "r"), "eigenvalues": ("r",)}),
    "sums": (
        ShiftedSums,
        {"about": ("D",), "total": ("D",), "products": ("packed",), "errors": ("D",), "coarse": ("D",)},
    ),
    "certificate": (Certificate, {each.name: ("r",) for each in fields(Certificate) if "Array" in str(each.type)}),
    "drawn": (DrawnRows, DrawnRows.shapes),
    "calibration": (Calibration, Calibration.shapes),
}
_WITHOUT_PREFIX = ("solution", "features")  # whose arrays have their own names in the file
_OWN = {"format", "kernel", "arrays", *(part.name for part in fields(Model))}  # entries that are not provenance


def assembled(about: Mapping[str, Any], arrays: Mapping[str, Array]) -> Model:
    """The model from an attribute, without its digest, and from arrays in memory.

    Raises SpecError, naming the entry or the array, if they are not those of a model.
    """
    mean, components, offset = (arrays.get(name) for name in ("mean", "components", "offset"))
    if mean is None or components is None or offset is None or components.ndim != 2:
        raise SpecError("the array mean, components or offset is missing")
    D, r, d = len(mean), components.shape[1], len(offset)
    sizes = {"D": D, "r": r, "d": d, "d+1": d + 1, "r+1": r + 1, "packed": moments.entries(D)}
    parts = ["solution", *(name for name in _PARTS if name != "solution" and about.get(name) is not None)]
    given = {name: _part(name, about.get(name), arrays, sizes) for name in parts}
    features, decoder = _features(about, arrays, sizes), _decoder(about.get("decoder"), arrays, sizes)
    provenance: Any = {key: about[key] for key in about if key not in _OWN}
    _check_provenance(provenance, features.columns)
    model = Model(features, given.pop("solution"), provenance=provenance, decoder=decoder, **given)
    if "spec" in provenance:
        _ = model.method  # raises SpecError for one that is unknown
    return model


def _part(name: str, about: Any, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> Any:
    """A part of a model."""
    kind, shapes = _PARTS[name]
    plain = _dict_of(about, name)
    if name == "calibration" and (limit := plain.get("limit")) is not None:
        check_plain(Limit, _dict_of(limit, "limit"), "the limit of the calibration")
        plain["limit"] = Limit(**limit)
    given = _checked(kind, plain, name, arrays, shapes, sizes)
    for count in {"count", "rows"} & plain.keys():
        if not records.is_count(plain[count]):
            raise SpecError(f"{name} is of {plain[count]!r:.80} rows")
    if name == "solution" and not (np.isfinite(plain["total_variance"]) and plain["total_variance"] > 0):
        raise SpecError(f"total_variance is {plain['total_variance']}, not a positive number")
    return kind(**plain, **given)


def _features(about: Mapping[str, Any], arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> FeatureMap:
    kernel, plain = kernels.from_dict(about.get("kernel", {})), about.get("features", {})
    name = name_in(plain, "feature map")
    if name not in MAPS:
        raise SpecError(f"unknown feature map {name!r:.80}")
    kind = MAPS[name]
    if not takes(kind, kernel):
        raise SpecError(f"the feature map {name!r} has no form for the kernel {kernel.name!r}")
    given = _checked(kind, {**_unnamed(plain), "kernel": kernel}, "features", arrays, kind.shapes, sizes)
    features = kind(kernel=kernel, **_unnamed(plain), **given)
    if features.size != sizes["D"]:
        raise SpecError(f"the feature map has {features.size} features, but the mean has {sizes['D']}")
    if features.dtype not in (np.float32, np.float64):
        raise SpecError(f"block work in {features.dtype}")
    if features.scale is not None and not (features.scale > 0).all():
        raise SpecError("the array scale holds numbers that are not positive")
    return features


def _decoder(about: Any, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> preimages.Decoder | None:
    if about is None:
        return None
    kind = preimages.decoder_class(name_in(about, "decoder"))
    shapes = {field.name: kind.shapes.get(field.name, ()) for field in fields(kind) if "Array" in str(field.type)}
    plain = _unnamed(about)
    return kind(**plain, **_checked(kind, plain, "decoder", arrays, shapes, sizes))


def _check_provenance(provenance: Mapping[str, Any], columns: int) -> None:
    """Raise SpecError unless these are entries of a model with so many columns."""
    if found := records.wrong(provenance, records.PROVENANCE, partial=True):
        raise SpecError(found)
    names, blocks = provenance.get("column_names"), provenance.get("one_hot")
    if names is not None and len(names) != columns:
        raise SpecError(f"{len(names)} column names for {columns} columns")
    if blocks and blocks[-1][2] > columns:
        raise SpecError(f"columns of categories up to column {blocks[-1][2]}, of {columns}")


def _dict_of(value: Any, name: str) -> dict[str, Any]:
    """A copy of an entry that contains others. Raises SpecError for anything else."""
    if not isinstance(value, dict):
        raise SpecError(f"{name} is {value!r:.80}")
    return dict(value)


def _unnamed(about: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in about.items() if key != "name"}


_MAY_BE_EMPTY = ("certificate", "drawn")  # of no components, and without landmarks


def _checked(
    kind: type,
    plain: Mapping[str, Any],
    name: str,
    arrays: Mapping[str, Array],
    shapes: Mapping[str, Shape],
    sizes: Mapping[str, int],
) -> dict[str, Array]:
    """The arrays of a part of a model, those that exist.

    Raises SpecError if its plain values have other types, a shape does not match the sizes of its letters, or an array
    is empty or not finite.
    """
    prefix, own = _prefix(name), dict(sizes)  # other letters mean nothing elsewhere
    found = {key: arrays[prefix + key] for key in shapes if prefix + key in arrays}
    for key, values in found.items():
        shape = shapes[key]
        fits = len(shape) == values.ndim and all(
            length == (own.setdefault(size, length) if isinstance(size, str) else size)
            for size, length in zip(shape, values.shape, strict=True)
        )
        if shape and not fits:
            wanted = ", ".join(map(str, shape))
            raise SpecError(f"the array {prefix}{key} has the shape {values.shape}, and not ({wanted})")
        # A column of weight 0 has an infinite scale, and nothing may be known of a component.
        usable = ~np.isnan(values) if key == "scale" else np.isfinite(values) | (name == "certificate")
        if not (usable.all() and (values.size or name in _MAY_BE_EMPTY)):
            raise SpecError(f"the array {prefix}{key} is empty, or contains NaN or infinity")
    check_plain(kind, {**plain, **found}, f"the part {name!r}")
    return found


def _prefix(name: str) -> str:
    """With what the names of the arrays of a part begin."""
    return "" if name in _WITHOUT_PREFIX else f"{name}_"


_CHUNK_BYTES = 2**24  # a chunk is encoded whole in memory
_TRIES = 3  # tries to read a model that is replaced meanwhile


def write_arrays(model: Model, folder: str) -> dict[str, Any]:
    """Write the arrays of the model into `folder`; return the rest of it, for the manifest.

    Identical models give identical bytes: no time, host, scheduler or worker count is stored.
    """
    about, arrays = _parts(model)
    for name, values in sorted(arrays.items()):
        rows = max(1, min(values.shape[0], power_of_two(_CHUNK_BYTES // max(1, values[:1].nbytes))))
        new = groups.NewArray(values.dtype, values.shape[1:])
        groups.create_array(f"{folder}/{name}", new, len(values), rows)[...] = values
    return {**about, "digest": _digest(about, arrays)}


def check_savable(kernel: Kernel) -> None:
    """Raise SpecError for a kernel that is, or contains, a function."""
    if not kernel.savable:
        raise SpecError(
            "a model whose kernel is a function cannot be saved: a file cannot store code safely; use a kernel of "
            "bigkpca.kernels, or sums, products and scalings of them"
        )


class FittedEstimator(Protocol):
    """A fitted KernelPCA."""

    @property
    def model_(self) -> Model:
        """The fitted model."""


AnyModel = AnyPath | Model | FittedEstimator


def model_of(given: AnyModel) -> Model:
    """The model of a Model, a fitted KernelPCA, or a path.

    Raises SpecError for anything else, and the errors of `load_model`.
    """
    if is_path(given):
        return load_model(given)
    model = getattr(given, "model_", given)
    if isinstance(model, Model):
        aligned: Model = all_aligned(model)  # it may have come from another process
        return aligned
    name = type(given).__name__
    if hasattr(given, "get_params"):  # an estimator
        raise SpecError(f"this {name} has no model: pass a fitted KernelPCA")
    raise SpecError(f"a {name} is not a model: pass what fit returned, the path of a model, or a fitted KernelPCA")


def load_model(path: AnyPath) -> Model:
    """Load the model at `path`.

    Raises SpecError if there is none, CorruptionError if its content does not match its digest or is not that of a
    model, IncompleteError if it is replaced repeatedly while it is read. The file may come from anyone: nothing in it
    is executed, and no array is read that is larger than its files.
    """
    path = expanded(path)
    for _ in range(_TRIES):
        before = groups.describe(path)
        try:
            groups.open_group(path, "model")  # raises SpecError for anything else
            about = before or {}
            arrays = read_arrays(path, about.get("arrays"))
            known = {key: value for key, value in about.items() if key not in ("digest", "format_version")}
            if _digest(known, arrays) != about.get("digest"):
                raise CorruptionError(f"{path}: its content does not match its digest; {AGAIN}")
            try:
                return assembled(known, arrays)
            except SpecError as error:
                raise CorruptionError(f"{path} is not a model that this bigkpca can use: {error}; {AGAIN}") from error
        except CorruptionError:
            if groups.describe(path) == before:
                raise
    raise IncompleteError(f"{path} was replaced while it was being read: run the same command again")


def model_digest(model: Model) -> str:
    """SHA-256 of the canonical JSON and of the array values in name order."""
    return _digest(*_parts(model))


def _parts(model: Model) -> tuple[dict[str, Any], dict[str, Array]]:
    """The attribute of a model, and its arrays."""
    about: dict[str, Any] = {
        "format": "model",
        "bigkpca": version("bigkpca"),
        "kernel": model.features.kernel.to_dict(),
        "features": model.features.parameters(),
        **model.provenance,
    }
    own = {"features": model.features.arrays()}
    if model.decoder is not None:
        about["decoder"], own["decoder"] = model.decoder.parameters(), model.decoder.arrays()
    for name, (_, shapes) in _PARTS.items():
        if (part := getattr(model, name)) is not None:
            own[name] = {key: values for key in shapes if (values := getattr(part, key)) is not None}
            plain = {each.name: getattr(part, each.name) for each in fields(part) if each.name not in shapes}
            defaults = {each.name: each.default for each in fields(part)}
            # Defaults are left out, so that models keep their digests when parts get more fields.
            about[name] = {key: value for key, value in plain.items() if value != defaults[key]}
    if model.calibration is not None and model.calibration.limit is not None:
        about["calibration"]["limit"] = asdict(model.calibration.limit)
    arrays = {_prefix(name) + key: values for name, some in own.items() for key, values in some.items()}
    about["arrays"] = sorted(arrays)
    return about, arrays


def _digest(about: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(arrays):
        values = arrays[name]
        digest.update(f"{name} {values.dtype.newbyteorder('<').str} {values.shape}".encode())
        digest.update(little_endian(values))
    return digest.hexdigest()
