"""Figures of rows: their scores, coloured by label or value, and how unusual they are."""

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

import bigkpca
from bigkpca import plots
from bigkpca.errors import SpecError
from bigkpca.plots import rows
from bigkpca.plots.rows import draw_scores, spread_row_numbers
from tests.plots.conftest import words

RNG = np.random.default_rng(3)


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
    """Where the dots are, in order along x."""
    found = np.concatenate([np.asarray(dots.get_offsets()) for dots in axes.collections])
    return found[np.argsort(found[:, 0])]


def test_rows_and_scores_of_any_kind_give_the_same_dots(place, digits, axes):
    model, X = bigkpca.load(place / "m.zarr"), digits[:200]
    Y = next(iter(model.project([X], 200)))
    assert plots.scores(model, X, axes=axes) is axes
    for arguments in (
        {"data": X},
        {"data": place / "x.zarr"},
        {"data": da.from_array(X, chunks=(50, 64))},
        {"scores": place / "s.zarr"},
        {"scores": Y},
        {},  # the rows that were fitted
    ):
        drawn = plots.scores(place / "m.zarr", **arguments)
        np.testing.assert_allclose(places_of(drawn), Y[np.argsort(Y[:, 0]), :2], atol=1e-5 * np.abs(Y).max())
        assert drawn.get_legend() is None
        plt.close("all")
    other = plots.scores(place / "m.zarr", X, [4, 3])
    np.testing.assert_allclose(places_of(other), Y[np.argsort(Y[:, 3])][:, [3, 2]], atol=1e-5 * np.abs(Y).max())
    assert (other.get_xlabel(), other.get_ylabel()) == ("component 4", "component 3")


