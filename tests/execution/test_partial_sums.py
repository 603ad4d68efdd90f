"""Sums of a pass: the same tree for groups of every size, in every order, with everything that was saved."""

from hypothesis import given
from hypothesis import strategies as st

from bigkpca.execution.carried import Carried
from bigkpca.execution.partial_sums import PartialSums
from bigkpca.execution.tasks import added, tree_sum
from tests.execution.test_engine import Bracket


def by_levels(count):
    """The tree as it is defined: neighbours are added, level by level; the last of an odd number moves up."""
    found = [str(number) for number in range(count)]
    while len(found) > 1:
        pairs = [f"({a}+{b})" for a, b in zip(found[::2], found[1::2], strict=False)]
        found = pairs + found[len(pairs) * 2 :]
    return found[0]


@given(tasks=st.integers(1, 70), levels=st.tuples(st.integers(0, 4), st.integers(0, 4)), data=st.data())
def test_the_tree_is_the_same_for_groups_of_any_size_in_any_order(tasks, levels, data):
    def filled(level, saved):
        """Sums with all groups of 2**level tasks that are not saved, and what was saved after each."""
        size, sums, saves = 1 << level, PartialSums(tasks, level, saved), [saved]
        for number in data.draw(st.permutations(range(-(-tasks // size)))):
            if not sums.has(number):
                stop = min((number + 1) * size, tasks)
                sums.add(number, tree_sum(lambda i: Carried(Bracket(str(i))), number * size, stop))
                saves.append(sums.nodes)
            assert sums.has(number)
        return sums, saves

    sums, saves = filled(levels[0], {})
    assert sums.total().text == by_levels(tasks)
    # From any save, mixed with the one before it as when a save is cut off, on any number of threads.
    cut = data.draw(st.integers(1, len(saves) - 1))
    sums, _ = filled(levels[1], {**saves[cut - 1], **saves[cut]})
    assert sums.total().text == by_levels(tasks)


def test_nodes_of_other_sums_are_left_out_and_the_sum_of_two_results_is_carried():
    assert PartialSums(4, 0, {(9, 0): Bracket("x"), (0, 4): Bracket("y")}).nodes == {}
    assert added(Carried(1), Carried(2)).value == 3
