"""Whatever dies, hangs, or differs on a cluster, a run ends within its time, and says what it was. Real processes."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from threading import Thread
from time import sleep
from unittest.mock import Mock

import dask.config
import numpy as np
import pytest
from distributed import Client, LocalCluster, Security, Status
from distributed.comm import CommClosedError

from bigkpca.data.stores import store_of
from bigkpca.errors import IncompleteError, SpecError, UnlikeWorkersWarning
from bigkpca.execution import tasks, workers
from bigkpca.execution.blas import blas_core_types
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine
from bigkpca.execution.options import RunOptions
from bigkpca.execution.tasks import Carried, Task
from bigkpca.execution.workers import known_workers, on_workers, seen_at
from tests.data.cases import refused
from tests.helpers.commands import run_apart
from tests.helpers.dask_processes import BLOCKING, OTHER, DaskProcesses, hiding, wait_until
from tests.helpers.s3 import settings


def double(number):
    return 2 * number


def stops(number, marker, pid=None):
    """Stops a process, its own unless another is given, the first time that it runs."""
    if number == 1 and not os.path.exists(marker):
        Path(marker).touch()
        os.kill(pid or os.getpid(), signal.SIGSTOP)
        if pid:
            sleep(600)  # until the cluster is closed
    return 2 * number


def slowly(number):
    sleep(0.7)
    return number


def named(function, count, *arguments):
    return [Task(function, (i, *arguments), 10, f"rows {10 * i} to {10 * i + 9}") for i in range(count)]


def ends_with(error, message, scheduler, timeout=60, work=lambda engine: None):
    """The engine of a scheduler, or `work` with it, ends with this error."""
    with pytest.raises(error, match=message), open_engine(scheduler, timeout=timeout) as engine:
        work(engine)


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


# Workers and schedulers that hang or die


@pytest.mark.full
def test_where_all_workers_hang_or_are_paused_the_run_ends_and_names_them(cluster, tmp_path):
    def pauses(dask_worker):
        dask_worker.status = Status.paused

    def impatient(function, *arguments):
        return lambda engine: Engine(client=engine.client, timeout=2).total("x", named(function, 3, *arguments))

    cluster.start_worker()
    with open_engine(cluster.address, timeout=60) as engine:
        engine.client.run(pauses)
        message = "nothing has finished for 2 seconds: all workers are paused because"
        refused(impatient(double), (engine, IncompleteError, message))
    cluster.kill_worker(0)
    cluster.start_worker()
    message = r"nothing has finished for 2 seconds: tcp://127\S+ works on rows \d"
    ends_with(IncompleteError, message, cluster.address, work=impatient(stops, str(tmp_path / "once")))


@pytest.mark.long
def test_a_worker_that_hangs_is_given_up_and_its_tasks_go_elsewhere(tmp_path):
    env = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10s"}
    with DaskProcesses(tmp_path, 2, env=env) as cluster, open_engine(cluster.address, timeout=120) as engine:
        assert engine.total("x", named(stops, 40, str(tmp_path / "once"))) == sum(range(0, 80, 2))


@pytest.mark.full
def test_a_group_that_takes_longer_than_the_timeout_is_no_stall_as_long_as_its_blocks_end(two_processes, monkeypatch):
    monkeypatch.setattr(tasks, "_GROUPS_PER_THREAD", 1)  # two groups of four blocks
    impatient = Engine(client=two_processes.client, timeout=1)
    assert impatient.each("x", named(slowly, 8)) == list(range(8))


@pytest.mark.full
def test_results_that_are_lost_with_their_worker_are_computed_again(cluster, engine_of_two, monkeypatch):
    client, gather, killed = engine_of_two.client, engine_of_two.client.gather, []

    def after_a_death(futures):
        """Gather results whose worker was just killed."""
        if not killed:
            ((worker, *_),) = client.who_has(futures[:1]).values()
            killed.append(worker)
            os.kill(client.run(os.getpid, workers=[worker])[worker], signal.SIGKILL)
            wait_until(lambda: futures[0].status == "lost")
        return gather(futures)

    monkeypatch.setattr(client, "gather", after_a_death)
    assert engine_of_two.each("doubling", named(double, 8)) == [2 * number for number in range(8)]
    assert killed


@pytest.mark.full
def test_a_cluster_that_is_restarted_is_not_called_gone(cluster, engine_of_two, tmp_path):
    def begins(number, path):
        Path(path).touch()
        sleep(0.5)

    def restart():
        wait_until((tmp_path / "begun").exists)
        with Client(cluster.address, set_as_default=False) as other:
            other.restart(wait_for_workers=False)

    thread = Thread(target=restart)
    thread.start()
    message = rf"tasks on the cluster of {cluster.address} were cancelled, e.g. by a restart"
    refused(engine_of_two.each, ("x", named(begins, 200, str(tmp_path / "begun")), IncompleteError, message))
    thread.join(60)


@pytest.mark.full
@pytest.mark.parametrize("when", ["in a task", "while it sends results", "before a request is cancelled"])
def test_a_scheduler_that_is_killed_is_named(when, cluster, engine_of_two, monkeypatch):
    client, pid = engine_of_two.client, cluster.scheduler.pid
    client._timeout = 5  # seconds in which Dask looks for the scheduler again, 30 by default

    def kill_scheduler(number, pid):
        if number == 1:
            os.kill(pid, signal.SIGKILL)
        sleep(0.3)

    gather = client.gather

    def killed_meanwhile(futures):
        os.kill(pid, signal.SIGKILL)
        if when == "before a request is cancelled":
            wait_until(lambda: client.status == "closed")
            raise UnboundLocalError("result")  # as Dask does: `distributed.utils.sync` misses the cancellation
        return gather(futures)

    if when != "in a task":
        monkeypatch.setattr(client, "gather", killed_meanwhile)
    given = named(kill_scheduler, 30, pid) if when == "in a task" else named(double, 2)
    refused(engine_of_two.each, ("x", given, IncompleteError, rf"the scheduler at {cluster.address} is gone"))
    with pytest.raises(IncompleteError, match=rf"the scheduler at {cluster.address} is gone|the Dask client is closed"):
        engine_of_two.core_types()


@pytest.mark.parametrize("error", [CommClosedError(), RuntimeError(), AttributeError(), UnboundLocalError()])
@pytest.mark.parametrize("asked", [known_workers, partial(on_workers, function=seen_at)])
def test_a_scheduler_that_dies_during_a_request_is_named(asked, error):
    client = Mock(scheduler=Mock(address="tcp://there"))
    client.scheduler_info.side_effect = client.run.side_effect = error
    with pytest.raises(IncompleteError, match="the scheduler at tcp://there is gone: start one again"):
        asked(client, 1)


@pytest.mark.long
def test_a_scheduler_that_hangs_is_named(cluster, tmp_path):
    cluster.start_worker()
    given = named(stops, 3, str(tmp_path / "once"), cluster.scheduler.pid)
    message = rf"the scheduler at {cluster.address} does not answer"
    ends_with(IncompleteError, message, cluster.address, timeout=4, work=lambda engine: engine.total("x", given))


@pytest.mark.full
def test_a_client_that_was_closed_is_named_and_the_error_of_a_task_is_its_own():
    with LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        client = Client(cluster, set_as_default=False)
        engine = Engine(client=client)
        refused(engine.total, ("x", [Task(open, ("nowhere",), 1)], FileNotFoundError, "nowhere"))
        client.close()
        refused(engine.total, ("x", named(double, 5), IncompleteError, "the Dask client is closed: open one again"))


@pytest.mark.full
def test_a_port_without_a_scheduler_and_a_scheduler_without_workers(dataset, tmp_path, cluster):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nowhere = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        for address, lines, message in [
            (nowhere, 1, f"the scheduler at {nowhere} does not answer"),
            (cluster.address, 2, f"no worker is connected to the scheduler at {cluster.address}"),
        ]:
            where = ["--scheduler", address, "--timeout", "3 s"]
            found = run_apart("fit", dataset, tmp_path / "m.zarr", "--size", "20", *where)
            assert (found.returncode, found.stderr.count("\n")) == (6, lines), found.stderr
            assert message in found.stderr


@pytest.mark.long
def test_a_cluster_that_starts_workers_only_for_tasks_is_waited_for():
    with LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address="127.0.0.1:0") as adapting:
        adapting.adapt(minimum=0, maximum=1)
        with open_engine(adapting.scheduler_address, timeout=60) as engine:
            assert engine.total("x", named(double, 5)) == 20


# Options, addresses and certificates


def test_what_cannot_be_read_is_refused_before_an_engine_is_opened():
    for option, value, message in [
        ("memory", "lots", "not an amount of memory"),
        ("memory", -1, "must be positive"),
        ("timeout", "soon", "not a time"),
        ("device", "gpu 1", "device='gpu 1' is not the name of a device: use 'cuda' or 'cuda:1'"),
        *(("device", value, f"device='{value}' is not the name of a device") for value in ("", 0)),
    ]:
        with pytest.raises(SpecError, match=message):
            RunOptions(**{option: value})
    for options, message in [
        ({"scheduler": ""}, "'' is not the address of a Dask scheduler"),  # and is never taken for threads
        ({"scheduler": "tcp://127.0.0.1:1", "workers": 1}, "not both"),
    ]:
        with pytest.raises(SpecError, match=message), RunOptions(**options).engine():
            pass
    with RunOptions().engine() as engine:
        assert engine.client is None


def certificates(folder):
    """Files with an authority's certificate, one of its own and its key, by their settings in Dask's configuration."""
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


def test_addresses_without_a_scheduler_or_without_usable_certificates_are_refused(tmp_path):
    ends_with(SpecError, "'nowhere' is not the address of a Dask scheduler, such as tcp://", "nowhere")
    ends_with(SpecError, r"tls://127.0.0.1:9 needs certificates \(none are set\): set .*ca-file", "tls://127.0.0.1:9")
    own, other = certificates(tmp_path / "own"), certificates(tmp_path / "other")
    (tmp_path / "junk.pem").write_text("junk")
    for name, file in [("key", other["key"]), ("cert", str(tmp_path / "none")), ("ca", str(tmp_path / "junk.pem"))]:
        with configured(**own | {name: file}):
            ends_with(SpecError, r"needs certificates \(.+\): set .* to files in PEM format", "tls://127.0.0.1:9")


@pytest.mark.full
def test_a_cluster_over_tls_runs_passes_for_certificates_of_its_authority_alone(tmp_path):
    own, other = certificates(tmp_path / "own"), certificates(tmp_path / "other")
    tls = [word for name in own for word in (f"--tls-{'ca-file' if name == 'ca' else name}", own[name])]
    with configured(**own), DaskProcesses(tmp_path / "cluster", 1, tls=tls) as cluster:
        with open_engine(cluster.address) as engine:
            assert engine.client.scheduler.address.startswith("tls://")
            assert engine.total("x", named(double, 5)) == 20
        for files in (own | {"ca": other["ca"]}, other | {"ca": own["ca"]}):
            with configured(**files):
                message = "does not answer: .*certificates of the same authority"
                ends_with(IncompleteError, message, cluster.address, timeout=3)
        ends_with(IncompleteError, "does not answer", cluster.address.replace("tls", "tcp"), timeout=3)


# Workers that differ


@pytest.mark.full
def test_workers_with_other_packages_are_refused_at_the_start_and_may_join_later(cluster, tmp_path):
    for change, found in [(BLOCKING, "no bigkpca"), (OTHER, r"bigkpca 0\.0\.7")]:
        (tmp_path / "sitecustomize.py").write_text(change)
        cluster.start_worker(PYTHONPATH=str(tmp_path))
        message = rf"worker tcp://127.* has {found}, but this process has [0-9.]+: install the same version in"
        ends_with(SpecError, message, cluster.address)
        cluster.kill_worker(0)
        cluster.wait_for_workers()
    cluster.start_worker()
    with open_engine(cluster.address, timeout=60) as engine:
        (tmp_path / "sitecustomize.py").write_text(BLOCKING)
        cluster.start_worker(PYTHONPATH=str(tmp_path))
        engine.client.wait_for_workers(2, 60)
        given = [Task(np.add, (i, Carried(np.ones(3))), 1) for i in range(64)]  # which that one cannot unpickle
        assert engine.total("x", given).tolist() == [64 * 63 / 2 + 64] * 3


@pytest.mark.full
def test_different_processors_are_told_once(cluster):
    other = "Nehalem" if "Nehalem" not in blas_core_types() else "Prescott"
    cluster.start_worker()
    cluster.start_worker(OPENBLAS_CORETYPE=other)
    cluster.wait_for_workers()
    message = r"different processors: .* \(1, e\.g\. tcp://.*same OPENBLAS_CORETYPE"
    with Client(cluster.address, set_as_default=False) as client, client.as_current():
        if len(set(client.run(blas_core_types).values())) == 1:
            pytest.skip("BLAS does not let its processor type be chosen here")
        with pytest.warns(UnlikeWorkersWarning, match=message):
            open_engine().__enter__()
        with open_engine() as again:
            assert again.each("x", named(double, 4)) == [0, 2, 4, 6]


def test_what_is_seen_at_a_path_is_compared_by_content(dataset, tmp_path):
    here = seen_at(dataset)
    shutil.copytree(dataset, tmp_path / "copy.zarr")
    assert here == seen_at(dataset)
    assert seen_at(str(tmp_path / "copy.zarr")) not in ("", here)
    (Path(dataset) / "zarr.json").write_text("{}")
    assert here != seen_at(dataset)
    assert seen_at(str(tmp_path / "none")) == ""


@pytest.mark.full
def test_a_worker_with_another_mount_is_named_whenever_it_joins(cluster, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    file = folder / "x.npy"
    file.write_bytes(b"rows")
    cluster.start_worker()

    def replaced(*within):
        """Start another worker in place of the oldest one."""
        cluster.start_worker(*within)
        engine.client.wait_for_workers(2, 60)
        cluster.kill_worker(0)
        cluster.wait_for_workers()

    with open_engine(cluster.address, timeout=60) as engine:
        engine.check_paths(str(file), None)
        assert engine.each("x", named(double, 4)) == [0, 2, 4, 6]
        replaced(hiding(folder))  # it would read zeros
        (late,) = engine.client.scheduler_info(n_workers=-1)["workers"]
        message = rf"worker {late} does not see {re.escape(str(file))}: workers read and write themselves"
        refused(engine.each, ("x", named(double, 4), SpecError, message))
        file.write_bytes(b"others")
        replaced()
        message = rf"sees something else at {re.escape(str(file))} than this process"
        refused(engine.each, ("x", named(double, 4), SpecError, message))
        engine.check_paths(str(file))
        assert engine.each("x", named(double, 4)) == [0, 2, 4, 6]


@pytest.mark.full
def test_a_worker_without_a_valid_key_is_named(bucket, s3_server, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "_LOOK_AGAIN_SECONDS", 0)
    store_of(bucket).write(f"{bucket}/x", b"rows")
    for env, fits in [({"AWS_SECRET_ACCESS_KEY": "wrong"}, False), (settings(s3_server.port), True)]:
        with DaskProcesses(tmp_path / f"cluster-{fits}", 1, env=env) as cluster, open_engine(cluster.address) as engine:
            engine.check_paths(f"{bucket}/x")
            if fits:
                assert engine.each("x", named(double, 2)) == [0, 2]
            else:
                message = rf"worker tcp://.* cannot use {bucket}/x: access denied"
                refused(engine.each, ("x", named(double, 2), SpecError, message))


# Clusters that are started here


_SCRIPT = """
import os
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.tasks import Task
print("the script runs", flush=True)
def double(number):
    return 2 * number
