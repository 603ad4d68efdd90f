"""deploy/airflow and deploy/prefect: what is done about each exit code, with stand-ins for the two libraries."""

import runpy
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.helpers.files import ROOT

CODES = [0, 1, 2, 3, 4, 5, 6, 7, 137, 143, -9]
AGAIN = {5, 6, 137, 143, -9}


class AirflowFailException(Exception):
    """As that of Airflow: not tried again."""


@pytest.fixture
def kept(monkeypatch):
    """What the modules decorate, with its options, by the names of functions."""
    found = {}

    def decorator(**options):
        def decorate(function):
            found[function.__name__] = (options, function)
            return function

        return decorate

    for name, content in {
        "airflow": {},
        "airflow.sdk": {"dag": decorator, "task": decorator},
        "airflow.sdk.exceptions": {"AirflowFailException": AirflowFailException},
        "prefect": {"flow": decorator, "task": decorator},
    }.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**content))
    monkeypatch.setenv("PAGER_URL", "http://pager")
    return found


def ended(run, code, monkeypatch):
    """The error with which a task ends where the command has this exit code; 7 alone calls somebody."""
    commands, paged, error = [], [], None
    monkeypatch.setattr(subprocess, "run", lambda line: commands.append(line) or SimpleNamespace(returncode=code))
    monkeypatch.setattr("urllib.request.urlopen", lambda url, data, timeout: paged.append(data))
    try:
        run("/etc/bigkpca/nightly.toml")
    except Exception as raised:
        error = raised
    assert commands == [["bigkpca", "run", "/etc/bigkpca/nightly.toml"]]
    assert (error is None) == (code == 0), code
    assert len(paged) == (code == 7), code
    return error


def test_airflow_tries_again_fails_or_pages(kept, monkeypatch):
    with monkeypatch.context() as patched:  # the night runs when its module is loaded
        patched.setattr(subprocess, "run", lambda _: SimpleNamespace(returncode=0))
        runpy.run_path(str(ROOT / "deploy" / "airflow" / "bigkpca_nightly.py"))
    options, run = kept["run"]
    for code in CODES:
        error = ended(run, code, monkeypatch)
        assert isinstance(error, AirflowFailException) == (code not in AGAIN | {0}), code
    assert options["retries"] == 6
    assert kept["bigkpca_nightly"][0]["max_active_runs"] == 1


def test_prefect_tries_again_fails_or_pages(kept, monkeypatch):
    runpy.run_path(str(ROOT / "deploy" / "prefect" / "bigkpca_nightly.py"))
    options, run = kept["run"]
    for code in CODES:
        error = ended(run, code, monkeypatch)
        state = SimpleNamespace(result=lambda raise_on_failure, error=error: error)
        assert options["retry_condition_fn"](None, None, state) == (code in AGAIN), code
    assert options["retries"] == 6
