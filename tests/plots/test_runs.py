"""Drift over the runs of a job."""

import json

import numpy as np
import pytest

from bigkpca import plots
from bigkpca.errors import SpecError


@pytest.fixture
def job(tmp_path):
    """The output of a job of which only its records are there."""

    def recorded(*drifts):
        lines = [
            {"run": run, "finished": "2026-11-22T02:00:03+00:00", "drift": drift} for run, drift in enumerate(drifts, 1)
        ]
        (tmp_path / "features.zarr.runs.jsonl").write_text("\n".join(map(json.dumps, lines)))
        return tmp_path / "features.zarr"

    return recorded


def drifted(figure):
    return {"figure": figure, "threshold": 0.2, "outside": 3, "rows": 100}


def test_every_run_with_a_drift_is_drawn_and_those_above_the_threshold_stand_out(job):
    axes = plots.drift(job(drifted(0.0), None, drifted(0.3), drifted(0.1)))
    threshold, figures, above = axes.lines
    np.testing.assert_array_equal(figures.get_data(), [[1, 3, 4], [0, 0.3, 0.1]])
    np.testing.assert_array_equal(threshold.get_data(), [[1, 3, 4], [0.2, 0.2, 0.2]])
    assert threshold.get_drawstyle() == "steps-mid"
    np.testing.assert_array_equal(above.get_data(), [[3], [0.3]])
    assert above.get_color() == threshold.get_color() != figures.get_color()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["threshold", "drift"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("run", "drift")


def test_no_job_and_no_drift(job, tmp_path):
    with pytest.raises(SpecError, match="nowhere is not the output of a job: pass the path that bigkpca run writes"):
        plots.drift(tmp_path / "nowhere")
    with pytest.raises(SpecError, match=r"no run of .*features\.zarr has recorded drift yet: run the job on new rows"):
        plots.drift(job(None))
