"""Check the fields of a FitSpec one by one, and find those that do not go together, or do nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationInfo

from bigkpca.data.stores import store_of
from bigkpca.errors import Array, SpecError
from bigkpca.numerics import kernels, landmarks, methods, preimages
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.methods import Method
from bigkpca.numerics.preimages import FixedPoint, Preimage


def wanted(error: Mapping[str, Any]) -> str:
    """What a field that pydantic refused may be."""
    kind, context = error["type"], error.get("ctx", {})
    limits = {"greater_than": "above", "greater_than_equal": "of at least", "less_than": "below"}
    if kind in limits:
        (limit,) = context.values()
        return f"a number {limits[kind]} {limit:g}"
    if kind == "literal_error":
        return str(context["expected"])
    names = {"int": "a whole number", "float": "a number", "finite": "a finite number", "bool": "true or false"}
    return names.get(kind.partition("_")[0], error["msg"])


def components(value: int | float | str | None) -> int | float | str | None:
    """A number of components, a share of the variance, or a word for either."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and not 0 < value < 1:
        if not value.is_integer():
            raise SpecError(f"components={value}: a share of the variance lies between 0 and 1")
        value = int(value)
    if value <= 0:
        raise SpecError(f"components={value}: at least one component must be kept")
    return value


def kernel(value: Any) -> str | Kernel:
    """A kernel, or the name of one, with the options that are given with it."""
    if isinstance(value, Kernel):
        return value
    if isinstance(value, type):
        raise SpecError(f"kernel={value.__name__} is a class: give one of its values, or its name")
    if callable(value):
        return kernels.Function(value)
    return kernels.named(str(value))


def method(value: str | Method) -> str | Method:
    """A method, or the name of one."""
    if isinstance(value, str):
        return methods.named(value).name
    if type(value) not in methods.METHODS.values():
        raise SpecError(f"method={value!r}: give a name or a value of bigkpca.methods")
    return value


def preimage(value: str | Preimage) -> str | Preimage:
    """A pre-image, or the name of one; a value where the name came with options."""
    if isinstance(value, str):
        found = preimages.named(value)
        return found if ":" in value else found.name
    if type(value) not in preimages.PREIMAGES.values():
        raise SpecError(f"preimage={value!r}: give a name or a value of bigkpca.preimages")
    return value


def landmark_rule(value: Any) -> Any:
    """A landmark rule, the name of one, or landmarks of the caller's own."""
    if isinstance(value, str):
        return value if value == "auto" else landmarks.named(value).name
    if type(value) in (*landmarks.RULES.values(), landmarks.OwnRows, landmarks.RowNumbers):
        return value
    if not isinstance(value, np.ndarray | list | tuple):
        raise SpecError(
            f"landmarks={value!r}: give a name or a value of bigkpca.landmarks, rows (l, d), or row numbers (l,)"
        )
    try:
        given = np.asarray(value)
    except ValueError:
        raise SpecError("landmarks: rows of different lengths; give a table (l, d)") from None
    return landmarks.RowNumbers(given) if given.ndim == 1 else landmarks.OwnRows(given)


def landmarks_of_file(path: str) -> Array:
    """The landmarks in a .npy file. Raises SpecError where there are none."""
    try:
        with store_of(path).open(path) as file:
            found: Array = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise SpecError(f"landmarks cannot be read from {path}: {error}") from error
    return found


def size(value: int | str, info: ValidationInfo) -> int | str:
    """A positive number."""
    if isinstance(value, int) and value < 1:
        what = "landmark or random feature" if info.field_name == "size" else "principal axis"
        raise SpecError(f"{info.field_name}={value}: at least one {what} is needed")
    return value


def positive(value: float | str | None, info: ValidationInfo) -> float | str | None:
    """A positive finite number."""
    if isinstance(value, float) and not (np.isfinite(value) and value > 0):
        raise SpecError(f"{info.field_name}={value}: it must be a positive number")
    return value


class Clash(NamedTuple):
    """Fields of a FitSpec that do not go together, and why."""

    fields: tuple[str, ...]
    message: str


def clashes(spec: Any) -> list[Clash]:
    """All fields of a FitSpec that do not go together; each field is right by itself."""
    found = [*_lengths(spec), *_method_fits(spec)]
    if spec.noise and preimages.own_noise(spec.own_preimage):
        message = f"noise={spec.noise} and {spec.preimage} both give the noise: leave one of them out"
        found.append(Clash(("noise", "preimage"), message))
    if any({"kernel", "method", "coef0", "noise"} & {*clash.fields} for clash in found):
        return found  # what is asked next needs a kernel, a method and a pre-image
    return [*found, *_kinds_fit(spec)]


def unused(given: Mapping[str, Any], kernel: str, method: str, *, varied: bool = False) -> Iterator[Clash]:
    """Options that a fit (or every fit by `varied` methods) would ignore: the first field of each clash.

    Parameters
    ----------
    given : mapping
        The fields of FitSpec that a user gave, as they were typed.
    kernel, method : str
        The kernel and the method of the fit.
    varied : bool, optional
        Whether the method is not the user's to choose.

    Examples
    --------
    >>> list(unused({"degree": 5}, "rbf", "nystroem"))
    [Clash(fields=('degree', 'kernel'), message='is for the polynomial kernel, not for gaussian: leave it out')]
    """
    own, kind = kernels.own_options(kernel), kernels.kernel_class(kernel).name
    for name in ("degree", "coef0"):
        fitting = [each for each in kernels.KERNELS if name in kernels.parameter_names(each)]
        if name in given and name in own:
            yield Clash((name, "kernel"), f"is given by kernel {kernel!r} already: leave one of them out")
        elif name in given and kind not in fitting:
            message = f"is for the {' and '.join(fitting)} kernel, not for {kind}: leave it out"
            yield Clash((name, "kernel"), message)
    exact = methods.named(method).exact
    if exact and "size" in given:
        yield Clash(("size", "method"), "is not for method exact, which uses every row: leave it out")
    stops = varied or exact or str(given.get("refine", 0)) != "0"
    if "residual_tol" in given and not stops:
        message = "belongs to method exact and to refine: add one of them, or leave it out"
        yield Clash(("residual_tol", "method", "refine"), message)


