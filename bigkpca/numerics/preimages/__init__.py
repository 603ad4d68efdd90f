"""Pre-images: methods that map scores back to rows, and the decoders that a model keeps.

A method is a frozen dataclass; a name represents the method with default options. None makes a pass: decoders are made
from the model itself, or from sampled rows of the fit, which the decoder then keeps. Formulas: `docs/numerics.md`,
section 18.

Examples
--------
>>> from bigkpca import preimages
>>> preimages.named("ridge:ridge=0.01,size=500")
Ridge(ridge=0.01, size=500, rows=20000)
"""

from __future__ import annotations

from typing import Any

from bigkpca.errors import unknown_name
from bigkpca.numerics.expansion import Expansion, Fitted, expansion, residuals
from bigkpca.numerics.preimages.base import (
    Decode,
    Decoder,
    Preimage,
    Preimages,
    check_width,
    joined,
    reconstructing,
)
from bigkpca.numerics.preimages.distances import Distances
from bigkpca.numerics.preimages.fixed_point import FixedPoint
from bigkpca.numerics.preimages.ridge import Denoising, Ridge
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
    "Preimage",
    "Preimages",
    "Ridge",
    "check_width",
    "decoder_class",
    "expansion",
    "from_dict",
    "joined",
    "named",
    "reconstructing",
    "residuals",
    "to_dict",
]

PREIMAGES: Registry[Any] = Registry(
    "preimage",
    (
        FixedPoint,
        Ridge,
        Denoising,
        Distances,
    ),
)
to_dict, from_dict, named = PREIMAGES.to_dict, PREIMAGES.from_dict, PREIMAGES.typed


def decoder_class(name: str) -> type[Decoder]:
    """The class of decoders with this name. Raises SpecError for unknown names."""
    known = {kind.name: kind for kind in Decoder.__subclasses__()}
    if name not in known:
        raise unknown_name("decoder", name, list(known))
    return known[name]
