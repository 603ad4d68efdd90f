"""Sizes that the package chooses: certified, reported, and the same bits when asked for."""

import pytest

import bigkpca
from bigkpca import methods
from bigkpca.data.opening import open_rows
from bigkpca.errors import MemoryLimitError, SpecError, ToleranceWarning
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import plan_fit, worker_bytes
from bigkpca.fitting import features
from bigkpca.fitting.fit import fit_rows
from bigkpca.numerics import growth
from bigkpca.spec import FitSpec, resolve
from bigkpca.storage.models import load_model
from tests.fitting.cases import assert_same_bits, chosen
from tests.helpers.fits import fit
from tests.helpers.progress import Recorder

OPTIONS = {"n_components": 5, "random_state": 3}


def fitted(X, progress=None, **options):
    return fit(X, progress=progress, **OPTIONS | options)


@pytest.mark.parametrize(
    ("tol", "options"),
    [
        (0.3, {"landmarks": "uniform", "center": False}),
        (0.3, {"method": "columns", "kernel": "polynomial"}),
        (0.4, {"standardize": True}),
        (0.3, {"method": methods.RandomFeatures("phase")}),
        pytest.param(0.2, {"method": "rff-pca"}, marks=pytest.mark.full),
        (0.3, {"refine": 1}),
    ],
    ids=str,
)
def test_a_tolerance_is_met_and_its_size_gives_the_same_bits(tol, options, digits):
    grown = fitted(digits[:300], tol=tol, **options)
    size, found = chosen(grown)["size"], grown.certificate
    assert_same_bits(grown, fitted(digits[:300], size=size, **options))
    if "refine" not in options:
        assert grown.features.size == size
        reached = found.kernel_error if found.relative_trace_error is None else found.relative_trace_error
        assert 0 < reached <= tol


def test_rows_beyond_the_sample_are_judged_by_rows_held_out_until_the_certificate_agrees(digits, monkeypatch):
    monkeypatch.setattr("bigkpca.spec.sample_rows", lambda n, d, size: 400)
    judge, seen, notes = growth.trace_error, [], Recorder()

    def hopeful(features, strata, center):
        seen.append([(len(stratum.X), stratum.count) for stratum in strata])
        return growth.Estimate(0.8 * judge(features, strata, center).value, 0.0)

    monkeypatch.setattr(growth, "trace_error", hopeful)
    model = fitted(digits, notes, tol=0.25)
    assert seen[0] == [(400, 400), (1024, 1397)]
    assert model.certificate.relative_trace_error <= 0.25
    assert sum("growing further" in note for note in notes.notes) == 1


@pytest.mark.parametrize("method", ["nystroem", "rff"])
def test_a_tolerance_out_of_reach_is_refused_before_the_pass(method, digits, monkeypatch):
    monkeypatch.setattr("bigkpca.spec._MOST_GROWN", 150)  # the true limit takes a minute to reach
    monkeypatch.setattr("bigkpca.fitting.solve.sums_of", None)
    what = {"nystroem": "landmarks", "rff": "random features"}[method]
    expected = (
        rf"tol=0\.01 is out of reach: 150 {what}, the largest size, leave an error of 0\.\d+; about [\d,]+ would be"
    )
    with pytest.raises(SpecError, match=expected):
        fitted(digits, tol=0.01, method=method)


@pytest.mark.full
def test_memory_limits_stop_it(digits, monkeypatch):
    monkeypatch.setattr("bigkpca.execution.plan.process_bytes", lambda: 10**8)
    rows, engine = open_rows(digits), Engine(threads=1)
    assert plan_fit(rows, FitSpec.checked(tol=0.1), 1).size == 1797  # the largest that a tolerance may need
    least = FitSpec.checked(**OPTIONS, size=120)
    small = plan_fit(rows, least, 1).peak_bytes
    spec = FitSpec.checked(**OPTIONS, tol=0.05)
    with pytest.warns(ToleranceWarning, match=r"tol=0\.05 was not met: the memory limit of \d+ MB ended the growth at"):
        model = fit_rows(rows, spec, engine, limit=small)
    size = chosen(model)["size"]
    assert 50 <= size <= 120
    assert_same_bits(model, fitted(digits, size=size))
    assert "stopped by the memory limit" in model.provenance["choices"][-1]["reason"]
    with pytest.raises(
        MemoryLimitError, match=r"even a size of 10 needs \d+ MB, above the memory limit of 100 MB: allow more"
    ):
        fit_rows(rows, FitSpec.checked(tol=0.1), engine, limit=100_000_000)

    class Small(Engine):
        def workers(self):
            return [("tcp://a", 1, 10**10), ("tcp://b", 1, worker_bytes(rows, resolve(least, rows), 1))]

    with pytest.warns(ToleranceWarning, match="the memory of worker tcp://b ended the growth"):
        fit_rows(rows, spec, Small(threads=1))


def test_a_time_budget_stops_it_and_the_size_is_recorded(digits, tmp_path):
    path = str(tmp_path / "model.zarr")
    with pytest.warns(ToleranceWarning, match="the time budget ended the growth at size 100, which leaves an error of"):
        model = bigkpca.fit(digits[:500], path, tol=0.05, time_budget="1 ms", **OPTIONS)
    assert chosen(load_model(path))["size"] == 100
    assert_same_bits(model, fitted(digits[:500], size=100))
    bigkpca.fit(digits[:300], tmp_path / "enough.zarr", tol=0.4, time_budget="1 h", memory="2 GB", **OPTIONS)


def test_a_size_whose_pass_would_end_too_late_is_left_for_the_one_before(digits, monkeypatch):
    clock = iter([0.0, 1.0, 1.0, 1.0, 9.0, 9.0])  # the second trial takes eight seconds
    monkeypatch.setattr(features, "monotonic", lambda: next(clock))
    rows, spec = open_rows(digits), FitSpec.checked(**OPTIONS, tol=0.05)
    with pytest.warns(ToleranceWarning, match="the time budget ended the growth at size 100,"):
        fit_rows(rows, spec, Engine(threads=1), deadline=10.0)


def test_options_that_make_no_sense_are_refused(digits, tmp_path):
    for options, message in (
        ({"tol": 0.1, "size": 50}, r"tol=0.1 lets the size grow, but size=50 fixes it"),
        ({"tol": 0.1, "method": "exact"}, "but the exact method fixes it"),
        ({"tol": 0.1, "landmarks": [1, 2]}, "but 2 landmarks fixes it"),
        ({"tol": 0.1, "time_budget": 0}, "a time must be positive"),
        ({"time_budget": "1 min"}, "use it together with a tolerance, tol"),
    ):
        with pytest.raises(SpecError, match=message):
            bigkpca.fit(digits[:100], str(tmp_path / "model.zarr"), **options)
