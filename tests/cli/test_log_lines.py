"""What others write to stderr is JSON alone with log = "json"."""

import io
import json
import logging
import sys
import warnings
from unittest.mock import Mock

import click
import pytest

from bigkpca.cli import log_lines
from bigkpca.cli.log_lines import JsonLines
from bigkpca.workflows import scheduled as scheduled
from tests.helpers.commands import run
from tests.helpers.nights import Night, some_rows

pytestmark = pytest.mark.usefixtures("quiet_signals")


@pytest.fixture
def night(tmp_path):
    night = Night.made(tmp_path / "job", log="json")
    night.append(some_rows(70))
    return night


def test_each_text_becomes_one_object_and_objects_stay():
    to = io.StringIO()
    lines = JsonLines(to)
    print("a", "b", file=lines)
    lines.write('one\ntwo\n{"message": "told"}\n[1]\n')
    lines.write("half ")
    lines.flush()
    lines.write("and half\n\n \n")
    found = [json.loads(line) for line in to.getvalue().splitlines()]
    assert [each["message"] for each in found] == ["a b", "one\ntwo", "told", "[1]", "half and half\n\n "]


def noisy(*_, **__):
    """What a run may do, and the libraries below it."""
    logging.getLogger("asyncio").error("Task was destroyed\nbut it is pending")
    logging.getLogger("distributed.client").error("lost", exc_info=ValueError("why"))
    warnings.warn("strange", UserWarning, stacklevel=1)
    print("Traceback (most recent call last):\n  somewhere", file=sys.stderr)
    raise ZeroDivisionError("a bug")


def test_every_line_is_json(night, monkeypatch):
    handler = logging.StreamHandler(sys.stderr)
    for name in ("distributed", "asyncio"):
        monkeypatch.setattr(logging.getLogger(name), "handlers", [handler])
    usual = log_lines.write_json_lines

    def here():
        handler.setStream(sys.stderr)  # as where Dask was imported before
        usual()

    monkeypatch.setattr("bigkpca.cli.run.write_json_lines", here)
    monkeypatch.setattr(scheduled, "run", noisy)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = run("run", night.job)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    told = [line["message"] for line in lines]
    assert "Task was destroyed\nbut it is pending" in told
    (lost,) = [message for message in told if message.startswith("lost\n")]
    assert lost.endswith("ValueError: why")
    assert "Traceback (most recent call last):\n  somewhere" in told
    assert (lines[-1]["message"], lines[-1]["exit_code"], done.exit_code) == ("ZeroDivisionError: a bug", 1, 1)
    assert "in noisy" in lines[-1]["traceback"]


def test_other_ends_of_a_command_stay_as_they_are(night, monkeypatch):
    for wrong, code in {KeyboardInterrupt: 6, click.UsageError: 2}.items():
        monkeypatch.setattr(scheduled, "run", Mock(side_effect=wrong("so")))
        assert run("run", night.job).exit_code == code
