"""Models on disk: plain arrays and one JSON attribute, loaded without executing anything and with every part checked.

A model may come from anyone: its digest protects against accidents, not against malice. So Zarr sees only metadata in
the form that `groups.create_array` writes, without a compressor, and nothing is read that claims to be larger than its
files. Shapes are defined in the classes themselves (`shapes` of feature maps, decoders and the certificate).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, fields
from importlib.metadata import version
from typing import Any, Protocol, TypeVar

import numpy as np
import zarr

from bigkpca.data.blocks import power_of_two
from bigkpca.data.json_files import read_json
from bigkpca.data.labels import are_stored_labels
from bigkpca.data.rows import little_endian
from bigkpca.data.stores import AnyPath, expanded, is_path, store_of
from bigkpca.data.zarr import read, whole
from bigkpca.errors import Array, BigKPCAError, CorruptionError, IncompleteError, SpecError
from bigkpca.numerics import kernels, moments, preimages
from bigkpca.numerics.certificates import Certificate
from bigkpca.numerics.certificates.sampling import DrawnRows
from bigkpca.numerics.drift import Reference
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import MAPS, FeatureMap, Shape, from_parts
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import all_aligned
from bigkpca.numerics.linear_pca import Captured
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import ShiftedSums
from bigkpca.numerics.outliers import Calibration, Limit
from bigkpca.numerics.registry import check_plain, name_in
from bigkpca.storage import groups, records

AGAIN = "fit the model again with --overwrite (overwrite=True in Python)"
_TYPES = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"}
_KEYS = {
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "attributes",
    "dimension_names",
    "zarr_format",
    "node_type",
    "storage_transformers",
}
_PLACES = {"name": "default", "configuration": {"separator": "/"}}
_ORDERS: tuple[Any, ...] = (None, {}, {"endian": "little"}, {"endian": "big"})  # absent if a value is one byte
_MOST = 2**62  # largest length; products of two still fit the integers of Zarr's index


def read_arrays(group: zarr.Group, path: str, names: Collection[str]) -> dict[str, Array]:
    """The arrays with these names in the model at `path`, in memory.

    Raises CorruptionError, naming the array, if one is missing, is larger than its files, or is not stored in the way
    of models.
    """
    if not isinstance(names, list) or not all(isinstance(name, str) and name.isidentifier() for name in names):
        # Other names could lead out of the folder.
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
    checked = {name: _checked_metadata(f"{path}/{name}", chunk_bytes[name]) for name in sorted(names)}
    found = {}
    try:
        for name, metadata in checked.items():  # which are not read again
            array: Any = whole(zarr.Array(zarr.AsyncArray(metadata, group.store_path / name)))
            found[name] = read(array, f"{path}/{name}", 0, array.shape[0])
        return found
    except (MemoryError, BigKPCAError):
        raise
    except Exception as error:  # Zarr raises its own types for metadata that it does not accept
        raise CorruptionError(f"{path}: an array does not decode ({error}); {AGAIN}") from error


def _checked_metadata(where: str, stored: int) -> Any:
    """The metadata of an array. Raises CorruptionError unless it is an array of a model that fits in `stored` bytes."""
    try:
        found = read_json(f"{where}/zarr.json")
    except (OSError, ValueError) as error:
        raise CorruptionError(f"{where}: an array does not decode ({error}); {AGAIN}") from error
    if wrong := _wrong(found):
        raise CorruptionError(f"{where} is not an array that bigkpca wrote: {wrong}; {AGAIN}")
    declared = math.prod(found["shape"]) * np.dtype(found["data_type"]).itemsize
    if declared > stored:
        raise CorruptionError(
            f"{where}: an array does not decode (shape {tuple(found['shape'])} takes {declared:,} bytes, but its files "
            f"have {stored:,}); {AGAIN}"
        )
    return found


def _wrong(found: Any) -> str | None:
    """What is wrong with the metadata of an array, which may be any JSON; None if nothing is."""
    match found:
        case {"node_type": "array", "zarr_format": 3, "shape": shape, "data_type": str(kind)} if found.keys() <= _KEYS:
            pass
        case _:
            return "its metadata has other entries"
    if not (_is_shape(shape, 0) and len(shape) in (1, 2)):
        return f"its shape is {shape!r:.80}"
    if kind not in _TYPES or found.get("fill_value") != ("NaN" if np.dtype(kind).kind == "f" else 0):
        return f"its type is {kind!r:.80}, filled with {found.get('fill_value')!r:.80}"
    if found.get("chunk_key_encoding") != _PLACES or found.get("storage_transformers"):
        return "its chunks have other names"
    # Chunks of whole rows, with a checksum, and no codec that could expand little data into much.
    match found.get("codecs"), found.get("chunk_grid"):
        case (
            [{"name": "bytes", **values}, {"name": "crc32c", **check}],
            {"name": "regular", "configuration": {"chunk_shape": chunk}},
        ) if values.get("configuration") in _ORDERS and not check.get("configuration"):
            pass
        case _:
            return "it is stored with other codecs or chunks"
    whole_rows = _is_shape(chunk, 1) and len(chunk) == len(shape) and chunk[1:] == [max(1, each) for each in shape[1:]]
    if not (whole_rows and chunk[0] <= max(1, shape[0])):
        return f"its chunks have the shape {chunk!r:.80}"
    return None


def _is_shape(value: Any, least: int) -> bool:
    return isinstance(value, list) and all(type(length) is int and least <= length < _MOST for length in value)


_Part = TypeVar("_Part", ShiftedSums, Reference, Captured, DrawnRows)
_SOLUTION: dict[str, Shape] = {"mean": ("D",), "components": ("D", "r"), "eigenvalues": ("r",)}
# Entries of the attribute that are not part of the provenance.
_OWN = {"format", "kernel", "arrays", *(part.name for kind in (Model, Solution) for part in fields(kind))}


def assembled(about: Mapping[str, Any], arrays: Mapping[str, Array]) -> Model:
    """The model from an attribute, without its digest, and from arrays in memory.

    Raises SpecError, naming the entry or the array, if they are not those of a model.
    """
    kernel = kernels.from_dict(about.get("kernel", {}))
    solution, sizes = _solution(about, arrays)
    features = _features(about.get("features"), kernel, arrays, sizes)
    shapes: dict[str, Shape] = {"about": ("D",), "total": ("D",), "products": (moments.entries(sizes["D"]),)}
    sums = _part(ShiftedSums, "sums", about, arrays, shapes, sizes)
    certified = _dict_of(about.get("certificate"), "certificate")
    certified |= _shaped("certificate_", arrays, Certificate.shapes(), dict(sizes), finite=False)
    check_plain(Certificate, certified, "the certificate")
    certificate = Certificate(**certified)
    decoder = _decoder(about.get("decoder"), arrays, sizes)
    more = {**sizes, "r+1": sizes["r"] + 1}
    reference = _part(Reference, "reference", about, arrays, Reference.shapes, more, "rows")
    captured = _part(Captured, "captured", about, arrays, Captured.shapes, sizes, "rows")
    drawn = _part(DrawnRows, "drawn", about, arrays, DrawnRows.shapes, sizes)
    calibration = _calibration(about.get("calibration"), arrays, more)
    provenance: Any = {key: about[key] for key in about if key not in _OWN}
    if found := records.wrong(provenance, records.PROVENANCE, partial=True):
        raise SpecError(found)
    names = provenance.get("column_names")
    if names is not None and len(names) != features.columns:
        raise SpecError(f"{len(names)} column names for {features.columns} columns")
    if (blocks := provenance.get("one_hot")) and blocks[-1][2] > features.columns:
        raise SpecError(f"columns of categories up to column {blocks[-1][2]}, of {features.columns}")
    labels = provenance.get("column_labels")
    if labels is not None and not are_stored_labels(labels, features.columns):
        raise SpecError(f"the coordinates of the columns do not have {features.columns} values")
    model = Model(
        features,
        solution,
        sums=sums,
        certificate=certificate,
        provenance=provenance,
        decoder=decoder,
        captured=captured,
        drawn=drawn,
        calibration=calibration,
        reference=reference,
    )
    if "spec" in provenance:
        _ = model.method  # raises SpecError for one that is unknown
    return model


def _solution(about: Mapping[str, Any], arrays: Mapping[str, Array]) -> tuple[Solution, dict[str, int]]:
    """The solution and the sizes D, r and d of the model."""
    sizes: dict[str, int] = {}
    plain = {field.name: about[field.name] for field in fields(Solution) if field.name in about}
    given = _shaped("", arrays, _SOLUTION, sizes) | plain
    check_plain(Solution, given, "the model")
    if not (np.isfinite(given["total_variance"]) and given["total_variance"] > 0):
        raise SpecError(f"total_variance is {given['total_variance']}, not a positive number")
    if not _shaped("", arrays, {"offset": ("d",)}, sizes):
        raise SpecError("the array offset is missing")
    sizes["d+1"] = sizes["d"] + 1
    return Solution(**given), sizes


def _features(about: Any, kernel: Kernel, arrays: Mapping[str, Array], sizes: dict[str, int]) -> FeatureMap:
    name = name_in(about, "feature map")
    if name not in MAPS:
        raise SpecError(f"unknown feature map {name!r:.80}")
    kind = MAPS[name]
    if not kind.takes(kernel):
        raise SpecError(f"the feature map {name!r} has no form for the kernel {kernel.name!r}")
    plain = {key: value for key, value in about.items() if key != "name"}
    given = _shaped("", arrays, kind.shapes, dict(sizes))  # its letters mean nothing elsewhere
    check_plain(kind, {**plain, **given, "kernel": kernel}, f"the feature map {name!r}")
    features = from_parts(about, kernel, given)
    if features.size != sizes["D"]:
        raise SpecError(f"the feature map has {features.size} features, but the mean has {sizes['D']}")
    if features.dtype not in (np.float32, np.float64):
        raise SpecError(f"block work in {features.dtype}")
    if features.scale is not None and not (features.scale > 0).all():
        raise SpecError("the array scale holds numbers that are not positive")
    return features


def _part(
    kind: type[_Part],
    name: str,
    about: Mapping[str, Any],
    arrays: Mapping[str, Array],
    shapes: Mapping[str, Shape],
    sizes: dict[str, int],
    count: str = "count",
) -> _Part | None:
    """A part of the model whose `count` is the number of rows that it was made from; None if there is none."""
    if about.get(name) is None:
        return None
    given: dict[str, Any] = _shaped(f"{name}_", arrays, shapes, sizes) | _dict_of(about[name], name)
    if kind is ShiftedSums and given.get("largest") is None:  # which JSON has no number for
        given["largest"] = np.inf
    if kind is ShiftedSums and records.is_count(given.get(count)):  # without weights
        given.setdefault("weight", float(given[count]))
    check_plain(kind, given, f"the part {name!r}")
    if not records.is_count(given[count]):
        raise SpecError(f"{name} is of {given[count]!r:.80} rows")
    return kind(**given)


def _dict_of(value: Any, name: str) -> dict[str, Any]:
    """A copy of an entry that contains others. Raises SpecError for anything else."""
    if not isinstance(value, dict):
        raise SpecError(f"{name} is {value!r:.80}")
    return dict(value)


def _decoder(about: Any, arrays: Mapping[str, Array], sizes: dict[str, int]) -> preimages.Decoder | None:
    if about is None:
        return None
    kind = preimages.decoder_class(name_in(about, "decoder"))
    shapes = {field.name: kind.shapes.get(field.name, ()) for field in fields(kind) if "Array" in str(field.type)}
    given = _shaped("decoder_", arrays, shapes, dict(sizes))
    plain = {key: value for key, value in about.items() if key != "name"}
    check_plain(kind, {**plain, **given}, f"the decoder {about['name']!r}")
    return preimages.decoder_from_parts(about, given)


def _calibration(limit: Any, arrays: Mapping[str, Array], sizes: dict[str, int]) -> Calibration | None:
    given: dict[str, Any] = _shaped("calibration_", arrays, Calibration.shapes, sizes)
    if not given:
        return None
    check_plain(Calibration, given, "the calibration")
    if limit is not None:
        check_plain(Limit, _dict_of(limit, "calibration"), "the limit of the calibration")
        given["limit"] = Limit(**limit)
    return Calibration(**given)


def _shaped(
    prefix: str, arrays: Mapping[str, Array], shapes: Mapping[str, Shape], sizes: dict[str, int], *, finite: bool = True
) -> dict[str, Array]:
    """Those of the named arrays that exist, by their names without the prefix. New letters are added to `sizes`.

    Raises SpecError if a shape does not match the sizes of its letters, and for values that are not `finite`.
    """
    found = {name: arrays[prefix + name] for name in shapes if prefix + name in arrays}
    for name, values in found.items():
        shape = shapes[name]
        fits = len(shape) == values.ndim and all(
            length == (sizes.setdefault(size, length) if isinstance(size, str) else size)
            for size, length in zip(shape, values.shape, strict=True)
        )
        if shape and not fits:
            wanted = ", ".join(map(str, shape))
            raise SpecError(f"the array {prefix}{name} has the shape {values.shape}, and not ({wanted})")
        # A column of weight 0 has an infinite scale.
        usable = ~np.isnan(values) if name == "scale" else np.isfinite(values)
        if finite and not (values.size and usable.all()):
            raise SpecError(f"the array {prefix}{name} is empty, or contains NaN or infinity")
    return found


_CHUNK_BYTES = 2**24  # a chunk is encoded whole in memory
_TRIES = 3  # tries to read a model that is replaced meanwhile


def write_arrays(model: Model, folder: str) -> dict[str, Any]:
    """Write the arrays of the model into `folder`; return the rest of it, for the manifest.

    Identical models give identical bytes: no time, host, scheduler or worker count is stored.
    """
    about, arrays = _parts(model)
    for name, values in sorted(arrays.items()):
        rows = max(1, min(values.shape[0], power_of_two(_CHUNK_BYTES // max(1, values[:1].nbytes))))
        names = ["row", "column"][: values.ndim]
        stored = groups.create_array(f"{folder}/{name}", values.shape, values.dtype, rows, names)
        stored[...] = values
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
        except CorruptionError:
            if groups.describe(path) == before:
                raise
    raise IncompleteError(f"{path} was replaced while it was being read: run the same command again")


def model_digest(model: Model) -> str:
    """SHA-256 of the canonical JSON and of the array values in name order."""
    return _digest(*_parts(model))


def _parts(model: Model) -> tuple[dict[str, Any], dict[str, Array]]:
    features, solution, sums = model.features, model.solution, model.sums
    largest = sums.largest if sums and np.isfinite(sums.largest) else None  # JSON has no infinity
    about: dict[str, Any] = {
        "format": "model",
        "bigkpca": version("bigkpca"),
        "features": features.parameters(),
        "kernel": features.kernel.to_dict(),
        "total_variance": solution.total_variance,
        "negative": solution.negative,
        "unexplained": solution.unexplained,
        "sums": sums and {"count": sums.count, "trace": sums.trace, "largest": largest} | _weight(sums),
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
    if (reference := model.reference) is not None:  # models without one have no such entry
        about["reference"] = {"rows": reference.rows}
        arrays |= {f"reference_{name}": getattr(reference, name) for name in reference.shapes}
    if (drawn := model.drawn) is not None:
        plain = {part.name: getattr(drawn, part.name) for part in fields(drawn) if part.name not in drawn.shapes}
        about["drawn"] = plain
        arrays |= {f"drawn_{name}": values for name in drawn.shapes if (values := getattr(drawn, name)) is not None}
    if (calibration := model.calibration) is not None:
        arrays |= {f"calibration_{name}": getattr(calibration, name) for name in calibration.shapes}
        if calibration.limit is not None:
            about["calibration"] = asdict(calibration.limit)
    if (captured := model.captured) is not None:
        about["captured"] = {
            "rows": captured.rows,
            "held_out": captured.held_out,
            "components": captured.components,
            "seen": captured.seen,
        }
        arrays |= {f"captured_{name}": getattr(captured, name) for name in captured.shapes}
    about["arrays"] = sorted(arrays)
    return about, arrays


def _weight(sums: ShiftedSums) -> dict[str, float]:
    """The sum of the weights of the rows; nothing without weights."""
    return {} if sums.weight == sums.count else {"weight": sums.weight}


def _digest(about: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(arrays):
        values = arrays[name]
        digest.update(f"{name} {values.dtype.newbyteorder('<').str} {values.shape}".encode())
        digest.update(little_endian(values))
    return digest.hexdigest()
