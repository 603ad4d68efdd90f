"""The spectrum kernel against words counted one by one."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from bigkpca import KernelPCA, kernels
from bigkpca.errors import SpecError
from bigkpca.numerics.kernels import spectrum
from bigkpca.spec import FitSpec


def words(text, k):
    """How often each word of k characters stands in a text."""
    return Counter(text[i : i + k] for i in range(len(text) - k + 1))


def inner(x, y, k):
    there = words(y, k)
    return float(sum(count * there[word] for word, count in words(x, k).items()))


def naive(x, y, k, *, normalize):
    """The kernel of two texts, word by word."""
    size = np.sqrt(inner(x, x, k) * inner(y, y, k))
    return inner(x, y, k) / (size if normalize and size else 1)


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
        patch.setattr(spectrum, "_DENSE_WORDS", most)  # else only strings with thousands of words are sparse
        found = kernel(X, Y)
    expected = partial(naive, k=k, normalize=normalize)
    assert_allclose(found, [[expected(a, b) for b in y] for a in x], rtol=1e-6, atol=1e-7)
    assert_allclose(kernel.diagonal(X), [expected(a, a) for a in x], rtol=1e-12)
    assert_allclose(kernel.gram(X), [[expected(a, b) for b in x] for a in x], atol=1e-12)


def test_long_words_of_a_large_alphabet_are_told_apart():
    """256^20 has no place in 64 bits."""
    rng = np.random.default_rng(0)
    X = rng.integers(1, 256, (4, 60)).astype(np.uint8)
    X[1, 5:40] = X[0, 10:45]
    found = kernels.Spectrum(20, normalize=False)(X, X)
    np.testing.assert_array_equal(found, np.diag([41.0] * 4) + 16 * (np.eye(4)[[1, 0, 2, 3]] * [[1], [1], [0], [0]]))


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
