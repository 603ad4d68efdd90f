"""Arrays as NumPy would allocate them: which are copied, which stay themselves, and at what depth."""

import numpy as np
import pytest

from bigkpca.numerics.linalg import aligned, all_aligned
from tests.helpers.askew import ASKEW, Held, Pair, in_order, misaligned


@pytest.mark.parametrize("how", [how for how in ASKEW if how != "read-only"])
def test_an_askew_array_is_copied_and_equal(how):
    X = np.random.default_rng(0).normal(size=(7, 5))
    found = aligned(ASKEW[how](X))
    assert in_order(found)
    np.testing.assert_array_equal(found, X)


def test_arrays_that_need_no_copy_stay_themselves():
    for shape in ((), (0,), (3,), (0, 4), (2, 3, 4)):
        X = np.empty(shape)
        assert aligned(X) is X
        value = Held(X, {"a": [X, (X,)], "b": "text", "c": None})
        assert all_aligned(value) is value


def test_arrays_are_found_at_any_depth_and_the_rest_is_left_alone():
    X = np.arange(12.0).reshape(3, 4)
    bad, marker = misaligned(X), object()
    value = Held(bad, [Pair(bad, {"k": (bad, marker)}), marker, "text", 3]).cached(bad)
    found = all_aligned(value)
    assert found is not value
    assert isinstance(found.others[0], Pair)
    inner = found.others[0].second["k"]
    for each in (found.X, found.others[0].first, inner[0], vars(found)["_cached"]):
        assert in_order(each)
        np.testing.assert_array_equal(each, X)
    assert inner[1] is marker
    assert found.others[1] is marker
    assert value.X is bad  # the one that was given is as it was


def test_another_thread_may_cache_a_property_of_the_value_meanwhile(monkeypatch):
    value, places = Held(np.zeros(3), {"a": np.zeros(3)}), iter(range(10))

    def cached_meanwhile(X):
        vars(value)[f"cached {next(places)}"] = 1
        return X

    monkeypatch.setattr("bigkpca.numerics.linalg.aligned", cached_meanwhile)
    assert all_aligned(value) is value