def test_categories_have_their_names_and_rows_that_were_appended_theirs(tmp_path):
    lines = [f"{value},{6 * (value % 7)},{'low' if value < 20 else 'high'}" for value in range(60)]
    for name, some in (("a", lines[:40]), ("b", lines[40:])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,kind", *some]))
    bigkpca.ingest(tmp_path / "a.csv", tmp_path / "d.zarr", labels="kind")
    bigkpca.fit(tmp_path / "d.zarr", tmp_path / "m.zarr", n_components=2, size=20, transform=tmp_path / "s.zarr")
    axes = plots.scores(tmp_path / "m.zarr", scores=tmp_path / "s.zarr", color=tmp_path / "d.zarr" / "y")
    assert words(axes) == ["high", "low"]
    bigkpca.ingest(tmp_path / "b.csv", tmp_path / "d.zarr", labels="kind", append=True)
    for labels in ("y", tmp_path / "d.zarr"):
        axes = plots.scores(tmp_path / "m.zarr", scores=tmp_path / "s.zarr", color=labels)
        assert len(places_of(axes)) == 40
        assert words(axes) == ["high", "low"]


def test_each_row_has_the_colour_of_its_label(axes):
    Y, values = RNG.normal(size=(60, 3)), np.resize(["b", "a", "c"], 60)
    draw_scores(axes, Y, (2, 0), values)
    (dots,) = axes.collections
    cycle = [to_hex(color) for color in plt.rcParams["axes.prop_cycle"].by_key()["color"]]
    expected = {(*row, cycle["abc".index(value)]) for row, value in zip(Y[:, [2, 0]], values, strict=True)}
    found = zip(np.asarray(dots.get_offsets()), dots.get_facecolors(), strict=True)
    assert {(*at, to_hex(color)) for at, color in found} == expected
    handles, labels = axes.get_legend_handles_labels()
    assert (labels, [to_hex(handle.get_color()) for handle in handles]) == (["a", "b", "c"], cycle[:3])
    assert not dots.get_rasterized()
    crowd = plt.subplots()[1]
    draw_scores(crowd, RNG.normal(size=(40_000, 2)), (0, 1), np.sort(RNG.integers(0, 2, 40_000)))
    (dots,) = crowd.collections
    assert dots.get_rasterized()
    first = [to_hex(color) for color in dots.get_facecolors()[:100]]
    assert 20 < first.count(cycle[0]) < 80  # neither label covers the other


def test_of_many_labels_the_rarest_are_other(axes):
    values = np.repeat(np.arange(14), np.arange(1, 15)).astype(str)
    draw_scores(axes, RNG.normal(size=(len(values), 2)), (0, 1), values)
    assert words(axes) == [*sorted(map(str, range(3, 14))), "other"]
    colors = [to_hex(color) for color in axes.collections[0].get_facecolors()]
    assert colors.count(to_hex(axes.lines[-1].get_color())) == 1 + 2 + 3


def test_labels_of_their_own_give_all_rows_one_colour_and_one_line_of_the_legend(axes):
    names = np.array([f"person {number}" for number in range(1190)] + ["person 3"] * 10)
    draw_scores(axes, RNG.normal(size=(1200, 2)), (0, 1), names)
    assert words(axes) == ["1,190 labels of 1,200 rows"]
    assert len(np.unique(axes.collections[0].get_facecolors(), axis=0)) == 1


def test_numbers_and_dates_have_a_colour_bar_and_rows_without_one_are_faint(axes):
    Y, values = RNG.normal(size=(50, 2)), np.linspace(5, 7, 50)
    values[10] = np.nan
    draw_scores(axes, Y, (0, 1), values)
    missing, known = axes.collections
    np.testing.assert_allclose(missing.get_offsets(), Y[[10]])
    assert missing.get_alpha() == 0.2
    value = dict(zip(map(tuple, Y), values, strict=True))
    np.testing.assert_allclose(known.get_array(), [value[tuple(at)] for at in np.asarray(known.get_offsets())])
    (bar,) = [each for each in axes.figure.axes if each is not axes]
    assert bar.get_ylim() == (5, 7)
    draw_scores(axes, Y, (0, 1), np.datetime64("2020-01-01") + np.arange(50))
    axes.figure.draw_without_rendering()
    assert {"Jan", "Feb"} & {tick.get_text() for tick in axes.figure.axes[-1].get_yticklabels()}


def test_few_rows_are_read_of_many(place, monkeypatch):
    assert spread_row_numbers(5, 10).tolist() == [0, 1, 2, 3, 4]
    for n in (65_537, 10_000_000):
        numbers = spread_row_numbers(n, 65_536)
        assert 65_536 * 0.9 < len(numbers) <= 65_536
        assert (numbers[0], numbers[-1]) == (0, n - 1)
        assert (np.diff(numbers) > 0).all()
        assert np.count_nonzero(np.diff(numbers) > 1) < 64
    monkeypatch.setattr(rows, "_MOST_SCORES", 128)
    Y = RNG.normal(size=(1000, 4))
    drawn = plots.scores(place / "m.zarr", scores=Y, color=np.arange(1000) % 2)
    assert words(drawn) == ["0", "1"]
    np.testing.assert_allclose(places_of(drawn)[:, 0], np.sort(Y[spread_row_numbers(1000, 128), 0]))


def test_what_scores_cannot_draw(place, digits):
    path, X = place / "m.zarr", digits[:200]
    np.save(place / "objects.npy", np.array([None, "a"], dtype=object))
    for arguments, message in (
        ({"data": X, "scores": X}, "data and scores exclude each other: pass rows, or their scores"),
        ({"data": X[:, 1:]}, "has 63 columns, but the model was fitted on 64"),
        ({"scores": np.zeros((5, 3))}, "but the model has 4 components"),
        ({"data": X, "color": np.zeros(3)}, "color holds 3 labels, and there are 200 rows: one label for each row"),
        ({"data": X, "color": np.zeros((200, 2))}, r"color holds an array of shape \(200, 2\), and there are 200 rows"),
        ({"data": X, "color": np.full(200, np.nan)}, "color has no finite value: pass numbers, labels, or nothing"),
        ({"data": X, "color": "y"}, "no labels at y: give a .npy file"),
        ({"data": X, "color": place / "objects.npy"}, "labels cannot be read from .*objects.npy"),
        ({"data": X, "components": (1, 5)}, "there is no component 5: they are counted from 1, and the last one is 4"),
        ({"data": X, "components": 1}, r"components=1: give two numbers, e.g. \(1, 2\)"),
        ({"data": X, "components": (1, 2, 3)}, r"components=\(1, 2, 3\): give two numbers"),
    ):
        with pytest.raises(SpecError, match=message):
            plots.scores(path, **arguments)
    gone = bigkpca.KernelPCA(2, size=20, random_state=0).fit(X)
    with pytest.raises(SpecError, match=r"in memory and were not kept: pass rows \(data\) or their scores"):
        plots.scores(gone)
    assert not plt.get_fignums()


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A folder with rows, a model of them with 100 calibration rows, and scores with flags of other rows."""
    folder, rng = tmp_path_factory.mktemp("unusual"), np.random.default_rng(0)
    np.save(folder / "x.npy", rng.normal(size=(700, 4)) * [1, 2, 3, 4])
    np.save(folder / "new.npy", rng.normal(size=(300, 4)) * [2, 3, 4, 5])
    options = {"n_components": 3, "sigma": "5 median", "size": 30}
    bigkpca.fit(folder / "x.npy", folder / "m.zarr", **options, calibration_rows=100)
    bigkpca.fit(folder / "x.npy", folder / "plain.zarr", **options)
    with pytest.warns(bigkpca.errors.FlaggedShareWarning):
        bigkpca.transform(folder / "m.zarr", folder / "new.npy", folder / "s.zarr", flag=0.05)
    bigkpca.transform(folder / "m.zarr", folder / "new.npy", folder / "no-flags.zarr")
    return folder


def test_unusual_rows_have_the_colour_of_their_reason(judged, axes):
    model, X = bigkpca.load(judged / "m.zarr"), np.load(judged / "new.npy")
    Q, T2, both = bigkpca.arrays.statistics(model, X).compute().T
    residual, distance = model.calibration.rarities(np.array([Q, T2]))[:2]
    limit = model.calibration.limits(0.05)[2]
    reason = np.where(both > limit, np.where(residual >= distance, 1, 2), 0)
    at = np.maximum([distance, residual], limit / 1000).T
    for arguments in ({"data": X, "flag": 0.05}, {"scores": judged / "s.zarr"}):
        axes.clear()
        assert plots.unusual(judged / "m.zarr", **arguments, axes=axes) is axes
        labels = axes.get_legend_handles_labels()[1]
        counts = np.bincount(reason)
        reasons = ("not flagged", "flagged: residual", "flagged: distance")
        assert labels == [*(f"{n} {word}" for n, word in zip(counts, reasons, strict=True)), "limit for 5%"]
        assert len({to_hex(part.get_facecolors()[0]) for part in axes.collections}) == 3
        for code, part in enumerate(axes.collections):
            np.testing.assert_allclose(np.asarray(part.get_offsets()), at[reason == code], rtol=1e-6)
        np.testing.assert_allclose(np.maximum(*axes.lines[-1].get_data()), limit)
    fitted = plots.unusual(model, flag=0.02, axes=axes)  # rows that were fitted
    assert "limit for 2%" in words(fitted)


def test_rows_that_cannot_be_judged_are_refused(judged):
    X = np.load(judged / "new.npy")
    for model, arguments, message in (
        ("plain", {"data": X}, "no calibration rows"),
        ("m", {"data": X, "flag": 0.001}, r"flag=0\.001: with 100 calibration rows"),
        ("m", {"data": X, "scores": judged / "s.zarr"}, "data and scores exclude each other"),
        ("m", {"scores": np.zeros((3, 3))}, "flags are in a feature store: pass the path"),
        ("m", {"scores": judged / "no-flags.zarr"}, r"has no flags: write them with bigkpca transform --flag 0.01"),
        ("m", {"data": X[:, :2]}, "has 2 columns"),
    ):
        with pytest.raises(SpecError, match=message):
            plots.unusual(judged / f"{model}.zarr", **arguments)
