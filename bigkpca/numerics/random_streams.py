"""Random numbers, of which each purpose has a stream of its own."""

from __future__ import annotations

import numpy as np

# What randomness is for. One more draw for one purpose changes nothing for the others.
SAMPLE, PAIRS, LANDMARKS, FREQUENCIES, PROPOSALS, ALPHA, SKETCH, PROBES, HELD_OUT, FEW = range(10)
TRAINING, REFERENCES, FOLDS, SCORING, UNSEEN, KRYLOV, VIEW_FREQUENCIES, VIEW_START = range(10, 18)


def random_stream(seed: int, purpose: int) -> np.random.Generator:
    """The random numbers of one purpose, the same on every machine and for every number of workers."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose,)))
