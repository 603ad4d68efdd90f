"""The image and the services of deploy/docker at work: the steps of the Dockerfile and the commands of compose.yaml are
followed on this machine, over TLS, by a user without a name."""

import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.deploy.test_docker import FOLDER, pinned, prepare, services, steps
from tests.helpers.compose import Services
from tests.helpers.dask_processes import wait_until
from tests.helpers.images import build

pytestmark = pytest.mark.full
TMP = "/tmp"  # in a container, which may write nothing else
(HEALTH,) = steps("HEALTHCHECK")


@pytest.fixture(scope="module")
def image():
    with tempfile.TemporaryDirectory(prefix="bigkpca-image-") as folder:
        (default,) = steps("ARG")
        minor = ".".join(default.partition("=")[2].split(".")[:2])
        yield build(FOLDER / "Dockerfile", Path(folder), minor)


def run(image, *command):
    """A command in a container of its own, without certificates."""
    line, how = image.command(command), {"env": image.environment({}), "cwd": image.folder}
    return subprocess.run(line, **how, capture_output=True, text=True, timeout=200, check=False)


LIST = "import importlib.metadata as m; print(*(f'{each.name}=={each.version}' for each in m.distributions()))"


def test_the_image_holds_what_is_pinned_and_no_more(image):
    found = run(image, "python", "-c", LIST).stdout.lower().replace("_", "-").split()
    wanted = {f"{name}=={version}" for name, version in pinned("requirements.txt").items()}
    assert {each for each in found if not each.startswith("bigkpca==")} == wanted
    files = [path for path in Path(image.at("/opt/bigkpca")).rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) < 430e6  # 340 MB, and 90 of Arrow, which reads tables


def test_tables_are_read_and_written(image):
    Path(image.at(f"{TMP}/x.csv")).write_text("a,b\n" + "".join(f"{i},{i % 7}\n" for i in range(50)))
    for line in (
        ["ingest", f"{TMP}/x.csv", f"{TMP}/table.zarr", "--columns", "a,b"],
        ["export", f"{TMP}/table.zarr", f"{TMP}/x.parquet"],
        ["ingest", f"{TMP}/x.parquet", f"{TMP}/again.zarr"],
    ):
        done = run(image, "bigkpca", *line)
        assert done.returncode == 0, done.stderr


def test_commands_run_without_certificates_and_write_to_tmp_alone(image):
    """As `docker run` would: on threads, and on processes of their own, which have a certificate of their own."""

    def listed():  # files that a read-only container could not change
        paths = [path for folder in ("/opt/bigkpca", "/etc/dask") for path in Path(image.at(folder)).rglob("*")]
        return {str(path): path.stat().st_mtime_ns for path in paths if path.is_file()}

    np.save(Path(image.at(f"{TMP}/x.npy")), np.random.default_rng(0).normal(size=(9000, 9)).astype("f4"))
    before = listed()
    for more in ([], ["--workers", "2"]):
        fit = ["bigkpca", "fit", f"{TMP}/x.npy", f"{TMP}/m{len(more)}.zarr", "--size", "50", "--components", "5"]
        done = run(image, *fit, *more)
        assert done.returncode == 0, done.stderr
    refused = run(image, "bigkpca", "fit", f"{TMP}/x.npy", f"{TMP}/n.zarr", "--scheduler", "tcp://127.0.0.1:9")
    assert "does not use TLS" in refused.stderr
    assert listed() == before


@pytest.fixture(scope="module")
def running(image, tmp_path_factory):
    """S3 server, scheduler and a worker, healthy."""
    with Services(services(), image, prepare(tmp_path_factory.mktemp("deploy")) / "secrets") as found:
        found.start("s3")
        found.start("scheduler")
        wait_until(lambda: found.healthy("scheduler", HEALTH))
        found.start("worker")
        wait_until(lambda: found.healthy("worker", HEALTH))
        np.save(Path(image.at(f"{TMP}/x.npy")), np.random.default_rng(0).normal(size=(20_000, 30)).astype("f4"))
        ingest = ("bigkpca", "ingest", f"{TMP}/x.npy", "s3://lake/rows.zarr")
        wait_until(lambda: found.run("nightly", *ingest).returncode == 0)
        yield found


def test_the_services_fit_and_transform_on_their_own_object_store(running):
    cluster = ["--scheduler", "tls://scheduler:8786"]
    for line in (
        ["fit", "s3://lake/rows.zarr", "s3://lake/tried-model.zarr", "--size", "100", "--components", "5", *cluster],
        ["transform", "s3://lake/tried-model.zarr", "s3://lake/rows.zarr", "s3://lake/tried-scores.zarr", *cluster],
        ["verify", "s3://lake/tried-scores.zarr"],
    ):
        done = running.run("nightly", "bigkpca", *line)
        assert done.returncode == 0, done.stderr
    assert running.healthy("worker", HEALTH)


def test_the_nightly_job_runs_and_has_nothing_to_do_the_second_time(running, image):
    for _ in range(2):
        done = running.run("nightly")
        assert done.returncode == 0, done.stderr
    assert "bigkpca_last_success_timestamp_seconds" in Path(image.at("/metrics/bigkpca.prom")).read_text()


def test_services_that_died_are_not_healthy(running):
    running.kill()
    assert not running.healthy("scheduler", HEALTH)
    assert not running.healthy("worker", HEALTH)
