"""The Gram matrix of rows as stored, from differences and in long doubles, and what is true of it."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import gamma, kv

from bigkpca import kernels
from bigkpca.errors import Array


def values(kernel, X, Y, shift, center):
    """k(X, Y) of long doubles; kernels of x - y subtract `shift`, which is near all rows, before they round to doubles.
    With `center` it may lack what centring takes away again."""
    if isinstance(kernel, kernels.Sum):
        return values(kernel.left, X, Y, shift, center) + values(kernel.right, X, Y, shift, center)
    if isinstance(kernel, kernels.Product):
        return values(kernel.left, X, Y, shift, False) * values(kernel.right, X, Y, shift, False)
    if isinstance(kernel, kernels.Scaled):
        return kernel.factor * values(kernel.kernel, X, Y, shift, center)
    if isinstance(kernel, kernels.Function):
        return np.asarray(kernel.function(X.astype(float), Y.astype(float)))
    if isinstance(kernel, kernels.Cosine):
        X, Y = (A / np.sqrt(np.where(A.any(axis=1), (A**2).sum(axis=1), 1))[:, None] for A in (X, Y))
    if isinstance(kernel, kernels.Linear) and center:
        X, Y = X - shift, Y - shift
    if not kernel.stationary:
        profiles = {"polynomial": lambda G: (kernel.gamma * G + kernel.coef0) ** int(kernel.degree)}
        profiles |= {"sigmoid": lambda G: np.tanh(kernel.gamma * G + kernel.coef0)}
        return profiles.get(kernel.name, np.asarray)(X @ Y.T)
    metric = "cityblock" if kernel.name == "laplacian" else "euclidean"
    s = cdist(*((A - shift).astype(float) / kernel.sigma for A in (X, Y)), metric)
    if kernel.name == "matern":
        nu, s = kernel.nu, math.sqrt(2 * kernel.nu) * s
        with np.errstate(over="ignore", invalid="ignore"):
            return np.where(s < 1e-100, 1, 2 ** (1 - nu) / gamma(nu) * s**nu * kv(nu, s))
    alpha = getattr(kernel, "alpha", 1)
    exponents = {"laplacian": -s, "gaussian": -(s**2) / 2, "rational-quadratic": -alpha * np.log1p(s**2 / (2 * alpha))}
    return np.exp(exponents[kernel.name])


_LEAST_PIVOT = 1e-13  # of the largest k(s, s)


@dataclass(frozen=True)
class Truth:
    """Eigenvalues (n,), descending, and eigenvectors (n, n) of Kc, or of K; its trace; how far rounding moves them."""

    values: Array
    vectors: Array
    total: float
    slack: float


def truth(kernel, Z, center):
    """The truth for rows Z as the kernel sees them, long doubles."""
    K = values(kernel, Z, Z, np.median(Z, axis=0), center)
    entries = np.finfo(K.dtype).eps * np.abs(np.diag(K)).sum()
    if center:
        K = K - K.mean(axis=0)
        K = K - K.mean(axis=1)[:, None]
    found, U = np.linalg.eigh(((K + K.T) / 2).astype(float))
    slack = 64 * (len(K) * np.finfo(float).eps * np.abs(found).max() + entries)
    return Truth(found[::-1], U[:, ::-1], float(np.trace(K)), float(slack))


def remainder(kernel, Z, S):
    """(E = K - C W+ C' of landmarks S, float64; how far rounding moves its trace): by Cholesky with pivoting in long
    doubles, to smaller pivots than fits take, so that no fit has a smaller E."""
    shift = np.median(Z, axis=0)
    E, C, W = (values(kernel, A, B, shift, False).astype(np.longdouble) for A, B in ((Z, Z), (Z, S), (S, S)))
    most, slack = float(np.abs(np.diag(E)).max()), 64 * len(E) * float(np.abs(np.diag(E)).sum())
    least = _LEAST_PIVOT * float(np.diag(W).max())
    while (pivot := float(np.diag(W).max())) > least:
        s = int(np.diag(W).argmax())
        f, g = C[:, s] / np.sqrt(W[s, s]), W[:, s] / np.sqrt(W[s, s])
        slack += 64 * float(np.abs(f).sum()) * most / np.sqrt(pivot)
        E -= np.outer(f, f)
        C -= np.outer(f, g)
        W -= np.outer(g, g)
        W[s, s] = 0
    return E.astype(float), float(np.finfo(float).eps * slack)
