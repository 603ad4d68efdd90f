"""Options of a run, read once."""

from __future__ import annotations

import inspect
from time import monotonic
from typing import Any

import pytest

import bigkpca
from bigkpca import KernelPCA
from bigkpca.errors import SpecError
from bigkpca.estimator.parameters import FIELDS
from bigkpca.execution.run_options import RunOptions
from bigkpca.spec import VARIED, FitSpec


def test_amounts_are_read_once_and_the_clock_starts_with_the_options() -> None:
    before = monotonic()
    run = RunOptions(memory="2 GB", time_budget="90 s")
    assert run.memory_limit == 2_000_000_000
    assert run.deadline is not None
    assert before + 90 <= run.deadline <= monotonic() + 90
    assert RunOptions().memory_limit is RunOptions().deadline is None


@pytest.mark.parametrize("options", [{"memory": "lots"}, {"memory": -1}, {"time_budget": "soon"}])
def test_amounts_that_cannot_be_read_are_refused_before_anything_runs(options: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"not an amount of memory|must be positive|not a time"):
        RunOptions(**options)


def test_an_engine_is_opened_for_the_context() -> None:
    with RunOptions().engine() as engine:
        assert engine.client is None
    with pytest.raises(SpecError, match="not both"), RunOptions(scheduler="tcp://127.0.0.1:1", workers=1).engine():
        pass


def test_signatures_show_every_option_of_a_fit_with_its_default() -> None:
    defaults = {name: field.default for name, field in FitSpec.model_fields.items()}
    shown = inspect.signature(bigkpca.fit).parameters
    assert {name: shown[name].default for name in defaults} == defaults
    estimator = inspect.signature(KernelPCA).parameters
    of_estimator = {field: estimator[name].default for name, field in FIELDS.items()}
    assert of_estimator == {**defaults, "seed": None}
    shared = set(defaults) - set(VARIED)
    of_comparison = inspect.signature(bigkpca.compare).parameters
    assert {name: of_comparison[name].default for name in shared} == {name: defaults[name] for name in shared}
    for name in ("fit", "transform", "reconstruct", "denoise", "evaluate", "report"):
        kinds = {each.kind for each in inspect.signature(getattr(bigkpca, name)).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds
