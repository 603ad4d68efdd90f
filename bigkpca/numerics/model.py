"""A fitted kernel PCA: a feature map, a solution, and where they came from. Plain values, nothing lazy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bigkpca.errors import Array
from bigkpca.numerics.certificate import Certificate
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.solvers import Solution


@dataclass(frozen=True)
class Model:
    """scores(x) = (v(x) - mean) @ components, with v the feature map.

    moments are kept so that more rows can be added later; exact models, and those of a randomized solver, have none.
    certificate says how wrong the model can be. provenance holds what the model was made from, as JSON-ready values
    (FitSpec, input, package version).
    """

    features: FeatureMap
    solution: Solution
    moments: Moments | None
    certificate: Certificate = field(default_factory=Certificate)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> int:
        """d, the width of rows that the model takes."""
        return self.features.columns

    @property
    def block_rows(self) -> int | None:
        """Rows of a block, where the fit was told."""
        rows: int | None = self.provenance.get("spec", {}).get("block_rows")
        return rows

    @property
    def components(self) -> int:
        """r, the number of components kept."""
        return self.solution.components.shape[1]

    def project(self, X_tiles: Iterable[Array], most_rows: int) -> Iterator[Array]:
        """Scores (b, r) of each tile X (b, d), in the dtype of block work. No pass but this one."""
        dtype = self.features.dtype
        mean, components = self.solution.mean.astype(dtype), self.solution.components.astype(dtype)
        for V, _ in self.features.tiles(X_tiles, most_rows):
            V -= mean
            yield V @ components
