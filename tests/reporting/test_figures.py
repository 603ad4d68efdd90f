"""Figures of the report: scatter plots with names, and the functions that they share with `bigkpca.plots`."""

import re

import numpy as np
import pytest
import xarray as xr

from bigkpca import KernelPCA
from bigkpca.plots.rows import RowLabels
from bigkpca.reporting import figures
from bigkpca.reporting import page as page_of
from bigkpca.reporting.report_data import ReportData


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


@pytest.mark.usefixtures("sketched")
def test_pre_images_of_a_data_array_are_drawn_over_its_coordinates():
    field = xr.DataArray(np.random.default_rng(0).normal(size=(40, 4)), dims=("time", "place"))
    rows = field.assign_coords(place=[5, 6, 7, 8])
    model = KernelPCA(2, size=20, random_state=0).fit(rows).model_
    data = ReportData(0, np.empty(0, np.intp), None, None, None, None, None, ())
    section = page_of.components(model, data)
    alts = [card.drawing.alt for card in section.cards]
    steps = "−2 SD, −1 SD, 0, +1 SD, +2 SD"
    assert alts == [f"Curves of pre-images along component {number}: {steps}." for number in (1, 2)]
    assert "A figure shows pre-images of points on the axis of the component" in section.text
    assert not any("no pictures" in line for line in page_of.left_out(model, data))
    plain = KernelPCA(2, size=20, random_state=0).fit(rows.values).model_
    assert page_of.components(plain, data) is None
    assert any("no pictures" in line for line in page_of.left_out(plain, data))
