"""The spectrum kernel against words counted one by one."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca import KernelPCA, kernels
from bigkpca.errors import SpecError
from bigkpca.numerics.kernels import counts
from bigkpca.spec import FitSpec


def naive(x, y, k, normalize):
    """The kernel of two texts, word by word."""

    def inner(x, y):
        words, there = (Counter(text[i : i + k] for i in range(len(text) - k + 1)) for text in (x, y))
        return float(sum(count * there[word] for word, count in words.items()))

    size = np.sqrt(inner(x, x) * inner(y, y))
    return inner(x, y) / (size if normalize and size else 1)


def rows(texts, dtype="u1"):
    """Texts as rows of numbers, with zeros behind the last character."""
    longest = max(1, *map(len, texts))
    return np.array([[ord(each) for each in text] + [0] * (longest - len(text)) for text in texts], dtype)


@given(
    x=st.lists(st.text("abcé", max_size=9), min_size=1, max_size=5),
    y=st.lists(st.text("abd", max_size=7), min_size=1, max_size=4),
    k=st.integers(1, 4),
    normalize=st.booleans(),
    dtype=st.sampled_from(["u1", "f4", "f8"]),
    most=st.sampled_from([0, 4096]),
)
def test_it_counts_words(x, y, k, normalize, dtype, most):
    kernel = kernels.Spectrum(k, normalize)
    X, Y = rows([*x, *y], dtype)[: len(x)], rows([*y, *x], dtype)[: len(y)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "_DENSE_WORDS", most)  # else only strings with thousands of words are sparse
        found = kernel(X, Y)
    assert_allclose(found, [[naive(a, b, k, normalize) for b in y] for a in x], rtol=1e-6, atol=1e-7)
    assert_allclose(kernel.diagonal(X), [naive(a, a, k, normalize) for a in x], rtol=1e-12)
    assert_allclose(kernel.gram(X), [[naive(a, b, k, normalize) for b in x] for a in x], atol=1e-12)


def test_long_words_of_a_large_alphabet_are_told_apart():
    """256^20 has no place in 64 bits."""
    X = np.random.default_rng(0).integers(1, 256, (4, 60)).astype(np.uint8)
    X[1, 5:40] = X[0, 10:45]
    found = kernels.Spectrum(20, normalize=False)(X, X)
    assert_array_equal(found, np.diag([41.0] * 4) + 16 * (np.eye(4)[[1, 0, 2, 3]] * [[1], [1], [0], [0]]))


def test_it_is_chosen_by_name_with_its_options():
    spec = FitSpec(kernel="Spectrum:k=5,normalize=False")
    assert spec.kernel == kernels.named("spectrum: k=5, normalize=false") == "spectrum:k=5,normalize=false"
    assert spec.kernel_value(1, None) == kernels.Spectrum(5, normalize=False)
    X = rows(["abab", "baba", "aabb", "bbaa", "abba", "baab"] * 4)
    kpca = KernelPCA(2, kernel="spectrum:k=2", method="exact").fit(X)
    assert kpca.kernel_ == kernels.Spectrum(2)
    assert_allclose(kpca.transform(X[:6]), kpca.transform(X[6:12]), atol=1e-12)


def test_rows_that_are_no_strings_are_refused():
    X = np.random.default_rng(0).normal(size=(40, 5))
    for data, options in ((X, {}), (np.abs(X), {}), (rows(["ab", "ba", "bb"] * 9), {"standardize": True})):
        with pytest.raises(SpecError, match="the spectrum kernel needs strings"):
            KernelPCA(2, kernel="spectrum:k=2", size=10, **options).fit(data)
