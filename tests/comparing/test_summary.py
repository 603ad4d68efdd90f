"""What comparisons advise, and spreads over seeds."""

import numpy as np

from bigkpca.comparing import summary
from bigkpca.comparing.grid import MethodVariant
from bigkpca.comparing.summary import Spread, TrialGroup, advice
from bigkpca.comparing.trial import TrialResult


def line(way, size, seconds, error):
    spreads = {"seconds": Spread(seconds, seconds, seconds), "peak_mb": Spread(200, 200, 200)}
    for measure in ("score_error", "eigenvalue_error"):
        spreads[measure] = None if error is None else Spread(error, error, error)
    return TrialGroup(MethodVariant(*way.split("/")), size, 1, spreads)


def test_advice_names_what_to_take_and_why():
    cheap = line("rff", 9, 1, 0.04)
    for lines, said in (
        ([line("rff", 10, 1, 0.2), line("rff", 20, 2, 0.1)], "Take rff with size 20: scores off by 10.00%"),
        ([cheap, line("rff", 20, 2, 0.01)], "Take rff with size 9: scores off by 4.00%"),
        ([cheap, line("rff", 20, 1.4, 0.01)], "Take rff with size 20: scores off by 1.00%"),
        ([cheap, line("exact", 99, 0.5, None)], "Take the exact method: it took 0.5 s and 200 MB"),
        ([cheap, line("exact", 99, 5, None)], "exact took 5 s"),
        ([cheap, line("columns", 9, 3, 0.02)], "columns with size 9 leaves 2.00% in 3 s"),
        ([line("rff", 9, 1, 0.2)], "nothing came within 5%, larger sizes may"),
    ):
        assert said in advice(lines)


def test_medians_and_spreads_over_seeds():
    seeds = ((0, 1.0, 0.1), (1, 3.0, 0.2), (2, 2.0, 0.6))
    trials = [TrialResult("rff", "", 10, seed, seconds, 100, None, error) for seed, seconds, error in seeds]
    (found,) = summary.group_trials(trials)
    assert found.spreads["seconds"] == Spread(2.0, 1.0, 3.0)
    assert found.spreads["eigenvalue_error"] == Spread(0.2, 0.1, 0.6)
    assert found.spreads["score_error"] is None
    assert np.isnan(found.median("score_error"))
