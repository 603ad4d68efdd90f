"""Fits in processes of their own: each has its peak, and none outlives the run that started it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pytest

import bigkpca
from bigkpca import comparing
from bigkpca.comparing.trials import ProcessDiedError, ProcessRunner, peak_mb
from bigkpca.errors import SpecError
from tests.comparing.options import FEW
from tests.helpers.files import ROOT
from tests.helpers.progress import Recorder


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Lets other processes import this file."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)


def hold(megabytes):
    held = np.ones(megabytes * 125_000)
    return peak_mb() * float(held[0])


def fail():
    raise SpecError("as it says")


def vanish(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def nap(path):
    Path(path).write_text(str(os.getpid()))
    time.sleep(250)  # until it is ended


def has_ended(pid):
    """Whether a process ends within a minute."""
    for _ in range(6000):
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":  # nobody may be there who waits for it
            return True
        time.sleep(0.01)
    return False


@pytest.mark.full
@pytest.mark.alone
def test_each_process_has_its_own_peak_and_ends_alone():
    with ProcessRunner() as own:
        small, large, again = own.run(hold, 1), own.run(hold, 300), own.run(hold, 1)
        assert 250 < large - small < 350
        assert abs(again - small) < 30
        with pytest.raises(SpecError, match="as it says") as caught:
            own.run(fail)
        assert "raise SpecError" in caught.value.__notes__[0]
        with pytest.raises(ProcessDiedError, match=r"its process died \(exit code -9\): memory may have run out"):
            own.run(vanish)
        assert own.run(os.getpid) != os.getpid()
        server = own.run(os.getppid)
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


_SIGNALLED = """
import os, signal, sys
from bigkpca.comparing.trials import serve
fork = os.fork
def forked():
    child = fork()
    if child:
        print(child, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)  # before fork returns, and anything can be done about the child
    return child
os.fork = forked
serve(*map(int, sys.argv[1:]))
"""


@pytest.mark.full
def test_a_signal_right_after_the_fork_leaves_no_child():
    ours, theirs = Pipe()
    command = [sys.executable, "-c", _SIGNALLED, str(theirs.fileno()), str(os.getpid())]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE) as server:
        ours.send((time.sleep, (250,)))
        assert has_ended(int(server.stdout.readline()))


_ASKS = """
import sys
from tests.comparing import test_process
from bigkpca.comparing.trials import ProcessRunner
with ProcessRunner() as own:
    own.run(test_process.nap, sys.argv[1])
"""


@pytest.mark.full
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_one_that_asked(how, tmp_path):
    child = tmp_path / "child"
    asks = subprocess.Popen([sys.executable, "-c", _ASKS, str(child)])
    while asks.poll() is None and not (child.exists() and child.read_text()):
        time.sleep(0.01)
    asks.send_signal(how)
    asks.wait(60)
    assert has_ended(int(child.read_text()))


def test_processes_that_cannot_be_started(monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with ProcessRunner() as own, pytest.raises(ProcessDiedError, match="processes cannot be started here"):
        own.run(os.getpid)


@pytest.mark.full
def test_a_process_that_dies_leaves_its_fit_out(data, tmp_path, monkeypatch):
    monkeypatch.setattr(comparing, "run_trial", vanish)
    notes = Recorder()
    found = bigkpca.compare(data, tmp_path / "out", progress=notes, **FEW)
    assert [trial.method for trial in found.trials] == ["exact"]
    assert found.missing == 2
    assert "rff with size 30 is left out: its process died" in notes.notes[-1]
