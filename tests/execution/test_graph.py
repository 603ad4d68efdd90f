"""The graph of a pass: the same tree for groups of every size, in every order, from whatever was saved."""

import numpy as np
import pytest
from dask.local import get_sync
from dask.utils import key_split
from hypothesis import given
from hypothesis import strategies as st

from bigkpca.execution.engine import Engine
from bigkpca.execution.graph import Pass
from bigkpca.execution.tasks import Carried, Task
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


def pass_of(count, threads=1, *given, adds=True, saved=None):
    tasks = [Task(bracketed, (number, *given), 1) for number in range(count)]
    return Pass("adding up", tasks, threads, adds=adds, saved=saved)


def graph_of(given):
    return given.graph(given.missing(), before=lambda: None, adding=False)


@given(tasks=st.integers(1, 300), threads=st.tuples(st.integers(1, 9), st.integers(1, 9)), data=st.data())
def test_the_tree_is_the_same_for_groups_of_any_size_in_any_order(tasks, threads, data):
    def added_up(threads, saved):
        """The sums in the end, and what was saved after each subtree; these end in any order."""
        whole, saves = pass_of(tasks, threads, saved=saved), [saved]
        graph = graph_of(whole)
        for key in data.draw(st.permutations(list(graph.results))):
            whole.add(graph.results[key], get_sync(graph.dsk, key))
            saves.append(whole.known)
        return whole.known[whole.root].text, saves

    total, saves = added_up(threads[0], {})
    assert total == by_levels(tasks)
    assert max(map(len, saves)) <= 64
    # From any save, mixed with the one before it as when a save is cut off, with groups of any size.
    cut = data.draw(st.integers(1, len(saves) - 1))
    total, _ = added_up(threads[1], {**saves[cut - 1], **saves[cut]})
    assert total == by_levels(tasks)


@given(tasks=st.integers(1, 200), level=st.integers(0, 5), data=st.data())
def test_what_is_known_is_not_computed_again(tasks, level, data):
    whole = pass_of(tasks)
    nodes = [(at, number) for at in {0, min(level, whole.root[0])} for number in range(-(-tasks >> at))]
    for node in data.draw(st.sets(st.sampled_from(nodes))):
        if not any(set(whole.span(node)) & set(whole.span(known)) for known in whole.known):
            whole.add(node, Bracket(""))
    whole.cut = data.draw(st.integers(0, whole.root[0]))
    missing = whole.missing()
    assert max([level for level, _ in missing], default=0) <= whole.cut
    computed = [number for node in missing for number in whole.span(node)]
    assert computed == sorted(set(range(tasks)) - {i for node in whole.known for i in whole.span(node)})


def test_nodes_of_other_sums_are_left_out():
    others = {(9, 0): Bracket("x"), (0, 4): Bracket("y"), (0, -1): Bracket("z"), (-1, 0): Bracket("w")}
    assert pass_of(4, saved=others).known == {}


def test_values_that_tasks_share_are_in_a_graph_once_and_its_keys_begin_with_the_name_of_the_pass():
    graph = graph_of(pass_of(160, 9, Carried(np.arange(5))))
    names = [key_split(key) for key in graph.dsk]
    assert {name: names.count(name) for name in names} == {
        "bigkpca-adding-up": 80,
        "bigkpca-adding-up-shared": 1,
        "bigkpca-adding-up-sum": 60,
        "bigkpca-adding-up-end": 20 + 19,
    }


@pytest.mark.parametrize("threads", [1, 2])
def test_few_sums_wait_for_others(threads, monkeypatch):
    waiting, add = [], Pass.add

    def watched(self, node, value):
        add(self, node, value)
        waiting.append(len(self.known))

    monkeypatch.setattr(Pass, "add", watched)
    shared = Carried(np.arange(5))
    for count in (60, 1000):
        Engine(threads=threads).total("adding up", [Task(bracketed, (number, shared), 1) for number in range(count)])
    assert max(waiting) <= 6 + threads  # levels of the tree
