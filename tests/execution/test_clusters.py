"""Clusters: which one is used, and what they are told of their workers."""

import subprocess
import sys
import warnings

import dask.config
import distributed
import pytest
from distributed import Client, Nanny, Scheduler, Security, SpecCluster

from bigkpca.errors import IncompleteError, SpecError, UnlikeWorkersWarning
from bigkpca.execution import clusters
from bigkpca.execution.blas import blas_core_types
from bigkpca.execution.clusters import check_address, open_engine
from bigkpca.execution.progress import Silent
from bigkpca.execution.tasks import Task
from tests.helpers.progress import Recorder

_SCRIPT = """
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.tasks import Task
from bigkpca.execution.progress import Silent

print("the script runs", flush=True)

def double(number):
    return 2 * number

with open_engine(workers=1) as engine:
    print(engine.each("doubling", [Task(double, (21,), 1)], Silent()))
    engine.client.restart()  # as after a worker that died
    print(engine.each("doubling", [Task(double, (21,), 1)], Silent()))
print(__file__)
"""


def test_workers_do_not_run_the_script_that_starts_them(tmp_path):
    """Nothing has to stand behind `if __name__ == "__main__"`, and what the script defines reaches them."""
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert found.stdout.splitlines() == ["the script runs", "[42]", "[42]", str(script)]
    assert "Traceback" not in found.stderr
    assert found.returncode == 0


def test_processes_start_without_the_library_for_tls(monkeypatch):
    monkeypatch.setattr("bigkpca.execution.clusters.find_spec", lambda name: None)
    with open_engine(workers=1) as engine:
        assert engine.client is not None
        assert engine.client.scheduler.address.startswith("tcp://")
        assert engine.each("halving", [Task(divmod, (42, 2), 1)], Silent()) == [(21, 0)]


def test_one_of_scheduler_and_workers():
    with pytest.raises(SpecError, match="not both"), open_engine("tcp://127.0.0.1:1", 2):
        pass


def test_a_scheduler_that_refuses_connections_is_tried_again(two_processes, monkeypatch):
    """As one that starts at the same time."""
    assert two_processes.client is not None
    tried, recorder, real = list[str](), Recorder(), distributed.Client

    def refused(address, **options):
        tried.append(address)
        if len(tried) < 4:
            raise OSError("refused")
        return real(two_processes.client.scheduler.address, security=two_processes.client.security, **options)

    monkeypatch.setattr(distributed, "Client", refused)
    monkeypatch.setattr(clusters, "_RETRY_SECONDS", 0.01)
    with open_engine("tcp://127.0.0.1:1", progress=recorder) as engine:
        assert engine.each("halving", [Task(divmod, (42, 2), 1)], Silent()) == [(21, 0)]
    assert tried == ["tcp://127.0.0.1:1"] * 4
    (note,) = [note for note in recorder.notes if "tried again" in note]
    assert note == "the scheduler at tcp://127.0.0.1:1 does not answer: tried again for 60 seconds"


def test_a_scheduler_that_refuses_connections_for_too_long(monkeypatch):
    def refused(address, **options):
        raise OSError("refused")

    monkeypatch.setattr(distributed, "Client", refused)
    monkeypatch.setattr(clusters, "_RETRY_SECONDS", 0.01)
    with (
        pytest.raises(IncompleteError, match=r"scheduler at tcp://127.0.0.1:1 does not answer: start .* \(refused\)"),
        open_engine("tcp://127.0.0.1:1", timeout=0.1),
    ):
        pass


def made_for(folder):
    """Files of a certificate, by the keys of Dask's configuration."""
    folder.mkdir()
    found = Security.temporary().get_tls_config_for_role("client")
    for key in ("ca_file", "cert", "key"):
        (folder / f"{key}.pem").write_text(found[key])
    return {name: str(folder / f"{key}.pem") for name, key in _KEYS.items()}


_KEYS = {"ca-file": "ca_file", "client.cert": "cert", "client.key": "key"}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "client.key",
            "other",
            r"--tls-key .*other/key.pem is not the key of the certificate in --tls-cert .*own/cert",
        ),
        ("client.key", None, r"--tls-cert .*own/cert.pem holds no key: give it as --tls-key"),
        ("client.key", "", r"--tls-key .* cannot be read \(Is a directory\): name the file in PEM format"),
        ("client.cert", "none.pem", r"--tls-cert .*none.pem cannot be read \(No such file"),
        ("client.cert", "junk.pem", r"--tls-cert .*junk.pem holds no certificate: name a file in PEM format"),
        ("ca-file", "junk.pem", r"--tls-ca .*junk.pem holds no certificate"),
    ],
)
def test_certificates_that_do_not_fit_are_named(tmp_path, key, value, message):
    own, other = made_for(tmp_path / "own"), made_for(tmp_path / "other")
    (tmp_path / "junk.pem").write_text("junk")
    given = None if value is None else other[key] if value == "other" else str(tmp_path / value)
    files = {f"distributed.comm.tls.{name}": path for name, path in (own | {key: given}).items()}
    with dask.config.set(files), pytest.raises(SpecError, match=message):
        check_address("tls://127.0.0.1:9")


def test_a_current_client_is_used(two_processes):
    assert two_processes.client is not None
    with two_processes.client.as_current(), open_engine() as engine:
        assert engine.client is two_processes.client
    with open_engine() as engine:
        assert engine.client is None


@pytest.fixture
def unlike_workers():
    """Two workers whose BLAS computes for other processors."""
    here = blas_core_types()
    other = "Nehalem" if "Nehalem" not in here else "Prescott"
    workers = {
        number: {"cls": Nanny, "options": {"nthreads": 1, "env": {"OPENBLAS_CORETYPE": name} if name else {}}}
        for number, name in enumerate(["", other])
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "port": 0, "host": "127.0.0.1"}}
    with (
        SpecCluster(workers=workers, scheduler=scheduler) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        if len(set(client.run(blas_core_types).values())) == 1:
            pytest.skip("BLAS does not let its processor type be chosen here")
        yield client


def test_a_cluster_of_unlike_workers_is_told_of_once(unlike_workers):
    with unlike_workers.as_current():
        with (
            pytest.warns(
                UnlikeWorkersWarning, match=r"different processors: .* \(1, e\.g\. tcp://.*same OPENBLAS_CORETYPE"
            ),
            open_engine(),
        ):
            pass
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with open_engine() as engine:
                assert engine.client is unlike_workers
