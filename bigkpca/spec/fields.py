"""FitSpec: all that a result depends on besides the data, checked, with errors that name the key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from bigkpca.errors import Array, BigKPCAError, SpecError, unknown_name
from bigkpca.numerics import kernels, landmarks, methods, preimages
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Distance, Kernel
from bigkpca.numerics.methods import Method, PrincipalFeatures
from bigkpca.numerics.model import Model
from bigkpca.numerics.preimages import Denoising, FixedPoint, Preimage
from bigkpca.spec import checks

VARIED = ("method", "landmarks", "size", "seed", "tol", "refine", "n_directions", "solver")
"""Fields by which approximations of one problem differ; the others say what the problem is."""


def _parameters(kernel: str) -> set[str]:
    """The parameters of a kernel by its name; options of these names are theirs, others keep their default."""
    return {field.name for field in fields(kernels.kernel_class(kernel))}


def _either(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}"


def _preimages(*, trained: bool) -> list[str]:
    return [name for name, kind in preimages.PREIMAGES.items() if kind.trained == trained]


class FitSpec(BaseModel):
    """What to fit. Every field is an option of `bigkpca fit`; its description is that option's help."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    components: int | float | Literal["auto"] | None = Field(
        50,
        description="how many components to keep, a share of the variance in (0, 1), 'auto' for those before the "
        "largest gap behind a trustworthy one, or 'none' for all",
    )
    kernel: str | Kernel = Field(
        "gaussian",
        description=f"{_either(name for name in kernels.KERNELS if name != kernels.Precomputed.name)}; or "
        "precomputed, with method exact: the data are the matrix of kernels",
    )
    sigma: float | Literal["median"] = Field("median", description="length of the kernel, or 'median'")
    gamma: float | None = Field(
        None, description="inverse width, instead of sigma; 1/columns for the polynomial and sigmoid kernels"
    )
    degree: int = Field(3, ge=1, description="degree of the polynomial kernel")
    coef0: float = Field(1.0, allow_inf_nan=False, description="constant of the polynomial and sigmoid kernels")
    method: str | Any = Field(
        "nystroem",
        description="nystroem, columns, rff (random features), rff-pca, or exact",
    )
    size: int | Literal["auto"] = Field("auto", description="number of landmarks or random features")
    tol: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="with size auto: grow until the relative trace error (of random features, the estimated error of "
        "the kernel) is below it",
    )
    landmarks: str | Any = Field("auto", description=f"{', '.join(landmarks.RULES)}, or a .npy file of rows")
    n_directions: int | Literal["auto"] = Field("auto", description="principal axes that rff-pca keeps")
    center: bool = Field(True, description="centre in feature space")
    standardize: bool = Field(False, description="bring columns to mean 0 and deviation 1 first, one more pass")
    dtype: Literal["float32", "float64"] | None = Field(
        None,
        description="precision of block work, float32 or float64: that of the data, or float64 where rounding would "
        "count",
    )
    solver: Literal["auto", "dense", "randomized"] = Field(
        "auto", description="eigensolver of random features: auto is randomized above 8192 of them"
    )
    refine: int = Field(0, ge=0, description="products with the exact Gram matrix after the fit, at most")
    residual_tol: float = Field(
        1e-2, gt=0, description="largest relative residual of a component at which exact and refine stop"
    )
    preimage: str | Any = Field(
        "fixed-point",
        description=f"how rows are found from scores: {_either(_preimages(trained=False))}; or "
        f"{_either(_preimages(trained=True))}, which one more pass trains; options follow, e.g. "
        "ridge:ridge=0.01,size=500",
    )
    noise: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="standard deviation of the noise that pre-images are to undo: denoising is trained on it, scoring "
        "adds it",
    )
    seed: int = Field(0, ge=0, description="seed of all that is random")
    block_rows: int | None = Field(None, ge=1, description="rows of one task")

    @classmethod
    def checked(cls, **values: Any) -> FitSpec:
        """The spec of these values; SpecError names the key and what it may be."""
        unknown = [key for key in values if key not in cls.model_fields]
        if unknown:
            raise unknown_name("option", unknown[0], list(cls.model_fields))
        try:
            return cls(**values)
        except ValidationError as error:
            found = error.errors()
            context = found[0].get("ctx", {}).get("error")
            if isinstance(context, BigKPCAError):
                raise context from None
            key = found[0]["loc"][0]
            # One for each kind of value.
            wanted = dict.fromkeys(checks.wanted(one) for one in found if one["loc"][0] == key)
            if "a number" in wanted:
                wanted.pop("a whole number", None)
            raise SpecError(f"{key}={values[str(key)]!r}: give {' or '.join(wanted)}") from None

    _components = field_validator("components")(checks.components)
    _kernel = field_validator("kernel", mode="before")(checks.kernel)
    _method = field_validator("method")(checks.method)
    _preimage = field_validator("preimage")(checks.preimage)
    _landmarks = field_validator("landmarks", mode="before")(checks.landmark_rule)
    _size = field_validator("size", "n_directions")(checks.size)
    _positive = field_validator("sigma", "gamma")(checks.positive)

    @model_validator(mode="after")
    def _lengths(self) -> FitSpec:
        numeric = isinstance(self.sigma, float)
        if numeric and self.gamma is not None:
            raise SpecError("both sigma and gamma are given: give one, gamma = 1 / (2 sigma^2) for the Gaussian")
        if isinstance(self.kernel, Kernel):
            if numeric or self.gamma is not None:
                raise SpecError("sigma and gamma belong to kernel names; a kernel value has its own parameters")
        elif numeric and kernels.kernel_class(self.kernel).distance is None:
            raise SpecError(f"the {self.kernel} kernel has no length sigma")
        elif self.kernel == "polynomial" and not self.coef0 >= 0:
            raise SpecError(f"coef0={self.coef0}: a negative constant makes the polynomial kernel indefinite")
        elif self.gamma is not None and not {"sigma", "gamma"} & _parameters(self.kernel):
            raise SpecError(f"the {self.kernel} kernel has no gamma")
        return self

    @model_validator(mode="after")
    def _method_fits(self) -> FitSpec:
        method = self.method_value
        if self.precomputed and not self.exact:
            raise SpecError(
                f"kernel='precomputed' needs method='exact', not {method.name!r}: no other reads a matrix of kernels"
            )
        if self.precomputed and self.standardize:
            raise SpecError("standardize=True is for rows that are vectors: with kernel='precomputed' they are kernels")
        if self.n_directions != "auto" and not isinstance(method, PrincipalFeatures):
            raise SpecError(f"n_directions={self.n_directions} belongs to method='rff-pca', not to {method.name!r}")
        if method.landmarks and self.solver == "randomized":
            raise SpecError(f"solver='randomized' is for random features: method={method.name!r} holds its W anyway")
        if not method.landmarks and self.landmarks != "auto":
            raise SpecError(f"method={method.name!r} draws random features and has no landmarks: leave landmarks out")
        if method.uniform and self._rule_name not in ("auto", "uniform"):
            raise SpecError(
                f"{method} takes uniform landmarks only, not {self._rule_name!r}: its scaling from l to n and its "
                "centring hold for rows drawn uniformly; use method='nystroem' with other landmarks"
            )
        if self.exact and self.refine:
            raise SpecError("method='exact' stops at residual_tol: leave refine out")
        if self.refine and not isinstance(self.components, int):
            raise SpecError(f"refine={self.refine} needs a number of components, not {self.components}")
        own = self.own_landmarks
        if self.exact and self.landmarks != "auto":
            raise SpecError(
                "method='exact' takes every row for a landmark: leave landmarks out, or use method='nystroem'"
            )
        if own is not None and self.size not in ("auto", own):
            raise SpecError(f"size={self.size}, but {own} landmarks are given: leave size out")
        if self.tol is not None and (self.exact or own is not None or self.size != "auto"):
            what = "the exact method" if self.exact else f"{own} landmarks" if own is not None else f"size={self.size}"
            raise SpecError(f"tol={self.tol} lets the size grow, but {what} leaves nothing to grow: leave tol out")
        method.check(self.kernel_value(1, 1.0), None if self.size == "auto" else self.size)
        return self

    @model_validator(mode="after")
    def _preimage_fits(self) -> FitSpec:
        way = self.preimage_value
        if isinstance(self.preimage, Denoising) and self.preimage.noise and self.noise:
            raise SpecError(f"noise={self.noise} and {self.preimage} both give the noise: leave one of them out")
        if way == FixedPoint():  # the default, which a kernel may refuse when it is asked for rows
            return self
        if self.precomputed:
            raise SpecError(f"preimage={way.name!r} leads back to rows, which kernel='precomputed' has none of")
        way.check(self.kernel_value(1, 1.0), self.kept_method)
        return self

    @property
    def preimage_value(self) -> Preimage:
        """The way back from scores to rows, with its options."""
        way: Preimage = preimages.named(self.preimage) if isinstance(self.preimage, str) else self.preimage
        return replace(way, noise=self.noise) if isinstance(way, Denoising) and way.noise is None else way

    @property
    def kept_method(self) -> Method:
        """The method whose form the model has: products with the Gram matrix make any of them exact."""
        return methods.Exact() if self.refine else self.method_value

    @property
    def reconstructs(self) -> bool:
        """Whether there is a way back from scores to rows."""
        if self.precomputed:
            return False
        try:
            self.preimage_value.check(self.kernel_value(1, 1.0), self.kept_method)
        except SpecError:
            return False
        return True

    @property
    def keeps_sample(self) -> bool:
        """Whether the way back from scores to rows needs sampled rows, which no model keeps by itself."""
        needed = self.preimage_value.needs_rows or not self.method_value.landmarks
        return needed and not self.refine and self.reconstructs

    @property
    def stationary(self) -> bool:
        """Whether the kernel depends on x - y alone, so that rows may be shifted."""
        if isinstance(self.kernel, Kernel):
            return self.kernel.stationary
        return kernels.kernel_class(self.kernel).distance is not None

    @property
    def distance(self) -> Distance:
        """What the length of the kernel measures; SpecError for a kernel without one."""
        found = kernels.kernel_class(self.kernel).distance if isinstance(self.kernel, str) else None
        if found is None:
            raise SpecError(f"the kernel {self.kernel} has no length that distances could give")
        return found

    @property
    def needs_median(self) -> bool:
        """Whether the length of the kernel comes from the sample."""
        named = isinstance(self.kernel, str)
        return named and self.stationary and self.sigma == "median" and self.gamma is None

    def kernel_value(self, columns: int, median: float | None) -> Kernel:
        """The kernel for rows of `columns` columns, `median` being the length that the sample gave."""
        if isinstance(self.kernel, Kernel):
            return self.kernel
        cls, wanted = kernels.kernel_class(self.kernel), _parameters(self.kernel)
        given: dict[str, Any] = {"gamma": self.gamma or 1 / columns, "degree": self.degree, "coef0": self.coef0}
        if cls.distance is not None:
            given["sigma"] = self._length(cls.distance, median)
        return cls(**{name: value for name, value in given.items() if name in wanted})

    def _length(self, distance: Distance, median: float | None) -> float:
        if self.gamma is not None:
            return 1 / self.gamma if distance == "cityblock" else float(np.sqrt(0.5 / self.gamma))
        length = median if self.sigma == "median" else self.sigma
        assert isinstance(length, float)  # needs_median says when the caller must measure it
        return length

    @property
    def method_value(self) -> Method:
        """The method, with its options."""
        return methods.named(self.method) if isinstance(self.method, str) else self.method

    @property
    def exact(self) -> bool:
        """Whether every row is a landmark."""
        return isinstance(self.method_value, methods.Exact)

    @property
    def precomputed(self) -> bool:
        """Whether the data are the matrix of kernels."""
        return self.kernel in (kernels.Precomputed.name, kernels.Precomputed())

    @property
    def _rule_name(self) -> str:
        return self.landmarks if isinstance(self.landmarks, str) else str(self.landmarks.name)

    @property
    def own_landmarks(self) -> int | None:
        """How many rows the caller gave for landmarks, those that recur among them; None where a rule chooses."""
        own: Any = self.landmarks
        return own.count if isinstance(own, landmarks.Rows | landmarks.RowNumbers) else None

    def at(self, size: int) -> FitSpec:
        """The same fit with that size."""
        return self.model_copy(update={"size": size, "tol": None})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], own: Array) -> FitSpec:
        """The spec that `to_dict` described; `own` are the landmarks of the fitted model, for a caller's own rows."""
        given = dict(values)
        if isinstance(given["kernel"], dict):
            given["kernel"] = kernels.from_dict(given["kernel"])
        if isinstance(given["landmarks"], dict):
            given["landmarks"] = landmarks.from_dict(given["landmarks"], own)
        if isinstance(given["method"], dict):
            given["method"] = methods.from_dict(given["method"])
        if isinstance(given["preimage"], dict):
            given["preimage"] = preimages.from_dict(given["preimage"])
        return cls.checked(**given)

    @classmethod
    def of(cls, model: Model) -> FitSpec:
        """The spec that a model was fitted with."""
        features = model.features
        own = features.landmarks_in_user_units() if isinstance(features, KernelRows) else np.empty((0, 0))
        values = dict(model.provenance["spec"])
        if not features.kernel.savable:
            values["kernel"] = features.kernel
        return cls.from_dict(values, own)

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON-ready values, the same for equal specs."""
        values = {key: getattr(self, key) for key in type(self).model_fields}
        if isinstance(self.kernel, Kernel):
            values["kernel"] = self.kernel.to_dict()
        if not isinstance(self.landmarks, str):
            values["landmarks"] = landmarks.to_dict(self.landmarks)
        if not isinstance(self.method, str):
            values["method"] = methods.to_dict(self.method)
        if not isinstance(self.preimage, str):
            values["preimage"] = preimages.to_dict(self.preimage)
        return values
