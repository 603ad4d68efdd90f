"""Figures of the report: scatter plots with names, and the functions that they share with `bigkpca.plots`."""

import re

import numpy as np
import pytest

from bigkpca.plots.rows import RowLabels
from bigkpca.reporting import figures


@pytest.mark.full
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


@pytest.mark.full
def test_the_error_of_reconstruction_stands_beside_that_of_pca(page):
    lost = dict(re.findall(r'<td data-name="method">([^<]*)</td><td data-name="lost">([\d.]+)%</td>', page))
    assert list(lost) == ["pre-images of 8 components", "linear PCA of 8 components"]
    assert 0 < float(lost["linear PCA of 8 components"]) < 60
