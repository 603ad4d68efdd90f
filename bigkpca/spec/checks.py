"""Check the fields of a FitSpec one by one, and find fields that conflict or have no effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationInfo

from bigkpca.data.stores import store_of
from bigkpca.errors import SpecError
from bigkpca.numerics import kernels, landmarks, methods, preimages
from bigkpca.numerics.array_api import on_host
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.methods import Method
from bigkpca.numerics.preimages import FixedPoint, Preimage
from bigkpca.spec import column_weights


def components(value: Any) -> Any:
    """A number of components, or a share of the variance."""
    if isinstance(value, float) and value == 1:
        raise SpecError("n_components=1.0: pass 1 for one component, or a share of the variance below 1, e.g. 0.999")
    return value


def kernel(value: Any) -> str | Kernel:
    """A kernel, or the name of one with its options."""
    if isinstance(value, Kernel):
        return value
    if isinstance(value, type):
        raise SpecError(f"kernel={value.__name__} is a class: pass an instance of it, or its name")
    if callable(value):
        return kernels.Function(value)
    return kernels.named(str(value))


def method(value: str | Method, fields: ValidationInfo) -> str | Method:
    """A method, or the name of one; "auto" is exact for a kernel matrix, which no other method reads."""
    if value == "auto":
        return methods.Exact.name if is_precomputed(fields.data.get("kernel")) else methods.Nystroem.name
    if isinstance(value, str):
        return methods.named(value).name
    if type(value) not in methods.METHODS.values():
        raise SpecError(f"method={value!r}: pass a name, or a value from bigkpca.methods")
    return value


def is_precomputed(kernel: Any) -> bool:
    """Whether the data of this kernel, or of one of this name, are the kernel matrix."""
    named = isinstance(kernel, str) and kernel.lower() == kernels.Precomputed.name
    return named or isinstance(kernel, kernels.Precomputed)


def preimage(value: str | Preimage) -> str | Preimage:
    """A pre-image, or the name of one; a name with options becomes a value."""
    if isinstance(value, str):
        found = preimages.named(value)
        return found if ":" in value else found.name
    if type(value) not in preimages.PREIMAGES.values():
        raise SpecError(f"preimage={value!r}: pass a name, or a value from bigkpca.preimages")
    return value


def landmark_rule(value: Any) -> Any:
    """A landmark rule, the name of one, or custom landmarks."""
    if isinstance(value, str):
        return value if value == "auto" else landmarks.named(value).name
    if type(value) in (*landmarks.RULES.values(), landmarks.OwnRows, landmarks.RowNumbers):
        return value
    from bigkpca.data.frames import check_tensor, is_tensor  # slow to import, and not needed for a name

    if is_tensor(value):
        check_tensor(value, "landmarks")
        value = on_host(value)
    if not isinstance(value, np.ndarray | list | tuple):
        raise SpecError(
            f"landmarks={value!r}: pass a name, a value from bigkpca.landmarks, rows (l, d), or row numbers (l,)"
        )
    try:
        given = np.asarray(value)
    except ValueError:
        raise SpecError("landmarks have rows of different lengths: pass an array (l, d)") from None
    return landmarks.RowNumbers(given) if given.ndim == 1 else landmarks.OwnRows(given)


def typed(options: Mapping[str, Any], full: Callable[[str], str]) -> dict[str, Any]:
    """Options as commands and job files have them: "none" means None, and a .npy file its landmarks, whose `full` path
    is opened. Raises SpecError for a file that has none."""
    found = {name: None if value == "none" else value for name, value in options.items()}
    own = found.get("landmarks")
    if isinstance(own, str) and own.endswith(".npy"):
        path = full(own)
        try:
            with store_of(path).open(path) as file:
                found["landmarks"] = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise SpecError(f"landmarks cannot be read from {path}: {error}") from error
    return found


def sigma(value: Any) -> float | str:
    """A number, "median", or a multiple of it, such as "3 median"."""
    of_median = isinstance(value, str) and value.endswith("median")
    with suppress(TypeError, ValueError):
        number = times(value) if of_median else float(value)
        if 0 < number < np.inf:
            return str(value) if of_median else number
    raise SpecError(f"sigma={value!r}: give a positive number, 'median', or a multiple of it, e.g. '3 median'")


def times(sigma: str) -> float:
    """The factor of "median" in a sigma. Raises ValueError for other words."""
    factor, _, word = sigma.rpartition(" ")
    if word != "median":
        raise ValueError(sigma)
    return float(factor or 1)


class Clash(NamedTuple):
    """An option that does not work with others, and why."""

    option: str
    message: str


def conflicts(spec: Any) -> Iterator[str]:
    """Conflicts between fields of a FitSpec that are each valid on their own; later ones expect that there are no
    earlier ones."""
    yield from _lengths(spec)
    yield from _method_fits(spec)
    if spec.noise and getattr(spec.own_preimage, "noise", None):
        yield f"noise={spec.noise} and {spec.preimage} both set the noise: leave one of them out"
    if spec.calibration_rows and (clash := without_weights(spec, f"calibration_rows={spec.calibration_rows}")):
        yield clash.message
    kernel = spec.kernel_value(1, 1.0)
    if spec.column_weights and not (kernel.on_vectors or spec.precomputed):
        yield f"{column_weights.OPTION} does not work with {kernel}, whose columns are characters: leave it out"
    spec.method_value.check(kernel, None if spec.size == "auto" else spec.size)
    preimage = spec.preimage_value
    if preimage != FixedPoint():  # the default; a kernel that has none raises an error only when rows are requested
        if spec.precomputed:
            yield f"preimage={preimage.name!r} computes rows, but kernel='precomputed' has none"
        preimage.check(kernel, spec.kept_method)


def without_weights(spec: Any, what: str) -> Clash | None:
    """The option of a valid FitSpec that does not allow weights of rows, which `what` means, and what to use instead;
    None if all do."""
    if spec.precomputed:
        name, instead = "kernel", "another kernel and the rows themselves"
    elif spec.exact:
        name, instead = "method", "method='nystroem', whose components are exact if all rows are landmarks"
    elif spec.refine:
        name, instead = "refine", "refine=0"
    else:
        return None
    message = f"{name}={getattr(spec, name)!r} does not take {what}: omit one of the two, or use {instead}"
    return Clash(name, message)


def unused(given: Mapping[str, Any], kernel: str, method: str, *, varied: bool = False) -> Iterator[Clash]:
    """The options, of those that a user `given` set, that a fit with this kernel and method, or every fit of a
    comparison with `varied` methods, would ignore."""
    own, kind = kernels.own_options(kernel), kernels.kernel_class(kernel).name
    for name in ("degree", "coef0"):
        fitting = [each for each in kernels.KERNELS if name in kernels.parameter_names(each)]
        if name in given and name in own:
            yield Clash(name, f"is already set by kernel {kernel!r}: leave one of them out")
        elif name in given and kind not in fitting:
            yield Clash(name, f"works only with the {' and '.join(fitting)} kernel, not with {kind}: leave it out")
    exact = is_precomputed(kernel) if method == "auto" else methods.named(method).exact
    if exact and "size" in given:
        yield Clash("size", "does not work with method exact, which uses every row: leave it out")
    stops = varied or exact or str(given.get("refine", 0)) != "0"
    if "residual_tol" in given and not stops:
        yield Clash("residual_tol", "works only with method exact or with refine: add one of them, or leave it out")


def _lengths(spec: Any) -> Iterator[str]:
    numeric = isinstance(spec.sigma, float)
    if numeric and spec.gamma is not None:
        yield "both sigma and gamma are set: keep only one (gamma = 1 / (2 sigma^2) for the Gaussian)"
    given = "sigma" if numeric else "gamma" if spec.gamma is not None else None
    if isinstance(spec.kernel, Kernel):
        if given:
            yield "sigma and gamma work only with the name of a kernel: a kernel value has its own parameters"
        return
    kind = kernels.kernel_class(spec.kernel)
    if {"sigma", "gamma"} & kernels.own_options(spec.kernel).keys():
        if given:
            yield f"{given}={getattr(spec, given)} and kernel={spec.kernel!r} both set the length: leave one out"
        return
    if numeric and kind.distance is None:
        yield f"the {spec.kernel} kernel has no length sigma"
    if kind is kernels.Polynomial and not spec.coef0 >= 0:
        yield f"coef0={spec.coef0}: a negative constant makes the polynomial kernel indefinite"
    if spec.gamma is not None and not {"sigma", "gamma"} & kernels.parameter_names(spec.kernel):
        yield f"the {spec.kernel} kernel has no gamma"


def _method_fits(spec: Any) -> Iterator[str]:
    method, own = spec.method_value, spec.given_landmarks
    if spec.precomputed and not spec.exact:
        yield f"kernel='precomputed' needs method='exact', not {method.name!r}: no other method reads a kernel matrix"
    for name, option in (("standardize", "standardize=True"), ("column_weights", column_weights.OPTION)):
        if spec.precomputed and getattr(spec, name):
            yield f"{option} does not work with kernel='precomputed', whose rows are kernel values: leave it out"
    if spec.n_directions != "auto" and not method.principal:
        yield f"n_directions={spec.n_directions} works only with method='rff-pca', not with {method.name!r}"
    if method.landmarks and spec.solver == "randomized":
        yield f"solver='randomized' works only with random features, not with method={method.name!r}"
    if spec.exact and spec.refine:
        yield "method='exact' iterates until residual_tol is met: leave refine out"
    if spec.refine and not isinstance(spec.n_components, int):
        yield f"refine={spec.refine} needs a number of components, not {spec.n_components}"
    if not method.landmarks and spec.landmarks != "auto":
        yield f"method={method.name!r} draws random features and has no landmarks: leave landmarks out"
    rule = spec.landmarks if isinstance(spec.landmarks, str) else spec.landmarks.name
    if method.uniform and rule not in ("auto", "uniform"):
        yield (
            f"{method} takes only uniform landmarks, not {rule!r}: its scaling from l to n and its "
            "centring assume rows drawn uniformly; use method='nystroem' with other landmarks"
        )
    if spec.exact and spec.landmarks != "auto":
        yield "method='exact' uses every row as a landmark: leave landmarks out, or use method='nystroem'"
    if own is not None and spec.size not in ("auto", own):
        yield f"size={spec.size}, but {own} landmarks were passed: leave size out"
    if spec.tol is not None and (spec.exact or own is not None or spec.size != "auto"):
        fixed = "the exact method" if spec.exact else f"{own} landmarks" if own is not None else f"size={spec.size}"
        yield f"tol={spec.tol} lets the size grow, but {fixed} fixes it: leave tol out"
