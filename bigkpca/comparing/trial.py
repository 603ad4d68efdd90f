"""Run one fit of a comparison: its cost, and its errors against the reference."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from bigkpca.comparing.grid import Candidate
from bigkpca.comparing.reference import Reference, scores_in_memory
from bigkpca.comparing.timed import Opener, timed_fit
from bigkpca.data.rows import Rows
from bigkpca.errors import Array
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.clusters import open_engine
from bigkpca.numerics import measures
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec

_RECONSTRUCTED_ROWS = 256


@dataclass(frozen=True)
class TrialResult:
    """Cost and errors of one fit, a row of compare.csv; None where an error is not known, and for the exact reference.

    Attributes
    ----------
    method, landmarks : str
        The method and its landmark rule; "" where it has none.
    size, seed : int
        Number of landmarks or features, and the seed of the fit.
    seconds, peak_mb : float
        Of the fit, in a process of its own that had imported the package; on a cluster, too, the memory is that of this
        process, which drives the fit.
    relative_trace_error : float or None
        Proven, from the certificate of the fit.
    eigenvalue_error : float or None
        Mean over components of |lambda_j^ - lambda_j| / lambda_j.
    subspace_cosine : float or None
        Cosine of the largest angle between the column spaces of both score matrices, at sampled rows.
    score_error : float or None
        |Y - Y^ B|_F / |Y|_F with the best B, i.e. what no linear map of the scores restores.
    preimage_error : float or None
        Mean squared distance of pre-images from their rows, over the variance of the rows; in standard deviations of
        the columns if the fit standardised them.
    """

    method: str
    landmarks: str
    size: int
    seed: int
    seconds: float
    peak_mb: float
    relative_trace_error: float | None = None
    eigenvalue_error: float | None = None
    subspace_cosine: float | None = None
    score_error: float | None = None
    preimage_error: float | None = None


def run_trial(
    rows: Rows, spec: FitSpec, candidate: Candidate, reference: Reference, opened: Opener = open_engine
) -> TrialResult:
    """Fit a candidate where `opened` runs it, and compare it with the reference. Passes: those of the fit."""
    with warnings.catch_warnings(), opened() as engine:
        warnings.simplefilter("ignore", UserWarning)  # the errors are measured here anyway
        model, seconds, peak = timed_fit(rows, spec, engine)
    with single_threaded_blas:
        Y = scores_in_memory(model, reference.rows)
        return TrialResult(
            method=candidate.variant.method,
            landmarks=candidate.variant.landmarks,
            size=candidate.size,
            seed=candidate.seed,
            seconds=seconds,
            peak_mb=peak,
            relative_trace_error=model.certificate.relative_trace_error,
            eigenvalue_error=measures.eigenvalue_error(reference.eigenvalues, model.solution.eigenvalues),
            subspace_cosine=_cosine(reference.scores, Y),
            score_error=measures.score_error(reference.scores, Y),
            preimage_error=_preimage_error(model, reference.rows, Y),
        )


def _cosine(exact: Array, found: Array) -> float:
    """The subspace cosine; 0 if fewer components were found, since an exact direction is then outside their span."""
    return measures.subspace_cosine(exact, found) if found.shape[1] >= exact.shape[1] else 0.0


def _preimage_error(model: Model, X: Array, Y: Array) -> float | None:
    """The error of pre-images of 256 rows X, from their scores Y; None if the model has no pre-images."""
    if model.decoder is None:
        return None
    units = 1.0 if model.features.scale is None else model.features.scale
    variance = float(np.mean(np.sum(((X - X.mean(axis=0, dtype=np.float64)) / units) ** 2, axis=1)))
    some = slice(None, None, -(-len(X) // _RECONSTRUCTED_ROWS))
    found = model.reconstructing(len(X[some]))(Y[some].astype(model.features.dtype), None)
    return float(np.mean(np.sum(((X[some] - found.rows) / units) ** 2, axis=1))) / variance
