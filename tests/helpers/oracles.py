"""Naive and obvious versions of what the package computes, to compare it with. Nothing here is fast."""

import math

import numpy as np


def gaussian(x, y, sigma):
    return math.exp(-sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / (2 * sigma**2))


def laplacian(x, y, sigma):
    return math.exp(-sum(abs(a - b) for a, b in zip(x, y, strict=True)) / sigma)


def matern(x, y, sigma, nu):
    """With K_nu(s) as the integral of exp(-s cosh t) cosh(nu t) over t > 0."""
    s = math.sqrt(2 * nu * sum((a - b) ** 2 for a, b in zip(x, y, strict=True))) / sigma
    if s == 0:
        return 1.0
    t = np.linspace(0, 30, 3001)
    return 2 ** (1 - nu) / math.gamma(nu) * s**nu * np.trapezoid(np.exp(-s * np.cosh(t)) * np.cosh(nu * t), t)


def rational_quadratic(x, y, sigma, alpha):
    return (1 + sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / (2 * alpha * sigma**2)) ** -alpha


def linear(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def polynomial(x, y, gamma, degree, coef0):
    return (gamma * linear(x, y) + coef0) ** degree


def sigmoid(x, y, gamma, coef0):
    return math.tanh(gamma * linear(x, y) + coef0)


def cosine(x, y):
    norms = math.sqrt(linear(x, x)) * math.sqrt(linear(y, y))
    return linear(x, y) / norms if norms else 0.0


def inverse_quadratic(X, Y):
    """A caller's own kernel, 1 / (1 + |x - y|^2), of every pair of rows."""
    return 1 / (1 + ((X[:, None, :] - Y[None, :, :]) ** 2).sum(axis=2))


def matrix(k, X, Y):
    """k of every pair of rows, by a double loop over Python floats."""
    return np.array([[k(x.tolist(), y.tolist()) for y in Y] for x in X]).reshape(len(X), len(Y))


def centred(K):
    """H K H with H = I - 11'/n."""
    n = len(K)
    H = np.eye(n) - np.ones((n, n)) / n
    return H @ K @ H


def matrix_with(spectrum, seed=0, vectors=None):
    """A symmetric matrix with these eigenvalues, on random eigenvectors or those of `vectors` made orthonormal."""
    n = len(spectrum)
    Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)) if vectors is None else vectors)[0]
    A = (Q * spectrum) @ Q.T
    return (A + A.T) / 2


def gram_kpca(K, r, center=True):
    """The r leading eigenvalues of the (centred) Gram matrix, and the scores sqrt(lambda) u of its rows."""
    values, vectors = np.linalg.eigh(centred(K) if center else K)
    values, vectors = values[::-1][:r], vectors[:, ::-1][:, :r]
    return values, vectors * np.sqrt(np.maximum(values, 0))  # rounding leaves zeros a little below zero


def nystroem_gram(C, W, cutoff):
    """C W+ C', the n x n approximation of the Gram matrix."""
    return C @ np.linalg.pinv(W, rcond=cutoff, hermitian=True) @ C.T


def columns_gram(C, cutoff=1e-12):
    """sqrt(n/l) C ((C'C)^(1/2))+ C', the n x n approximation of column sampling."""
    n, l = C.shape  # noqa: E741
    U, D, _ = np.linalg.svd(C, full_matrices=False)
    D *= np.square(D) > cutoff * D[0] ** 2
    return math.sqrt(n / l) * (U * D) @ U.T


def rpcholesky_pivot_law(K):
    """P (n, n): how likely simple RPCholesky is to draw row i first and row j second."""
    d = np.diag(K)
    left = np.maximum(d - K**2 / d[:, None], 0)
    np.fill_diagonal(left, 0)
    return (d / d.sum())[:, None] * left / left.sum(axis=1, keepdims=True)


def two_pass_moments(V):
    """(mean, scatter) of rows."""
    V = V.astype(np.float64)
    mean = V.sum(axis=0) / len(V)
    return mean, sum((np.outer(v - mean, v - mean) for v in V), np.zeros((V.shape[1], V.shape[1])))


def with_signs_of(A, B):
    """A with each column flipped, where needed, to point the way of the same column of B."""
    return A * np.where((A * B).sum(axis=0) < 0, -1.0, 1.0)


def preimage_error(kpca, X):
    """The mean squared error of the way there and back."""
    return float(np.mean((X - kpca.inverse_transform(kpca.transform(X))) ** 2))
