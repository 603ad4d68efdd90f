"""Make a model of the parts that its file holds, once names, types and shapes are those of a model.

The file may come from anybody: its digest guards against accidents, not against malice. Shapes stand in the classes
themselves (`shapes` of feature maps, decoders and the certificate).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics import kernels, packed, preimages
from bigkpca.numerics.certificates.certificate import Certificate
from bigkpca.numerics.drift import Reference
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import MAPS, FeatureMap, Shape, from_parts
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import Moments, ShiftedSums
from bigkpca.numerics.registry import check_plain, name_in
from bigkpca.storage import records

_Sums = TypeVar("_Sums", Moments, ShiftedSums)
_SOLUTION: dict[str, Shape] = {"mean": ("D",), "components": ("D", "r"), "eigenvalues": ("r",)}
_MOMENTS: dict[str, Shape] = {"mean": ("D",), "scatter": ("D", "D")}
_OWN = (
    "format",
    "features",
    "kernel",
    "total_variance",
    "negative",
    "unexplained",
    "sums",
    "moments",
    "certificate",
    "decoder",
    "reference",
    "earlier",
    "arrays",
)


def assembled(about: Mapping[str, Any], arrays: Mapping[str, Array]) -> Model:
    """The model of an attribute, without its digest, and of arrays in memory.

    Raises SpecError, naming the entry or the array, where they are not those of a model.
    """
    kernel = kernels.from_dict(about.get("kernel", {}))
    solution, sizes = _solution(about, arrays)
    features = _features(about.get("features"), kernel, arrays, sizes)
    sums = _sums(about, arrays, sizes)
    certificate = _certificate(about.get("certificate"), arrays, sizes)
    decoder = _decoder(about.get("decoder"), arrays, sizes)  # models of before pre-images have none
    references = [_reference(kind, about.get(kind), arrays, sizes) for kind in ("reference", "earlier")]
    provenance = {key: about[key] for key in about if key not in _OWN}
    if found := records.wrong(provenance, records.PROVENANCE, partial=True):
        raise SpecError(found)
    names = provenance.get("column_names")
    if names is not None and len(names) != features.columns:
        raise SpecError(f"{len(names)} column names for {features.columns} columns")
    model = Model(features, solution, sums, certificate, provenance, decoder, *references)
    if "spec" in provenance:
        _ = model.method  # raises SpecError for one that is unknown
    return model


def _solution(about: Mapping[str, Any], arrays: Mapping[str, Array]) -> tuple[Solution, dict[str, int]]:
    """The solution, and the sizes D, r and d of the model."""
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


def _features(about: Any, kernel: kernels.Kernel, arrays: Mapping[str, Array], sizes: dict[str, int]) -> FeatureMap:
    name = name_in(about, "feature map")
    if name not in MAPS:
        raise SpecError(f"unknown feature map {name!r:.80}")
    kind = MAPS[name]
    if not kind.takes(kernel):
        raise SpecError(f"the feature map {name!r} has no form for the kernel {kernel.name!r}")
    plain = {key: value for key, value in about.items() if key != "name"}
    given = _shaped("", arrays, kind.shapes, dict(sizes))  # its own letters mean nothing elsewhere
    check_plain(kind, {**plain, **given, "kernel": kernel}, f"the feature map {name!r}")
    features = from_parts(about, kernel, given)
    if features.size != sizes["D"]:
        raise SpecError(f"the feature map has {features.size} features, and the mean {sizes['D']}")
    if features.dtype not in (np.float32, np.float64):
        raise SpecError(f"block work in {features.dtype}")
    if features.scale is not None and not (features.scale > 0).all():
        raise SpecError("the array scale holds numbers that are not positive")
    return features


def _sums(about: Mapping[str, Any], arrays: Mapping[str, Array], sizes: dict[str, int]) -> ShiftedSums | None:
    """The sums of a model, or those with the moments that older models have."""
    if about.get("moments") is not None:
        return ShiftedSums.of(_made(Moments, "moments", about["moments"], arrays, _MOMENTS, sizes))
    if about.get("sums") is None:
        return None
    shapes: dict[str, Shape] = {"about": ("D",), "total": ("D",), "products": (packed.entries(sizes["D"]),)}
    return _made(ShiftedSums, "sums", about["sums"], arrays, shapes, sizes)


def _made(
    kind: type[_Sums],
    name: str,
    about: Any,
    arrays: Mapping[str, Array],
    shapes: Mapping[str, Shape],
    sizes: dict[str, int],
) -> _Sums:
    if not isinstance(about, dict):
        raise SpecError(f"{name} is {about!r:.80}")
    largest = about.get("largest")  # None: infinite; models of before it was kept have none
    given: dict[str, Any] = (
        _shaped(f"{name}_", arrays, shapes, sizes) | about | {"largest": np.inf if largest is None else largest}
    )
    check_plain(kind, given, name)
    if not records.is_count(given["count"]):
        raise SpecError(f"{name} are of {given['count']!r:.80} rows")
    return kind(**given)


def _certificate(about: Any, arrays: Mapping[str, Array], sizes: dict[str, int]) -> Certificate:
    if not isinstance(about, dict):
        raise SpecError(f"certificate is {about!r:.80}")
    vectors: dict[str, Shape] = {field.name: ("r",) for field in fields(Certificate) if "Array" in str(field.type)}
    given = _shaped("certificate_", arrays, vectors | dict(Certificate.shapes), dict(sizes), finite=False)
    check_plain(Certificate, {**about, **given}, "the certificate")
    return Certificate(**{**about, **given})


def _decoder(about: Any, arrays: Mapping[str, Array], sizes: dict[str, int]) -> preimages.Decoder | None:
    if about is None:
        return None
    kind = preimages.decoder_class(name_in(about, "decoder"))
    shapes = {field.name: kind.shapes.get(field.name, ()) for field in fields(kind) if "Array" in str(field.type)}
    given = _shaped("decoder_", arrays, shapes, dict(sizes))
    plain = {key: value for key, value in about.items() if key != "name"}
    check_plain(kind, {**plain, **given}, f"the decoder {about['name']!r}")
    return preimages.decoder_from_parts(about, given)


def _reference(kind: str, about: Any, arrays: Mapping[str, Array], sizes: dict[str, int]) -> Reference | None:
    if about is None:  # of a model that was extended, or made before models had one
        return None
    if not isinstance(about, dict):
        raise SpecError(f"{kind} is {about!r:.80}")
    given = {**about, **_shaped(f"{kind}_", arrays, Reference.shapes, {**sizes, "r+1": sizes["r"] + 1})}
    check_plain(Reference, given, f"the part {kind!r}")
    if not records.is_count(given["rows"]):
        raise SpecError(f"{kind} is of {given['rows']!r:.80} rows")
    return Reference(**given)


def _shaped(
    prefix: str,
    arrays: Mapping[str, Array],
    shapes: Mapping[str, Shape],
    sizes: dict[str, int],
    *,
    finite: bool = True,
) -> dict[str, Array]:
    """The arrays of these names that are there, by their names without the prefix.

    Raises SpecError where the shape of one does not fit the sizes that letters stand for, or the shapes of others; new
    letters are added. Arrays hold numbers, finite ones if `finite`.
    """
    found = {name: arrays[prefix + name] for name in shapes if prefix + name in arrays}
    for name, values in found.items():
        if shapes[name] and not _has_shape(values, shapes[name], sizes):
            wanted = ", ".join(map(str, shapes[name]))
            raise SpecError(f"the array {prefix}{name} has the shape {values.shape}, and not ({wanted})")
        if finite and not (values.size and _is_finite(values)):
            raise SpecError(f"the array {prefix}{name} is empty, or holds NaN or infinity")
    return found


def _has_shape(values: Array, shape: Shape, sizes: dict[str, int]) -> bool:
    if len(shape) != values.ndim:
        return False
    pairs = zip(shape, values.shape, strict=True)
    return all(got == (sizes.setdefault(size, got) if isinstance(size, str) else size) for size, got in pairs)


def _is_finite(values: Array) -> bool:
    if values.dtype.kind != "f":
        return True
    flat = values.ravel()
    with np.errstate(over="ignore", invalid="ignore"):  # the product is quick, and not finite where a value is not
        return bool(np.isfinite(flat @ flat)) or bool(np.isfinite(values).all())
