"""Sums of a pass: the same tree for groups of every size, in every order, with everything that was saved."""

from hypothesis import given
from hypothesis import strategies as st

from bigkpca.execution.carried import Carried
from bigkpca.execution.partial_sums import PartialSums
from bigkpca.execution.tasks import added, tree_sum


class Words:
    """Records the shape of a sum."""

    def __init__(self, text):
        self.text = text

    def __add__(self, other):
        return Words(f"({self.text}+{other.text})")


def by_levels(count):
    """The tree as it is defined: neighbours are added, level by level; the last of an odd number moves up."""
    found = [str(number) for number in range(count)]
    while len(found) > 1:
        pairs = [f"({a}+{b})" for a, b in zip(found[::2], found[1::2], strict=False)]
        found = pairs + found[len(pairs) * 2 :]
    return found[0]


def group_sum(first, stop):
    return tree_sum(lambda i: Carried(Words(str(i))), first, stop)


@given(st.integers(1, 70), st.integers(0, 4), st.randoms(use_true_random=False), st.data())
def test_the_tree_is_the_same_for_groups_of_any_size_in_any_order(tasks, level, random, data):
    size = 1 << level
    numbers = data.draw(st.permutations(range(-(-tasks // size))))
    sums = PartialSums(tasks, level, {})
    saved = []
    for number in numbers:
        assert not sums.has(number)
        sums.add(number, group_sum(number * size, min((number + 1) * size, tasks)))
        assert sums.has(number)
        saved.append(sums.nodes)
    assert sums.total().text == by_levels(tasks)
    # From any save, mixed with the one before it as when a save is cut off, on any number of threads.
    cut = data.draw(st.integers(0, len(saved) - 1))
    left = {**saved[max(0, cut - 1)], **saved[cut]}
    other = data.draw(st.integers(0, 4))
    again = PartialSums(tasks, other, left)
    for number in data.draw(st.permutations(range(-(-tasks // (1 << other))))):
        if not again.has(number):
            again.add(number, group_sum(number << other, min((number + 1) << other, tasks)))
    assert again.total().text == by_levels(tasks)


def test_nodes_that_cannot_be_of_this_sum_are_left_out():
    assert PartialSums(4, 0, {(9, 0): Words("x"), (0, 4): Words("y")}).nodes == {}


def test_a_sum_of_two_results_is_carried():
    assert added(Carried(1), Carried(2)).value == 3
