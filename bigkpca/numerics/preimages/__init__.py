"""Back from scores to rows: ways as values, a string names a way's default; and the decoders that a model keeps.

base          what a pre-image is, and what a decoder holds
expansion     what scores stand for in feature space, the mean included; residuals (novelty)
objective     how near φ(z) is to that, and where z is pulled, over landmarks or random waves
ascent        guarded fixed-point steps;  beginning: from where
fixed_point   "fixed-point", no pass
regression    least squares from one streamed pass;  scored, noise: of what
linear        "linear", from the landmarks' own scores, no pass
ridge         "ridge", kernel ridge regression, one pass
denoising     "denoising", from the scores of noised rows to clean rows, one pass
distances     "mds", from distances to reference rows, no pass
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from bigkpca.errors import Array, SpecError, unknown_name
from bigkpca.numerics.preimages.base import (
    Decode,
    Decoder,
    Fitted,
    Preimage,
    Preimages,
    Training,
    check_width,
    joined,
    reconstructing,
)
from bigkpca.numerics.preimages.denoising import Denoising
from bigkpca.numerics.preimages.distances import Distances, DistancesDecoder
from bigkpca.numerics.preimages.expansion import Expansion, expansion, residuals
from bigkpca.numerics.preimages.fixed_point import FixedPoint, FixedPointDecoder
from bigkpca.numerics.preimages.linear import Linear, LinearDecoder
from bigkpca.numerics.preimages.noise import Noise, row_noise
from bigkpca.numerics.preimages.regression import Regression
from bigkpca.numerics.preimages.ridge import KernelDecoder, Ridge
from bigkpca.numerics.registry import Registry

__all__ = [
    "PREIMAGES",
    "Decode",
    "Decoder",
    "Denoising",
    "Distances",
    "Expansion",
    "Fitted",
    "FixedPoint",
    "Linear",
    "Noise",
    "Preimage",
    "Preimages",
    "Regression",
    "Ridge",
    "Training",
    "changed",
    "check_width",
    "decoder_from_parts",
    "expansion",
    "from_dict",
    "joined",
    "named",
    "reconstructing",
    "residuals",
    "row_noise",
    "to_dict",
    "written",
]

PREIMAGES: Registry[Any] = Registry("preimage", (FixedPoint, Distances, Ridge, Linear, Denoising))
from_dict = PREIMAGES.from_dict
_DECODERS: dict[str, type[Decoder]] = {
    decoder.name: decoder for decoder in (FixedPointDecoder, DistancesDecoder, KernelDecoder, LinearDecoder)
}

_READ: dict[str, Any] = {"int": int, "bool": lambda text: {"true": True, "false": False}[text.lower()]}


def named(name: str) -> Preimage:
    """The value of a way's name, with options where they are given, as "ridge:ridge=0.01,size=500".

    Raises SpecError, which suggests the nearest known name.
    """
    name, colon, typed = name.partition(":")
    kind = PREIMAGES.kind(name)
    way: Preimage = kind(**(_options(kind, typed) if colon else {}))
    return way


def written(way: Preimage) -> str:
    """The way as `named` takes it: its name, and the options that are not the default."""
    typed = ",".join(f"{key}={value}" for key, value in changed(way).items())
    return f"{way.name}:{typed}" if typed else way.name


def changed(way: Preimage) -> dict[str, Any]:
    """The options of a way that are not the default."""
    default = to_dict(type(way)())
    return {key: value for key, value in to_dict(way).items() if value != default[key]}


def _options(way: type[Any], typed: str) -> dict[str, Any]:
    known = {option.name: _READ.get(str(option.type), float) for option in fields(way)}
    found: dict[str, Any] = {}
    for part in typed.split(","):
        key, _, value = part.strip().partition("=")
        if key not in known:
            raise unknown_name(f"option of preimage {way.name!r}", key, list(known))
        try:
            found[key] = known[key](value)
        except (KeyError, ValueError):
            raise SpecError(f"preimage='{way.name}:{typed}': {key} cannot be {value!r}") from None
    return found


def to_dict(way: Preimage) -> dict[str, Any]:
    """The way as JSON-ready values; `from_dict` reads it back."""
    return {key: np.asarray(value).item() for key, value in PREIMAGES.to_dict(way).items()}  # NumPy's numbers, too


def decoder_from_parts(parameters: Mapping[str, Any], arrays: Mapping[str, Array]) -> Decoder:
    """The decoder whose `parameters()` and `arrays()` these are; other arrays are passed over."""
    return _DECODERS[parameters["name"]].from_parts(parameters, arrays)
