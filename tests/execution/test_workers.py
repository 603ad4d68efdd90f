"""Workers that join late, or see something else, get no tasks; real processes on a real scheduler."""

import os
import re
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
from distributed import get_worker

from bigkpca.data.stores import store_of
from bigkpca.errors import IncompleteError, SpecError, UnlikeWorkersWarning
from bigkpca.execution import workers
from bigkpca.execution.blas import blas_core_types
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import WARNING
from bigkpca.execution.tasks import Carried, Task
from bigkpca.execution.workers import (
    CALL,
    Crew,
    Misfit,
    Requirements,
    UnfitWorker,
    look_here,
    packed_call,
    peaks_of,
    sight_of,
)
from tests.helpers.dask_processes import BLOCKING, OTHER, DaskProcesses, hiding, wait_until
from tests.helpers.progress import Recorder
from tests.helpers.s3 import settings


def found_by(threads=1, limit=None, **required):
    """What is wrong with a worker of so many threads and so much memory, in words."""
    memory = SimpleNamespace(memory_limit=limit)
    worker = SimpleNamespace(address="tcp://a", state=SimpleNamespace(nthreads=threads), memory_manager=memory)
    misfit = look_here(Requirements(**required), worker)
    return "" if misfit is None else str(misfit.error)


def test_versions_and_memory_of_a_worker_are_compared():
    assert "worker tcp://a has bigkpca" in found_by(versions=(("bigkpca", "0.0.7"),))
    assert "worker tcp://a lacks nothing: install nothing 1" in found_by(versions=(("nothing", "1"),))
    ours = dict(Crew().requirements.versions)
    patch = re.sub(r"\d+$", "99", ours["Python"])  # which changes nothing that matters
    assert found_by(versions=[*ours.items()]) == found_by(versions=[*(ours | {"Python": patch}).items()]) == ""
    peaks = peaks_of(lambda threads: (100 + 10 * threads) * 10**6)
    for threads, needed in {1: 110, 2: 120, 64: 740, 65: 750, 100: 1100}.items():
        assert found_by(threads, needed * 10**6, peaks=peaks) == ""
        assert f"but the plan needs {needed} MB" in found_by(threads, needed * 10**6 - 1, peaks=peaks)


def test_what_is_seen_at_a_path_is_compared_by_content(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "_LOOK_AGAIN_SECONDS", 0)  # which a network file system may need
    here = sight_of(dataset)
    shutil.copytree(dataset, tmp_path / "copy.zarr")
    assert here == sight_of(dataset)
    assert sight_of(str(tmp_path / "copy.zarr")).digest != ""
    assert found_by(sights=(here,)) == ""
    (Path(dataset) / "zarr.json").write_text("{}")
    assert f"worker tcp://a sees something else at {dataset} than this process" in found_by(sights=(here,))
    assert "does not see" in found_by(sights=(sight_of(str(tmp_path / "none")),))


def test_each_worker_looks_at_itself_before_a_task(two_processes):
    required = replace(two_processes.crew.requirements, versions=(("numpy", "1.0"),))
    for given, fits in ((required, False), (two_processes.crew.requirements, True)):
        names = packed_call(given, len) | {"bigkpca_values": "abc"}
        future = two_processes.client.submit(eval, CALL, None, names, pure=False)
        if fits:
            assert future.result(timeout=60) == 3
        else:
            with pytest.raises(UnfitWorker, match=r"has numpy .*, but this process has 1\.0"):
                future.result(timeout=60)


def test_other_processor_types_are_told_once():
    crew = Crew(requirements=Requirements(core_types=frozenset({("Zen",)})))
    with pytest.warns(UnlikeWorkersWarning, match="different processors: Zen, and Nehalem of tcp://b, which joined"):
        crew.met("tcp://b", Misfit(core_types=("Nehalem",)))
    crew.met("tcp://c", Misfit(core_types=("Nehalem",)))
    assert crew.fit(["tcp://b", "tcp://c"]) == ["tcp://b", "tcp://c"]


class Notes(Recorder):
    """Keeps warnings, and leaves a file at the first one."""

    def note(self, message):
        if message.startswith(WARNING):
            self.notes.append(message)
            self.marker.touch()


@pytest.fixture
def notes(tmp_path):
    notes = Notes()
    notes.marker = tmp_path / "noted"
    return notes


@pytest.fixture(scope="module")
def running_cluster(tmp_path_factory):
    with DaskProcesses(tmp_path_factory.mktemp("cluster"), 1) as found:
        yield found


