"""How accurate components are, in words."""

import numpy as np
import pytest

from bigkpca.numerics.certificate import accuracy

SOUND, SHAKY = "solid", "doubtful"


@pytest.mark.parametrize(
    ("trust", "shares", "word", "part"),
    [
        ([SOUND] * 8, [0.1] * 8, "accurate", 1),
        ([SOUND], [0.9], "accurate", 1),
        ([SHAKY], [0.0], "inaccurate", 0),
        ([SHAKY, SOUND], [0.02, 0.9], "accurate", 90 / 92),
        ([SOUND, SOUND, SHAKY], [0.3, 0.3, 0.2], "accurate in part", 0.75),
        ([SOUND, SHAKY], [0.03, 0.02], "accurate in part", 0.6),
        ([SHAKY, SOUND], [0.6, 0.3], "inaccurate", 1 / 3),
        ([SHAKY, SHAKY], [0.6, 0.3], "inaccurate", 0),
    ],
)
def test_the_accuracy_weighs_components_by_what_they_hold(trust, shares, word, part):
    assert accuracy(tuple(trust), np.array(shares)) == (word, pytest.approx(part))
