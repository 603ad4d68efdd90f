"""Check the fields of a FitSpec one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import ValidationInfo

from bigkpca.data.stores import store_of
from bigkpca.errors import Array, SpecError
from bigkpca.numerics import kernels, landmarks, methods, preimages
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.methods import Method
from bigkpca.numerics.preimages import Preimage


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
    if type(value) in (*landmarks.RULES.values(), landmarks.Rows, landmarks.RowNumbers):
        return value
    if not isinstance(value, np.ndarray | list | tuple):
        raise SpecError(
            f"landmarks={value!r}: give a name or a value of bigkpca.landmarks, rows (l, d), or row numbers (l,)"
        )
    try:
        given = np.asarray(value)
    except ValueError:
        raise SpecError("landmarks: rows of different lengths; give a table (l, d)") from None
    return landmarks.RowNumbers(given) if given.ndim == 1 else landmarks.Rows(given)


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
