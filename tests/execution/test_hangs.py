"""Whatever hangs or dies, a run ends within its time, and says what it was; real processes are stopped and killed."""

import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest
from distributed import Client, LocalCluster, Status

from bigkpca.errors import BigKPCAError, IncompleteError, SpecError
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.execution.tasks import Task
from tests.helpers.commands import run_apart
from tests.helpers.dask_processes import BLOCKING, OTHER, DaskProcesses, hiding

SECONDS = 4.0


def double(number):
    return 2 * number


def stops(number, marker, pid=None):
    """Stops a process, its own unless another is given, the first time that it runs."""
    if number == 1 and not os.path.exists(marker):
        Path(marker).touch()
        os.kill(pid or os.getpid(), signal.SIGSTOP)
        if pid:
            time.sleep(60)
    return 2 * number


def kills(number, guilty, log):
    """Kills its process each time that it is the guilty one."""
    with open(log, "a") as file:
        file.write(f"{number}\n")
    if number == guilty:
        time.sleep(0.2)
        os._exit(1)
    return 2 * number


def pauses(dask_worker):
    dask_worker.status = Status.paused


def named(function, count, *arguments):
    return [Task(function, (i, *arguments), 10, f"rows {10 * i} to {10 * i + 9}") for i in range(count)]  # type: ignore[arg-type]


@pytest.fixture
def cluster(tmp_path):
    settings = {
        "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "3s",
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "2",
        "DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT": "3s",
    }
    with DaskProcesses(tmp_path / "cluster", 0, env=settings) as found:
        yield found


@pytest.fixture
def engine_of_two(cluster):
    cluster.start_worker()
    cluster.start_worker()
    with open_engine(cluster.address, timeout=60) as engine:
        assert engine.client is not None
        engine.client.wait_for_workers(2, 40)
        yield Engine(client=engine.client, timeout=SECONDS)


@pytest.mark.long
def test_a_worker_that_hangs_is_given_up_and_its_tasks_go_elsewhere(engine_of_two, tmp_path):
    patient = Engine(client=engine_of_two.client, timeout=60)
    assert patient.total("x", named(stops, 40, str(tmp_path / "once")), Silent()) == sum(range(0, 80, 2))


def test_where_all_workers_hang_the_run_ends_and_names_them(cluster, tmp_path):
    cluster.start_worker()
    with open_engine(cluster.address, timeout=SECONDS) as engine:
        started = time.monotonic()
        with pytest.raises(IncompleteError, match=r"nothing has finished for 4 seconds: tcp://127.*rows"):
            engine.total("x", named(stops, 3, str(tmp_path / "once")), Silent())
    assert time.monotonic() - started < SECONDS + 30


@pytest.mark.long
def test_a_scheduler_that_hangs_is_named(cluster, tmp_path):
    cluster.start_worker()
    pid = cluster.scheduler.pid
    started = time.monotonic()
    with (
        pytest.raises(IncompleteError, match=rf"the scheduler at {cluster.address} does not answer"),
        open_engine(cluster.address, timeout=SECONDS) as engine,
    ):
        engine.total("x", named(stops, 3, str(tmp_path / "once"), pid), Silent())
    assert time.monotonic() - started < SECONDS + 40


def test_a_scheduler_that_is_killed_is_named(cluster, engine_of_two):
    def kill_scheduler(number, pid):
        if number == 1:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.3)

    with pytest.raises(IncompleteError, match=rf"the scheduler at {cluster.address} is gone"):
        engine_of_two.each("x", named(kill_scheduler, 30, cluster.scheduler.pid), Silent())


def test_paused_workers_are_named(engine_of_two):
    assert engine_of_two.client is not None
    engine_of_two.client.run(pauses)
    with pytest.raises(IncompleteError, match="all workers are paused, as their memory is full, for example tcp://"):
        engine_of_two.each("x", named(double, 8), Silent())


@pytest.mark.long
def test_workers_that_die_and_none_that_comes_back(engine_of_two, cluster):
    for process in cluster.workers:
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(IncompleteError, match=rf"no worker is connected to the scheduler at {cluster.address}"):
        engine_of_two.each("x", named(double, 8), Silent())


@pytest.mark.long
def test_a_task_that_kills_its_workers_is_tried_alone_and_named(tmp_path):
    """Tasks that ran beside it are done, and the run ends by itself."""
    log, env = tmp_path / "log", {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "2"}
    with (
        DaskProcesses(tmp_path / "cluster", 2, env=env) as cluster,
        open_engine(cluster.address, timeout=30) as engine,
        cluster.revived(),
        pytest.raises(IncompleteError, match=r"1 of the tasks killed every worker .* rows 30 to 39\. Workers"),
    ):
        engine.each("x", named(kills, 8, 3, str(log)), Silent())
    assert {int(line) for line in log.read_text().split()} == set(range(8))


