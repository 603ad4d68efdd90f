"""Public names, which are imported when they are first used, and the options of public functions."""

import inspect
import re
from importlib import import_module

import pytest

import bigkpca
from bigkpca import KernelPCA
from bigkpca.errors import SpecError
from bigkpca.spec import VARIED, FitSpec
from tests.helpers.options import declared_options


def test_public_names_are_where_the_lazy_table_says_and_others_do_not_exist():
    assert sorted(bigkpca._PUBLIC) == sorted(bigkpca.__all__)
    for name, (module, attribute) in bigkpca._PUBLIC.items():
        found = import_module(module)
        assert getattr(bigkpca, name) is (getattr(found, attribute) if attribute else found)
    with pytest.raises(AttributeError, match="module 'bigkpca' has no attribute 'KernelPca'"):
        _ = bigkpca.KernelPca


def test_options_of_a_fit_are_declared_and_described_with_the_defaults_of_the_spec():
    defaults = {name: field.default for name, field in FitSpec.model_fields.items()}
    estimator = {name: each.default for name, each in inspect.signature(KernelPCA).parameters.items()}
    assert {name: estimator[name] for name in defaults} == defaults | {"random_state": None}
    (entries,) = re.findall(r"^Parameters\n-+\n(.*?)\n\nAttributes\n", inspect.getdoc(KernelPCA), re.S | re.M)
    assert sorted(re.findall(r"^(\w+) : ", entries, re.M)) == sorted(estimator)
    assert set(declared_options(bigkpca.fit)) >= set(declared_options(bigkpca.plan)) >= set(defaults)
    assert set(defaults) - set(declared_options(bigkpca.compare)) == {*VARIED, "n_components"}


NAMED = "fit", "plan", "compare", "sigma", "transform", "reconstruct", "denoise", "evaluate", "verify"


@pytest.mark.parametrize("name", NAMED)
def test_docstrings_name_every_option(name):
    function = getattr(bigkpca, name)
    entries = inspect.getdoc(function).partition("\n**options\n")[2].partition("\n\n")[0]
    assert set(declared_options(function)) <= set(re.findall(r"\w+", entries))
    kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    number_of_paths = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
    with pytest.raises(SpecError, match="unknown option 'progres': did you mean 'progress'"):
        function(*["x.zarr"] * number_of_paths, progres=True)
