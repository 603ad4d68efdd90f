"""Columns: how scores go with them, what scores explain of them, and their values in words."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import bigkpca
from bigkpca import KernelPCA, plots
from bigkpca.errors import SpecError
from bigkpca.plots.tables import ShownColumn, correlations, relations

RNG = np.random.default_rng(2)
N = 600


def test_shares_are_those_of_plain_statistics():
    codes, x = RNG.integers(0, 3, N), RNG.normal(size=N)
    rows = np.column_stack([x, np.eye(3)[codes], np.ones(N)])
    y = 2 * x - 3 * (codes == 1) + RNG.normal(size=N)
    kind = ShownColumn("kind", slice(1, 4), "category", ("a", "b", "c"))
    columns = [ShownColumn("x", slice(0, 1)), kind, ShownColumn("same", slice(4, 5))]
    found = {each.column.name: each for each in relations(rows, y, columns)}
    assert found["x"].correlation == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert found["x"].share == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)
    means = pd.Series(y).groupby(codes).transform("mean")
    assert found["kind"].share == pytest.approx(means.var() / y.var(ddof=1))
    assert found["kind"].ends[0] == "b"
    assert found["same"].share == 0
    shares = [each.share for each in relations(rows, y, columns)]
    assert shares == sorted(shares, reverse=True)


def test_values_are_told_in_the_words_of_the_table():
    kind = ShownColumn("kind", slice(0, 2), "category", ("a", "b"))
    assert kind.words(np.array([[1.0, 0], [0, 1], [0.25, 0.75], [0, 0]])) == ["a", "b", "missing", "missing"]
    day = ShownColumn("day", slice(0, 1), "date")
    assert day.words(np.array([[15706.0], [15706.25], [-1.0]])) == ["2013-01-01", "2013-01-01 06:00", "1969-12-31"]
    places = ShownColumn("places", slice(0, 3), "list")
    assert places.words(np.ones((2, 3))) == ["3 numbers", "3 numbers"]
    late = ShownColumn("late", slice(0, 1), "boolean")
    assert late.words(np.array([[1.0], [0.0], [0.25]])) == ["yes", "no", "0.25"]
    number = ShownColumn("number", slice(0, 1))
    assert number.words(np.array([[-0.0], [-1234.5], [0.1]])) == ["0", "−1234", "0.1"]


def test_rows_that_are_none_of_the_table_show_the_nearest_values():
    kind, late = (
        ShownColumn("kind", slice(0, 3), "category", ("a", "b", "c")),
        ShownColumn("late", slice(3, 4), "boolean"),
    )
    rows = np.array([[0.6, 0.3, 0.1, 0.7], [-0.1, 0.2, 1.3, 0.4], [0.0, 0.0, 0.0, -0.2]], np.float32)
    assert kind.nearest(rows) == ["a", "c", "a"]
    assert late.nearest(rows) == ["yes", "no", "no"]
    assert rows[0, 0] == np.float32(0.6)  # as it was
    assert ShownColumn("number", slice(3, 4)).nearest(rows) == ["0.7", "0.4", "−0.2"]


@pytest.fixture(scope="module")
def flights():
    """A frame of numbers whose first two columns make most of the distances, and an estimator fitted to it."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(rng.normal(size=(200, 4)) * [3, 2, 0.5, 0.1], columns=["a", "b", "c", "d"])
    return KernelPCA(3, size=60, calibration_rows=100, random_state=0).fit(frame), frame


def test_a_table_of_correlations_has_those_of_plain_statistics(flights):
    kpca, frame = flights
    axes = plots.columns(kpca, frame, n_components=2)
    expected = np.corrcoef(frame.to_numpy().T, kpca.transform(frame).T)[:4, 4:6]
    order = np.argsort(-expected[:, 0])
    (image,) = axes.images
    np.testing.assert_allclose(image.get_array(), expected[order], atol=1e-6)
    assert image.get_clim() == (-1, 1)
    assert image.get_cmap().name == "PuOr"
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["abcd"[i] for i in order]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2"]
    written = [text.get_text().replace("−", "-") for text in axes.texts]
    assert written == [f"{value:+.2f}" for value in expected[order].ravel()]
    axes = plots.columns(kpca, frame, n_components=9, n_columns=2, cmap="coolwarm")  # there are three
    kept = set(np.argsort(-np.abs(np.corrcoef(frame.to_numpy().T, kpca.transform(frame).T)[:4, 4:]).max(axis=1))[:2])
    assert {tick.get_text() for tick in axes.get_yticklabels()} == {"abcd"[i] for i in kept}
    assert axes.images[0].get_array().shape == (2, 3)


