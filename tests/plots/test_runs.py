"""Figures of runs: drift of a job, and errors of a comparison."""

import json

import numpy as np
import pytest

from bigkpca import plots
from bigkpca.comparing import Comparison, Trial
from bigkpca.errors import SpecError
from tests.plots.conftest import words


def job(folder, *figures):
    """The output of a job of which only its records are there, each with a drift or None."""
    drifts = [
        None if each is None else {"figure": each, "threshold": 0.2, "outside": 3, "rows": 100} for each in figures
    ]
    lines = [{"run": i, "finished": "2026-11-22T02:00:03+00:00", "drift": drift} for i, drift in enumerate(drifts, 1)]
    (folder / "features.zarr.runs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder / "features.zarr"


def test_every_run_with_a_drift_is_drawn_and_those_above_the_threshold_stand_out(tmp_path):
    axes = plots.drift(job(tmp_path, 0.0, None, 0.3, 0.1))
    threshold, figures, above = axes.lines
    np.testing.assert_array_equal(figures.get_data(), [[1, 3, 4], [0, 0.3, 0.1]])
    np.testing.assert_array_equal(threshold.get_data(), [[1, 3, 4], [0.2, 0.2, 0.2]])
    assert threshold.get_drawstyle() == "steps-mid"
    np.testing.assert_array_equal(above.get_data(), [[3], [0.3]])
    assert above.get_color() == threshold.get_color() != figures.get_color()
    assert words(axes) == ["threshold", "drift"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("run", "drift")
    for out in (tmp_path / "nowhere", job(tmp_path, None)):
        with pytest.raises(SpecError, match=f"no run of {out} has recorded drift: pass the output of a job"):
            plots.drift(out)


def test_a_comparison_is_drawn_by_its_fits_and_their_medians(axes):
    nan = float("nan")
    fits = [("exact", 99, 0, 9.0, nan)]
    for *fit, seconds, errors in (
        ("rff", 20, 2.0, (0.1, 0.3, 0.2)),
        ("rff", 40, 4.0, (0, 0, 0)),
        ("columns", 20, 1.0, (0.5, 0.5, 0.5)),
    ):
        fits += [(*fit, seed, seconds, error) for seed, error in enumerate(errors)]
    trials = tuple(Trial(*fit, 1, nan, nan, nan, error) for *fit, error in fits)
    found = Comparison("out", "exact", trials)
    assert plots.comparison(found, axes=axes) is axes
    lines = {each.get_label(): each for each in axes.lines}
    np.testing.assert_allclose(lines["rff"].get_data(), [[2, 4], [20, 1e-4]])
    np.testing.assert_allclose(lines["columns"].get_data(), [[1], [50]])
    np.testing.assert_allclose(lines["exact"].get_xdata(), 9)
    (fits,) = [each for each in axes.lines if len(each.get_xdata()) == 6]
    np.testing.assert_allclose(fits.get_ydata(), [10, 30, 20, 1e-4, 1e-4, 1e-4])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("seconds of the fit", "score error, %")
