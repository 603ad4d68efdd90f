"""Scatter plots of scores: names that cover no other cloud, and colours that are told apart."""

import re
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigkpca.reporting import figures
from bigkpca.reporting.drawing import PALETTE, axes_of
from bigkpca.reporting.figures import _Dots
from bigkpca.reporting.report_data import RowLabels


def written(words, dots):
    """Text, middle, half size and (if it was moved) the middle of its dots, of each word on a map; all in pixels."""
    middles = np.array([np.median(dots.at[dots.codes == i], axis=0) for i in range(len(words))])
    with axes_of(4.3) as (figure, axes):
        axes.scatter(*dots.at.T)
        figures._write_names(axes, words, middles, dots)
        figure.draw_without_rendering()
        found = []
        for text in axes.texts:
            box = text.get_bbox_patch().get_window_extent()
            found.append((text.get_text(), (box.min + box.max) / 2, (box.max - box.min) / 2, text.arrow_patch))
        return found, axes.transData.transform(dots.at), axes.transData.transform(middles)


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


def test_every_name_is_in_the_legend_and_separate_clouds_have_theirs_at_the_centre():
    names = tuple(f"name {i}" for i in range(10))
    rng = np.random.default_rng(0)
    values = np.resize(names, 5000)
    Y = 12 * np.array([divmod(i, 4) for i in range(10)])[np.resize(np.arange(10), 5000)] + rng.normal(size=(5000, 2))
    for rows in (slice(0, 500), slice(None)):  # a dot for each row, and for each bin
        drawing = figures.scores(Y[rows], (0, 1), RowLabels(values[rows], names))
        assert all(drawing.svg.count(f">{name}</text>") == 2 for name in names)
        assert "name 5 at 12, 12" in drawing.alt
    one_place = figures.scores(rng.normal(size=(500, 2)), (0, 1), RowLabels(values[:500], names)).svg
    assert all(f">{name}</text>" in one_place for name in names)


def lab(linear):
    """CIELAB, under D65, of linear RGB (k, 3)."""
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    xyz = linear @ np.array(to_xyz).T / [0.95047, 1, 1.08883]
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


def ciede2000(one, other):
    """The difference of two colours in CIELAB (Sharma, Wu and Dalal 2005)."""
    (L1, a1, b1), (L2, a2, b2) = one, other
    C = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    G = 1.5 - np.sqrt(C**7 / (C**7 + 25.0**7)) / 2
    C1, C2 = np.hypot(G * a1, b1), np.hypot(G * a2, b2)
    h1, h2 = (np.degrees(np.arctan2(b, G * a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180
    H = 2 * np.sqrt(C1 * C2) * np.sin(np.radians(turn / 2))
    L, C, h = (L1 + L2) / 2, (C1 + C2) / 2, h1 + turn / 2
    waves = ((1, -30, -0.17), (2, 0, 0.24), (3, 6, 0.32), (4, -63, -0.2))
    T = 1 + sum(size * np.cos(np.radians(times * h + shift)) for times, shift, size in waves)
    bend = -np.sin(np.radians(60 * np.exp(-(((h % 360 - 275) / 25) ** 2)))) * 2 * np.sqrt(C**7 / (C**7 + 25.0**7))
    light = (L2 - L1) / (1 + 0.015 * (L - 50) ** 2 / np.sqrt(20 + (L - 50) ** 2))
    c, h = (C2 - C1) / (1 + 0.045 * C), H / (1 + 0.015 * C * T)
    return np.sqrt(light**2 + c**2 + h**2 + bend * c * h)


SIGHT = {  # linear RGB as seen without one kind of cones (Machado, Oliveira and Fernandes 2009)
    "normal": (np.eye(3), 22),
    "protan": ([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]], 12),
    "deutan": ([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]], 12),
    "tritan": ([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]], 12),
}


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_are_told_apart(sight):
    assert ciede2000((50, 2.6772, -79.7751), (50, 0, -82.7485)) == pytest.approx(2.0425, abs=1e-4)
    assert ciede2000((22.7233, 20.0904, -46.694), (23.0331, 14.973, -42.5619)) == pytest.approx(2.0373, abs=1e-4)
    seen, least = SIGHT[sight]
    papers = "#ffffff", "#1f252b"  # of the page, by day and by night
    rgb = np.array([[int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)] for color in (*PALETTE, *papers)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    found = lab(np.clip(linear @ np.array(seen).T, 0, 1))
    pairs = [(i, j) for i, j in combinations(range(len(found)), 2) if i < len(PALETTE)]
    assert len(PALETTE) == 12
    assert min(ciede2000(found[i], found[j]) for i, j in pairs) >= least


def test_the_error_of_reconstruction_stands_beside_that_of_pca(page):
    lost = dict(re.findall(r'<td data-name="method">([^<]*)</td><td data-name="lost">([\d.]+)%</td>', page))
    assert list(lost) == ["pre-images of 8 components", "linear PCA of 8 components"]
    assert 0 < float(lost["linear PCA of 8 components"]) < 60
