"""Models whose errors are estimated, and the truth of them from the whole Gram matrix."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import bigkpca
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows
from bigkpca.execution.engine import Engine, sum_by_block
from bigkpca.execution.passes import block_evaluation
from bigkpca.execution.projection import score_rows
from bigkpca.numerics import evaluation
from bigkpca.numerics.evaluation import Pool, Probes, Sample, Sums
from bigkpca.numerics.linalg import rank_tolerance
from tests.helpers import oracles
from tests.helpers.fits import fit

R = 4
MODELS = {
    "uniform": {"landmarks": "uniform"},
    "kmeans": {"landmarks": "kmeans"},
    "columns": {"method": "columns"},
    "rff": {"method": "rff"},
    "rff-pca": {"method": "rff-pca"},
    "standardized": {"standardize": True},
    "polynomial": {"kernel": "polynomial"},
    "thesis": {"method": bigkpca.methods.Nystroem(form="thesis")},
}


def some_rows(n, seed=0, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def fitted(X, engine=None, **options):
    return fit(X, engine, **{"n_components": R, "size": 60, "random_state": 1} | options)


def truth(model, X):
    """What `evaluate` estimates, and the eigenvalues of Kc, from the whole Gram matrix of rows X."""
    center, method = model.provenance["spec"]["center"], model.provenance["spec"]["method"]
    features = model.features
    K = features.kernel.gram(features.as_columns().shifted(X).astype(np.float64))
    ((V, _),) = features.tiles([X], len(X))
    V = V.astype(np.float64)
    cutoff = rank_tolerance(features.dtype)
    if method == "columns":
        E = K - oracles.columns_gram(V, cutoff)
    elif hasattr(features, "landmarks"):
        E = K - oracles.nystroem_gram(V, features.gram(), cutoff)
    else:
        E = K - V @ V.T
    Y = score_rows(ArrayRows(X), model, Engine(threads=1)).astype(np.float64)
    Y = Y - Y.mean(axis=0) if center else Y
    U = Y / np.linalg.norm(Y, axis=0)
    Kc = oracles.centred(K) if center else K
    values = np.einsum("ij,ij->j", U, Kc @ U)
    return {
        "eigenvalues": values,
        "residuals": np.linalg.norm(Kc @ U - U * values, axis=0) / values,
        "frobenius": np.linalg.norm(E),
        "total_variance": np.trace(Kc),
        "lambda": np.linalg.eigvalsh(Kc)[::-1][: len(values)],
    }


@dataclass(frozen=True)
class Whole:
    """An evaluation with every row as a probe, from which those of any sample follow without another pass."""

    sums: Sums
    given: Probes
    pool: Pool
    P: Any
    center: bool

    @classmethod
    def of(cls, model, X):
        P, n = model.factor(rank_tolerance(model.features.dtype)), len(X)
        given = evaluation.probes(model.features, model.solution, X, P, uniform(n, n))
        sums = sum_by_block(
            "evaluating", block_evaluation, open_rows(X), (model, given), model.block_rows, Engine(threads=1)
        )
        pool = evaluation.pool(model.features, model.solution, [X], P, n)
        return cls(sums, given, pool, P, model.provenance["spec"]["center"])

    def sampled(self, size, rng):
        n, sums, given = len(self.given.rows), self.sums, self.given
        pooled = np.sort(rng.choice(n, min(8 * size, n), replace=False))
        sizes = evaluation.sizes(Pool(self.pool.own[pooled], self.pool.Y[pooled]), center=self.center)
        drawn, sample = evaluation.draw(sizes, size, n, rng)
        numbers = pooled[drawn]
        few = replace(sums, KY=sums.KY[numbers], K1=sums.K1[numbers], squares=sums.squares[numbers])
        probes = Probes(given.rows[numbers], given.Y[numbers], given.C[numbers], sample)
        return evaluation.evaluation(few, probes, self.P, center=self.center)

    def samples(self, size, count):
        rng = np.random.default_rng(0)
        return [self.sampled(size, rng) for _ in range(count)]


def uniform(m, n):
    """Of m of n rows, all with the same chance."""
    return Sample(np.full(m, m / n), n, n)