@pytest.fixture
def cluster(running_cluster):
    """A scheduler and one worker, which others may join."""
    yield running_cluster
    while len(running_cluster.workers) > 1:
        running_cluster.kill_worker(1)
    running_cluster.wait_for_workers()


@pytest.fixture
def engine(cluster, notes):
    with open_engine(cluster.address, timeout=60, progress=notes) as engine:
        yield engine


def starting_with(code, folder):
    """The environment of a worker that runs this code at its start."""
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": str(folder)}


def where(number, marker, *_):
    """The worker, once the marker is there."""
    wait_until(lambda: os.path.exists(marker), 120)
    return str(get_worker().address)


def tasks_at(notes, *more):
    return [Task(where, (i, str(notes.marker), *more), 10, f"rows {i}") for i in range(16)]


OLD = r"has bigkpca 0\.0\.7, but this process has"


def join(cluster, engine, *within, memory="0", **env):
    """Start a worker, and wait until the scheduler knows it: its address. It is looked at by its tasks alone."""
    before = set(engine.client.scheduler_info(n_workers=-1)["workers"])
    cluster.start_worker(within or None, memory, **env)
    engine.client.wait_for_workers(len(before) + 1, 60)
    (address,) = set(engine.client.scheduler_info(n_workers=-1)["workers"]) - before
    engine.crew.looked.add(address)
    return address


def only_fit_ones_work(engine, late, notes, message, tasks=None):
    found = engine.each("x", tasks or tasks_at(notes))
    assert len(found) == 16
    assert late not in found
    (warning,) = notes.notes
    assert re.search(rf"a worker gets no tasks of this run: worker {late} {message}", warning), warning
    notes.marker.unlink()
    notes.notes.clear()


@pytest.mark.full
def test_late_workers_that_see_no_data_or_have_another_version_or_little_memory(
    cluster, engine, notes, dataset, tmp_path
):
    data = str(tmp_path / "data" / "x.zarr")
    shutil.move(dataset, data)
    engine.check_paths(data)
    late = join(cluster, engine, *hiding(tmp_path / "data"))  # it would read zeros
    only_fit_ones_work(engine, late, notes, rf"does not see {data}: workers read")
    late = join(cluster, engine, **starting_with(OTHER, tmp_path))
    only_fit_ones_work(engine, late, notes, OLD, tasks_at(notes, Carried(np.ones(3))))
    engine.check_memory(lambda threads: threads * 10**9)
    late = join(cluster, engine, memory="900MB")
    only_fit_ones_work(engine, late, notes, "may use 900 MB, but the plan needs 1000 MB; give workers more memory")


@pytest.mark.full
@pytest.mark.parametrize("shares", [False, True])
def test_a_late_worker_without_the_package(shares, cluster, engine, notes, tmp_path, monkeypatch):
    """It cannot tell what it lacks: tasks fail there, or wait forever for shared values. It goes on living."""
    late = join(cluster, engine, **starting_with(BLOCKING, tmp_path))
    look, looked = Crew.look, []

    def at_the_second_time(self, *given):
        if looked:
            look(self, *given)
        looked.append(self)

    monkeypatch.setattr(Crew, "look", at_the_second_time)
    engine.crew.looked.discard(late)
    more = [Carried(np.ones(3))] * shares
    only_fit_ones_work(engine, late, notes, "lacks bigkpca: install", tasks_at(notes, *more))
    assert engine.client.run(os.getpid, workers=[late])[late] == cluster.workers[-1].pid


def summed(block, weights):
    return float(block.sum() * weights[0])


@pytest.mark.full
def test_a_late_worker_of_a_graph(cluster, engine, notes, tmp_path):
    """Tasks that depend on a Dask array of the user's own, of which some were done."""
    blocks = da.ones((16, 2), chunks=(1, 2)).to_delayed().ravel()
    late = join(cluster, engine, **starting_with(BLOCKING, tmp_path))
    engine.crew.looked.discard(late)
    tasks = [Task(where, (i, str(notes.marker), block), 1, f"rows {i}") for i, block in enumerate(blocks)]
    only_fit_ones_work(engine, late, notes, "lacks bigkpca", tasks)
    sums = [Task(summed, (block, Carried(np.ones(2))), 1) for block in blocks]
    assert engine.total("x", sums) == 32


def waits_for(number, late, marker, *_):
    """The worker; others than the late one give it some time to begin, but not for ever: a task that was cancelled
    keeps its thread, on which Dask may queue what the others depend on."""
    address = str(get_worker().address)
    if address == late:
        Path(marker).touch()
    with suppress(AssertionError):
        wait_until(lambda: os.path.exists(marker), 3)
    return address


