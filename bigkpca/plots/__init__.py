"""Figures of models, drawn by Matplotlib on axes that you pass, or on a new figure.

Each function draws in the current style of Matplotlib, on `axes` or by default on a new figure, and returns the axes. A
report draws the same figures in its own style. Without Matplotlib (pip install 'bigkpca[report]'), for anything that is
not a model or one Axes, and for rows and scores that do not fit the model, a SpecError is raised. What cannot be read
raises the errors of `transform`.
"""

from __future__ import annotations

from bigkpca.plots.models import columns, component, contours, spectrum
from bigkpca.plots.rows import scores, unusual
from bigkpca.plots.runs import comparison, drift

__all__ = ["columns", "comparison", "component", "contours", "drift", "scores", "spectrum", "unusual"]
