"""How far the rows of a run are from those that the model was fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from bigkpca.numerics.model import Model
from bigkpca.workflows.scheduled.extraction import ExtractedBlock


def drift_of(model: Model, blocks: Sequence[ExtractedBlock], threshold: float) -> dict[str, Any] | None:
    """The drift of the rows that the blocks hold for it; None where the model has no reference to compare with.

    Of a model that was fitted again, from the rows for which it was or from those before, whichever are nearer.
    """
    kept = [block for block in blocks if block.residuals is not None]
    if model.reference is None or not sum(len(block.scores) for block in kept):
        return None
    scores = np.concatenate([block.scores for block in kept])
    residuals = np.concatenate([block.residuals for block in kept if block.residuals is not None])
    references = [each for each in (model.reference, model.earlier) if each is not None]
    found = [reference.drift(reference.count(scores, residuals)) for reference in references]
    return {**asdict(min(found, key=lambda drift: drift.figure)), "threshold": threshold}
