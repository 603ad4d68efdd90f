"""Parameters of KernelPCA: the spec that they describe, and the methods that they make available."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from bigkpca.errors import SpecError
from bigkpca.fitting.merge import check_supports_partial_fit
from bigkpca.numerics.kernels import Kernel, Precomputed, kernel_class
from bigkpca.spec import FitSpec

_Method = TypeVar("_Method", bound=Callable[..., Any])


@dataclass(frozen=True)
class _Bound:
    """A callable kernel with keyword arguments; unlike a `partial`, it equals another one with the same content."""

    function: Callable[..., Any]
    parameters: tuple[tuple[str, Any], ...]

    def __call__(self, X: Any, Y: Any) -> Any:
        return self.function(X, Y, **dict(self.parameters))


def spec_of(estimator: Any, seed: int | None = None) -> FitSpec:
    """The spec of an estimator's parameters. Raises SpecError if they conflict."""
    values = {name: getattr(estimator, name) for name in FitSpec.model_fields}
    if parameters := estimator.kernel_params:
        kernel = estimator.kernel
        if isinstance(kernel, str | Kernel) or not callable(kernel):
            raise SpecError(
                f"kernel_params={dict(parameters)} works only with a callable kernel, not with kernel={kernel!r}: put "
                "options in the name, e.g. kernel='matern:nu=2.5,sigma=3', or pass a value from bigkpca.kernels"
            )
        values["kernel"] = _Bound(kernel, tuple(sorted(parameters.items())))
    seed = estimator.random_state if seed is None else seed
    if not isinstance(seed, int | np.integer):
        seed = check_random_state(seed).randint(2**31)
    values["random_state"] = int(seed)
    if estimator.dtype is not None:
        with suppress(TypeError):  # the spec raises an error for anything but a dtype
            values["dtype"] = np.dtype(estimator.dtype).name
    return FitSpec.checked(**values)


def is_precomputed(kernel: Any) -> bool:
    """Whether the data are a kernel matrix."""
    try:
        return isinstance(kernel, Precomputed) or (isinstance(kernel, str) and kernel_class(kernel) is Precomputed)
    except SpecError:  # unknown kernels, which `fit` reports
        return False


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
