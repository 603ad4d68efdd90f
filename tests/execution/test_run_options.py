"""Options of a run, read once."""

import pytest

from bigkpca.errors import SpecError
from bigkpca.execution.options import RunOptions


def test_what_cannot_be_read_is_refused_before_an_engine_is_opened():
    for options, message in [
        ({"memory": "lots"}, "not an amount of memory"),
        ({"memory": -1}, "must be positive"),
        ({"timeout": "soon"}, "not a time"),
        ({"device": "gpu 1"}, "device='gpu 1' is not the name of a device: use 'cuda' or 'cuda:1'"),
        ({"device": ""}, "device='' is not the name of a device"),
        ({"device": 0}, "device='0' is not the name of a device"),
    ]:
        with pytest.raises(SpecError, match=message):
            RunOptions(**options)
    for options, message in [
        ({"scheduler": ""}, "'' is not the address of a Dask scheduler"),  # and is never taken for threads
        ({"scheduler": "tcp://127.0.0.1:1", "workers": 1}, "not both"),
    ]:
        with pytest.raises(SpecError, match=message), RunOptions(**options).engine():
            pass
    with RunOptions().engine() as engine:
        assert engine.client is None
