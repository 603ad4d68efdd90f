"""Random number streams: one for each purpose, so that additional draws for one do not affect the others."""

from __future__ import annotations

import numpy as np

# Purposes. Their numbers are part of every result: append new ones, never renumber.
SAMPLE, PAIRS, LANDMARKS, FREQUENCIES, PROPOSALS, ALPHA, SKETCH, PROBES, HELD_OUT, FEW = range(10)
TRAINING, REFERENCES, FOLDS, SCORING, UNSEEN, KRYLOV, VIEW_FREQUENCIES, VIEW_START, DRIFT, COMPARED = range(10, 20)
MEDIANS, JOINED, CALIBRATION = 20, 21, 22


def random_stream(seed: int, purpose: int, *number: int) -> np.random.Generator:
    """The random numbers of one purpose, of which there may be several streams with a `number`: the same on every
    machine, for any number of workers."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, *number)))