with open_engine(workers=1) as engine:
    print(engine.each("doubling", [Task(double, (21,), 1)]))
    engine.client.restart(timeout="250 s")  # as after a worker that died
    print(engine.each("doubling", [Task(double, (21,), 1)]))
print(__file__, flush=True)
open_engine(workers=1).__enter__()
os._exit(6)  # ends at once, and warns of nothing that its workers hold
"""


@pytest.mark.full
def test_workers_do_not_run_the_script_that_starts_them(tmp_path):
    """Nothing has to stand behind `if __name__ == "__main__"`, and what the script defines reaches them."""
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=280)
    assert found.stdout.splitlines() == ["the script runs", "[42]", "[42]", str(script)]
    assert "Traceback" not in found.stderr
    assert "resource_tracker" not in found.stderr
    assert found.returncode == 6


@pytest.mark.full
def test_processes_start_without_the_library_for_tls(monkeypatch):
    monkeypatch.setattr("bigkpca.execution.clusters.find_spec", lambda name: None)
    with open_engine(workers=1) as engine:
        assert engine.client.scheduler.address.startswith("tcp://")
        assert engine.each("halving", [Task(divmod, (42, 2), 1)]) == [(21, 0)]


def test_a_current_client_is_used(two_processes):
    with two_processes.client.as_current(), open_engine() as engine:
        assert engine.client is two_processes.client
