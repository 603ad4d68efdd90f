"""A cluster over TLS of two workers, as docs/clusters.md shows it: a killed worker, a killed driver, the same bytes."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from distributed import Security

import bigkpca
from tests.helpers.commands import run_apart
from tests.helpers.dask_processes import DaskProcesses
from tests.helpers.disks import tree_bytes

pytestmark = pytest.mark.long


def certificates(folder):
    """Files with a certificate and a key, as options of Dask's commands."""
    made = Security.temporary().get_tls_config_for_role("scheduler")
    for name in ("ca_file", "cert", "key"):
        (folder / f"{name}.pem").write_text(made[name])
    names = {"--tls-ca-file": "ca_file", "--tls-cert": "cert", "--tls-key": "key"}
    return [text for option, name in names.items() for text in (option, str(folder / f"{name}.pem"))]


def start(*arguments):
    command = [sys.executable, "-m", "bigkpca.cli", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def test_a_run_over_tls_with_a_killed_worker_and_a_killed_driver(tmp_path):
    X = np.random.default_rng(0).normal(size=(60_000, 60)).astype("f4")
    np.save(tmp_path / "x.npy", X)
    data, clean, out = str(tmp_path / "x.npy"), tmp_path / "clean.zarr", tmp_path / "m.zarr"
    options = ["--size", "900", "--components", "10", "--sigma", "8", "--landmarks", "uniform"]
    bigkpca.fit(data, clean, size=900, components=10, sigma=8, landmarks="uniform")
    tls = certificates(tmp_path)
    own = [text.replace("--tls-ca-file", "--tls-ca") for text in tls]
    with DaskProcesses(tmp_path / "cluster", 0, tls=tls) as cluster:
        assert cluster.address.startswith("tls://")
        workers = [cluster.start_worker(), cluster.start_worker()]
        where = ["--scheduler", cluster.address, *own, "--timeout", "60 s"]
        first = start("fit", data, out, *options, *where)
        time.sleep(4)
        os.kill(workers[0].pid, signal.SIGKILL)
        time.sleep(0.5)
        if first.poll() is None:
            os.kill(first.pid, signal.SIGKILL)
        first.wait(20)
        cluster.start_worker()
        again = run_apart("fit", data, out, *options, *where)
        assert again.returncode == 0, again.stderr
        assert tree_bytes(out) == tree_bytes(clean)
        refused = run_apart("fit", data, tmp_path / "n.zarr", *options, "--scheduler", cluster.address)
        assert refused.returncode == 2
        assert "needs certificates: give --tls-ca, --tls-cert and --tls-key" in refused.stderr
        tcp = ["--scheduler", cluster.address.replace("tls", "tcp"), "--timeout", "5 s"]
        plain = run_apart("fit", data, tmp_path / "n.zarr", *options, *tcp)
        assert plain.returncode == 6, plain.stderr
        assert "does not answer" in plain.stderr


def test_certificates_that_are_not_there_are_named(dataset, tmp_path):
    found = run_apart("fit", dataset, tmp_path / "m.zarr", "--scheduler", "tls://127.0.0.1:9", "--tls-ca", "none.pem")
    assert found.returncode == 2
    assert "--tls-ca none.pem does not exist" in found.stderr


def test_certificates_of_others_are_named(tmp_path, dataset):
    """Of another authority than the scheduler's, and one that the scheduler does not know."""
    files = {}
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
        files[name] = certificates(tmp_path / name)
    ca, pair = files["other"][:2], files["other"][2:]
    with DaskProcesses(tmp_path / "cluster", 0, tls=files["own"]) as cluster:

        def told(given):
            own = [text.replace("--tls-ca-file", "--tls-ca") for text in given]
            where = ["--scheduler", cluster.address, "--timeout", "5 s"]
            found = run_apart("fit", dataset, tmp_path / "m.zarr", *where, *own)
            assert found.returncode == 2, found.stderr
            return found.stderr

        assert f"is not of the authority in --tls-ca {ca[1]}: give" in told([*ca, *files["own"][2:]])
        assert f"or the certificate in --tls-cert {pair[1]} is not of its authority" in told([*files["own"][:2], *pair])
