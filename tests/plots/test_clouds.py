"""Scatter plots of scores: which dots there are, their colours, and names that cover no other cloud."""

from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex

from bigkpca.errors import SpecError
from bigkpca.plots import clouds
from bigkpca.plots.clouds import Dots as _Dots
from bigkpca.plots.clouds import draw_scores, write_names
from bigkpca.plots.rows import RowLabels, as_labels, coloring
from bigkpca.reporting.drawing import axes_of

RNG = np.random.default_rng(3)


def written(words, dots):
    """Text, middle, half size and (if it was moved) the middle of its dots, of each word on a map; all in pixels."""
    middles = np.array([np.median(dots.at[dots.codes == i], axis=0) for i in range(len(words))])
    with axes_of(4.3) as (figure, axes):
        axes.scatter(*dots.at.T)
        write_names(axes, words, middles, dots)
        figure.draw_without_rendering()
        found = []
        for text in axes.texts:
            box = text.get_bbox_patch().get_window_extent()
            found.append((text.get_text(), (box.min + box.max) / 2, (box.max - box.min) / 2, text.arrow_patch))
        return found, axes.transData.transform(dots.at), axes.transData.transform(middles)


@pytest.mark.full
@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10_000), st.integers(2, 12), st.floats(0.2, 6))
def test_names_cover_neither_each_other_nor_another_cloud(seed, labels, apart):
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(labels), rng.integers(0, labels, 500)])
    at = apart * rng.normal(size=(labels, 2))[codes] + rng.normal(size=(len(codes), 2)) * rng.uniform(0.2, 1, 2)
    words = [f"label {i}"[: rng.integers(2, 8)] + str(i) for i in range(labels)]
    found, dots, middles = written(words, _Dots(at, codes, np.full(len(codes), 3.2)))
    for (_, first, half, _), (_, second, other, _) in combinations(found, 2):
        assert (np.abs(first - second) > half + other - 6).any()
    for word, place, half, line in found:
        code = words.index(word)
        below = codes[(np.abs(dots - place) < half - 3).all(axis=1)]
        moved = np.linalg.norm(place - middles[code]) > 2
        assert moved == (line is not None)
        assert np.count_nonzero(below != code) <= (0.34 if moved else 0.6) * len(below) + 1


def drawn_dots(axes):
    """Place, colour and width in points of every dot, in the order in which they were drawn."""
    found = []
    for dots in axes.collections:
        at, colors = np.asarray(dots.get_offsets()), dots.get_facecolors()
        width = np.sqrt(dots.get_sizes()[0])
        found += [(*place, to_hex(colors[min(i, len(colors) - 1)]), width) for i, place in enumerate(at)]
    return found


def silent(axes):
    """No legend."""


def test_few_rows_have_a_dot_each_in_the_colour_of_their_label(axes):
    Y, values = RNG.normal(size=(60, 3)), np.resize(["b", "a", "c"], 60)
    draw_scores(axes, Y, (2, 0), as_labels(values), legend=silent)
    found = drawn_dots(axes)
    np.testing.assert_allclose([dot[:2] for dot in found], Y[:, [2, 0]])
    cycle = [to_hex(color) for color in plt.rcParams["axes.prop_cycle"].by_key()["color"]]
    assert [dot[2] for dot in found] == [cycle["abc".index(value)] for value in values]
    handles, words = axes.get_legend_handles_labels()
    assert words == ["a", "b", "c"]
    assert [to_hex(each.get_color()) for each in handles] == cycle[:3]
    assert sorted(text.get_text() for text in axes.texts) == ["a", "b", "c"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("component 3", "component 1")


def test_many_rows_share_dots_that_count_them_and_have_their_most_frequent_label(axes):
    """Three clumps far from each other: one hexagon each."""
    centres = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    clump = np.repeat([0, 1, 2], [900, 90, 9])
    Y = centres[clump] + RNG.uniform(-1e-3, 1e-3, (999, 2))
    labels = np.where(RNG.random(999) < 0.8, np.array(["x", "y", "z"])[clump], "w")
    draw_scores(axes, Y, (0, 1), as_labels(labels), legend=silent, most=998)
    found = sorted(drawn_dots(axes), key=lambda dot: -dot[3])
    assert len(found) < 12  # a clump may lie on the border of hexagons
    cycle = [to_hex(color) for color in plt.rcParams["axes.prop_cycle"].by_key()["color"]]
    for centre, color in zip(centres, cycle[1:4], strict=True):
        (near, *_) = sorted(found, key=lambda dot: np.hypot(*(np.array(dot[:2]) - centre)))
        assert np.hypot(*(np.array(near[:2]) - centre)) < 2
        assert near[2] == color
    widths = [dot[3] for dot in found]
    assert widths[0] > widths[-1]


def test_dots_of_hexagons_stand_for_all_rows_once(axes):
    at, codes = RNG.normal(size=(5000, 2)), np.arange(5000)
    axes.set(xlim=(-4, 4), ylim=(-4, 4))
    members = []
    dots = clouds.dots_of(axes, at, codes, 100, lambda found: members.append(found) or found.mean())
    assert np.array_equal(np.sort(np.concatenate(members)), codes)
    np.testing.assert_allclose(dots.codes, [found.mean() for found in members])
    apart = np.abs(dots.at - [at[found].mean(axis=0) for found in members])
    assert (apart < np.ptp(at, axis=0) / 15).all()
    assert not axes.collections  # the hexagons themselves are not drawn


def test_numbers_and_dates_have_a_colour_bar_and_rows_without_one_are_faint(axes):
    Y, values = RNG.normal(size=(50, 2)), np.linspace(5, 7, 50)
    values[10] = np.nan
    draw_scores(axes, Y, (0, 1), values, legend=silent)
    missing, known = axes.collections
    np.testing.assert_allclose(missing.get_offsets(), Y[[10]])
    assert missing.get_alpha() == 0.2
    there = np.isfinite(values)
    np.testing.assert_allclose(known.get_offsets(), Y[there])
    expected = plt.get_cmap()((values[there] - 5) / 2)
    np.testing.assert_allclose(known.get_facecolors(), expected)
    (bar,) = [each for each in axes.figure.axes if each is not axes]
    assert bar.get_ylim() == (5, 7)
    days = np.datetime64("2020-01-01") + np.arange(50)
    draw_scores(axes, Y, (0, 1), days, legend=silent)
    axes.figure.draw_without_rendering()
    words = [tick.get_text() for tick in axes.figure.axes[-1].get_yticklabels()]
    assert any("Feb" in word or "Jan" in word for word in words), words


def test_what_is_a_label_and_what_a_value():
    for values in (np.arange(40), np.linspace(0, 1, 40), np.datetime64("2020-01-01") + np.arange(40)):
        assert coloring(values) is values
    for values in (np.arange(40) % 12, np.arange(40) > 3, np.array([f"{i}" for i in range(40)]), np.ones(40)):
        assert isinstance(coloring(values), RowLabels)
    with pytest.raises(SpecError, match="color has no finite value: pass numbers, labels, or nothing"):
        coloring(np.full(50, np.nan))
    many = coloring(np.array([f"{i:02}" for i in range(40)]))
    assert len(many.names) == 12
    assert many.names[-1] == "other"