@pytest.mark.full
def test_a_worker_with_another_processor_type_takes_part_and_a_warning_names_it(cluster, engine, notes):
    other = "Nehalem" if "Nehalem" not in blas_core_types() else "Prescott"
    late = join(cluster, engine, OPENBLAS_CORETYPE=other)
    if len(set(engine.core_types())) == 1:
        pytest.skip("BLAS does not let its processor type be chosen here")
    known = engine.crew.requirements
    for more in ([], [da.ones(2).to_delayed()[0]]):  # tasks alone, and of a graph
        engine.crew.requirements = known
        notes.marker.unlink(missing_ok=True)
        tasks = [Task(waits_for, (i, late, str(notes.marker), *more), 1, f"rows {i}") for i in range(16)]
        with pytest.warns(UnlikeWorkersWarning, match=f"different processors: .*{other} of {late}, which joined later"):
            found = engine.each("x", tasks)
        assert late in found
        assert len(engine.each("x", tasks)) == 16  # without another warning
    assert not notes.notes
    message = r"different processors: .* \(1, e\.g\. tcp://.*same OPENBLAS_CORETYPE"
    with pytest.warns(UnlikeWorkersWarning, match=message) as told, open_engine(cluster.address, timeout=60) as engine:
        assert len(engine.each("x", tasks)) == 16
    assert len(told) == 1


@pytest.mark.full
def test_paths_that_no_worker_sees_or_that_change_are_nobody_s_fault(cluster, engine, notes, dataset, tmp_path):
    (tmp_path / "scratch").mkdir()
    notes.marker.touch()
    with pytest.raises(SpecError, match=r"worker tcp://.* does not see /nowhere: workers read and write themselves"):
        engine.check_paths("/nowhere")
    assert len(engine.each("x", tasks_at(notes))) == 16  # which require it no more
    engine.check_paths(dataset, str(tmp_path / "scratch"))
    (tmp_path / "scratch").rmdir()
    with (Path(dataset) / "zarr.json").open("a") as file:
        file.write(" ")
    join(cluster, engine)
    assert len(engine.each("x", tasks_at(notes))) == 16
    assert not notes.notes
    assert [sight.path for sight in engine.crew.requirements.sights] == [dataset]


@pytest.mark.full
def test_a_worker_that_is_unfit_at_the_start_is_named_and_others_work(cluster, notes, tmp_path):
    cluster.start_worker(**starting_with(OTHER, tmp_path))
    cluster.wait_for_workers()
    with open_engine(cluster.address, timeout=60, progress=notes) as engine:
        (late,) = engine.crew.unfit
        only_fit_ones_work(engine, late, notes, OLD)
        assert engine.all_threads == 1


@pytest.mark.full
def test_workers_without_a_valid_key_are_named_and_late_ones_get_no_tasks(notes, bucket, s3_server, tmp_path):
    store_of(bucket).write(f"{bucket}/x", b"rows")
    wrong, right = {"AWS_SECRET_ACCESS_KEY": "wrong"}, settings(s3_server.port)
    with (
        DaskProcesses(tmp_path / "cluster", 1, env=wrong) as cluster,
        open_engine(cluster.address, progress=notes) as engine,
    ):
        with pytest.raises(SpecError, match=rf"worker tcp://.* cannot use {bucket}/x: access denied"):
            engine.check_paths(f"{bucket}/x")
        join(cluster, engine, **right)
        cluster.kill_worker(0)
        cluster.wait_for_workers()
        engine.check_paths(f"{bucket}/x")
        late = join(cluster, engine)
        only_fit_ones_work(engine, late, notes, rf"cannot use {bucket}/x: access denied: no credentials are set")


@pytest.mark.long
def test_after_the_last_fit_worker_the_run_waits_for_another(notes, tmp_path):
    """Its address is bound to what was sent to it alone."""
    with (
        DaskProcesses(tmp_path / "cluster", 1) as cluster,
        open_engine(cluster.address, timeout=60, progress=notes) as engine,
    ):
        late = join(cluster, engine, **starting_with(OTHER, tmp_path))
        only_fit_ones_work(engine, late, notes, OLD)
        cluster.kill_worker(0)
        impatient = Engine(client=engine.client, timeout=3, crew=engine.crew)
        with pytest.raises(IncompleteError, match="for 3 seconds: no usable worker is left: worker"):
            impatient.each("x", tasks_at(notes))
        newest = join(cluster, engine)
        notes.marker.touch()
        assert set(engine.each("x", tasks_at(notes))) == {newest}
