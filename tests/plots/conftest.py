"""Axes of a figure that is closed afterwards, and a model of images."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from bigkpca import KernelPCA


def words(axes):
    """The words of the legend."""
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.fixture(autouse=True)
def closed():
    """Figures of a test have no window, and are closed."""
    mpl.use("agg")
    yield
    plt.close("all")


@pytest.fixture
def axes():
    """Axes of a new figure."""
    return plt.subplots(layout="constrained")[1]


@pytest.fixture(scope="session")
def images(digits):
    """An estimator fitted to 300 images of digits, and these images."""
    X = digits[:300].astype(float)
    return KernelPCA(6, size=80, random_state=0).fit(X), X
