"""Figures of models, drawn by Matplotlib on axes that you pass, or on a new figure.

Each function draws in the current style of Matplotlib, on `axes` or by default on a new figure, and returns the axes. A
report draws the same figures in its own style. Without Matplotlib (pip install 'bigkpca[report]'), for anything that is
not a model or one Axes, and for rows and scores that do not fit the model, a SpecError is raised. What cannot be read
raises the errors of `transform`.

models      the spectrum, what scores explain of columns, pre-images along a component, contours of its scores
rows        the scores of rows, and unusual rows
runs        the drift of the runs of a job, and the errors of a comparison
style       colours, axes and ticks
"""

from __future__ import annotations

from bigkpca.plots.models import columns, component, contours, spectrum
from bigkpca.plots.rows import scores, unusual
from bigkpca.plots.runs import comparison, drift

__all__ = ["columns", "comparison", "component", "contours", "drift", "scores", "spectrum", "unusual"]