@pytest.mark.full
def test_a_column_of_categories_has_a_correlation_ratio(tmp_path):
    kind = RNG.integers(0, 3, N)
    frame = pd.DataFrame({"x": RNG.normal(size=N), "kind": np.array(["u", "v", "w"])[kind]})
    bigkpca.ingest(frame, tmp_path / "x.zarr", categorical="kind")
    model = bigkpca.fit(tmp_path / "x.zarr", tmp_path / "m.zarr", n_components=2, size=50, standardize=True)
    axes = plots.columns(tmp_path / "m.zarr", tmp_path / "x.zarr")
    scores = next(iter(model.project([np.column_stack([frame["x"], np.eye(3)[kind]])], N)))
    means = pd.DataFrame(scores).groupby(kind).transform("mean").to_numpy()
    ratio = means.std(axis=0) / scores.std(axis=0)
    values = {
        tick.get_text(): row for tick, row in zip(axes.get_yticklabels(), axes.images[0].get_array(), strict=True)
    }
    assert set(values) == {"x", "kind"}
    np.testing.assert_allclose(values["kind"], ratio, atol=1e-5)


def test_columns_without_names_or_with_the_same_name_are_told_apart():
    X = RNG.normal(size=(150, 3))
    axes = plots.columns(KernelPCA(2, size=40, random_state=0).fit(X), X)
    assert {tick.get_text() for tick in axes.get_yticklabels()} == {"column 0", "column 1", "column 2"}
    twice = [ShownColumn("a", slice(0, 1)), ShownColumn("a", slice(1, 2))]
    names, values = correlations(X, X[:, :2], twice)
    assert names == ["a", "a"]
    np.testing.assert_allclose(np.diag(values), 1)
    letters = [*twice, ShownColumn("text", slice(2, 3), "characters", ("x",))]
    assert correlations(X, X[:, :2], letters)[0] == ["a", "a"]


def test_bars_show_what_the_scores_explain_beside_linear_pca(flights):
    kpca, _ = flights
    axes = plots.columns(kpca)
    found = {"all columns": kpca.captured_.shares, **kpca.captured_.of_columns(kpca.model_.variables)}
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    assert names == list(found)[::-1]
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], [100 * found[name][0] for name in names])
    (marks,) = axes.lines
    np.testing.assert_allclose(marks.get_xdata(), [100 * found[name][1] for name in names])
    np.testing.assert_allclose(marks.get_ydata(), range(5))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["linear PCA, 3 components", "3 scores"]
    few = plots.columns(kpca, n_columns=2)
    assert [tick.get_text() for tick in few.get_yticklabels()] == names[-3:]


def test_what_columns_cannot_draw(flights, monkeypatch):
    kpca, frame = flights
    with pytest.raises(SpecError, match="what the scores of this model explain of its columns is not known: pass rows"):
        plots.columns(KernelPCA(2, size=5, random_state=0).fit(RNG.normal(size=(9, 3))))
    with pytest.raises(SpecError, match="pass rows with the columns on which the model was fitted"):
        plots.columns(kpca, frame.iloc[:, ::-1])
    for name in ("n_columns", "n_components"):
        for value in (0, 2.5):
            with pytest.raises(SpecError, match=rf"{name}={value}: give a number of at least 1"):
                plots.columns(kpca, frame, **{name: value})
    monkeypatch.setattr(plots, "shown_columns", lambda *_: (ShownColumn("code", slice(0, 4), "characters", ("x",)),))
    with pytest.raises(SpecError, match="no column of the array has numbers or categories, with which scores can be"):
        plots.columns(kpca, frame.to_numpy())
    assert not plt.get_fignums()  # nothing was drawn
