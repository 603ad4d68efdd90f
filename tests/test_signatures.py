"""Public functions show all their options, with the same defaults."""

import inspect

import bigkpca
from bigkpca import KernelPCA
from bigkpca.estimator.parameters import FIELDS
from bigkpca.spec import VARIED, FitSpec


def test_signatures_show_every_option_of_a_fit_with_its_default():
    defaults = {name: field.default for name, field in FitSpec.model_fields.items()}
    shown = inspect.signature(bigkpca.fit).parameters
    assert {name: shown[name].default for name in defaults} == defaults
    estimator = inspect.signature(KernelPCA).parameters
    of_estimator = {field: estimator[name].default for name, field in FIELDS.items()}
    assert of_estimator == {**defaults, "seed": None}
    shared = set(defaults) - set(VARIED)
    of_comparison = inspect.signature(bigkpca.compare).parameters
    assert {name: of_comparison[name].default for name in shared} == {name: defaults[name] for name in shared}
    for name in ("transform", "reconstruct", "denoise", "evaluate", "report"):
        kinds = {each.kind for each in inspect.signature(getattr(bigkpca, name)).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds
