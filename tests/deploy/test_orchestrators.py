"""deploy/airflow and deploy/prefect: what is done about each exit code, with stand-ins for the two libraries."""

import runpy
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.helpers.files import ROOT

Decorated = Callable[..., Any]


class AirflowFailException(Exception):
    """As that of Airflow: not tried again."""


def decorator(kept):
    """A decorator with options, as of both libraries, which keeps these by the names of functions."""

    def with_options(**options):
        def decorate(function):
            kept[function.__name__] = (options, function)
            return function

        return decorate

    return with_options


@pytest.fixture
def kept(monkeypatch):
    """What the modules decorate, and a pager that keeps what it gets."""
    found = {}
    modules = {
        "airflow": {},
        "airflow.sdk": {"dag": decorator(found), "task": decorator(found)},
        "airflow.sdk.exceptions": {"AirflowFailException": AirflowFailException},
        "prefect": {"flow": decorator(found), "task": decorator(found)},
    }
    for name, content in modules.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("PAGER_URL", "http://pager")
    return found


def ended(run, code, monkeypatch):
    """The error with which a task ends where the command has this exit code, and the calls."""
    commands, paged = [], []
    monkeypatch.setattr(subprocess, "run", lambda line: commands.append(line) or SimpleNamespace(returncode=code))
    monkeypatch.setattr("urllib.request.urlopen", lambda url, data, timeout: paged.append(data))
    error = None
    try:
        run("/etc/bigkpca/nightly.toml")
    except Exception as raised:
        error = raised
    assert commands == [["bigkpca", "run", "/etc/bigkpca/nightly.toml"]]
    return error, paged


CODES = [0, 1, 2, 3, 4, 5, 6, 7, 137, 143, -9]
AGAIN = {5, 6, 137, 143, -9}


@pytest.mark.parametrize("code", CODES)
def test_airflow_tries_again_fails_or_pages(kept, code, monkeypatch):
    with monkeypatch.context() as patched:  # the night runs when its module is loaded
        patched.setattr(subprocess, "run", lambda _: SimpleNamespace(returncode=0))
        runpy.run_path(str(ROOT / "deploy" / "airflow" / "bigkpca_nightly.py"))
    options, run = kept["run"]
    error, paged = ended(run, code, monkeypatch)
    assert isinstance(error, AirflowFailException) == (code not in AGAIN | {0})
    assert (error is None) == (code == 0)
    assert len(paged) == (code == 7)
    assert options["retries"] == 6
    assert kept["bigkpca_nightly"][0]["max_active_runs"] == 1


@pytest.mark.parametrize("code", CODES)
def test_prefect_tries_again_fails_or_pages(kept, code, monkeypatch):
    runpy.run_path(str(ROOT / "deploy" / "prefect" / "bigkpca_nightly.py"))
    options, run = kept["run"]
    error, paged = ended(run, code, monkeypatch)
    state = SimpleNamespace(result=lambda raise_on_failure: error)
    assert options["retry_condition_fn"](None, None, state) == (code in AGAIN)
    assert (error is None) == (code == 0)
    assert len(paged) == (code == 7)
    assert options["retries"] == 6
