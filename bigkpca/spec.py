"""FitSpec: all that a result depends on besides the data, checked, with errors that name the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from bigkpca.errors import SpecError, unknown_name
from bigkpca.numerics import kernels, landmarks
from bigkpca.numerics.kernels import Distance, Kernel
from bigkpca.numerics.landmarks import LandmarkRule

METHODS = ("nystroem", "exact")
EXACT_MOST_ROWS = 8192  # 0.5 GB of float64 Gram matrix


class FitSpec(BaseModel):
    """What to fit. Every field is an option of `bigkpca fit`; its description is that option's help."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    components: int | float | None = Field(
        50, description="how many components to keep, a share of the variance in (0, 1), or 'none' for all"
    )
    kernel: str | Kernel = Field("gaussian", description="gaussian, laplacian, polynomial, linear, ...")
    sigma: float | Literal["median"] = Field("median", description="length of the kernel, or 'median'")
    gamma: float | None = Field(None, description="inverse width, instead of sigma; 1/d for polynomials")
    degree: int = Field(3, ge=1, description="degree of the polynomial kernel")
    coef0: float = Field(1.0, allow_inf_nan=False, description="constant of the polynomial and sigmoid kernels")
    method: str = Field("nystroem", description="nystroem, or exact (up to 8192 rows)")
    size: int | Literal["auto"] = Field("auto", description="number of landmarks")
    landmarks: str | Any = Field("auto", description="kmeans, uniform, or auto")
    center: bool = Field(True, description="centre in feature space")
    dtype: Literal["float32", "float64"] | None = Field(
        None, description="precision of block work; by default that of the data, at least float32"
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
            first = error.errors()[0]
            context = first.get("ctx", {}).get("error")
            if isinstance(context, SpecError):
                raise context from None
            key = first["loc"][0] if first["loc"] else "options"
            raise SpecError(f"{key}={values.get(str(key))!r}: {first['msg']}") from None

    @field_validator("components")
    @classmethod
    def _components(cls, value: int | float | None) -> int | float | None:
        if value is None:
            return None
        if isinstance(value, float) and not 0 < value < 1:
            if not value.is_integer():
                raise SpecError(f"components={value}: a share of the variance lies between 0 and 1")
            value = int(value)
        if value <= 0:
            raise SpecError(f"components={value}: at least one component must be kept")
        return value

    @field_validator("kernel", mode="before")
    @classmethod
    def _kernel(cls, value: Any) -> str | Kernel:
        if isinstance(value, Kernel):
            return value
        if isinstance(value, type):
            raise SpecError(f"kernel={value.__name__} is a class: give one of its values, or its name")
        if callable(value):
            return kernels.Function(value)
        return kernels.kernel_class(str(value)).name

    @field_validator("method")
    @classmethod
    def _method(cls, value: str) -> str:
        name = value.lower().replace("nystrom", "nystroem").replace("nyström", "nystroem")
        if name not in METHODS:
            raise unknown_name("method", value, METHODS)
        return name

    @field_validator("landmarks")
    @classmethod
    def _landmarks(cls, value: str | LandmarkRule) -> str | LandmarkRule:
        if isinstance(value, str):
            return value if value == "auto" else landmarks.named(value).name
        if type(value) not in landmarks.RULES.values():
            raise SpecError(f"landmarks={value!r}: give a name or a value of bigkpca.landmarks")
        return value

    @field_validator("size")
    @classmethod
    def _size(cls, value: int | str) -> int | str:
        if isinstance(value, int) and value < 1:
            raise SpecError(f"size={value}: at least one landmark is needed")
        return value

    @field_validator("sigma", "gamma")
    @classmethod
    def _positive(cls, value: float | str | None, info: ValidationInfo) -> float | str | None:
        if isinstance(value, float) and not (np.isfinite(value) and value > 0):
            raise SpecError(f"{info.field_name}={value}: it must be a positive number")
        return value

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
        elif self.gamma is not None and self.kernel in ("linear", "cosine"):
            raise SpecError(f"the {self.kernel} kernel has no gamma")
        return self

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
        cls = kernels.kernel_class(self.kernel)
        inverse = self.gamma
        if cls is kernels.Gaussian:
            return kernels.Gaussian(float(np.sqrt(0.5 / inverse)) if inverse else self._length(median))
        if cls is kernels.Laplacian:
            return kernels.Laplacian(1 / inverse if inverse else self._length(median))
        if cls is kernels.Polynomial:
            return kernels.Polynomial(inverse or 1 / columns, self.degree, self.coef0)
        if cls is kernels.Sigmoid:
            return kernels.Sigmoid(inverse or 1 / columns, self.coef0)
        return cls()

    def _length(self, median: float | None) -> float:
        length = median if self.sigma == "median" else self.sigma
        assert isinstance(length, float)  # needs_median says when the caller must measure it
        return length

    def landmark_rule(self) -> LandmarkRule:
        """k-means centres by default where the kernel lives on vectors, rows of the data elsewhere."""
        if not isinstance(self.landmarks, str):
            rule: LandmarkRule = self.landmarks
            return rule
        if self.landmarks != "auto":
            return landmarks.named(self.landmarks)
        return landmarks.KMeans() if self.stationary else landmarks.Uniform()

    def landmark_count(self, n: int) -> int:
        """l: `size`, or min(max(20 r, 500), 2000) when "auto"; at most n, and n for the exact method."""
        if self.method == "exact":
            return n
        if self.size != "auto":
            return min(self.size, n)
        kept = self.components if isinstance(self.components, int) else 50
        return min(max(20 * kept, 500), max(2000, kept), n)

    def block_dtype(self, data: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype of block work on rows of dtype `data`."""
        widest = np.dtype(np.float64)  # long doubles gain nothing in a matrix product
        return np.dtype(self.dtype) if self.dtype else min(np.result_type(data, np.float32), widest)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FitSpec:
        """The spec that `to_dict` described."""
        fields = dict(values)
        if isinstance(fields["kernel"], dict):
            fields["kernel"] = kernels.from_dict(fields["kernel"])
        if isinstance(fields["landmarks"], dict):
            fields["landmarks"] = landmarks.from_dict(fields["landmarks"])
        return cls.checked(**fields)

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON-ready values, the same for equal specs."""
        values = {key: getattr(self, key) for key in type(self).model_fields}
        if isinstance(self.kernel, Kernel):
            values["kernel"] = self.kernel.to_dict()
        if not isinstance(self.landmarks, str):
            values["landmarks"] = landmarks.to_dict(self.landmarks)
        return values
