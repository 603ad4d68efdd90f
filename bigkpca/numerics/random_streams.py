"""Random number streams: one for each purpose, so that additional draws for one do not affect the others."""

from __future__ import annotations

import numpy as np

# Purposes. Their numbers are part of every result: append new ones, never renumber.
SAMPLE, PAIRS, LANDMARKS, FREQUENCIES = range(4)
ALPHA, SKETCH, PROBES, FEW, NOISE, REFERENCES, SCORING = 5, 6, 7, 9, 10, 11, 13
DRAWN, KRYLOV, VIEW_FREQUENCIES, VIEW_START, COMPARED, CALIBRATION = 14, 15, 16, 17, 19, 22


def random_stream(seed: int, purpose: int, start: int = 0) -> np.random.Generator:
    """The random numbers of one purpose, from number `start` on: the same on every machine, for any number of
    workers."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(purpose,))).advance(start))
