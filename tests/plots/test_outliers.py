"""Residual against distance of rows, with the limit."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

import bigkpca
from bigkpca.errors import SpecError
from bigkpca.plots.outliers import JudgedRows, draw_unusual
from bigkpca.plots.style import current_colors


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with rows, a model of them with 100 calibration rows, and scores with flags of other rows."""
    folder, rng = tmp_path_factory.mktemp("outliers"), np.random.default_rng(0)
    np.save(folder / "x.npy", rng.normal(size=(700, 4)) * [1, 2, 3, 4])
    np.save(folder / "new.npy", rng.normal(size=(300, 4)) * [2, 3, 4, 5])
    options = {"n_components": 3, "sigma": "5 median", "size": 30}
    bigkpca.fit(folder / "x.npy", folder / "m.zarr", **options, calibration_rows=100)
    bigkpca.fit(folder / "x.npy", folder / "plain.zarr", **options)
    with pytest.warns(bigkpca.errors.FlaggedShareWarning):
        bigkpca.transform(folder / "m.zarr", folder / "new.npy", folder / "s.zarr", flag=0.05)
    bigkpca.transform(folder / "m.zarr", folder / "new.npy", folder / "no-flags.zarr")
    return folder


def dots(axes):
    """Places and colours of dots, sorted."""
    found = []
    for part in axes.collections:
        at = np.asarray(part.get_offsets())
        found += [(*where, to_hex(part.get_facecolors()[0])) for where in at]
    return sorted(found)


def wanted(model, X, alpha):
    """The same, naively."""
    Q, T2, both = bigkpca.arrays.statistics(model, X).compute().T
    residual, distance = model.calibration.rarities(np.array([Q, T2]))[:2]
    limit, colors = model.calibration.limits(alpha)[2], current_colors()
    ink, residuals, distances = map(to_hex, (colors.ink, colors.second, colors.accent))
    larger = np.where(residual >= distance, residuals, distances)
    x, y = np.maximum([distance, residual], limit / 1000)
    return sorted(zip(x, y, np.where(both > limit, larger, ink).tolist(), strict=True)), limit


def test_each_row_has_a_dot_and_flagged_ones_have_the_colour_of_their_reason(place, axes):
    model, X = bigkpca.load(place / "m.zarr"), np.load(place / "new.npy")
    expected, limit = wanted(model, X, 0.05)
    assert {color for *_, color in expected} == {to_hex(each) for each in _colors()}
    for arguments in ({"data": X, "flag": "5%"}, {"scores": place / "s.zarr"}):
        axes.clear()
        assert bigkpca.plots.unusual(place / "m.zarr", **arguments, axes=axes) is axes
        found = dots(axes)
        np.testing.assert_allclose([dot[:2] for dot in found], [dot[:2] for dot in expected], rtol=1e-6)
        assert [dot[2] for dot in found] == [dot[2] for dot in expected]
        (line,) = [line for line in axes.lines if len(line.get_xdata())]
        np.testing.assert_allclose(np.maximum(line.get_xdata(), line.get_ydata()), limit)
        assert line.get_label() == "limit for 5%"
    fitted = bigkpca.plots.unusual(model, flag=0.02, axes=axes)  # rows that were fitted
    assert "limit for 2%" in [text.get_text() for text in fitted.get_legend().get_texts()]


def _colors():
    colors = current_colors()
    return colors.ink, colors.second, colors.accent


def test_many_rows_share_dots_and_values_out_of_reach_are_drawn_at_the_edge(axes):
    parts = np.random.default_rng(1).lognormal(size=(2, 3000))
    parts[:, :3] = [[0, 1, np.inf], [1, 0, 1]]
    flags = (parts.sum(axis=0) > 8) * (1 + parts.argmax(axis=0))
    draw_unusual(axes, JudgedRows(parts, flags, 0.01, 8.0), most=500)
    at = np.concatenate([np.asarray(part.get_offsets()) for part in axes.collections])
    assert 100 < len(at) < 2000
    assert at.min() >= 0.008 * 0.9
    labels = axes.get_legend_handles_labels()[1]
    counts = {word: int(number.replace(",", "")) for number, word in (label.split(" ", 1) for label in labels[:3])}
    seen = np.bincount(np.delete(flags, 2))
    assert counts == dict(zip(("not flagged", "flagged: residual", "flagged: distance"), seen, strict=True))


def test_rows_that_cannot_be_judged_are_refused(place):
    X = np.load(place / "new.npy")
    for model, arguments, message in (
        ("plain", {"data": X}, "no calibration rows"),
        ("m", {"data": X, "flag": 0.001}, r"flag=0\.001: with 100 calibration rows"),
        ("m", {"data": X, "scores": place / "s.zarr"}, "data and scores exclude each other"),
        ("m", {"scores": np.zeros((3, 3))}, "flags are in a feature store: pass the path"),
        ("m", {"scores": place / "no-flags.zarr"}, r"has no flags: write them with bigkpca transform --flag 1%"),
        ("m", {"data": X[:, :2]}, "has 2 columns"),
    ):
        with pytest.raises(SpecError, match=message):
            bigkpca.plots.unusual(place / f"{model}.zarr", **arguments)
