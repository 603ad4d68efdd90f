"""Pre-images along a component: pictures, maps, curves and bars."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

import bigkpca
from bigkpca import KernelPCA, plots
from bigkpca.errors import SpecError
from bigkpca.plots.along import walk_along

STEPS = ["−2 SD", "−1 SD", "0", "+1 SD", "+2 SD"]


def preimages(kpca, number, n, steps=(-2, -1, 0, 1, 2)):
    """Pre-images along a component, from the scores that they have."""
    Y = np.zeros((len(steps), kpca.n_components_))
    Y[:, number - 1] = np.array(steps) * np.sqrt(kpca.eigenvalues_[number - 1] / n)
    return np.asarray(kpca.inverse_transform(Y))


def ticks(axis):
    return [tick.get_text() for tick in axis.get_ticklabels()]


def test_pictures_are_the_pre_images_side_by_side(images):
    kpca, _ = images
    axes = plots.component(kpca, 2, image_shape=(8, 8))
    rows = preimages(kpca, 2, 300)
    black, white = np.percentile(rows, [0.1, 99.9])
    grey = (255 * np.clip((rows - black) / (white - black), 0, 1)).round().reshape(5, 8, 8)
    (image,) = axes.images
    sheet = np.asarray(image.get_array())
    assert sheet.shape == (24, 5 * 24 + 4, 4)  # pixels are repeated three times, with gaps of one
    for i, picture in enumerate(grey):
        np.testing.assert_allclose(sheet[::3, 25 * i : 25 * i + 24 : 3, 0], picture, atol=1)
    assert (sheet[:, 24::25, 3] == 0).all()
    assert ticks(axes.xaxis) == STEPS
    np.testing.assert_allclose(axes.get_xticks(), 11.5 + 25 * np.arange(5))
    assert axes.get_title() == "component 2"
    assert not ticks(axes.yaxis)
    colored = plots.component(kpca, 1, image_shape=(8, 8), deviations=(-1, 3), cmap="viridis")
    assert ticks(colored.xaxis) == ["−1 SD", "+3 SD"]
    assert np.ptp(np.asarray(colored.images[0].get_array())[..., :3].astype(int), axis=-1).max() > 0


@pytest.mark.full
def test_a_dataset_of_images_needs_no_shape(tmp_path, digits):
    np.save(tmp_path / "x.npy", digits[:80].reshape(-1, 8, 8))
    bigkpca.ingest(tmp_path / "x.npy", tmp_path / "x.zarr")
    bigkpca.fit(tmp_path / "x.zarr", tmp_path / "m.zarr", n_components=2, size=30)
    assert plots.component(tmp_path / "m.zarr").images
    assert len(plots.component(tmp_path / "m.zarr", kind="curves").lines) == 5


def test_curves_run_over_the_columns_or_their_names_that_are_numbers(axes):
    rng, wavelengths = np.random.default_rng(0), np.array([500.0, 400, 650, 600])
    X = np.cumsum(rng.normal(size=(80, 4)), axis=1)
    kpca = KernelPCA(2, size=30, random_state=0).fit(X)
    plots.component(kpca, axes=axes)
    rows = preimages(kpca, 1, 80)
    assert [line.get_label() for line in axes.lines] == STEPS
    for line, row in zip(axes.lines, rows, strict=True):
        np.testing.assert_allclose(line.get_data(), [range(4), row])
    assert axes.get_xlabel() == "column"
    assert [line.get_alpha() for line in axes.lines] == pytest.approx([1, 0.65, 1, 0.65, 1])
    colors = [line.get_color() for line in axes.lines]
    assert colors[0] == colors[1] != colors[2] != colors[3] == colors[4]
    order = np.argsort(wavelengths)
    frame = pd.DataFrame(X, columns=wavelengths.astype(str))
    drawn = plots.component(KernelPCA(2, size=30, random_state=0).fit(frame))
    for line, row in zip(drawn.lines, rows, strict=True):
        np.testing.assert_allclose(line.get_data(), [wavelengths[order], row[order]], rtol=1e-6)


def test_bars_are_changes_of_the_columns_that_change_most():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.normal(size=(900, 4)) * [3, 0.2, 1, 2] + 7, columns=list("abcd"))
    frame["b"] += 0.1 * frame["a"]
    for kpca in (KernelPCA(2, size=50, random_state=0), KernelPCA(2, size=50, standardize=True, random_state=0)):
        axes = plots.component(kpca.fit(frame), 1)
        rows = preimages(kpca, 1, 900)
        names, widths = ticks(axes.yaxis), np.array([bar.get_width() for bar in axes.patches])
        change = dict(zip("abcd", (rows[-1] - rows[0]) / frame.std(), strict=True))
        np.testing.assert_allclose(widths, [change[name] for name in names], rtol=0.15)  # from other rows
        assert sorted(names) == list("abcd")
        assert (np.diff(np.abs(widths)) >= 0).all()
        colors = [to_hex(bar.get_facecolor()) for bar in axes.patches]
        assert len({(color, width > 0) for color, width in zip(colors, widths, strict=True)}) == len(set(colors))
        assert axes.get_xlabel() == "change from −2 SD to +2 SD (in SD of the column)"
        assert axes.get_legend() is None
    assert ticks(plots.component(kpca, n_columns=2).yaxis) == names[-2:]
    sketched = KernelPCA(2, size=50, method="rff", solver="randomized", random_state=0).fit(frame)  # keeps no rows
    axes = plots.component(sketched, kind="bars")
    rows = preimages(sketched, 1, 900)
    change = dict(zip("abcd", rows[-1] - rows[0], strict=True))
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], [change[name] for name in ticks(axes.yaxis)])
    assert axes.get_xlabel() == "change from −2 SD to +2 SD"


def test_points_far_from_all_data_are_marked(images):
    kpca, _ = images
    far = walk_along(kpca.model_, 0, (-1e9, 0.0))
    assert far.names == ["−1e+09 SD (far)" if far.far[0] else "−1e+09 SD", "0"]


def test_what_component_cannot_draw(images):
    kpca, X = images
    for number in (0, 7, 1.0, "1"):
        with pytest.raises(
            SpecError, match=r"there is no component .*: they are counted from 1, and the last one is 6"
        ):
            plots.component(kpca, number)
    for deviations in ((2,), (-2, np.nan), (), 3, "ab"):
        with pytest.raises(SpecError, match=r"give at least two numbers, e.g. \(-2, 0, 2\)"):
            plots.component(kpca, deviations=deviations)
    for kind, message in (
        ("pictures", r"pictures need the shape of a row: pass image_shape, e.g. \(28, 28\)"),
        ("pie", "kind='pie' is not one of pictures, curves, bars"),
    ):
        with pytest.raises(SpecError, match=message):
            plots.component(kpca, kind=kind)
    with pytest.raises(SpecError, match="makes 63 values, and rows have 64"):
        plots.component(kpca, image_shape=(9, 7))
    with pytest.raises(SpecError, match="n_columns=0: give a number of at least 1"):
        plots.component(kpca, n_columns=0)
    sigmoid = KernelPCA(2, kernel="sigmoid", size=30, random_state=0)
    with pytest.warns(bigkpca.errors.IndefiniteKernelWarning):
        sigmoid.fit(X / 16)
    with pytest.raises(SpecError, match="pre-image"):
        plots.component(sigmoid)
    assert not plt.get_fignums()
