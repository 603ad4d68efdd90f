"""Workers that join late, or see something else, get no tasks; real processes on a real scheduler."""

import os
import re
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

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
from bigkpca.execution.progress import WARNING, Silent
from bigkpca.execution.tasks import Task, shared
from bigkpca.execution.workers import Crew, sight_of
from tests.helpers.dask_processes import BLOCKING, OTHER, DaskProcesses, hiding
from tests.helpers.s3 import Server, settings


@dataclass(frozen=True)
class Notes(Silent):
    """Keeps warnings, and leaves a file at the first one."""

    marker: Path
    warnings: list[str] = field(default_factory=list)

    def note(self, message):
        if message.startswith(WARNING):
            self.warnings.append(message)
            self.marker.touch()


@pytest.fixture
def cluster(tmp_path):
    """A scheduler and one worker."""
    with DaskProcesses(tmp_path / "cluster", 1) as found:
        yield found


@pytest.fixture
def notes(tmp_path):
    return Notes(tmp_path / "noted")


def where(number, marker, *_):
    """The worker, once the marker is there."""
    end = time.monotonic() + 60
    while not os.path.exists(marker) and time.monotonic() < end:
        time.sleep(0.02)
    return str(get_worker().address)


def tasks_at(notes, *more):
    return [Task(where, (i, str(notes.marker), *more), 10, f"rows {i}") for i in range(16)]


def join(cluster, engine, *within, memory="0", **env):
    """Start a worker, and wait until the scheduler knows it: its address. It is looked at by its tasks alone."""
    assert engine.client is not None
    before = set(engine.client.scheduler_info(n_workers=-1)["workers"])
    cluster.start_worker(within or None, memory, **env)
    engine.client.wait_for_workers(len(before) + 1, 60)
    (address,) = set(engine.client.scheduler_info(n_workers=-1)["workers"]) - before
    engine.crew.looked.add(address)
    return address


def only_fit_ones_work(engine, late, notes, message, tasks):
    found = engine.each("x", tasks, Silent())
    assert len(found) == 16
    assert late not in found
    (warning,) = notes.warnings
    assert re.search(rf"a worker gets no tasks of this run: worker {late} {message}", warning), warning


def test_a_late_worker_that_does_not_see_a_path(cluster, notes, dataset, tmp_path):
    """Before, it read zeros."""
    (tmp_path / "data").mkdir()
    data = str(tmp_path / "data" / "x.zarr")
    os.rename(dataset, data)
    with open_engine(cluster.address, timeout=60, progress=notes) as engine:
        engine.check_paths(data)
        late = join(cluster, engine, *hiding(tmp_path / "data"))
        only_fit_ones_work(engine, late, notes, rf"does not see {data}: workers read", tasks_at(notes))


