"""Kernels of counts: Tanimoto for fingerprints, chi-squared for histograms, and spectrum for the words of strings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
from numpy.lib.stride_tricks import sliding_window_view

from bigkpca.errors import Array, DataError, SpecError
from bigkpca.numerics.kernels.base import Evaluate, SimpleKernel, require_positive, squared_norms
from bigkpca.numerics.kernels.inner_product import Linear


@dataclass(frozen=True)
class Tanimoto(SimpleKernel):
    """k(x, y) = <x, y> / (|x|² + |y|² - <x, y>); a zero row has kernel 0 with everything, itself included.

    For rows of 0 and 1 it is the number of ones in common over the number in either (Jaccard). Positive semidefinite:
    1 / (a + b - c) is the integral of exp(-ta) exp(-tb) exp(tc) over t > 0, and exp(t <x, y>) is a kernel for each t.
    Source: Ralaivola, Swamidass, Saigo and Baldi (2005), *Neural Netw.* 18.
    """

    name: ClassVar[str] = "tanimoto"

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        inner, norms = Linear().against(Y, most_rows), squared_norms(Y)
        work, least = np.empty((most_rows, len(Y)), Y.dtype), np.finfo(Y.dtype).tiny

        def evaluate(X: Array, out: Array) -> None:
            inner(X, out)
            union = work[: len(X)]
            np.add(squared_norms(X)[:, None], norms, out=union)
            union -= out
            np.maximum(union, least, out=union)  # of two zero rows: 0 / least = 0
            out /= union

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return np.asarray(X.any(axis=1), np.float64)


@dataclass(frozen=True)
class ChiSquared(SimpleKernel):
    """k(x, y) = exp(-gamma Σ (x_j - y_j)² / (x_j + y_j)), of rows without negative numbers; 0 / 0 counts as 0.

    As scikit-learn's `chi2_kernel`. Positive semidefinite: Σ (x - y)² / (x + y) is Σ x + Σ y less four times Σ x y /
    (x + y), which is a kernel, as the integral of x exp(-tx) y exp(-ty) over t > 0. The default gamma suits shares,
    whose distance is at most 2. Raises SpecError for a gamma that is not positive, and DataError for negative numbers.
    Source: Zhang, Marszalek, Lazebnik and Schmid (2007), *IJCV* 73.
    """

    name: ClassVar[str] = "chi-squared"
    gamma: float = 1.0

    def __post_init__(self) -> None:
        require_positive(self, gamma=self.gamma)

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        _check_no_negative(Y)
        works, least = np.empty((2, most_rows, len(Y)), Y.dtype), np.finfo(Y.dtype).tiny

        def evaluate(X: Array, out: Array) -> None:
            _check_no_negative(X)
            apart, both = works[:, : len(X)]
            out[:] = 0
            for x, y in zip(X.T, Y.T, strict=True):
                np.subtract(x[:, None], y, out=apart)
                np.add(x[:, None], y, out=both)
                np.maximum(both, least, out=both)
                apart *= apart
                apart /= both
                out += apart
            out *= -self.gamma
            np.exp(out, out=out)

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return np.ones(len(X))


def _check_no_negative(X: Array) -> None:
    if X.size and X.min() < 0:
        raise DataError(
            f"the chi-squared kernel compares counts or shares, which are not negative, but the rows have {X.min():g}: "
            "choose another kernel, or leave out standardize and columns with negative numbers"
        )


_ROUNDED = 0.01  # how far the number of a character may be from a whole number
_DENSE_WORDS = 4096  # of the fixed strings: with fewer, a dense table of counts is faster


@dataclass(frozen=True)
class Spectrum(SimpleKernel):
    """k(x, y) = Σ_w c_w(x) c_w(y), where c_w(x) counts the occurrences in x of the word w of k characters.

    Rows are strings: whole numbers that represent characters, with zeros after the end of shorter strings, as written
    by `bigkpca ingest`. Words that contain a zero do not count. Sums of kernels with several k compare words of several
    lengths.

    Raises SpecError if k is not positive; in use, if rows contain anything but whole numbers from 0 on. Source: Leslie,
    Eskin and Noble (2002), *Pacific Symposium on Biocomputing*.

    Parameters
    ----------
    k : int
        Length of the words, at least 1.
    normalize : bool
        Divide by √(k(x, x) k(y, y)), so that long strings do not look more similar; a string without words has kernel
        0.

    Examples
    --------
    >>> from bigkpca import kernels
    >>> strings = np.array([[1, 2, 1, 2], [1, 2, 0, 0], [2, 1, 2, 0]])
    >>> kernels.Spectrum(2, normalize=False)(strings, strings)
    array([[5., 2., 3.],
           [2., 1., 1.],
           [3., 1., 2.]])
    """

    name: ClassVar[str] = "spectrum"
    on_vectors = False
    k: int = 3
    normalize: bool = True

    def __post_init__(self) -> None:
        if not (self.k >= 1 and self.k == int(self.k)):
            raise SpecError(f"Spectrum: k must be a positive whole number, not {self.k}")

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        vocabulary = self._vocabulary(Y)
        counts = self._counts(Y, vocabulary).T.tocsr()  # (words, l)
        if self.normalize:
            counts = counts.multiply(_inverse_roots(self._squares(Y))[None, :]).tocsr()
        table = counts.toarray() if counts.shape[0] <= _DENSE_WORDS else counts

        def evaluate(X: Array, out: Array) -> None:
            found = self._counts(X, vocabulary) @ table
            out[:] = found if isinstance(found, np.ndarray) else found.toarray()
            if self.normalize:
                out *= _inverse_roots(self._squares(X))[:, None].astype(out.dtype)

        return evaluate

    def diagonal(self, X: Array) -> Array:
        squares = self._squares(X)
        return (squares > 0).astype(np.float64) if self.normalize else squares

    def _squares(self, X: Array) -> Array:
        """Σ_w c_w(x_i)² of strings X (b, L), (b,)."""
        counts = self._counts(X, self._vocabulary(X))
        return np.asarray(counts.multiply(counts).sum(axis=1), np.float64)

    def _vocabulary(self, X: Array) -> Array:
        """The words of strings X (b, L), sorted, after the empty one."""
        words, whole = _words(X, int(self.k))
        return np.unique(np.append(words[whole], ""))

    def _counts(self, X: Array, vocabulary: Array) -> scipy.sparse.csr_array:
        """The number of occurrences of each word of the vocabulary in strings X (b, L), (b, words), sparse."""
        words, whole = _words(X, int(self.k))
        places = np.minimum(np.searchsorted(vocabulary, words), len(vocabulary) - 1)
        known = whole & (vocabulary[places] == words)
        ends = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
        found = scipy.sparse.csr_array((np.ones(int(ends[-1])), places[known], ends), shape=(len(X), len(vocabulary)))
        found.sum_duplicates()
        return found


def _inverse_roots(squares: Array) -> Array:
    """1 / √ of numbers, and 0 where they are 0."""
    return np.divide(1, np.sqrt(squares), out=np.zeros(len(squares)), where=squares > 0)


def _words(X: Array, k: int) -> tuple[Array, Array]:
    """The k characters from each place on of strings X (b, L), as NumPy strings (b, L + 1), and whether none is zero.

    Raises SpecError unless the values of X are, up to rounding, whole numbers from 0 on.
    """
    numbers = np.rint(X)
    if X.size and not (numbers.min() >= 0 and float(numbers.max()) < 2**32 and np.abs(X - numbers).max() < _ROUNDED):
        raise SpecError(
            "the spectrum kernel needs strings: whole numbers for characters, and 0 after the last one; it does not "
            "allow standardize, and other data need another kernel"
        )
    padded = np.pad(numbers.astype(np.uint32), ((0, 0), (0, k)))
    characters = np.ascontiguousarray(sliding_window_view(padded, k, axis=1))
    return characters.view(f"U{k}")[:, :, 0], characters.min(axis=2) > 0
