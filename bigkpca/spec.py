"""FitSpec: all that a result depends on besides the data, checked, with errors that name the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from bigkpca.data.blocks import sample_rows
from bigkpca.errors import Array, BigKPCAError, SpecError, unknown_name
from bigkpca.numerics import kernels, landmarks, methods, preimages, spectral
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Distance, Kernel
from bigkpca.numerics.landmarks import LandmarkRule
from bigkpca.numerics.methods import Method, PrincipalFeatures
from bigkpca.numerics.model import Model
from bigkpca.numerics.preimages import Denoising, FixedPoint, Preimage
from bigkpca.numerics.sketch import OVERSAMPLING

EXACT_MOST_ROWS = 8192  # 0.5 GB of float64 Gram matrix
DENSE_MOST_FEATURES = 8192  # as many for the D x D moments of random features
_RANDOM_FEATURES = 2048
VARIED = ("method", "landmarks", "size", "seed", "tol", "refine", "n_directions", "solver")
"""Fields by which approximations of one problem differ; the others say what the problem is."""
_UNSEEN_BYTES = 16_000_000
_MOST_GROWN = 8192  # landmarks or random features to which a size grows: squares of 0.5 GB


def _wanted(error: Mapping[str, Any]) -> str:
    """What a value of a field may be that pydantic refused."""
    kind, context = error["type"], error.get("ctx", {})
    limits = {"greater_than": "above", "greater_than_equal": "of at least", "less_than": "below"}
    if kind in limits:
        (limit,) = context.values()
        return f"a number {limits[kind]} {limit:g}"
    if kind == "literal_error":
        return str(context["expected"])
    names = {"int": "a whole number", "float": "a number", "finite": "a finite number", "bool": "true or false"}
    return names.get(kind.partition("_")[0], error["msg"])


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
        description="gaussian, laplacian, matern, rational-quadratic, polynomial, linear, sigmoid or cosine; or "
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
    landmarks: str | Any = Field(
        "auto", description="kmeans, uniform, rpcholesky, leverage, basic-patterns, or a .npy file of rows"
    )
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
        description="way back from scores to rows: fixed-point, mds or linear; or ridge or denoising, which one more "
        "pass trains; options follow, e.g. ridge:ridge=0.01,size=500",
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
            wanted = dict.fromkeys(_wanted(one) for one in found if one["loc"][0] == key)  # one for each kind of value
            if "a number" in wanted:
                wanted.pop("a whole number", None)
            raise SpecError(f"{key}={values[str(key)]!r}: give {' or '.join(wanted)}") from None

    @field_validator("components")
    @classmethod
    def _components(cls, value: int | float | str | None) -> int | float | str | None:
        if value is None or isinstance(value, str):
            return value
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
    def _method(cls, value: str | Method) -> str | Method:
        if isinstance(value, str):
            return methods.named(value).name
        if type(value) not in methods.METHODS.values():
            raise SpecError(f"method={value!r}: give a name or a value of bigkpca.methods")
        return value

    @field_validator("preimage")
    @classmethod
    def _preimage(cls, value: str | Preimage) -> str | Preimage:
        if isinstance(value, str):
            way = preimages.named(value)
            return way if ":" in value else way.name
        if type(value) not in preimages.PREIMAGES.values():
            raise SpecError(f"preimage={value!r}: give a name or a value of bigkpca.preimages")
        return value

    @field_validator("landmarks", mode="before")
    @classmethod
    def _landmarks(cls, value: Any) -> Any:
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

    @field_validator("size", "n_directions")
    @classmethod
    def _size(cls, value: int | str, info: ValidationInfo) -> int | str:
        if isinstance(value, int) and value < 1:
            what = "landmark or random feature" if info.field_name == "size" else "principal axis"
            raise SpecError(f"{info.field_name}={value}: at least one {what} is needed")
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
        elif self.gamma is not None and self.kernel in ("linear", "cosine", "precomputed"):
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
        cls = kernels.kernel_class(self.kernel)
        if cls is kernels.Polynomial:
            return kernels.Polynomial(self.gamma or 1 / columns, self.degree, self.coef0)
        if cls is kernels.Sigmoid:
            return kernels.Sigmoid(self.gamma or 1 / columns, self.coef0)
        if cls.distance is None:
            return cls()
        return kernels.from_dict({"name": cls.name, "sigma": self._length(cls.distance, median)})

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

    def landmark_rule(self) -> LandmarkRule:
        """The rule that chooses landmarks, with its options."""
        if not isinstance(self.landmarks, str):
            rule: LandmarkRule = self.landmarks
            return rule
        return self.automatic_rule()[0] if self.landmarks == "auto" else landmarks.named(self.landmarks)

    def automatic_rule(self) -> tuple[LandmarkRule, str]:
        """The rule that suits method and kernel, and why it does."""
        if self.method_value.uniform:
            return landmarks.Uniform(), "the method's formulas hold for rows drawn uniformly"
        if self.stationary:
            return landmarks.KMeans(), "the kernel depends on x - y, so that means of rows stand for rows"
        if self.kernel_value(1, 1.0).name == "sigmoid":
            return landmarks.Uniform(), "the kernel is not positive semidefinite, which other rules need"
        return landmarks.RPCholesky(), "the kernel has no length, so rows stand for rows: those not yet explained"

    def feature_count(self, n: int, d: int) -> int:
        """D for n rows of d columns: all rows, the size that was given, or the most that a tolerance may need.

        By default 2048 random features, or min(max(20 r, 500), 2000) landmarks, but at least r and at most n.
        """
        if self.exact:
            return n
        if self.own_landmarks is not None:
            return self.own_landmarks
        wanted = self._automatic_size()[0] if self.size == "auto" else self.size
        if self.size == "auto" and self.tol is not None:
            wanted = min(_MOST_GROWN, sample_rows(n, d, 0)) if self.method_value.landmarks else _MOST_GROWN
        return min(wanted, n) if self.method_value.landmarks else wanted

    def unseen_count(self, n: int, d: int) -> int:
        """How many rows bound what landmarks miss: at most 4096, or 16 MB as float32. None where no bound holds: random
        features, the exact method, kernels that may be indefinite."""
        if not self.method_value.landmarks or self.exact or not self.kernel_value(d, 1.0).positive:
            return 0
        return min(n, max(2, min(spectral.HELD_OUT_ROWS, _UNSEEN_BYTES // (4 * d))))

    def _automatic_size(self) -> tuple[int, str]:
        if not self.method_value.landmarks:
            return _RANDOM_FEATURES, "the default number of random features"
        kept = self.components if isinstance(self.components, int) else 50
        return min(max(20 * kept, 500), max(2000, kept)), "20 for each component, but at least 500 and at most 2000"

    @property
    def size_reason(self) -> str:
        """Why an automatic size is what it is."""
        return self._automatic_size()[1]

    def at(self, size: int) -> FitSpec:
        """The same fit with that size."""
        return self.model_copy(update={"size": size, "tol": None})

    def matrix_free(self, n: int) -> bool:
        """Whether eigenpairs of n rows come from products with the Gram matrix, never holding n x n."""
        large = self.exact and n > EXACT_MOST_ROWS
        if large and not isinstance(self.components, int):
            raise SpecError(
                f"method='exact' above {EXACT_MOST_ROWS} rows needs a number of components, not {self.components}"
            )
        return large or self.refine > 0

    def start(self, n: int) -> FitSpec:
        """The spec of the approximate fit from which products with the Gram matrix start: a few more components."""
        assert isinstance(self.components, int)
        changed: dict[str, Any] = {"components": self.components + OVERSAMPLING, "refine": 0}
        return self.model_copy(update=changed | ({"method": "nystroem"} if self.exact else {}))

    def randomized(self, D: int) -> bool:
        """Whether eigenpairs of D random features come from a sketch, never holding D x D."""
        chosen = self.solver == "randomized" or (
            self.solver == "auto" and D > DENSE_MOST_FEATURES and not self.method_value.landmarks
        )
        if chosen and not isinstance(self.components, int):
            raise SpecError(
                f"the randomized solver, used above {DENSE_MOST_FEATURES} random features or when asked for, needs a "
                f"number of components, not {self.components}: give one, or solver='dense'"
            )
        return chosen

    def block_dtype(self, data: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype of block work on rows of dtype `data`."""
        widest = np.dtype(np.float64)  # long doubles gain nothing in a matrix product
        return np.dtype(self.dtype) if self.dtype else min(np.result_type(data, np.float32), widest)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], own: Array) -> FitSpec:
        """The spec that `to_dict` described; `own` are the landmarks of the fitted model, for a caller's own rows."""
        fields = dict(values)
        if isinstance(fields["kernel"], dict):
            fields["kernel"] = kernels.from_dict(fields["kernel"])
        if isinstance(fields["landmarks"], dict):
            fields["landmarks"] = landmarks.from_dict(fields["landmarks"], own)
        if isinstance(fields["method"], dict):
            fields["method"] = methods.from_dict(fields["method"])
        if isinstance(fields["preimage"], dict):
            fields["preimage"] = preimages.from_dict(fields["preimage"])
        return cls.checked(**fields)

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
