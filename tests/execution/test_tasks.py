"""The graph of a pass: the same tree for groups of every size, in every order, with everything that was saved."""

import numpy as np
from dask.local import get_sync
from dask.utils import key_split
from hypothesis import given
from hypothesis import strategies as st

from bigkpca.execution.engine import PartialSums
from bigkpca.execution.on_threads import plain
from bigkpca.execution.tasks import Carried, Pass, Task, added, graph_of, is_part, run_group
from tests.execution.test_engine import Bracket


def by_levels(count):
    """The tree as it is defined: neighbours are added, level by level; the last of an odd number moves up."""
    found = [str(number) for number in range(count)]
    while len(found) > 1:
        pairs = [f"({a}+{b})" for a, b in zip(found[::2], found[1::2], strict=False)]
        found = pairs + found[len(pairs) * 2 :]
    return found[0]


def bracketed(number, *_):
    return Bracket(str(number))


def run(values, group):
    return run_group(group.with_values(values), lambda _: None)


def pass_of(count, level, *given, adds=True):
    tasks = [Task(bracketed, (number, *given), 1) for number in range(count)]
    return Pass("adding up", tasks, adds, level, 60)


@given(tasks=st.integers(1, 70), levels=st.tuples(st.integers(0, 4), st.integers(0, 4)), data=st.data())
def test_the_tree_is_the_same_for_groups_of_any_size_in_any_order(tasks, levels, data):
    def added_up(level, saved):
        """What is known in the end, and what was saved after each node of a graph, which end in any order."""
        whole, sums, saves = pass_of(tasks, level), PartialSums(tasks, saved), [saved]
        graph = graph_of(whole, sums.known, whole.missing(sums.known), plain, run)
        for key in data.draw(st.permutations(list(graph.nodes))):
            if not any(is_part(graph.nodes[key], other) for other in sums.known):
                sums.add(graph.nodes[key], get_sync(graph.dsk, key))
                saves.append(sums.nodes)
        return sums, saves

    sums, saves = added_up(levels[0], {})
    assert sums.total().text == by_levels(tasks)
    # From any save, mixed with the one before it as when a save is cut off, with groups of any size.
    cut = data.draw(st.integers(1, len(saves) - 1))
    sums, _ = added_up(levels[1], {**saves[cut - 1], **saves[cut]})
    assert sums.total().text == by_levels(tasks)


@given(tasks=st.integers(1, 40), level=st.integers(0, 3), data=st.data())
def test_what_is_known_is_not_computed_again(tasks, level, data):
    whole = pass_of(tasks, level)
    alone = data.draw(st.sets(st.integers(0, tasks - 1)))
    known = {(0, number): Carried(Bracket(str(number))) for number in alone}
    missing = whole.missing(known)
    assert sorted(task for node in missing for task in whole.span(node)) == sorted(set(range(tasks)) - alone)
    # A group that is held back: all sums of which it is no part are there, and no others.
    held_back = data.draw(st.sampled_from(missing)) if missing else None
    graph = graph_of(whole, known, [node for node in missing if node != held_back], plain, run)
    assert not any(is_part(held_back, node) for node in graph.nodes.values() if held_back)
    assert (graph.root is None) == (held_back is not None)


def test_values_that_tasks_share_are_in_a_graph_once_and_its_keys_begin_with_the_name_of_the_pass():
    whole = pass_of(9, 1, Carried(np.arange(5)))
    graph = graph_of(whole, {}, whole.missing({}), plain, run)
    names = [key_split(key) for key in graph.dsk]
    assert {name: names.count(name) for name in names} == {
        "bigkpca-adding-up": 5,
        "bigkpca-adding-up-shared": 1,
        "bigkpca-adding-up-sum": 4,
    }
    assert list(graph.groups.values()) == [(1, number) for number in range(5)]
    listed = pass_of(9, 1, adds=False)
    assert len(graph_of(listed, {}, listed.missing({}), plain, run).dsk) == 5


def test_nodes_of_other_sums_are_left_out_and_the_sum_of_two_results_is_carried():
    assert PartialSums(4, {(9, 0): Bracket("x"), (0, 4): Bracket("y")}).nodes == {}
    assert added([Carried(1), Carried(2)]).value == 3
