"""Sizes that grow to a tolerance: certified, reported, and the same bits when asked for."""

from dataclasses import replace

import pytest

from bigkpca import methods
from bigkpca.data.opening import open_rows
from bigkpca.errors import MemoryLimitError, ToleranceWarning
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import plan_fit, worker_bytes
from bigkpca.fitting.fit import fit_rows
from bigkpca.spec import FitSpec, resolve
from tests.fitting.cases import assert_same_bits, chosen
from tests.helpers.fits import fit
from tests.helpers.progress import Recorder

OPTIONS = {"n_components": 5, "random_state": 3}


def fitted(X, progress=None, **options):
    return fit(X, progress=progress, **OPTIONS | options)


@pytest.mark.parametrize(
    ("tol", "options"),
    [
        (0.2, {"landmarks": "uniform", "center": False}),
        (0.2, {"method": "columns", "kernel": "polynomial"}),
        (0.3, {"standardize": True}),
        (0.2, {"method": methods.RandomFeatures("phase")}),
        pytest.param(0.2, {"method": "rff-pca"}, marks=pytest.mark.full),
        (0.2, {"refine": 1}),
    ],
    ids=str,
)
def test_a_tolerance_is_met_by_the_first_of_doubled_sizes_which_gives_the_same_bits(tol, options, digits):
    notes = Recorder()
    grown = fitted(digits[:500], notes, tol=tol, **options)
    size = chosen(grown)["size"]
    again = fitted(digits[:500], size=size, **options)
    assert_same_bits(grown, again)
    grew = [note for note in notes.notes if f"above tol={tol}: growing" in note]
    assert size == min(100 * 2 ** len(grew), 500 if "method" not in options or options["method"] == "columns" else size)
    if "refine" not in options:
        assert grown.certificate.error <= tol
        assert size == 100 or fitted(digits[:500], size=size // 2, **options).certificate.error > tol


def test_the_largest_size_is_kept_with_a_warning(digits, monkeypatch):
    monkeypatch.setattr("bigkpca.spec.resolved._MOST_GROWN", 150)
    expected = r"tol=0\.01 was not met: size 150 leaves an error of 0\.\d+: that is the largest one; use a larger tol"
    with pytest.warns(ToleranceWarning, match=expected):
        model = fitted(digits, tol=0.01)
    assert_same_bits(model, fitted(digits, size=150))


@pytest.mark.full
def test_memory_limits_stop_it(digits, monkeypatch):
    monkeypatch.setattr("bigkpca.execution.plan.process_bytes", lambda: 10**8)
    rows, engine = open_rows(digits), Engine(threads=1)
    assert plan_fit(rows, FitSpec.checked(tol=0.1), 1).size == 1797  # the largest that a tolerance may need
    least = FitSpec.checked(**OPTIONS, size=220)
    small = plan_fit(rows, least, 1).peak_bytes
    spec = FitSpec.checked(**OPTIONS, tol=0.05)
    with pytest.warns(ToleranceWarning, match=r"tol=0\.05 was not met: size 200 leaves an error of .*: .* MB"):
        model = fit_rows(rows, spec, engine, limit=small)
    assert_same_bits(model, fitted(digits, size=200))
    with pytest.raises(MemoryLimitError, match="MB"):
        fit_rows(rows, FitSpec.checked(tol=0.1), engine, limit=100_000_000)

    limits = {"tcp://a": 10**10, "tcp://b": worker_bytes(rows, resolve(least, rows), 1)}
    workers = {address: {"memory_limit": limit, "nthreads": 1} for address, limit in limits.items()}
    monkeypatch.setattr("bigkpca.execution.engine.known_workers", lambda client, timeout: workers)

    class Small(Engine):
        def check_memory(self, peak_bytes):  # of workers, although threads compute
            Engine.check_memory(replace(engine, client=object()), peak_bytes)

    with pytest.warns(ToleranceWarning, match="size 200 .*worker tcp://b may use"):
        fit_rows(rows, spec, Small(threads=1))
