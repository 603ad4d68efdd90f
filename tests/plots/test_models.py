"""Figures of a model: its spectrum, columns, pre-images along a component, and contours."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

import bigkpca
from bigkpca import KernelPCA, plots
from bigkpca.errors import SpecError
from bigkpca.numerics.certificate import Certificate
from tests.plots.conftest import words

STEPS = ["−2 SD", "−1 SD", "0", "+1 SD", "+2 SD"]


def ticks(axis):
    return [tick.get_text() for tick in axis.get_ticklabels()]


def line(axes, label):
    """Coordinates of the marks with this label."""
    (found,) = [each for each in axes.lines if each.get_label() == label]
    return found.get_data()


def test_a_spectrum_shows_the_numbers_of_the_certificate(images):
    kpca, _ = images
    known, values = kpca.certificate_, 100 * kpca.explained_variance_ratio_
    axes = plots.spectrum(kpca)
    shown = known.shares(kpca.model_.solution.total_variance)
    low, high, estimate = (100 * each for each in (shown.lower, shown.upper, shown.estimate))
    (bars,) = axes.containers
    assert bars.get_label() == "bounds (95%)"
    np.testing.assert_allclose([bar.get_y() for bar in bars], np.maximum(low, values.min() / 2))
    np.testing.assert_allclose([bar.get_y() + bar.get_height() for bar in bars], high)
    np.testing.assert_allclose([bar.get_center()[0] for bar in bars], range(1, 7))
    np.testing.assert_array_equal(line(axes, "exact (estimate)")[1], estimate)
    for word in set(known.trust):
        here = np.array(known.trust) == word
        np.testing.assert_array_equal(line(axes, word), [np.arange(1, 7)[here], values[here]])
    assert set(words(axes)) == {"bounds (95%)", "exact (estimate)", *known.trust}
    assert axes.get_yscale() == "log"
    assert axes.get_ylim()[0] == pytest.approx(0.7 * values.min())
    assert axes.get_ylim()[1] > 1.05 * high.max()
    assert axes.get_ylabel() == "share of variance, %"


def test_a_spectrum_shows_leading_components_and_nothing_that_is_not_known(images, digits, axes, tmp_path):
    kpca, _ = images
    kpca.save(tmp_path / "m.zarr")
    assert len(plots.spectrum(tmp_path / "m.zarr", n_components=2).patches) == 2
    features = KernelPCA(4, method="rff", size=200, random_state=0).fit(digits[:300] * 1.0)
    bare = replace(features.model_, certificate=Certificate.of(4))
    assert plots.spectrum(bare, axes=axes) is axes
    assert not axes.patches
    assert words(axes) == ["doubtful"]
    np.testing.assert_allclose(line(axes, "doubtful")[1], 100 * features.explained_variance_ratio_)


def test_bars_show_what_the_scores_explain_beside_linear_pca():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(rng.normal(size=(200, 4)) * [3, 2, 0.5, 0.1], columns=["a", "b", "c", "d"])
    kpca = KernelPCA(3, size=60, calibration_rows=100, random_state=0).fit(frame)
    axes = plots.columns(kpca)
    found = {"all columns": kpca.captured_.shares, **kpca.captured_.of_columns(kpca.model_.variables)}
    names = ticks(axes.yaxis)
    assert names == list(found)[::-1]
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], [100 * found[name][0] for name in names])
    np.testing.assert_allclose(axes.lines[0].get_data(), [[100 * found[name][1] for name in names], range(5)])
    assert words(axes) == ["linear PCA, 3 components", "3 scores"]
    assert ticks(plots.columns(kpca, n_columns=2).yaxis) == names[-3:]
    unnamed = KernelPCA(3, size=60, calibration_rows=100, random_state=0).fit(frame.to_numpy())
    assert "column 0" in ticks(plots.columns(unnamed).yaxis)


def preimages(kpca, number, n):
    """Pre-images along a component, from the scores that they have."""
    Y = np.zeros((5, kpca.n_components_))
    Y[:, number - 1] = np.arange(-2, 3) * np.sqrt(kpca.eigenvalues_[number - 1] / n)
    return np.asarray(kpca.inverse_transform(Y))


def test_pictures_are_the_pre_images_side_by_side(images):
    kpca, _ = images
    axes = plots.component(kpca, 2, image_shape=(8, 8))
    rows = preimages(kpca, 2, 300)
    black, white = np.percentile(rows, [0.1, 99.9])
    for i, (image, row) in enumerate(zip(axes.images, rows, strict=True)):
        expected = np.clip((row - black) / (white - black), 0, 1).reshape(8, 8)
        np.testing.assert_allclose(image.get_array(), expected, atol=1e-6)
        np.testing.assert_allclose(image.get_extent(), [1.05 * i, 1.05 * i + 1, 0, 1])
    assert ticks(axes.xaxis) == STEPS
    np.testing.assert_allclose(axes.get_xticks(), 0.5 + 1.05 * np.arange(5))
    assert axes.get_title() == "component 2"
    assert not ticks(axes.yaxis)
    colored = plots.component(kpca, 1, image_shape=(8, 8), cmap="viridis")
    assert colored.images[0].get_cmap().name == "viridis"
    flat = KernelPCA(1, size=10, random_state=0).fit(np.random.default_rng(0).random((40, 24)))
    assert plots.component(flat, image_shape=(4, 2, 3)).images[0].get_array().shape == (4, 2, 3)


def test_curves_run_over_the_columns_or_their_names_that_are_numbers(axes):
    rng, wavelengths = np.random.default_rng(0), np.array([500.0, 400, 650, 600])
    X = np.cumsum(rng.normal(size=(80, 4)), axis=1)
    kpca = KernelPCA(2, size=30, random_state=0).fit(X)
    plots.component(kpca, axes=axes)
    rows = preimages(kpca, 1, 80)
    assert [line.get_label() for line in axes.lines] == STEPS
    for line, row in zip(axes.lines, rows, strict=True):
        np.testing.assert_allclose(line.get_data(), [range(4), row])
    assert [line.get_alpha() for line in axes.lines] == pytest.approx([1, 0.65, 1, 0.65, 1])
    colors = [line.get_color() for line in axes.lines]
    assert colors[0] == colors[1] != colors[2] != colors[3] == colors[4]
    order = np.argsort(wavelengths)
    frame = pd.DataFrame(X, columns=wavelengths.astype(str))
    drawn = plots.component(KernelPCA(2, size=30, random_state=0).fit(frame))
    for line, row in zip(drawn.lines, rows, strict=True):
        np.testing.assert_allclose(line.get_data(), [wavelengths[order], row[order]], rtol=1e-6)


@pytest.mark.parametrize("standardize", [False, True])
def test_bars_are_changes_of_the_columns_that_change_most(standardize):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.normal(size=(900, 4)) * [3, 0.2, 1, 2] + 7, columns=list("abcd"))
    kpca = KernelPCA(2, size=50, standardize=standardize, random_state=0).fit(frame)
    axes = plots.component(kpca, 1)
    rows = preimages(kpca, 1, 900)
    change = dict(zip("abcd", (rows[-1] - rows[0]) / (frame.std() if standardize else 1), strict=True))
    names, widths = ticks(axes.yaxis), np.array([bar.get_width() for bar in axes.patches])
    np.testing.assert_allclose(widths, [change[name] for name in names], rtol=1e-2)
    assert sorted(names) == list("abcd")
    assert (np.diff(np.abs(widths)) >= 0).all()
    colors = [to_hex(bar.get_facecolor()) for bar in axes.patches]
    assert len({(color, width > 0) for color, width in zip(colors, widths, strict=True)}) == len(set(colors))
    assert axes.get_xlabel() == "change from −2 SD to +2 SD"
    assert ticks(plots.component(kpca, n_columns=2).yaxis) == names[-2:]


def test_points_far_from_all_data_are_marked(images, monkeypatch):
    kpca, _ = images
    decode = type(kpca.model_).reconstructing

    def far(model, most):
        found = decode(model, most)
        return lambda Y, X: replace(found(Y, X), far=np.arange(5) == 0)

    monkeypatch.setattr(type(kpca.model_), "reconstructing", far)
    axes = plots.component(kpca)
    assert [line.get_label() for line in axes.lines] == ["−2 SD (far)", *STEPS[1:]]


def test_contours_are_scores_over_the_plane():
    X = np.random.default_rng(0).normal(size=(300, 2)) * [1, 2]
    frame = pd.DataFrame(X, columns=["east", "north"])
    kpca = KernelPCA(3, random_state=0).fit(frame)
    axes = plots.contours(kpca, frame, 2)
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("east", "north", "component 2")
    areas, zero, rows = axes.collections
    np.testing.assert_allclose(np.asarray(rows.get_offsets()), X)
    edge = zero.get_paths()[0].vertices[::7]  # where scores are 0, up to the step of the grid
    assert np.abs(kpca.transform(pd.DataFrame(edge, columns=frame.columns))[:, 1]).max() < 0.05
    assert areas.get_clim()[0] == -areas.get_clim()[1]


def test_what_figures_of_models_refuse(images, digits):
    kpca, X = images
    number = r"there is no component .*: they are counted from 1, and the last one is 6"
    for draw, message in (
        (lambda: plots.spectrum({}), "a dict is not a model: pass what fit returned, the path of a model, or a fitted"),
        (lambda: plots.spectrum(KernelPCA()), "this KernelPCA has no model: pass a fitted KernelPCA"),
        (lambda: plots.columns(kpca), "what the scores of this model explain of its columns is not known: fit it with"),
        *((lambda j=j: plots.component(kpca, j), number) for j in (0, 7, 1.0, "1")),
        (lambda: plots.component(kpca, image_shape=(9, 7)), "makes 63 values, and rows have 64"),
        (lambda: plots.component(kpca, image_shape=(8, 4, 2)), r"give height and width, e\.g\. 28,28"),
        (lambda: plots.contours(kpca, X), "contours need rows of two columns, and this model takes 64: draw its"),
    ):
        with pytest.raises(SpecError, match=message):
            draw()
    sigmoid = KernelPCA(2, kernel="sigmoid", size=30, random_state=0)
    with pytest.warns(bigkpca.errors.IndefiniteKernelWarning):
        sigmoid.fit(X / 16)
    with pytest.raises(SpecError, match="pre-image"):
        plots.component(sigmoid)
    assert not plt.get_fignums()
