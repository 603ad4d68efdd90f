"""The spectrum kernel for strings, which counts the words that two strings share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.kernels.base import Evaluate, Leaf

_ROUNDED = 0.01  # how far the number of a character may be from a whole number
_DENSE_WORDS = 4096  # of the fixed strings: with fewer, a dense table of counts is faster


@dataclass(frozen=True)
class Spectrum(Leaf):
    """k(x, y) = Σ_w c_w(x) c_w(y), where c_w(x) counts the occurrences in x of the word w of k characters.

    Rows are strings: whole numbers that represent characters, with zeros after the end of shorter strings, as written
    by `bigkpca ingest`. Words that contain a zero do not count.

    The cost is one look-up per character and one product of sparse counts, not proportional to the lengths of both
    strings. Sums of kernels with several k compare words of several lengths. Raises SpecError if k is not positive; in
    use, if rows contain anything but whole numbers from 0 on. Source: Leslie, Eskin and Noble (2002), *Pacific
    Symposium on Biocomputing*.

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
    k: int = 3
    normalize: bool = True

    def __post_init__(self) -> None:
        if not (self.k >= 1 and self.k == int(self.k)):
            raise SpecError(f"Spectrum: k must be a positive whole number, not {self.k}")

    @property
    def on_vectors(self) -> bool:
        return False

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        fixed = _strings(Y)
        words = _Words.of(fixed, int(self.k))
        counts = words.counts(fixed).T.tocsr()  # (words, l)
        if self.normalize:
            counts = counts.multiply(_inverse_roots(self._squares(Y))[None, :]).tocsr()
        table = counts.toarray() if counts.shape[0] <= _DENSE_WORDS else counts

        def evaluate(X: Array, out: Array) -> None:
            found = words.counts(_strings(X)) @ table
            out[:] = found if isinstance(found, np.ndarray) else found.toarray()
            if self.normalize:
                out *= _inverse_roots(self._squares(X))[:, None].astype(out.dtype)

        return evaluate

    def diagonal(self, X: Array) -> Array:
        squares = self._squares(X)
        return (squares > 0).astype(np.float64) if self.normalize else squares

    def _squares(self, X: Array) -> Array:
        """Σ_w c_w(x_i)² of strings X (b, L), (b,)."""
        strings = _strings(X)
        counts = _Words.of(strings, int(self.k)).counts(strings)
        return np.asarray(counts.multiply(counts).sum(axis=1), np.float64)


def _inverse_roots(squares: Array) -> Array:
    """1 / √ of numbers, and 0 where they are 0."""
    return np.divide(1, np.sqrt(squares), out=np.zeros(len(squares)), where=squares > 0)


def _strings(X: Array) -> Array:
    """X (b, L) as whole numbers. Raises SpecError unless its values are, up to rounding, whole numbers from 0 on."""
    whole = np.rint(X)
    if X.size and not (whole.min() >= 0 and np.abs(X - whole).max() < _ROUNDED):
        raise SpecError(
            "the spectrum kernel needs strings: whole numbers for characters, and 0 after the last one; it does not "
            "allow standardize, and other data need another kernel"
        )
    return whole.astype(np.int64)


@dataclass(frozen=True)
class _Words:
    """Numbers of the words of some strings.

    levels[0] contains their characters, sorted. levels[j] contains the words of j + 1 characters, sorted, each as the
    number of its first j characters times the number of characters, plus the number of its last one. The number of a
    word of k characters is its position in levels[k - 1]. So numbers stay small for any alphabet and any k.
    """

    levels: tuple[Array, ...]

    @classmethod
    def of(cls, X: Array, k: int) -> _Words:
        """The words of k characters in strings X (b, L)."""
        levels = [np.unique(X[X > 0])]
        numbers = _position(levels[0], X)
        for length in range(1, k):
            longer = _longer(levels[0], X, numbers, length)
            levels.append(np.unique(longer[longer >= 0]))
            numbers = _position(levels[length], longer)
        return cls(tuple(levels))

    def counts(self, X: Array) -> scipy.sparse.csr_array:
        """The number of occurrences of each word in each of the strings X (b, L), (b, words), sparse; unknown words are
        ignored."""
        numbers = _position(self.levels[0], X)
        for length in range(1, len(self.levels)):
            numbers = _position(self.levels[length], _longer(self.levels[0], X, numbers, length))
        known = numbers >= 0
        rows = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
        parts = np.ones(int(rows[-1])), numbers[known], rows
        found = scipy.sparse.csr_array(parts, shape=(len(X), len(self.levels[-1])))
        found.sum_duplicates()
        return found


def _longer(characters: Array, X: Array, numbers: Array, length: int) -> Array:
    """Words that are one character longer than those with these numbers, as numbered by `_Words`; -1 if unknown."""
    last = _position(characters, X[:, length:])
    first = numbers[:, : last.shape[1]]
    return np.where((first >= 0) & (last >= 0), first * len(characters) + last, -1)


def _position(level: Array, values: Array) -> Array:
    """Positions of values in sorted numbers; -1 for missing values."""
    if not len(level):
        return np.full(values.shape, -1)
    at = np.minimum(np.searchsorted(level, values), len(level) - 1)
    return np.where(level[at] == values, at, -1)
