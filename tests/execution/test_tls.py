"""A cluster over TLS of two workers, as docs/clusters.md shows it: a killed worker, a killed driver, the same bytes."""

import subprocess
import sys

import dask.config
import numpy as np
import pytest
from distributed import Security

import bigkpca
from bigkpca.errors import IncompleteError, SpecError
from bigkpca.execution.clusters import check_address, open_engine
from tests.helpers.commands import run_apart
from tests.helpers.dask_processes import DaskProcesses
from tests.helpers.disks import tree_bytes


def certificates(folder):
    """Files with an authority's certificate, one of its own and its key, by the names of options of commands."""
    folder.mkdir()
    made = Security.temporary().get_tls_config_for_role("scheduler")
    files = {name: folder / f"{name}.pem" for name in ("ca", "cert", "key")}
    for name, file in files.items():
        file.write_text(made["ca_file" if name == "ca" else name])
    return {name: str(file) for name, file in files.items()}


def configured(ca, cert, key):
    """Dask configured with these files, while it is entered."""
    names = {"ca-file": ca, "client.cert": cert, "client.key": key}
    return dask.config.set({f"distributed.comm.tls.{name}": path for name, path in names.items()})


def options_of(files, ca="--tls-ca"):
    return [text for name, path in files.items() for text in (ca if name == "ca" else f"--tls-{name}", path)]


def test_certificates_that_cannot_be_used_are_named(tmp_path):
    own, other = certificates(tmp_path / "own"), certificates(tmp_path / "other")
    (tmp_path / "junk.pem").write_text("junk")
    for name, file in [
        ("key", other["key"]),
        ("key", str(tmp_path)),
        ("cert", str(tmp_path / "none.pem")),
        ("cert", str(tmp_path / "junk.pem")),
        ("ca", str(tmp_path / "junk.pem")),
    ]:
        message = rf"the certificates cannot be used \(.*\): specify files in PEM format, .*--tls-{name} {file}"
        with configured(**own | {name: file}), pytest.raises(SpecError, match=message):
            check_address("tls://127.0.0.1:9")


@pytest.mark.full
def test_certificates_of_others_than_the_scheduler_knows_are_named(tmp_path):
    own, other = certificates(tmp_path / "own"), certificates(tmp_path / "other")
    with DaskProcesses(tmp_path / "cluster", 0, tls=options_of(own, "--tls-ca-file")) as cluster:
        for name, files in (("ca", own | {"ca": other["ca"]}), ("cert", other | {"ca": own["ca"]})):
            message = rf"does not answer: .*certificates of the same authority as here, .*--tls-{name} {other[name]}"
            with configured(**files), pytest.raises(IncompleteError, match=message):
                open_engine(cluster.address, timeout=3).__enter__()


@pytest.mark.long
def test_a_run_over_tls_with_a_killed_worker_and_a_killed_driver(tmp_path):
    X = np.random.default_rng(0).normal(size=(60_000, 60)).astype("f4")
    np.save(tmp_path / "x.npy", X)
    data, clean, out = str(tmp_path / "x.npy"), tmp_path / "clean.zarr", tmp_path / "m.zarr"
    options = ["--size", "900", "--components", "10", "--sigma", "8", "--landmarks", "uniform"]
    bigkpca.fit(data, clean, size=900, n_components=10, sigma=8, landmarks="uniform")
    files = certificates(tmp_path / "own")
    tls = options_of(files, "--tls-ca-file")
    with configured(**files), DaskProcesses(tmp_path / "cluster", 2, tls=tls) as cluster:
        assert cluster.address.startswith("tls://")
        where = ["--scheduler", cluster.address, *options_of(files), "--timeout", "60 s"]
        command = [sys.executable, "-m", "bigkpca.cli", "fit", data, out, *options, *where]
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as first:
            for line in first.stderr:
                if "sampling" in line:  # the pass comes next
                    cluster.kill_worker(0)
                    break
            first.kill()
        cluster.start_worker()
        again = run_apart("fit", data, out, *options, *where)
        assert again.returncode == 0, again.stderr
        assert tree_bytes(out) == tree_bytes(clean)
        tcp = ["--scheduler", cluster.address.replace("tls", "tcp"), "--timeout", "5 s"]
        plain = run_apart("fit", data, tmp_path / "n.zarr", *options, *tcp)
        assert plain.returncode == 6, plain.stderr
        assert "does not answer" in plain.stderr
