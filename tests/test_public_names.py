"""Public names, which are imported when they are first used, and the options of public functions."""

import inspect
import re
from importlib import import_module

import pytest

import bigkpca
from bigkpca import KernelPCA
from bigkpca.spec import VARIED, FitSpec


def test_public_names_are_where_the_lazy_table_says_and_others_do_not_exist():
    assert sorted(bigkpca._PUBLIC) == sorted(bigkpca.__all__)
    for name, (module, attribute) in bigkpca._PUBLIC.items():
        found = import_module(module)
        assert getattr(bigkpca, name) is (getattr(found, attribute) if attribute else found)
    with pytest.raises(AttributeError, match="module 'bigkpca' has no attribute 'KernelPca'"):
        _ = bigkpca.KernelPca


def test_signatures_show_every_option_of_a_fit_with_its_default():
    defaults = {name: field.default for name, field in FitSpec.model_fields.items()}
    shown = inspect.signature(bigkpca.fit).parameters
    assert {name: shown[name].default for name in defaults} == defaults
    estimator = inspect.signature(KernelPCA).parameters
    of_estimator = {name: estimator[name].default for name in defaults}
    assert of_estimator == {**defaults, "random_state": None}
    (entries,) = re.findall(r"^Parameters\n-+\n(.*?)\n\nAttributes\n", inspect.getdoc(KernelPCA), re.S | re.M)
    assert sorted(re.findall(r"^(\w+) : ", entries, re.M)) == sorted(estimator)
    shared = [name for name in defaults if name not in VARIED]
    of_comparison = inspect.signature(bigkpca.compare).parameters
    assert {name: of_comparison[name].default for name in shared} == {name: defaults[name] for name in shared}
    for name in ("transform", "reconstruct", "denoise", "evaluate", "report"):
        kinds = {each.kind for each in inspect.signature(getattr(bigkpca, name)).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds
