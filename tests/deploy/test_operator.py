"""deploy/kubernetes with the Dask operator's own code: what it makes of our documents, and that it scales a scheduler
that has TLS. Scheduler and worker are started with the commands of the documents."""

import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest
from distributed import Client, Security

from tests.deploy.manifests import matches, of_kind, only, pods
from tests.deploy.test_kubernetes import check
from tests.helpers.custom_resources import STORED, condensed
from tests.helpers.dask_processes import wait_until
from tests.helpers.files import ROOT
from tests.helpers.s3 import free_ports

pytestmark = pytest.mark.long
VERSION = "2026.3.0"


@pytest.fixture(scope="module")
def operator(tmp_path_factory):
    """A Python that has the operator: 200 MB, so not among what tests need."""
    assert f"--version {VERSION} " in (ROOT / "deploy" / "kubernetes" / "README.md").read_text()
    folder = tmp_path_factory.mktemp("operator")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    command = [python, "-m", "pip", "install", "--quiet", f"dask-kubernetes=={VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the Dask operator cannot be installed: {done.stderr[-300:]}")
    return python


def ask(operator, *arguments, given=None):
    """What the operator's code answers."""
    command = [operator, Path(__file__).with_name("operator_at_work.py"), *map(str, arguments)]
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "DASK"))}
    text = json.dumps(given)
    asked = subprocess.run(command, input=text, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert asked.returncode == 0, asked.stderr
    return json.loads(asked.stdout)


def test_the_stored_schemas_are_those_of_the_operator(operator):
    (crds,) = operator.parents[1].glob("lib/python*/site-packages/dask_kubernetes/operator/deployment/helm/*/crds")
    assert condensed(crds) == STORED.read_text()


def test_what_the_operator_makes_is_valid_and_what_policies_expect(operator):
    made = ask(operator, "objects", given=only("DaskCluster"))
    check(list(made.values()), "1.37")
    for name in ("scheduler", "worker"):
        labels = made[name]["spec"]["template"]["metadata"]["labels"]
        assert pods()[name].labels.items() <= labels.items()
        taken = [each for each in of_kind("NetworkPolicy") if matches(each["spec"]["podSelector"], labels)]
        expected = ["deny-all", {"scheduler": "scheduler", "worker": "workers"}[name]]
        assert [each["metadata"]["name"] for each in taken] == expected
    assert made["service"]["metadata"]["name"] == "bigkpca-scheduler"
    (container,) = made["worker"]["spec"]["template"]["spec"]["containers"]
    assert "DASK_WORKER_NAME" in [each["name"] for each in container["env"]]


class Started:
    """Scheduler and workers on this machine, with the commands and variables of their pods, and certificates."""

    def __init__(self, folder):
        subprocess.run([ROOT / "deploy" / "certificates.sh", folder, "bigkpca-scheduler"], check=True)
        self._folder, (self._port, self.http, *self._rest) = folder, free_ports(4)
        text = (ROOT / "deploy" / "docker" / "dask.yaml").read_text().replace("/etc/bigkpca/tls", str(folder))
        (folder / "dask.yaml").write_text(text)
        self.processes = []

    def start(self, name):
        container, http = pods()[name].container, self.http if name == "scheduler" else self._rest[0]
        given = {each["name"]: each["value"] for each in container.get("env", [])}
        local = {
            "8786": str(self._port),
            "8788": str(self._rest[1]),
            ":8787": f"127.0.0.1:{http}",
            "/tmp": str(self._folder),
            "tls://bigkpca-scheduler:8786": f"tls://127.0.0.1:{self._port}",
            "$(DASK_WORKER_NAME)": "worker-0123456789",
        }
        command = [sys.executable, "-m", *(local.get(each, each) for each in container["args"])]
        env = {**os.environ, **given, "DASK_CONFIG": str(self._folder / "dask.yaml"), "PYTHONPATH": str(ROOT)}
        with (self._folder / f"{name}.log").open("wb") as log:
            self.processes.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
        return self.processes[-1]

    def client(self):
        ca, cert, key = (str(self._folder / name) for name in ("ca.crt", "tls.crt", "tls.key"))
        tls = Security(tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key)
        return Client(f"tls://127.0.0.1:{self._port}", security=tls, set_as_default=False, timeout="60s")


@pytest.fixture
def started(tmp_path):
    found = Started(tmp_path)
    try:
        yield found
    finally:
        for process in found.processes:
            process.kill()
            process.wait(60)


def test_the_autoscaler_starts_from_nothing_grows_and_retires_over_tls(operator, started):
    started.start("scheduler")
    url = f"tcp://127.0.0.1:{started.http}"  # as the operator writes addresses of HTTP servers
    with started.client() as client:
        assert ask(operator, "desired", url) == 0
        first = client.submit(os.getpid, pure=False)
        wait_until(lambda: ask(operator, "desired", url) == 1)
        worker = started.start("worker")
        assert first.result(timeout=60) == worker.pid
        many = client.map(nap, range(2 * 4))  # two groups of blocks for each thread, of two workers
        wait_until(lambda: ask(operator, "desired", url) > 1, 20)
        client.gather(many)
        del first, many  # a worker that holds results is kept
        wait_until(lambda: ask(operator, "desired", url) == 0)
        assert ask(operator, "retire", url, 1) == ["worker-0123456789"]
        assert worker.wait(60) == 0


def nap(_):
    time.sleep(3)
