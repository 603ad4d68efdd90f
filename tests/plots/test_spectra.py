"""The spectrum with its bounds."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from bigkpca import KernelPCA, plots
from bigkpca.errors import SpecError


def words(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def line(axes, label):
    """Coordinates of the marks with this label."""
    (found,) = [each for each in axes.lines if each.get_label() == label]
    return found.get_data()


@pytest.mark.parametrize("eigenvalues", [False, True])
def test_dots_bars_and_dashes_are_the_numbers_of_the_certificate(images, eigenvalues):
    kpca, _ = images
    known, scale = kpca.certificate_, 1 if eigenvalues else 100
    values = scale * (kpca.eigenvalues_ if eigenvalues else kpca.explained_variance_ratio_)
    axes = plots.spectrum(kpca, eigenvalues=eigenvalues)
    shown = known if eigenvalues else known.shares(kpca.model_.solution.total_variance)
    low, high, estimate = (scale * each for each in (shown.lower, shown.upper, shown.estimate))
    bars = {each.get_label(): list(each) for each in axes.containers}
    assert list(bars) == ["from what is proven to 95% confidence"]
    (drawn,) = bars.values()
    np.testing.assert_allclose([bar.get_y() for bar in drawn], np.maximum(low, values.min() / 2))
    np.testing.assert_allclose([bar.get_y() + bar.get_height() for bar in drawn], high)
    np.testing.assert_allclose([bar.get_center()[0] for bar in drawn], range(1, 7))
    np.testing.assert_array_equal(line(axes, "estimate of the exact value")[1], estimate)
    for word in set(known.trust):
        here = np.array(known.trust) == word
        x, y = line(axes, word)
        np.testing.assert_array_equal(x, np.arange(1, 7)[here])
        np.testing.assert_array_equal(y, values[here])
    assert set(words(axes)) == {*bars, "estimate of the exact value", *known.trust}
    assert axes.get_yscale() == "log"
    assert axes.get_ylim()[0] == pytest.approx(0.7 * values.min())
    assert axes.get_ylim()[1] > 1.05 * high.max()
    assert axes.get_ylabel() == ("eigenvalue" if eigenvalues else "share of variance, %")


def test_what_is_not_known_is_not_drawn(digits, axes):
    kpca = KernelPCA(4, method="rff", size=200, random_state=0).fit(digits[:300] * 1.0)
    assert plots.spectrum(kpca.model_.leading(3), axes=axes) is axes  # without a certificate
    assert not axes.patches
    assert words(axes) == ["doubtful"]
    np.testing.assert_allclose(line(axes, "doubtful")[1], 100 * kpca.explained_variance_ratio_[:3])


def test_leading_components_of_a_model_at_a_path(images, tmp_path):
    kpca, _ = images
    kpca.save(tmp_path / "m.zarr")
    axes = plots.spectrum(tmp_path / "m.zarr", n_components=2)
    assert sum(len(each.get_xdata()) for each in axes.lines if each.get_label() in kpca.certificate_.trust) == 2
    assert len(axes.patches) == 2
    with pytest.raises(SpecError, match="n_components=0: give a number of at least 1"):
        plots.spectrum(kpca, n_components=0)
    with pytest.raises(SpecError, match="a dict is not a model"):
        plots.spectrum({})
    assert len(plt.get_fignums()) == 1
