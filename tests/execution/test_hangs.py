"""Whatever hangs or dies, a run ends within its time, and says what it was; real processes are stopped and killed."""

import os
import re
import signal
import socket
from pathlib import Path
from threading import Event, Thread, Timer
from time import sleep

import pytest
from distributed import Client, LocalCluster, Status
from distributed.comm import CommClosedError

from bigkpca.errors import IncompleteError, SpecError
from bigkpca.execution import on_cluster
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine
from bigkpca.execution.tasks import Carried, Task
from bigkpca.execution.workers import Crew, known_workers, on_workers
from tests.helpers.commands import run_apart
from tests.helpers.dask_processes import BLOCKING, OTHER, DaskProcesses, wait_until


def double(number):
    sleep(0.1)  # so that a task is seen while it is computed again
    return 2 * number


def stops(number, marker, pid=None):
    """Stops a process, its own unless another is given, the first time that it runs."""
    if number == 1 and not os.path.exists(marker):
        Path(marker).touch()
        os.kill(pid or os.getpid(), signal.SIGSTOP)
        if pid:
            sleep(600)  # until the cluster is closed
    return 2 * number


class StopsWhereLoaded:
    """A value; the first process that unpickles it is stopped."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return stops, (1, self.marker)


def first_of(number, value):
    return number


def pauses(dask_worker):
    dask_worker.status = Status.paused


def dies_if_first(first, dask_worker=None):
    if dask_worker.address == first:
        os.kill(os.getpid(), signal.SIGKILL)


def named(function, count, *arguments):
    return [Task(function, (i, *arguments), 10, f"rows {10 * i} to {10 * i + 9}") for i in range(count)]


@pytest.fixture
def cluster(tmp_path):
    """A scheduler, as yet without workers."""
    with DaskProcesses(tmp_path / "cluster", 0) as found:
        yield found


@pytest.fixture
def engine_of_two(cluster):
    """A patient engine with two workers."""
    cluster.start_worker()
    cluster.start_worker()
    with open_engine(cluster.address, timeout=60) as engine:
        engine.client.wait_for_workers(2, 60)
        yield engine


def test_a_thread_that_hangs_is_named():
    go_on = Event()
    with pytest.raises(IncompleteError, match=r"nothing has finished for 1 seconds: a thread hangs at rows 0 to 9;"):
        Engine(threads=2, timeout=1).each("x", named(lambda _: go_on.wait(300), 1))
    go_on.set()


def test_addresses_without_a_scheduler_or_without_certificates_are_refused():
    for address, message in [
        ("nowhere", "'nowhere' is not the address of a Dask scheduler, such as tcp://"),
        ("tls://127.0.0.1:8786", "needs certificates: specify --tls-ca, --tls-cert and --tls-key"),
    ]:
        with pytest.raises(SpecError, match=re.escape(message)), open_engine(address, timeout=5):
            pass


@pytest.mark.full
def test_where_all_workers_hang_or_are_paused_the_run_ends_and_names_them(cluster, tmp_path):
    cluster.start_worker()
    with open_engine(cluster.address, timeout=60) as engine:
        impatient = Engine(client=engine.client, timeout=2)
        engine.client.run(pauses)
        message = "all workers are paused because their memory is full, for example tcp://"
        with pytest.raises(IncompleteError, match=message):
            impatient.each("x", named(double, 8))
    cluster.kill_worker(0)
    cluster.start_worker()
    with open_engine(cluster.address, timeout=60) as engine:
        impatient = Engine(client=engine.client, timeout=2)
        with pytest.raises(IncompleteError, match=r"nothing has finished for 2 seconds: tcp://127.*rows"):
            impatient.total("x", named(stops, 3, str(tmp_path / "once")))


@pytest.mark.full
def test_a_worker_that_hangs_at_what_all_tasks_need_is_named(cluster, tmp_path):
    cluster.start_worker()
    cluster.start_worker()
    with open_engine(cluster.address, timeout=60) as engine:
        # A busy machine may need seconds before the worker hangs, and silence is told from half of the time on.
        impatient = Engine(client=engine.client, timeout=16)
        tasks = named(first_of, 8, Carried(StopsWhereLoaded(str(tmp_path / "once"))))
        message = (
            r"for 16 seconds: tcp://\S+ has not responded for \d+ seconds and works on a value that all blocks need"
        )
        with pytest.raises(IncompleteError, match=message):
            impatient.each("x", tasks)


@pytest.mark.full
def test_a_cluster_that_is_restarted_is_not_called_gone(cluster, engine_of_two, tmp_path):
    message = rf"tasks on the cluster of {cluster.address} were cancelled, e.g. by a restart"

    def restart():
        wait_until((tmp_path / "begun").exists)
        with Client(cluster.address, set_as_default=False) as other:
            other.restart(wait_for_workers=False)

    def begins(number, path):
        Path(path).touch()
        sleep(0.5)

    thread = Thread(target=restart)
    thread.start()
    with pytest.raises(IncompleteError, match=message):
        engine_of_two.each("x", named(begins, 200, str(tmp_path / "begun")))
    thread.join(60)


@pytest.mark.full
def test_a_scheduler_that_is_killed_is_named(cluster, engine_of_two):
    def kill_scheduler(number, pid):
        if number == 1:
            os.kill(pid, signal.SIGKILL)
        sleep(0.3)

    engine_of_two.client._timeout = 5  # seconds in which Dask looks for the scheduler again, 30 by default
    with pytest.raises(IncompleteError, match=rf"the scheduler at {cluster.address} is gone"):
        engine_of_two.each("x", named(kill_scheduler, 30, cluster.scheduler.pid))


# The client closes, or the request fails, before the other does.
@pytest.mark.parametrize("seconds", [pytest.param(1, marks=pytest.mark.full), pytest.param(5, marks=pytest.mark.long)])
def test_a_scheduler_that_is_killed_while_it_sends_a_result_is_named(cluster, engine_of_two, monkeypatch, seconds):
    real, pid = on_cluster._result, cluster.scheduler.pid

    def killed_meanwhile(run, future):
        os.kill(pid, signal.SIGSTOP)
        Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()
        return real(run, future)

    monkeypatch.setattr(on_cluster, "_result", killed_meanwhile)
    engine_of_two.client._timeout = seconds
    with pytest.raises(IncompleteError, match=rf"the scheduler at {cluster.address} is gone"):
        engine_of_two.each("doubling", named(double, 2))


@pytest.mark.full
def test_workers_that_die_before_they_answer_are_left_out_and_results_that_are_lost_are_computed_again(
    cluster, engine_of_two, monkeypatch
):
    client = engine_of_two.client
    # A hook within the package: only there it is certain that a result is done and not yet here.
    real, killed = on_cluster._result, []

    def after_a_death(run, future):
        if not killed:
            ((worker, *_),) = client.who_has([future]).values()
            killed.append(worker)
            os.kill(client.run(os.getpid, workers=[worker])[worker], signal.SIGKILL)
            wait_until(lambda: future.status == "lost")
        return real(run, future)

    monkeypatch.setattr(on_cluster, "_result", after_a_death)
    assert engine_of_two.each("doubling", named(double, 8)) == [2 * number for number in range(8)]
    assert killed
    cluster.start_worker()
    client.wait_for_workers(2, 60)
    first, other = sorted(client.scheduler_info()["workers"])
    assert list(on_workers(client, 60, dies_if_first, first, workers=[first, other])) == [other]
    closed = CommClosedError("in <TCP (closed)>")
    run = client.run
    monkeypatch.setattr(client, "run", lambda *given, **how: run(*given, **how) | {"tcp://127.0.0.1:1": closed})
    crew = Crew()
    crew.look(client, 60)
    assert not crew.unfit


@pytest.mark.full
def test_a_client_that_was_closed_is_named():
    message = "the Dask client is closed: open one again"
    with LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        client = Client(cluster, set_as_default=False)
        client.close()
        with pytest.raises(IncompleteError, match=message):
            Engine(client=client).total("x", named(double, 5))
        with pytest.raises(IncompleteError, match=message):
            known_workers(client, 5)


def lost_file(number):
    raise FileNotFoundError("the task's own")


@pytest.mark.full
def test_the_error_of_a_task_is_not_taken_for_a_scheduler_that_is_gone(monkeypatch):
    with LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        client = Client(cluster, set_as_default=False)
        # Before the error is raised, workers are asked what they see.
        monkeypatch.setattr(on_cluster, "_look_at_new", lambda run: (run.failed and client.close()) or set())
        engine = Engine(client=client)
        with pytest.raises(FileNotFoundError, match="the task's own"):
            engine.total("x", named(lost_file, 2))


@pytest.mark.long
def test_a_worker_that_hangs_is_given_up_and_its_tasks_go_elsewhere(tmp_path):
    env = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10s"}
    with (
        DaskProcesses(tmp_path / "cluster", 2, env=env) as cluster,
        open_engine(cluster.address, timeout=120) as engine,
    ):
        assert engine.total("x", named(stops, 40, str(tmp_path / "once"))) == sum(range(0, 80, 2))


@pytest.mark.long
def test_a_scheduler_that_hangs_is_named(cluster, tmp_path):
    cluster.start_worker()
    with (
        pytest.raises(IncompleteError, match=rf"the scheduler at {cluster.address} does not answer"),
        open_engine(cluster.address, timeout=4) as engine,
    ):
        engine.total("x", named(stops, 3, str(tmp_path / "once"), cluster.scheduler.pid))


@pytest.mark.full
def test_workers_with_other_packages_are_refused(cluster, tmp_path):
    for change, message in [
        (BLOCKING, r"worker tcp://127.* lacks bigkpca: install bigkpca [0-9.]+ where workers run"),
        (
            OTHER,
            r"worker tcp://127.* has bigkpca 0\.0\.7, but this process has [0-9.]+: install the same version in both",
        ),
    ]:
        (tmp_path / "sitecustomize.py").write_text(change)
        cluster.start_worker(PYTHONPATH=str(tmp_path))
        with pytest.raises(SpecError, match=message), open_engine(cluster.address, timeout=60):
            pass
        cluster.kill_worker(0)
        cluster.wait_for_workers()


@pytest.mark.full
def test_a_port_without_a_scheduler_and_a_scheduler_without_workers(dataset, tmp_path, cluster):
    fit = ("fit", dataset, tmp_path / "m.zarr", "--size", "20", "--scheduler")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        found = run_apart(*fit, address, "--timeout", "3 s")
        assert (found.returncode, found.stderr.count("\n")) == (6, 1), found.stderr
        assert f"the scheduler at {address} does not answer" in found.stderr
    found = run_apart(*fit, cluster.address, "--timeout", "3 s")
    assert (found.returncode, found.stderr.count("\n")) == (6, 2), found.stderr
    assert f"no worker is connected to the scheduler at {cluster.address}" in found.stderr


@pytest.mark.long
def test_a_cluster_that_starts_workers_only_for_tasks_is_waited_for():
    with LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address="127.0.0.1:0") as adapting:
        adapting.adapt(minimum=0, maximum=1)
        with open_engine(adapting.scheduler_address, timeout=60) as engine:
            assert engine.total("x", named(double, 5)) == 20
