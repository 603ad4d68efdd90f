"""A fitted model: the columns of its variables."""

from dataclasses import replace

import numpy as np

from bigkpca import KernelPCA


def test_variables_are_columns_by_name_and_the_columns_of_a_category_are_one():
    model = KernelPCA(2, size=9).fit(np.random.default_rng(0).normal(size=(50, 3))).model_
    names, kind = ["a=b", "kind=u", "kind=v"], [["kind", 1, 3]]
    for known, variables in (
        ({}, {}),
        ({"column_names": names, "one_hot": kind}, {"a=b": slice(0, 1), "kind": slice(1, 3)}),
        # The name of a column means nothing: without the record, a user chose it.
        ({"column_names": names}, {name: slice(j, j + 1) for j, name in enumerate(names)}),
        (
            {"column_names": ["a", "a", "b"]},
            {"a": slice(0, 1), "column 1 ('a')": slice(1, 2), "b": slice(2, 3)},
        ),
    ):
        assert replace(model, provenance=known).variables == variables