def test_a_late_worker_with_another_version(cluster, notes, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(OTHER)
    with open_engine(cluster.address, timeout=60, progress=notes) as engine:
        late = join(cluster, engine, PYTHONPATH=str(tmp_path / "site"))
        message = r"has bigkpca 0\.0\.7, this process has"
        only_fit_ones_work(engine, late, notes, message, tasks_at(notes, shared(np.ones(3))))


@pytest.mark.parametrize("shares", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_late_worker_without_the_package(shares, cluster, notes, tmp_path, monkeypatch):
    """It cannot tell what it lacks: tasks fail there, or wait forever for shared values. It goes on living."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BLOCKING)
    with open_engine(cluster.address, timeout=60, progress=notes) as engine:
        late = join(cluster, engine, PYTHONPATH=str(tmp_path / "site"))
        look, looked = Crew.look, list[Crew]()

        def at_the_second_time(self, *given):
            if looked:
                look(self, *given)
            looked.append(self)

        monkeypatch.setattr(Crew, "look", at_the_second_time)
        engine.crew.looked.discard(late)
        only_fit_ones_work(
            engine, late, notes, "lacks bigkpca: install", tasks_at(notes, *[shared(np.ones(3))] * shares)
        )
        assert engine.client is not None
        assert engine.client.run(os.getpid, workers=[late])[late] == cluster.workers[-1].pid


def test_a_late_worker_of_a_graph(cluster, notes, tmp_path):
    """Tasks that depend on a Dask array of the user's own, of which some were done."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BLOCKING)
    blocks = da.ones((16, 2), chunks=(1, 2)).to_delayed().ravel()
    with open_engine(cluster.address, timeout=60, progress=notes) as engine:
        late = join(cluster, engine, PYTHONPATH=str(tmp_path / "site"))
        engine.crew.looked.discard(late)
        tasks = [Task(where, (i, str(notes.marker), block), 1, f"rows {i}") for i, block in enumerate(blocks)]
        only_fit_ones_work(engine, late, notes, "lacks bigkpca", tasks)
        sums = [Task(summed, (block, shared(np.ones(2))), 1) for block in blocks]
        assert engine.total("x", sums, Silent()) == 32


def summed(block, weights):
    return float(block.sum() * weights[0])


def test_a_late_worker_with_little_memory(cluster, notes):
    with open_engine(cluster.address, timeout=60, progress=notes) as engine:
        engine.check_memory(lambda threads: threads * 10**9)
        late = join(cluster, engine, memory="900MB")
        message = "may use 900 MB, the plan needs 1000 MB; give workers more memory"
        only_fit_ones_work(engine, late, notes, message, tasks_at(notes))


@pytest.mark.long
def test_late_workers_with_another_object_store(notes, s3_server, bucket, tmp_path):
    """One has other rows of the same name, another has no valid key."""
    store_of(bucket).write(f"{bucket}/x", b"rows")
    elsewhere = Server(tmp_path / "s3")
    with DaskProcesses(tmp_path / "cluster", 1) as cluster, open_engine(cluster.address, progress=notes) as engine:
        try:
            elsewhere.start()
            engine.check_paths(f"{bucket}/x")
            unable = join(cluster, engine, AWS_SECRET_ACCESS_KEY="wrong")
            message = rf"cannot use {bucket}/x: access denied: no credentials are set"
            only_fit_ones_work(engine, unable, notes, message, tasks_at(notes))
            notes.marker.unlink()
            notes.warnings.clear()
            late = join(cluster, engine, **settings(elsewhere.port))
            only_fit_ones_work(engine, late, notes, rf"does not see {bucket}/x: workers read", tasks_at(notes))
            notes.marker.unlink()
            notes.warnings.clear()
        finally:
            elsewhere.kill()


def test_workers_without_a_valid_key_are_named(notes, bucket, tmp_path):
    store_of(bucket).write(f"{bucket}/x", b"rows")
    with (
        DaskProcesses(tmp_path / "cluster", 1, env={"AWS_SECRET_ACCESS_KEY": "wrong"}) as cluster,
        open_engine(cluster.address, progress=notes) as engine,
        pytest.raises(SpecError, match=rf"worker tcp://.* cannot use {bucket}/x: access denied"),
    ):
        engine.check_paths(f"{bucket}/x")


@pytest.mark.parametrize("graph", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_late_worker_with_another_processor_type(graph, cluster, notes):
    """It takes part, and a warning names it."""
    other = "Nehalem" if "Nehalem" not in blas_core_types() else "Prescott"
    with open_engine(cluster.address, timeout=60, progress=notes) as engine:
        late = join(cluster, engine, OPENBLAS_CORETYPE=other)
        if len(set(engine.core_types())) == 1:
            pytest.skip("BLAS does not let its processor type be chosen here")
        notes.marker.touch()
        more = [da.ones(2).to_delayed()[0]] if graph else []
        with pytest.warns(UnlikeWorkersWarning, match=f"different processors: .*{other} of {late}, which joined later"):
            found = engine.each("x", [*tasks_at(notes, *more), *tasks_at(notes, *more)], Silent())
        assert late in found
        assert not notes.warnings
        assert len(found) == len(engine.each("x", tasks_at(notes), Silent())) * 2  # without another warning


def test_where_no_worker_is_fit_a_path_is_an_error_and_required_no_more(cluster, notes):
    with open_engine(cluster.address, timeout=60, progress=notes) as engine:
        with pytest.raises(SpecError, match=r"worker tcp://.* does not see /nowhere: workers read and write by themse"):
            engine.check_paths("/nowhere")
        notes.marker.touch()
        assert len(engine.each("x", tasks_at(notes), Silent())) == 16
        assert not notes.warnings


def test_paths_that_change_or_are_published_are_nobody_s_fault(cluster, notes, dataset, tmp_path):
    (tmp_path / "scratch").mkdir()
    with open_engine(cluster.address, timeout=60, progress=notes) as engine:
        engine.check_paths(dataset, str(tmp_path / "scratch"))
        (tmp_path / "scratch").rmdir()
        with (Path(dataset) / "zarr.json").open("a") as file:
            file.write(" ")
        join(cluster, engine)
        notes.marker.touch()
        assert len(engine.each("x", tasks_at(notes), Silent())) == 16
        assert not notes.warnings
        assert [sight.path for sight in engine.crew.requirements.sights] == [dataset]


@pytest.mark.long
def test_after_the_last_fit_worker_the_run_waits_for_another(cluster, notes, tmp_path):
    """Its address is bound to what was sent to it alone."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(OTHER)
    with open_engine(cluster.address, timeout=60, progress=notes) as engine:
        late = join(cluster, engine, PYTHONPATH=str(tmp_path / "site"))
        only_fit_ones_work(engine, late, notes, "has bigkpca", tasks_at(notes))
        cluster.kill_worker(0)
        impatient = Engine(client=engine.client, timeout=3, crew=engine.crew)
        with pytest.raises(
            IncompleteError,
            match=r"nothing has finished for 3 seconds: no worker that may take part is left, as worker",
        ):
            impatient.each("x", tasks_at(notes), Silent())
        newest = join(cluster, engine)
        assert set(engine.each("x", tasks_at(notes), Silent())) == {newest}


def test_a_worker_that_is_unfit_at_the_start_is_named_and_others_work(cluster, notes, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(OTHER)
    cluster.start_worker(PYTHONPATH=str(tmp_path / "site"))
    cluster.wait_for_workers()
    with open_engine(cluster.address, timeout=60, progress=notes) as engine:
        (late,) = engine.crew.unfit
        only_fit_ones_work(engine, late, notes, r"has bigkpca 0\.0\.7, this process has", tasks_at(notes))
        assert engine.all_threads == 1


def test_what_is_seen_at_a_path_is_compared_by_content(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "_LOOK_AGAIN_SECONDS", 0)
    here = sight_of(dataset)
    shutil.copytree(dataset, tmp_path / "copy.zarr")
    assert here == sight_of(dataset)
    assert sight_of(str(tmp_path / "copy.zarr")).digest != ""
    assert workers._other_sight("tcp://a", here) is None
    (Path(dataset) / "zarr.json").write_text("{}")
    assert f"worker tcp://a sees something else at {dataset} than this process" in str(
        workers._other_sight("tcp://a", here)
    )
    assert "does not see" in str(workers._other_sight("tcp://a", sight_of(str(tmp_path / "none"))))


def test_memory_of_more_threads_than_are_planned():
    peaks = workers.peaks_of(lambda threads: 100 + 10 * threads)
    assert [workers._peak(peaks, threads) for threads in (1, 2, 64, 65, 100)] == [110, 120, 740, 750, 1100]
