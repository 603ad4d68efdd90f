"""KernelPCA in the hands of people who use Dask themselves: in their tasks, on their collections and clusters."""

import logging
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import dask
import dask.array as da
import joblib
import numpy as np
import pytest
from dask.diagnostics import Profiler
from dask.utils import key_split
from distributed import Client
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import bigkpca
from bigkpca import KernelPCA, arrays
from bigkpca.errors import DataError
from bigkpca.execution import on_cluster
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine
from bigkpca.execution.tasks import Task
from tests.helpers.progress import Once
from tests.helpers.stores import as_zarr

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def digits(digits):
    return digits.astype(float)


@pytest.fixture
def client(two_processes):
    with two_processes.client.as_current():
        yield two_processes.client


def estimator(**options):
    return KernelPCA(3, size=40, random_state=0, **options)


def test_every_block_of_a_default_fit_and_transform_is_computed_by_a_task_of_a_dask_graph(tmp_path, digits):
    path = as_zarr(tmp_path, digits[:600], (50, 64))
    with Profiler() as seen:
        bigkpca.fit(path, tmp_path / "m.zarr", n_components=3, size=40, random_state=0, block_rows=50)
        bigkpca.transform(tmp_path / "m.zarr", path, tmp_path / "s.zarr")
    names = [key_split(each.key) for each in seen.results]
    assert names.count("bigkpca-fitting") == 12
    assert names.count("bigkpca-transforming") == 1  # whose blocks are those of its output


def test_a_fit_in_a_task_uses_the_threads_of_its_worker(cluster_elsewhere, digits):
    def eigenvalues(X):
        return estimator().fit(X).eigenvalues_, Engine().threads

    here = estimator().fit(digits[:500]).eigenvalues_
    found, threads = cluster_elsewhere.client.submit(eigenvalues, digits[:500]).result(timeout=120)
    assert found.tobytes() == here.tobytes()
    assert threads == 2


def test_cross_validation_by_the_dask_backend_of_joblib_ends(client, digits):
    model = make_pipeline(estimator(), Ridge())
    here = cross_val_score(model, digits[:300], digits[:300, 20], cv=3)
    with joblib.parallel_config(backend="dask"):
        np.testing.assert_array_equal(cross_val_score(model, digits[:300], digits[:300, 20], cv=3), here)


def test_a_fit_and_what_is_lazy_after_it_do_not_define_keys_twice(client, digits, caplog):
    X = da.from_array(digits[:600], chunks=(100, 64)) * 1.0
    with caplog.at_level(logging.WARNING):
        kpca = estimator().fit(X)
        kpca.transform(X).compute()
        kpca.residual(X).compute()
        estimator().fit_transform(X).compute()
    assert not [record.getMessage() for record in caplog.records if "run_spec" in record.getMessage()]


def test_persisted_rows_are_fitted_and_transformed_where_they_are(client, digits):
    X = da.from_array(digits[:600], chunks=(100, 64)).persist()
    here = estimator().fit(digits[:600])
    np.testing.assert_allclose(estimator(block_rows=100).fit(X).eigenvalues_, here.eigenvalues_, rtol=1e-12)
    found = here.transform(X)
    assert found.chunks == ((100,) * 6, (3,))
    np.testing.assert_allclose(found.compute(), here.transform(digits[:600]), atol=1e-12)


def test_rows_in_memory_go_to_a_cluster_by_parts(client, digits, monkeypatch):
    def fitted():
        with mock.patch.object(client, "get", side_effect=client.get) as submitted:
            found = estimator(block_rows=10).fit(digits)
        return found.eigenvalues_.tobytes(), submitted.call_count

    values, graphs = fitted()
    monkeypatch.setattr(on_cluster, "_MOST_BYTES", digits.nbytes // 5)
    again, more = fitted()
    assert again == values
    assert graphs < more <= 6 * graphs


def test_persisted_rows_of_a_client_that_was_closed_are_named():
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None):
        X = da.ones((100, 3), chunks=(50, 3)).persist()
    for use in (lambda: estimator().fit(X), lambda: arrays.random_features(X, 4, bigkpca.kernels.Gaussian(1.0))):
        with pytest.raises(DataError, match="was persisted on a cluster, but its client is closed"):
            use()


def test_callbacks_of_users_see_the_graph_of_a_pass_and_not_those_within_its_tasks(digits):
    U, _, _ = arrays.randomized_svd(da.from_array(digits[:300], chunks=(100, 64)) - 1.0, 8)
    with Profiler() as seen:
        estimator().fit(U)
    assert any(key_split(each.key) == "bigkpca-fitting" for each in seen.results)


def test_what_is_left_of_a_pass_that_is_stopped_is_cancelled(two_processes, tmp_path):
    tasks = [Task(marked, (str(tmp_path / str(number)),), 1) for number in range(60)]
    with pytest.raises(KeyboardInterrupt):
        replace(two_processes, progress=Once(after=5)).total("adding up", tasks)
    time.sleep(1)
    begun = len(list(tmp_path.iterdir()))
    time.sleep(2)
    assert len(list(tmp_path.iterdir())) <= begun + 2  # those at work
    assert begun < 60


def marked(path):
    Path(path).touch()
    time.sleep(0.2)
    return 1


def test_the_scheduler_of_the_configuration_is_used_where_nothing_else_is_named(cluster_elsewhere, two_processes):
    address = cluster_elsewhere.client.scheduler.address

    def address_here():
        with dask.config.set({"scheduler-address": address}), open_engine() as engine:  # as DASK_SCHEDULER_ADDRESS does
            return engine.client and engine.client.scheduler.address

    assert address_here() == address
    client = two_processes.client
    with client.as_current():
        assert address_here() == client.scheduler.address
        assert client.submit(address_here).result() is None  # a task has the threads of its worker
