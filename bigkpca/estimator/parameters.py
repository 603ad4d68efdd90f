"""Parameters of KernelPCA: the spec that they describe, and the methods that they make available."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from bigkpca.errors import SpecError
from bigkpca.fitting.merge import check_supports_partial_fit
from bigkpca.spec import FitSpec

_Method = TypeVar("_Method", bound=Callable[..., Any])


def spec_of(estimator: Any, seed: int | None = None) -> FitSpec:
    """The spec of an estimator's parameters. Raises SpecError if they conflict."""
    values = {name: getattr(estimator, name) for name in FitSpec.model_fields}
    seed = estimator.random_state if seed is None else seed
    if not isinstance(seed, int | np.integer):
        seed = check_random_state(seed).randint(2**31)
    values["random_state"] = int(seed)
    if estimator.dtype is not None:
        with suppress(TypeError):  # the spec raises an error for anything but a dtype
            values["dtype"] = np.dtype(estimator.dtype).name
    return FitSpec.checked(**values)


def only_if(check: Callable[[Any], bool]) -> Callable[[_Method], _Method]:
    """scikit-learn's `available_if`, for type checkers: a method of estimators for which `check` raises no error."""
    decorate: Callable[[_Method], _Method] = available_if(check)
    return decorate


def check_restores_rows(estimator: Any) -> bool:
    """Raise SpecError if the kernel has no pre-images of the chosen kind, or is a matrix, which has no rows."""
    if hasattr(estimator, "model_"):
        estimator.model_.check_preimages()
    elif (spec := _known(estimator)) is not None:
        spec.preimage_value.check(spec.kernel_value(1, 1.0), spec.kept_method)
    return True


def check_takes_more_rows(estimator: Any) -> bool:
    """Raise SpecError if no rows can be added after the fit."""
    if (spec := _known(estimator)) is not None:
        check_supports_partial_fit(spec)
    return True


def _known(estimator: Any) -> FitSpec | None:
    """The spec of the parameters; None if they conflict, which `fit` reports."""
    with suppress(SpecError):
        return spec_of(estimator, seed=0)
    return None
