"""Options of a run, read once."""

from time import monotonic

import pytest

from bigkpca.errors import SpecError
from bigkpca.execution.run_options import RunOptions


def test_amounts_are_read_once_and_the_clock_starts_with_the_options():
    before = monotonic()
    run = RunOptions(memory="2 GB", time_budget="90 s")
    assert run.memory_limit == 2_000_000_000
    assert run.deadline is not None
    assert before + 90 <= run.deadline <= monotonic() + 90
    assert RunOptions().memory_limit is RunOptions().deadline is None


@pytest.mark.parametrize("options", [{"memory": "lots"}, {"memory": -1}, {"time_budget": "soon"}])
def test_amounts_that_cannot_be_read_are_refused_before_anything_runs(options):
    with pytest.raises(SpecError, match=r"not an amount of memory|must be positive|not a time"):
        RunOptions(**options)


@pytest.mark.parametrize("address", ["", " "])
def test_an_empty_address_is_refused_and_never_taken_for_threads(address):
    with pytest.raises(SpecError, match=r"scheduler is empty: give one, such as --scheduler tcp://10\.0\.0\.1:8786"):
        RunOptions(scheduler=address)


def test_an_engine_is_opened_for_the_context():
    with RunOptions().engine() as engine:
        assert engine.client is None
    with pytest.raises(SpecError, match="not both"), RunOptions(scheduler="tcp://127.0.0.1:1", workers=1).engine():
        pass
