"""The public functions: rows and scores from everywhere, and the figures that they share with the report."""

import subprocess
import sys

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
import pytest

import bigkpca
from bigkpca import plots
from bigkpca.errors import SpecError
from bigkpca.plots.rows import RowLabels
from bigkpca.plots.runs import DriftOfRun
from bigkpca.reporting import figures
from tests.helpers.files import ROOT


@pytest.fixture(scope="module")
def place(digits, tmp_path_factory):
    """A folder with images and their labels ingested, a model, and scores."""
    folder = tmp_path_factory.mktemp("plots")
    np.save(folder / "x.npy", digits[:200])
    np.save(folder / "labels.npy", np.arange(200) % 4)
    bigkpca.ingest(folder / "x.npy", folder / "x.zarr", labels=str(folder / "labels.npy"))
    bigkpca.fit(folder / "x.zarr", folder / "m.zarr", n_components=4, size=40, transform=folder / "s.zarr")
    return folder


def places_of(axes):
    """Where the dots are."""
    return np.concatenate([np.asarray(dots.get_offsets()) for dots in axes.collections])


def agree(found, scores):
    """The dots are at these scores, but for the rounding of products in other tiles, beside the largest score."""
    np.testing.assert_allclose(found, scores, rtol=0, atol=1e-5 * np.abs(scores).max())


def test_rows_and_scores_of_any_kind_give_the_same_dots(place, digits, axes):
    model, X = bigkpca.load(place / "m.zarr"), digits[:200]
    Y = next(iter(model.project([X], 200)))
    assert plots.scores(model, X, axes=axes) is axes
    agree(places_of(axes), Y[:, :2])
    assert axes.get_legend() is None
    path = place / "m.zarr"
    for arguments in (
        {"data": place / "x.zarr"},
        {"data": da.from_array(X, chunks=(50, 64))},
        {"scores": place / "s.zarr"},
        {"scores": Y},
        {},  # the rows that were fitted
    ):
        agree(places_of(plots.scores(path, **arguments)), Y[:, :2])
        plt.close("all")
    other = plots.scores(path, X, [4, 3])
    agree(places_of(other), Y[:, [3, 2]])
    assert (other.get_xlabel(), other.get_ylabel()) == ("component 4", "component 3")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(lambda place, X: {"color": "y"}, id="of the dataset"),
        pytest.param(lambda place, X: {"color": np.arange(200) % 4, "data": X}, id="in memory"),
        *(
            pytest.param(arguments, marks=pytest.mark.full)
            for arguments in (
                lambda place, X: {"color": "y", "scores": place / "s.zarr"},
                lambda place, X: {"color": "y", "data": place / "x.zarr"},
                lambda place, X: {"color": place / "labels.npy", "data": X},
                lambda place, X: {"color": (np.arange(200) % 4).tolist()},
            )
        ),
    ],
)
def test_labels_come_from_memory_or_from_beside_the_rows(place, digits, arguments):
    axes = plots.scores(place / "m.zarr", **arguments(place, digits[:200]))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["0", "1", "2", "3"]


def test_values_have_the_colours_of_the_map(place, digits):
    path, X = place / "m.zarr", digits[:200]
    bar = plots.scores(path, X, color=X.mean(axis=1), cmap="magma")
    assert len(bar.figure.axes) == 2
    assert bar.get_legend() is None
    np.testing.assert_allclose(
        bar.collections[0].get_facecolors()[0],
        plt.get_cmap("magma")(plt.Normalize(*np.percentile(X.mean(axis=1), [0, 100]))(X[0].mean())),
    )


def test_only_what_is_given_is_drawn_of_many_rows(place, monkeypatch):
    from bigkpca.plots import rows

    monkeypatch.setattr(rows, "MAX_SCORES", 128)
    Y = np.random.default_rng(0).normal(size=(1000, 4))
    found = places_of(plots.scores(place / "m.zarr", scores=Y, color=np.arange(1000) % 2))
    numbers = rows.spread_row_numbers(1000, 128)
    np.testing.assert_allclose(np.sort(found[:, 0]), np.sort(Y[numbers, 0]))


def test_what_scores_cannot_draw(place, digits):
    path, X = place / "m.zarr", digits[:200]
    for arguments, message in (
        ({"data": X, "scores": X}, "data and scores exclude each other: pass rows, or their scores"),
        ({"data": X[:, 1:]}, "has 63 columns, but the model was fitted on 64"),
        ({"scores": np.zeros((5, 3))}, "3"),
        ({"data": X, "color": np.zeros(3)}, "color holds 3 labels, and there are 200 rows: one label for each row"),
        ({"data": X, "color": np.zeros((200, 2))}, r"color holds an array of shape \(200, 2\), and there are 200 rows"),
        ({"data": X, "color": "y"}, "no labels at y: give a .npy file"),
        ({"data": X, "components": (1, 5)}, "there is no component 5: they are counted from 1, and the last one is 4"),
        ({"data": X, "components": 1}, r"components=1: give two numbers, e.g. \(1, 2\)"),
        ({"data": X, "components": (1, 2, 3)}, r"components=\(1, 2, 3\): give two numbers"),
    ):
        with pytest.raises(SpecError, match=message):
            plots.scores(path, **arguments)
    gone = bigkpca.KernelPCA(2, size=20, random_state=0).fit(X)
    with pytest.raises(
        SpecError, match=r"the rows were in memory and were not kept: pass rows \(data\) or their scores"
    ):
        plots.scores(gone)
    assert not plt.get_fignums()


def artists(axes):
    """The data of everything that is drawn, and its words but for legends."""
    lines = [(np.asarray(line.get_data(), float).tolist(), line.get_marker()) for line in axes.lines]
    bars = [bar.get_bbox().get_points().tolist() for bar in axes.patches]
    dots = [np.asarray(each.get_offsets()).tolist() for each in axes.collections]
    return lines, bars, dots, axes.get_xlabel(), axes.get_ylabel(), [text.get_text() for text in axes.texts]


def test_the_report_draws_the_same_figures(images, monkeypatch):
    kpca, X = images
    values = np.arange(300) % 3  # in clouds so far apart that names need not move
    model, Y = kpca.model_, kpca.transform(X) + 3 * np.eye(6)[values]
    drawn = []
    monkeypatch.setattr(figures, "drawing", lambda figure, name, alt: drawn.append(artists(figure.axes[0])))
    figures.spectrum(model)
    own = plots.spectrum(model)
    (_, bars, *labels), (_, own_bars, *own_labels) = drawn.pop(), artists(own)
    assert (bars, labels) == (own_bars, own_labels)  # but for marks of trust, which have a figure of their own
    figures.scores(Y, (0, 1), RowLabels(values.astype(str), ("0", "1", "2")))
    assert drawn.pop() == artists(plots.scores(model, scores=Y, color=values))
    runs = tuple(DriftOfRun(run, "", figure, 0.2, 0, 9) for run, figure in enumerate((0.0, 0.4, 0.1), 1))
    figures.drift(runs)
    monkeypatch.setattr(plots, "drift_of_runs", lambda out: runs)
    assert drawn.pop() == artists(plots.drift("features.zarr"))


def test_the_style_of_the_user_stays(images):
    kpca, _ = images
    before = dict(plt.rcParams)
    with plt.style.context("dark_background"):
        axes = plots.spectrum(kpca)
    assert axes.lines[-1].get_color() == "white"
    assert dict(plt.rcParams) == before


@pytest.mark.full
def test_matplotlib_is_imported_by_the_first_call_only():
    code = "import sys, bigkpca.plots; assert 'matplotlib' not in sys.modules; sys.modules['matplotlib'] = None\n"
    code += "try: bigkpca.plots.spectrum(None)\nexcept Exception as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "plots need matplotlib: pip install 'bigkpca[report]'\n"