def _lengths(spec: Any) -> Iterator[Clash]:
    numeric = isinstance(spec.sigma, float)
    if numeric and spec.gamma is not None:
        yield Clash(
            ("sigma", "gamma"),
            "both sigma and gamma are given: give one, gamma = 1 / (2 sigma^2) for the Gaussian",
        )
    if isinstance(spec.kernel, Kernel):
        if numeric or spec.gamma is not None:
            yield Clash(
                ("kernel", "sigma", "gamma"),
                "sigma and gamma belong to kernel names; a kernel value has its own parameters",
            )
        return
    kind = kernels.kernel_class(spec.kernel)
    if {"sigma", "gamma"} & kernels.own_options(spec.kernel).keys():
        if numeric or spec.gamma is not None:
            name = "sigma" if numeric else "gamma"
            message = f"{name}={getattr(spec, name)} and kernel={spec.kernel!r} both give the length: leave one out"
            yield Clash(("kernel", name), message)
        return
    if numeric and kind.distance is None:
        yield Clash(("kernel", "sigma"), f"the {spec.kernel} kernel has no length sigma")
    if kind is kernels.Polynomial and not spec.coef0 >= 0:
        yield Clash(
            ("kernel", "coef0"), f"coef0={spec.coef0}: a negative constant makes the polynomial kernel indefinite"
        )
    if spec.gamma is not None and not {"sigma", "gamma"} & spec.kernel_parameters:
        yield Clash(("kernel", "gamma"), f"the {spec.kernel} kernel has no gamma")


def _method_fits(spec: Any) -> Iterator[Clash]:
    method, own = spec.method_value, spec.own_landmarks
    if spec.precomputed and not spec.exact:
        yield Clash(
            ("kernel", "method"),
            f"kernel='precomputed' needs method='exact', not {method.name!r}: no other reads a matrix of kernels",
        )
    if spec.precomputed and spec.standardize:
        yield Clash(
            ("kernel", "standardize"),
            "standardize=True is for rows that are vectors: with kernel='precomputed' they are kernels",
        )
    if spec.n_directions != "auto" and not method.principal:
        yield Clash(
            ("n_directions", "method"),
            f"n_directions={spec.n_directions} belongs to method='rff-pca', not to {method.name!r}",
        )
    if method.landmarks and spec.solver == "randomized":
        yield Clash(("solver", "method"), f"solver='randomized' is for random features, not for method={method.name!r}")
    if spec.exact and spec.refine:
        yield Clash(("method", "refine"), "method='exact' stops at residual_tol: leave refine out")
    if spec.refine and not isinstance(spec.components, int):
        yield Clash(
            ("refine", "components"), f"refine={spec.refine} needs a number of components, not {spec.components}"
        )
    if not method.landmarks and spec.landmarks != "auto":
        yield Clash(
            ("method", "landmarks"),
            f"method={method.name!r} draws random features and has no landmarks: leave landmarks out",
        )
    if method.uniform and spec.rule_name not in ("auto", "uniform"):
        yield Clash(
            ("method", "landmarks"),
            f"{method} takes uniform landmarks only, not {spec.rule_name!r}: its scaling from l to n and its "
            "centring hold for rows drawn uniformly; use method='nystroem' with other landmarks",
        )
    if spec.exact and spec.landmarks != "auto":
        yield Clash(
            ("method", "landmarks"),
            "method='exact' takes every row for a landmark: leave landmarks out, or use method='nystroem'",
        )
    if own is not None and spec.size not in ("auto", own):
        yield Clash(("size", "landmarks"), f"size={spec.size}, but {own} landmarks are given: leave size out")
    if spec.tol is not None and (spec.exact or own is not None or spec.size != "auto"):
        what = "the exact method" if spec.exact else f"{own} landmarks" if own is not None else f"size={spec.size}"
        by = "method" if spec.exact else "landmarks" if own is not None else "size"
        yield Clash(("tol", by), f"tol={spec.tol} grows the size, but {what} fixes it: leave tol out")


def _kinds_fit(spec: Any) -> Iterator[Clash]:
    """What the kernel, the method and the pre-image say themselves."""
    try:
        kernel = spec.kernel_value(1, 1.0)
    except SpecError as error:
        yield Clash(("kernel", "sigma", "gamma", "degree", "coef0"), str(error))
        return
    try:
        spec.method_value.check(kernel, None if spec.size == "auto" else spec.size)
    except SpecError as error:
        yield Clash(("method", "kernel", "size", "degree", "coef0"), str(error))
    preimage = spec.preimage_value
    if preimage == FixedPoint():  # the default, which a kernel may refuse when it is asked for rows
        return
    try:
        if spec.precomputed:
            raise SpecError(f"preimage={preimage.name!r} gives rows, and kernel='precomputed' has none")
        preimage.check(kernel, spec.kept_method)
    except SpecError as error:
        yield Clash(("preimage", "noise", "kernel", "method", "refine"), str(error))
