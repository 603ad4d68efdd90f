"""Fields of a FitSpec that do not go together."""

from __future__ import annotations

from typing import Any

from bigkpca.errors import SpecError
from bigkpca.numerics import kernels, preimages
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.preimages import FixedPoint


def check(spec: Any) -> None:
    """Raise SpecError, naming two fields of a FitSpec, where they do not go together."""
    _lengths(spec)
    _method_fits(spec)
    _preimage_fits(spec)


def _lengths(spec: Any) -> None:
    numeric = isinstance(spec.sigma, float)
    if numeric and spec.gamma is not None:
        raise SpecError("both sigma and gamma are given: give one, gamma = 1 / (2 sigma^2) for the Gaussian")
    if isinstance(spec.kernel, Kernel):
        if numeric or spec.gamma is not None:
            raise SpecError("sigma and gamma belong to kernel names; a kernel value has its own parameters")
    elif numeric and kernels.kernel_class(spec.kernel).distance is None:
        raise SpecError(f"the {spec.kernel} kernel has no length sigma")
    elif spec.kernel == "polynomial" and not spec.coef0 >= 0:
        raise SpecError(f"coef0={spec.coef0}: a negative constant makes the polynomial kernel indefinite")
    elif spec.gamma is not None and not {"sigma", "gamma"} & spec.kernel_parameters:
        raise SpecError(f"the {spec.kernel} kernel has no gamma")


def _method_fits(spec: Any) -> None:
    method = spec.method_value
    if spec.precomputed and not spec.exact:
        raise SpecError(
            f"kernel='precomputed' needs method='exact', not {method.name!r}: no other reads a matrix of kernels"
        )
    if spec.precomputed and spec.standardize:
        raise SpecError("standardize=True is for rows that are vectors: with kernel='precomputed' they are kernels")
    if spec.n_directions != "auto" and not method.principal:
        raise SpecError(f"n_directions={spec.n_directions} belongs to method='rff-pca', not to {method.name!r}")
    if method.landmarks and spec.solver == "randomized":
        raise SpecError(f"solver='randomized' is for random features, not for method={method.name!r}")
    if not method.landmarks and spec.landmarks != "auto":
        raise SpecError(f"method={method.name!r} draws random features and has no landmarks: leave landmarks out")
    if method.uniform and spec.rule_name not in ("auto", "uniform"):
        raise SpecError(
            f"{method} takes uniform landmarks only, not {spec.rule_name!r}: its scaling from l to n and its "
            "centring hold for rows drawn uniformly; use method='nystroem' with other landmarks"
        )
    if spec.exact and spec.refine:
        raise SpecError("method='exact' stops at residual_tol: leave refine out")
    if spec.refine and not isinstance(spec.components, int):
        raise SpecError(f"refine={spec.refine} needs a number of components, not {spec.components}")
    own = spec.own_landmarks
    if spec.exact and spec.landmarks != "auto":
        raise SpecError("method='exact' takes every row for a landmark: leave landmarks out, or use method='nystroem'")
    if own is not None and spec.size not in ("auto", own):
        raise SpecError(f"size={spec.size}, but {own} landmarks are given: leave size out")
    if spec.tol is not None and (spec.exact or own is not None or spec.size != "auto"):
        what = "the exact method" if spec.exact else f"{own} landmarks" if own is not None else f"size={spec.size}"
        raise SpecError(f"tol={spec.tol} grows the size, but {what} fixes it: leave tol out")
    method.check(spec.kernel_value(1, 1.0), None if spec.size == "auto" else spec.size)


def _preimage_fits(spec: Any) -> None:
    preimage = spec.preimage_value
    if spec.noise and preimages.own_noise(spec.own_preimage):
        raise SpecError(f"noise={spec.noise} and {spec.preimage} both give the noise: leave one of them out")
    if preimage == FixedPoint():  # the default, which a kernel may refuse when it is asked for rows
        return
    if spec.precomputed:
        raise SpecError(f"preimage={preimage.name!r} gives rows, and kernel='precomputed' has none")
    preimage.check(spec.kernel_value(1, 1.0), spec.kept_method)