def hangs(number):
    time.sleep(12 if number == 2 else 0)
    return number


def test_a_thread_that_hangs_is_named():
    started = time.monotonic()
    with pytest.raises(IncompleteError, match=r"nothing has finished for 2 seconds: a thread hangs at rows 20 to 29;"):
        Engine(threads=2, timeout=2).each("x", named(hangs, 5), Silent())
    assert time.monotonic() - started < 8


@pytest.mark.parametrize(
    ("address", "code", "match"),
    [
        ("nowhere", 2, "'nowhere' is not the address of a Dask scheduler, such as tcp://"),
        ("ftp://127.0.0.1:8786", 2, "is not the address of a Dask scheduler"),
        ("tcp://127.0.0.1", 2, "is not the address of a Dask scheduler"),
        ("tls://127.0.0.1:8786", 2, "needs certificates: give --tls-ca, --tls-cert and --tls-key"),
        pytest.param(
            "tcp://127.0.0.1:9", 6, "the scheduler at tcp://127.0.0.1:9 does not answer", marks=pytest.mark.long
        ),
    ],
)
def test_addresses_without_a_scheduler(address, code, match):
    with pytest.raises(BigKPCAError, match=re.escape(match)) as found, open_engine(address, timeout=5):
        pass
    assert found.value.exit_code == code


@pytest.mark.long
def test_a_port_at_which_something_else_listens_and_a_scheduler_without_workers(dataset, tmp_path, cluster):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        options = "--size", "20", "--timeout", "3 s", "--scheduler"
        found = run_apart("fit", dataset, tmp_path / "m.zarr", *options, address)
        assert (found.returncode, found.stderr.count("\n")) == (6, 1), found.stderr
        assert f"the scheduler at {address} does not answer" in found.stderr
    found = run_apart("fit", dataset, tmp_path / "m.zarr", *options, cluster.address)
    assert (found.returncode, found.stderr.count("\n")) == (6, 2), found.stderr
    assert f"no worker is connected to the scheduler at {cluster.address}" in found.stderr


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (BLOCKING, r"worker tcp://127.* lacks bigkpca: install bigkpca [0-9.]+ where workers run"),
        (OTHER, r"worker tcp://127.* has bigkpca 0\.0\.7, this process has [0-9.]+: install the same in both"),
    ],
)
def test_workers_with_other_packages_are_refused(change, match, cluster, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(change)
    cluster.start_worker(PYTHONPATH=str(tmp_path))
    with pytest.raises(SpecError, match=match), open_engine(cluster.address, timeout=30):
        pass


def test_a_path_that_a_worker_does_not_see_is_named_before_the_run(dataset, cluster, tmp_path):
    cluster.start_worker(hiding(Path(dataset).parent))
    found = run_apart("fit", dataset, tmp_path / "m.zarr", "--size", "20", "--scheduler", cluster.address)
    assert found.returncode == 2, found.stderr
    assert f" does not see {dataset}: workers read and write by themselves" in found.stderr


def test_tls_options_with_an_address_that_has_none(tmp_path, dataset):
    (tmp_path / "ca.pem").write_text("")
    options = "--scheduler", "tcp://127.0.0.1:8786", "--tls-ca", tmp_path / "ca.pem"
    found = run_apart("fit", dataset, tmp_path / "m.zarr", *options)
    assert (found.returncode, found.stderr.count("\n")) == (2, 1), found.stderr
    assert (
        "tcp://127.0.0.1:8786 has no TLS, which the options or Dask's configuration ask for: give tls://"
        in found.stderr
    )


@pytest.mark.long
def test_a_cluster_that_starts_workers_only_for_tasks_is_waited_for(tmp_path):
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address="127.0.0.1:0") as adapting,
        Client(adapting, set_as_default=False) as client,
    ):
        adapting.adapt(minimum=0, maximum=1)
        with client.as_current(), open_engine(timeout=60) as engine:
            assert engine.total("x", named(double, 5), Silent()) == 20


def test_a_client_that_was_closed_is_named():
    with LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        client = Client(cluster, set_as_default=False)
        client.close()
        with pytest.raises(IncompleteError, match="the Dask client is closed: open one again"):
            Engine(client=client, timeout=5).total("x", named(double, 5), Silent())
