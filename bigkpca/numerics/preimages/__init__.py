"""Pre-images: methods that map scores back to rows, and the decoders that a model keeps.

A method is a frozen dataclass; a name represents the method with default options.

base                interfaces of methods, training passes and decoders; least squares from one streamed pass; "linear",
                    from the landmarks' own scores; φ^ of scores as a combination of landmarks; residuals (novelty)
fixed_point         "fixed-point", no pass: F(z), how near φ(z) is to φ^, its gradient, and the iteration
ridge               "ridge" and "denoising", kernel ridge regression from scores, of noisy rows where asked, one pass
automatic           "auto", the fixed point for known rows, and for scores the map that suits them best, no pass
distances           "mds", from distances to reference rows, no pass

Formulas: `docs/numerics.md`, section 18.

Examples
--------
>>> from bigkpca import preimages
>>> preimages.named("ridge:ridge=0.01,size=500")
Ridge(ridge=0.01, size=500)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bigkpca.errors import Array, unknown_name
from bigkpca.numerics.preimages.automatic import Automatic, AutomaticDecoder
from bigkpca.numerics.preimages.base import (
    Decode,
    Decoder,
    Expansion,
    Fitted,
    LinearDecoder,
    LinearMap,
    Preimage,
    Preimages,
    Regression,
    Training,
    check_width,
    expansion,
    joined,
    reconstructing,
    residuals,
)
from bigkpca.numerics.preimages.distances import Distances, DistancesDecoder
from bigkpca.numerics.preimages.fixed_point import FixedPoint, FixedPointDecoder
from bigkpca.numerics.preimages.ridge import Denoising, KernelDecoder, Noise, Ridge, row_noise
from bigkpca.numerics.registry import Registry

__all__ = [
    "PREIMAGES",
    "Automatic",
    "Decode",
    "Decoder",
    "Denoising",
    "Distances",
    "Expansion",
    "Fitted",
    "FixedPoint",
    "LinearMap",
    "Noise",
    "Preimage",
    "Preimages",
    "Regression",
    "Ridge",
    "Training",
    "changed",
    "check_width",
    "decoder_class",
    "decoder_from_parts",
    "expansion",
    "from_dict",
    "joined",
    "named",
    "own_noise",
    "reconstructing",
    "residuals",
    "row_noise",
    "to_dict",
    "with_noise",
]

PREIMAGES: Registry[Any] = Registry(
    "preimage",
    (
        Automatic,
        FixedPoint,
        Distances,
        Ridge,
        LinearMap,
        Denoising,
    ),
)
from_dict = PREIMAGES.from_dict
_DECODERS: dict[str, type[Decoder]] = {
    decoder.name: decoder
    for decoder in (
        AutomaticDecoder,
        FixedPointDecoder,
        DistancesDecoder,
        KernelDecoder,
        LinearDecoder,
    )
}


def named(name: str) -> Preimage:
    """The pre-image method with a name and optional options, as in "ridge:ridge=0.01,size=500".

    Raises SpecError if the name or an option is unknown, suggesting the nearest known one, or if a value is not valid.

    Examples
    --------
    >>> named("linear")
    LinearMap()
    """
    return PREIMAGES.typed(name)


def changed(preimage: Preimage) -> dict[str, Any]:
    """The options of a method that differ from the default, by name.

    Examples
    --------
    >>> changed(Ridge(size=500))
    {'size': 500}
    """
    default = to_dict(type(preimage)())
    return {key: value for key, value in to_dict(preimage).items() if value != default[key]}


def own_noise(preimage: Preimage) -> float | None:
    """The noise among the options of a method; None if it has none, or does not support it."""
    return preimage.noise if isinstance(preimage, Denoising) else None


def with_noise(preimage: Preimage, noise: float | None) -> Preimage:
    """The method trained on this noise; unchanged if it does not support noise, or already has some.

    Examples
    --------
    >>> with_noise(Denoising(), 0.5), with_noise(Ridge(), 0.5)
    (Denoising(noise=0.5, ridge=0.1, size=1000), Ridge(ridge=0.3, size=1000))
    """
    if isinstance(preimage, Denoising) and preimage.noise is None:
        return replace(preimage, noise=noise)
    return preimage


def to_dict(preimage: Preimage) -> dict[str, Any]:
    """The method as JSON-ready values, which `from_dict` reads.

    Examples
    --------
    >>> to_dict(Ridge())
    {'name': 'ridge', 'ridge': 0.3, 'size': 1000}
    """
    return {key: np.asarray(value).item() for key, value in PREIMAGES.to_dict(preimage).items()}  # also NumPy's numbers


def decoder_from_parts(parameters: Mapping[str, Any], arrays: Mapping[str, Array]) -> Decoder:
    """The decoder with these `parameters()` and `arrays()`; other arrays are ignored."""
    return decoder_class(parameters["name"]).from_parts(parameters, arrays)


def decoder_class(name: str) -> type[Decoder]:
    """The class of decoders with this name. Raises SpecError for unknown names."""
    if name not in _DECODERS:
        raise unknown_name("decoder", name, list(_DECODERS))
    return _DECODERS[name]
