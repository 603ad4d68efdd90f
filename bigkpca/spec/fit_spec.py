"""FitSpec: all options that affect a result, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from bigkpca.data.rows import Rows
from bigkpca.errors import Array, BigKPCAError, SpecError, unknown_name
from bigkpca.numerics import kernels, landmarks, methods, preimages
from bigkpca.numerics.kernels import Distance, Kernel
from bigkpca.numerics.methods import Method
from bigkpca.numerics.preimages import Denoising, Preimage
from bigkpca.spec import checks
from bigkpca.spec.column_weights import checked_weights, for_columns

if TYPE_CHECKING:
    from bigkpca.numerics.model import Model


class ProblemOptions(TypedDict, total=False):
    """Options that define the problem that a fit solves."""

    kernel: Any
    sigma: float | str
    gamma: float | str | None
    degree: int
    coef0: float
    center: bool
    standardize: bool
    column_weights: Any
    dtype: Any
    residual_tol: float
    preimage: Any
    noise: float | None
    calibration_rows: int
    calibration: str
    block_rows: int | None


class MethodOptions(TypedDict, total=False):
    """Options in which approximations of one problem differ, besides the seed."""

    method: Any
    size: int | str
    tol: float | None
    landmarks: Any
    n_directions: int | str
    solver: str
    refine: int


class FitOptions(ProblemOptions, MethodOptions, total=False):
    """All options of a fit in the form that functions accept: the fields of `FitSpec`."""

    n_components: int | float | None
    random_state: int


VARIED = (*MethodOptions.__annotations__, "random_state")
"""Fields in which approximations of one problem differ; the others define the problem."""


# Fields whose values have options of their own, and the modules that read and write these as JSON.
_DESCRIBED = {"kernel": kernels, "landmarks": landmarks, "method": methods, "preimage": preimages}
_Count = Annotated[int, Field(ge=1)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class FitSpec(BaseModel):
    """What to fit. Every field is an option of `bigkpca fit`; its description is the help text of that option."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    n_components: _Count | Annotated[float, Field(gt=0, lt=1)] | None = Field(
        50,
        description="number of components, or the share of the variance, in (0, 1), that they must explain; "
        "'none' keeps all",
    )
    kernel: str | Kernel = Field(
        "gaussian",
        description=f"one of {', '.join(name for name in kernels.KERNELS if name != kernels.Precomputed.name)}; or "
        "precomputed, if the data are the kernel matrix; options follow a colon, e.g. matern:nu=2.5",
    )
    sigma: float | str = Field(
        "median",
        description="length scale of the kernel; 'median' derives it from distances between sampled rows, and "
        "'3 median' is three times that",
    )
    gamma: _Positive | Literal["scale"] | None = Field(
        None,
        description="inverse width, instead of sigma; 'scale' means 1 / (columns times variance of the sampled rows); "
        "defaults to 1/columns for the polynomial and sigmoid kernels",
    )
    degree: int = Field(3, ge=1, description="degree of the polynomial kernel")
    coef0: float = Field(1.0, allow_inf_nan=False, description="constant of the polynomial and sigmoid kernels")
    method: str | Any = Field(
        "auto",
        validate_default=True,
        description="one of nystroem, columns, rff (random features), rff-pca or exact; 'auto' means exact for a "
        "precomputed kernel matrix, and nystroem otherwise",
    )
    size: _Count | Literal["auto"] = Field("auto", description="number of landmarks or random features")
    tol: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="with size 'auto': the size is doubled until the unexplained share of the variance (for random "
        "features, the error of the kernel matrix) is at most this",
    )
    landmarks: str | Any = Field("auto", description=f"one of {', '.join(landmarks.RULES)}, or a .npy file of rows")
    n_directions: _Count | Literal["auto"] = Field("auto", description="number of principal axes that rff-pca keeps")
    center: bool = Field(True, description="centre in feature space")
    standardize: bool = Field(
        False,
        description="scale columns to mean 0 and standard deviation 1, a column of categories as one, in one more pass",
    )
    column_weights: dict[str, float] | tuple[float, ...] | None = Field(
        None,
        description="factors of columns by name, after standardising; the name of a column of categories stands for "
        "all its columns of 0 and 1",
    )
    dtype: Literal["float32", "float64"] | None = Field(
        None,
        description="working precision, float32 or float64; defaults to the precision of the data, or to float64 if "
        "rounding would matter",
    )
    solver: Literal["auto", "dense", "randomized"] = Field(
        "auto",
        description="eigensolver for random features: dense or randomized; 'auto' uses randomized above 8192 features",
    )
    refine: int = Field(0, ge=0, description="maximum number of products with the exact Gram matrix after the fit")
    residual_tol: float = Field(
        1e-2, gt=0, description="exact and refine stop when the relative residual of every component is at most this"
    )
    preimage: str | Any = Field(
        "fixed-point",
        description=f"how to turn scores back into rows: one of {', '.join(preimages.PREIMAGES)}; options follow a "
        "colon, e.g. ridge:ridge=0.01,size=500",
    )
    noise: _Positive | None = Field(
        None,
        description="standard deviation of the noise that pre-images remove: denoising is fitted with it, and "
        "errors of pre-images are measured with it added to the rows",
    )
    calibration_rows: int = Field(
        0,
        ge=0,
        description="number of rows that take no part in the fit, at most half of all: by these it is judged how "
        "unusual other rows are, how far new ones drift, and what scores explain of the columns",
    )
    calibration: Literal["random", "last"] = Field(
        "random",
        description="which rows these are: random ones, or the last ones, which suit rows that come in time",
    )
    random_state: int = Field(0, ge=0, description="seed of all random numbers")
    block_rows: _Count | None = Field(None, description="rows per task")

    @classmethod
    def checked(cls, **values: Any) -> FitSpec:
        """The spec of these values; a SpecError names the key and the values that it accepts."""
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
            key = found[0]["loc"][0]  # of an error for each kind of value that the field accepts
            wrong = dict.fromkeys(one["msg"] for one in found if one["loc"][0] == key)
            raise SpecError(f"{key}={values[str(key)]!r}: {', or '.join(wrong)}") from None

    _components = field_validator("n_components", mode="before")(checks.components)
    _kernel = field_validator("kernel", mode="before")(checks.kernel)
    _method = field_validator("method")(checks.method)
    _preimage = field_validator("preimage")(checks.preimage)
    _landmarks = field_validator("landmarks", mode="before")(checks.landmark_rule)
    _sigma = field_validator("sigma", mode="before")(checks.sigma)
    _weights = field_validator("column_weights", mode="before")(checked_weights)

    @model_validator(mode="after")
    def _combinations(self) -> FitSpec:
        for conflict in checks.conflicts(self):
            raise SpecError(conflict)
        return self

    @property
    def preimage_value(self) -> Preimage:
        """The pre-image, with its options."""
        own = self.own_preimage
        return replace(own, noise=self.noise) if isinstance(own, Denoising) and own.noise is None else own

    @property
    def own_preimage(self) -> Preimage:
        """The pre-image as the user passed it, without the noise that is a separate option of the fit."""
        found: Preimage = preimages.named(self.preimage) if isinstance(self.preimage, str) else self.preimage
        return found

    @property
    def kept_method(self) -> Method:
        """The method whose form the model has: products with the Gram matrix make any method exact."""
        return methods.Exact() if self.refine else self.method_value

    @property
    def reconstructs(self) -> bool:
        """Whether the model will have pre-images."""
        if self.precomputed:
            return False
        try:
            self.preimage_value.check(self.kernel_value(1, 1.0), self.kept_method)
        except SpecError:
            return False
        return True

    @property
    def keeps_sample(self) -> bool:
        """Whether pre-images need sampled rows, which models otherwise do not keep."""
        return self.preimage_value.most_rows(self.method_value) > 0 and not self.refine and self.reconstructs

    def preimage_rows(self, sample: int) -> int:
        """How many of the sampled rows pre-images need, if they need any."""
        return min(sample, self.preimage_value.most_rows(self.method_value))

    @property
    def stationary(self) -> bool:
        """Whether the kernel depends only on x - y, so that rows can be shifted."""
        if isinstance(self.kernel, Kernel):
            return self.kernel.stationary
        return kernels.kernel_class(self.kernel).distance is not None

    @property
    def _open_distance(self) -> Distance | None:
        """The distance that the length of the kernel measures, if options of the fit set that length."""
        if isinstance(self.kernel, str) and "sigma" in kernels.parameter_names(self.kernel):
            return kernels.kernel_class(self.kernel).distance
        return None

    @property
    def distance(self) -> Distance:
        """The distance that the kernel length measures. Raises SpecError for a kernel without a length."""
        if self._open_distance is None:
            raise SpecError(f"the kernel {self.kernel} has no length sigma to choose")
        return self._open_distance

    @property
    def needs_median(self) -> bool:
        """Whether the kernel length comes from the sample."""
        return self._open_distance is not None and isinstance(self.sigma, str) and self.gamma is None

    @property
    def needs_variance(self) -> bool:
        """Whether the inverse width of the kernel comes from the variance of the sample."""
        return self.gamma == "scale"

    def kernel_value(self, columns: int, measured: float | None) -> Kernel:
        """The kernel for rows of `columns` columns; `measured` is the median length, or the inverse width from the
        variance, of the sample."""
        if isinstance(self.kernel, Kernel):
            return self.kernel
        cls, wanted = kernels.kernel_class(self.kernel), kernels.parameter_names(self.kernel)
        gamma: Any = measured if self.needs_variance else self.gamma
        given: dict[str, Any] = {"gamma": gamma or 1 / columns, "degree": self.degree, "coef0": self.coef0}
        if gamma is None and hasattr(cls, "gamma"):  # its own default
            del given["gamma"]
        if self._open_distance is not None:
            length: Any = self.sigma
            if gamma is not None:
                length = 1 / gamma if cls.distance == "cityblock" else np.sqrt(0.5 / gamma)
            elif isinstance(length, str):
                length = checks.times(length) * cast(float, measured)
            given["sigma"] = float(length)
        open_ones = {name: value for name, value in given.items() if name in wanted}
        return cls(**kernels.own_options(self.kernel), **open_ones)

    @property
    def method_value(self) -> Method:
        """The method, with its options."""
        return methods.named(self.method) if isinstance(self.method, str) else self.method

    @property
    def exact(self) -> bool:
        """Whether every row is a landmark."""
        return self.method_value.exact

    @property
    def precomputed(self) -> bool:
        """Whether the data are the kernel matrix."""
        return checks.is_precomputed(self.kernel)

    @property
    def given_landmarks(self) -> int | None:
        """Number of landmarks passed by the caller, including repeated ones; None if a rule chooses them."""
        own: Any = self.landmarks
        return own.count if isinstance(own, landmarks.OwnRows | landmarks.RowNumbers) else None

    @property
    def scales(self) -> bool:
        """Whether columns are divided by numbers: deviations, weights, or both."""
        return self.standardize or self.column_weights is not None

    def for_rows(self, rows: Rows) -> FitSpec:
        """The same fit with a weight for each column of these rows. Raises SpecError if weights do not fit them."""
        if self.column_weights is None:
            return self
        return self.model_copy(update={"column_weights": for_columns(self.column_weights, rows)})

    def at(self, size: int) -> FitSpec:
        """The same fit with that size."""
        return self.model_copy(update={"size": size, "tol": None})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], own: Array | None) -> FitSpec:
        """The spec that `to_dict` described; `own` are the landmarks of the fitted model, if the caller passed them."""
        if not isinstance(values, Mapping):
            raise SpecError(f"the options of a fit must be a mapping, not {values!r:.80}")
        given = dict(values)
        for key, module in _DESCRIBED.items():
            if isinstance(given.get(key), dict):
                given[key] = module.from_dict(given[key], *([own] if key == "landmarks" else []))
        return cls.checked(**given)

    @classmethod
    def of(cls, model: Model) -> FitSpec:
        """The spec that a model was fitted with."""
        features = model.features
        own = features.landmarks_in_user_units()
        values = dict(model.provenance.get("spec", {}))
        if not features.kernel.savable:
            values["kernel"] = features.kernel
        return cls.from_dict(values, own)

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON-ready values, the same for equal specs."""
        values = dict(self)
        for key, module in _DESCRIBED.items():
            if not isinstance(value := values[key], str):
                values[key] = value.to_dict() if key == "kernel" else module.to_dict(value)
        return values
