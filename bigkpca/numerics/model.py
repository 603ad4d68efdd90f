"""A fitted kernel PCA: a feature map, a solution, and their provenance, as plain values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, TypedDict

from bigkpca.errors import Array, SpecError, column_called
from bigkpca.numerics import methods
from bigkpca.numerics.array_api import on_host
from bigkpca.numerics.calibration import Calibration
from bigkpca.numerics.certificate import Certificate
from bigkpca.numerics.display import ShowsSummary, Summary, counted
from bigkpca.numerics.drawn_rows import DrawnRows
from bigkpca.numerics.eigenpairs import Projection, Solution
from bigkpca.numerics.features import FeatureMap, Place, has_landmarks
from bigkpca.numerics.linalg import all_aligned
from bigkpca.numerics.linear_pca import MOST_VALUES, Captured, captured, spread
from bigkpca.numerics.methods import Method
from bigkpca.numerics.moments import Moments, OneHot, ShiftedSums
from bigkpca.numerics.preimages import (
    Decode,
    Decoder,
    Expansion,
    Fitted,
    FixedPoint,
    expansion,
    reconstructing,
    residuals,
)


class Provenance(TypedDict, total=False):
    """The origin of a model, JSON-ready; unknown entries are missing."""

    spec: dict[str, Any]  # fields of the `FitSpec`
    identity: dict[str, Any]  # fingerprint of the rows: path, shape, dtype, stamp, and `weights` if they have any
    content: str  # digest of the sums over all rows, if there are any
    column_names: list[str]
    one_hot: list[list[Any]]  # name, start and stop of the columns of 0 and 1 of each column of categories
    choices: list[dict[str, Any]]  # values of options that were left open, with reasons
    products: int  # with the Gram matrix
    added: list[dict[str, Any]]  # fingerprints of added rows, with their digests
    like: str  # digest of the model whose features this one has
    devices: list[str]  # that computed, if one was not the processor ("cpu")


@dataclass(frozen=True, repr=False)
class Model(ShowsSummary):
    """A fitted model: scores(x) = (v(x) - mean) @ components, where v is the feature map.

    Attributes
    ----------
    features : FeatureMap
        The feature map v.
    solution : Solution
        Mean, components and eigenvalues.
    sums : ShiftedSums or None
        Of all rows, so that rows and models can be added; None for exact models and those of the randomized solver.
    certificate : Certificate
        Bounds and estimates of the error.
    provenance : Provenance
        Spec, rows and choices of the fit.
    decoder : Decoder or None
        Maps scores back to rows; None if the kernel does not allow the default method.
    drawn : DrawnRows or None
        The rows from which the certificate comes.
    calibration : Calibration or None
        Rows that took no part in the fit, by which other rows are judged.
    """

    features: FeatureMap
    solution: Solution
    _: KW_ONLY
    sums: ShiftedSums | None = None
    certificate: Certificate
    provenance: Provenance = field(default_factory=Provenance)
    decoder: Decoder | None = None
    drawn: DrawnRows | None = None
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        vars(self).update(all_aligned(vars(self)))  # as after storing and loading, so that results have the same bits

    def placed(self, place: Place) -> Model:
        """The same model with what scores and residuals take from it on a device."""
        if self.features.precomputed:  # whose scores take no kernels
            return self
        found = copy.copy(self)  # without checks of arrays, which are for NumPy's
        vars(found).update(features=self.features.placed(place), solution=self.solution.placed(place))
        return found

    def summary(self) -> Summary:
        """The main facts, and the eigenvalues."""
        rows = self.sums.count if self.sums else self.features.size
        what = "landmarks" if has_landmarks(self.features) else "features"
        keeps_rows = self.sums is None and has_landmarks(self.features)
        known = self.sums or has_landmarks(self.features) or self.features.precomputed  # a sketch does not count rows
        weight = f", of weight {self.sums.weight:,.10g}" if self.sums and self.weighted else ""
        facts = {
            "method": self.method.name if keeps_rows or "spec" in self.provenance else "unknown",
            "kernel": repr(self.features.kernel),
            what: f"{self.features.size:,}",
            "rows": f"{rows:,}{weight}" if known else "not counted",
            "columns": f"{self.columns:,}",
            "explained": f"{self.solution.explained_variance_ratio.sum():.2%} of the variance",
            "trust": counted(self.certificate.trust),
            "pre-image": self.decoder.name if self.decoder else "none",
        }
        columns: dict[str, Any] = {
            "eigenvalue": self.solution.eigenvalues,
            "share of variance": self.solution.explained_variance_ratio,
            "trust": self.certificate.trust,
        }
        return Summary(f"Model of {self.components} components", facts, columns)

    @cached_property
    def captured(self) -> Captured | None:
        """The share of the columns that the scores explain, beside linear PCA, from the calibration rows; None as for
        `linear_pca.captured`, and without these rows."""
        held = self.calibration
        if held is None:
            return None
        few = spread(held.count, max(1, MOST_VALUES // self.columns))
        return captured(self.features, held.rows[few], held.scores[few], seen=False)

    @property
    def weighted(self) -> bool:
        """Whether rows of the fit had weights."""
        known = self.provenance.get("identity", {}), *self.provenance.get("added", [])
        return any("weights" in each for each in known)

    @property
    def moments(self) -> Moments | None:
        """Moments of the features of all rows; None if the model has no sums."""
        return None if self.sums is None else self.sums.moments

    @property
    def columns(self) -> int:
        return self.features.columns

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns of the fitted rows, if any."""
        names = self.provenance.get("column_names")
        return None if names is None else tuple(names)

    @property
    def one_hot(self) -> tuple[OneHot, ...]:
        """The columns of 0 and 1 of each column of categories of the fitted rows."""
        return tuple(OneHot(*each) for each in self.provenance.get("one_hot", []))

    @property
    def variables(self) -> dict[str, slice]:
        """The columns of each variable of the fitted rows: a named column, or all those of a column of categories. Of
        columns with the same name, later ones are called by number and name. Empty if columns have no names."""
        found: dict[str, slice] = {}
        blocks = {start: (name, stop) for name, start, stop in self.one_hot}
        names, at = self.names or (), 0
        while at < len(names):
            name, stop = blocks.get(at, (names[at], at + 1))
            found[name if name not in found else column_called(at, names)] = slice(at, stop)
            at = stop
        return found

    @property
    def block_rows(self) -> int | None:
        """Rows of a block, if the fit set them."""
        rows: int | None = self.provenance.get("spec", {}).get("block_rows")
        return rows

    @property
    def components(self) -> int:
        return self.solution.components.shape[1]

    # Scores and residuals are in host memory, wherever the model is.

    def project(self, X_tiles: Iterable[Array], most_rows: int) -> Iterator[Array]:
        """Scores (b, r) of each tile X (b, d), in the dtype of block work; one pass."""
        return map(self.projecting(most_rows), X_tiles)

    def projecting(self, most_rows: int) -> Callable[[Array], Array]:
        """`project` for one tile, as a function that owns its work space."""
        evaluate, project = self.features.evaluation(most_rows), self.projection()
        return lambda X: on_host(project(evaluate(X)[0], overwrite=True))

    def scoring(self, most_rows: int, given: Expansion) -> Callable[[Array], tuple[Array, Array]]:
        """Scores (b, r) and residuals (b,) of one tile, as a function that owns its work space; `given` is the
        expansion of this model."""
        evaluate, project = self.features.evaluation(most_rows), self.projection()

        def score(X: Array) -> tuple[Array, Array]:
            V, diagonal = evaluate(X)
            left = residuals(given, self.solution, V, diagonal)
            return on_host(project(V, overwrite=True)), on_host(left)

        return score

    def projection(self) -> Projection:
        """The projection from features to scores, in the dtype of block work."""
        return self.solution.projection(self.features.dtype)

    @property
    def method(self) -> Method:
        """The method of the model; the exact one if it keeps its rows."""
        if self.sums is None and has_landmarks(self.features):
            return methods.Exact()
        given = self.provenance.get("spec", {}).get("method")
        if given is None:
            raise SpecError("this model does not record the method of its fit: fit it again")
        return methods.named(given) if isinstance(given, str) else methods.from_dict(given)

    def factor(self, tolerance: float) -> Array | None:
        """P (D, m) with K ≈ (V P)(V P)' for the features V of the rows; None if V itself is that factor."""
        return self.method.factor(self.moments, self.features, tolerance)

    @property
    def fitted(self) -> Fitted:
        """The part of the model that pre-image methods use."""
        return Fitted(self.features, self.solution, self.moments, self.method)

    def check_preimages(self) -> None:
        """Raise SpecError if the model has no decoder."""
        if self.decoder is None:
            FixedPoint().check(self.features.kernel, self.method)
            raise SpecError("this model has no pre-images: fit it again with preimage='ridge' or 'denoising'")

    def reconstructing(self, most_rows: int) -> Decode:
        """A function of scores (b, r), b <= most_rows, and rows (b, d) to start from or None, that returns Preimages in
        the units of the data. Raises SpecError if the model has no decoder."""
        self.check_preimages()
        assert self.decoder is not None
        return reconstructing(self.decoder, self.features, self.solution, most_rows)

    def check_residuals(self) -> None:
        """Raise SpecError if k(x, x) of a row is not known."""
        if self.features.precomputed:
            raise SpecError("residuals need k(x, x), which rows of a precomputed matrix do not contain: omit residual")

    def check_calibrated(self) -> Calibration:
        """The calibration. Raises SpecError if there is none."""
        if self.calibration is None:
            raise SpecError(
                "the model has no calibration rows, which limits need: fit it with calibration_rows=2000 "
                "(--calibration-rows 2000)"
            )
        return self.calibration

    def expansion(self) -> Expansion:
        """The expansion that residuals need: that of the decoder, if it has one, otherwise from a decomposition of
        W. Raises SpecError like `check_residuals`."""
        self.check_residuals()
        known = None if self.decoder is None else self.decoder.expansion(self.solution)
        return expansion(self.fitted) if known is None else known
