"""Sizes and numbers of components that the package chooses: certified, reported, and the same bits when asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bigkpca
from bigkpca import KernelPCA, landmarks, methods
from bigkpca.cli import main
from bigkpca.data.memory import ArrayRows
from bigkpca.data.opening import open_rows
from bigkpca.errors import IndefiniteKernelWarning, MemoryLimitError, SpecError, ToleranceWarning
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import plan_fit
from bigkpca.execution.progress import Silent
from bigkpca.fitting import size_search
from bigkpca.fitting.fit import fit_rows, fit_within
from bigkpca.fitting.solve import chosen_components
from bigkpca.numerics import certificate, growth
from bigkpca.numerics.certificate import Certificate
from bigkpca.spec import FitSpec, resolve
from bigkpca.storage.models import load_model, model_digest

OPTIONS: dict[str, Any] = {"components": 5, "seed": 3}


class Notes(Silent):
    def __init__(self) -> None:
        object.__setattr__(self, "notes", [])

    def note(self, message: str) -> None:
        self.notes.append(message)  # type: ignore[attr-defined]


def fit(X: Any, progress: Any = None, **options: Any) -> Any:
    return fit_rows(open_rows(X), FitSpec.checked(**OPTIONS | options), Engine(threads=1), progress or Silent())


def chosen(model: Any) -> dict[str, Any]:
    return {choice["option"]: choice["value"] for choice in model.provenance["choices"]}


def assert_same_bits(one: Any, other: Any) -> None:
    for part in ("eigenvalues", "components", "mean"):
        np.testing.assert_array_equal(getattr(one.solution, part), getattr(other.solution, part))
    for name, values in one.features.arrays().items():
        np.testing.assert_array_equal(values, other.features.arrays()[name])
    assert one.certificate.numbers() == other.certificate.numbers()


GROWING: list[dict[str, Any]] = [
    {},
    {"landmarks": "uniform", "center": False},
    {"landmarks": "rpcholesky"},
    {"landmarks": landmarks.RPCholesky(over="all")},
    {"method": "columns"},
    {"standardize": True, "tol": 0.4},
    {"kernel": "polynomial"},
    {"method": "rff", "tol": 0.2},
    {"method": methods.RandomFeatures("phase"), "tol": 0.3},
    {"method": "rff-pca", "tol": 0.2},
    {"method": "rff", "kernel": "polynomial", "tol": 0.3},
    {"refine": 1},
]


@pytest.mark.parametrize("options", GROWING, ids=str)
def test_a_tolerance_is_met_and_its_size_gives_the_same_bits(options: dict[str, Any], digits: Any) -> None:
    options = {"tol": 0.3} | options
    grown = fit(digits[:700], **options)
    size = chosen(grown)["size"]
    again = fit(digits[:700], **options | {"size": size, "tol": None})
    assert_same_bits(grown, again)
    if "refine" not in options:
        assert grown.features.size == size
        found = grown.certificate
        reached = found.kernel_error if found.relative_trace_error is None else found.relative_trace_error
        assert 0 < reached <= options["tol"]


@pytest.mark.parametrize("tol", [0.1, 0.5])
@pytest.mark.parametrize("rule", ["kmeans", "uniform", "rpcholesky"])
def test_sizes_are_close_to_the_smallest_that_meet_the_tolerance(rule: str, tol: float, digits: Any) -> None:
    size = fit(digits, landmarks=rule, tol=tol).features.size
    tried = [max(1, int(size * share)) for share in (0.85, 0.9)]
    errors = [fit(digits, landmarks=rule, size=each).certificate.relative_trace_error for each in tried]
    assert max(errors) > tol


def test_rows_beyond_the_sample_are_judged_by_rows_held_out(digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigkpca.spec.resolved.sample_rows", lambda n, d, size: 400)
    seen = []
    judge = growth.trace_error

    def judged(features: Any, strata: Any, center: bool) -> Any:
        seen.append([(len(stratum.X), stratum.count) for stratum in strata])
        return judge(features, strata, center)

    monkeypatch.setattr(growth, "trace_error", judged)
    model = fit(digits, tol=0.25)
    assert model.certificate.relative_trace_error <= 0.25
    assert seen[0] == [(400, 400), (1024, 1397)]


def test_a_foretold_error_that_the_certificate_does_not_bear_out_makes_it_grow_on(
    digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = growth.trace_error

    def hopeful(features: Any, strata: Any, center: bool) -> growth.Estimate:
        found = judge(features, strata, center)
        return growth.Estimate(0.8 * found.value, 0.0)

    monkeypatch.setattr(growth, "trace_error", hopeful)
    notes = Notes()
    model = fit(digits[:700], notes, tol=0.3)
    assert model.certificate.relative_trace_error <= 0.3
    assert sum("growing on" in note for note in notes.notes) == 1  # type: ignore[attr-defined]


def test_growing_takes_the_same_bits_on_processes(digits: Any, two_processes: Engine) -> None:
    spec = FitSpec.checked(**OPTIONS, tol=0.3)
    here = fit_rows(open_rows(digits[:700]), spec, Engine(threads=2), Silent())
    assert_same_bits(here, fit_rows(open_rows(digits[:700]), spec, two_processes, Silent()))


# What stops it


@pytest.mark.parametrize("method", ["nystroem", "rff"])
def test_a_tolerance_out_of_reach_is_refused_before_the_pass(
    method: str, digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bigkpca.spec.resolved._MOST_GROWN", 150)
    monkeypatch.setattr("bigkpca.fitting.outcome.moments_of", None)
    what = {"nystroem": "landmarks", "rff": "random features"}[method]
    expected = rf"tol=0\.01 is out of reach: 150 {what}, the most .*, leave an error of 0\.\d+; about [\d,]+ would do"
    with pytest.raises(SpecError, match=expected):
        fit(digits, tol=0.01, method=method)


def test_the_memory_limit_stops_it(digits: Any) -> None:
    rows, engine = open_rows(digits), Engine(threads=1)
    small = plan_fit(rows, FitSpec.checked(**OPTIONS, size=120), 1).peak_bytes + 300_000
    spec = FitSpec.checked(**OPTIONS, tol=0.05)
    with pytest.warns(ToleranceWarning, match=r"tol=0\.05 was not met: the memory limit of \d+ MB ended the growth at"):
        model = fit_within(rows, spec, engine, small, Silent())
    size = chosen(model)["size"]
    assert 50 <= size <= 120
    assert_same_bits(model, fit(digits, size=size))
    assert "stopped by the memory limit" in model.provenance["choices"][-1]["reason"]


def test_a_memory_limit_that_leaves_no_room_is_refused(digits: Any) -> None:
    with pytest.raises(
        MemoryLimitError, match=r"even a size of 10 needs \d+ MB, above the memory limit of 100 MB: allow more"
    ):
        fit_within(open_rows(digits), FitSpec.checked(tol=0.1), Engine(threads=1), 100_000_000, Silent())


def test_the_memory_of_workers_stops_it(digits: Any) -> None:
    rows = open_rows(digits)
    small = plan_fit(rows, FitSpec.checked(**OPTIONS, size=120), 1).peak_bytes + 300_000

    class Small(Engine):
        def worker_limits(self) -> list[tuple[str, int, int]]:
            return [("tcp://a", 1, 10**10), ("tcp://b", 1, small)]

    with pytest.warns(ToleranceWarning, match="the memory of worker tcp://b ended the growth"):
        fit_within(rows, FitSpec.checked(**OPTIONS, tol=0.05), Small(threads=1), None, Silent())


def test_a_time_budget_stops_it_and_the_size_is_recorded(digits: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "model.zarr")
    with pytest.warns(ToleranceWarning, match="the time budget ended the growth at size 100, which leaves an error of"):
        model = bigkpca.fit(digits, path, tol=0.05, time_budget="1 ms", **OPTIONS)
    assert chosen(load_model(path))["size"] == 100
    assert_same_bits(model, fit(digits, size=100))


def test_a_size_whose_pass_would_end_too_late_is_left_for_the_one_before(
    digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 1.0, 1.0, 1.0, 9.0, 9.0])  # the second trial takes eight seconds
    monkeypatch.setattr(size_search, "monotonic", lambda: next(clock))
    rows, spec = open_rows(digits), FitSpec.checked(**OPTIONS, tol=0.05)
    room = size_search.SizeLimits(1000, deadline=10.0)
    with pytest.warns(ToleranceWarning, match="the time budget ended the growth at size 100,"):
        fit_rows(rows, spec, Engine(threads=1), Silent(), size_limits=room)


def test_a_budget_that_suffices_changes_nothing(digits: Any, tmp_path: Path) -> None:
    model = bigkpca.fit(digits, str(tmp_path / "model.zarr"), tol=0.3, time_budget="1 h", memory="2 GB", **OPTIONS)
    assert_same_bits(model, fit(digits, tol=0.3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tol": 0.0}, "tol=0.0"),
        ({"tol": 1.0}, "tol=1.0"),
        ({"tol": 0.1, "size": 50}, r"tol=0.1 lets the size grow, but size=50 leaves nothing to grow"),
        ({"tol": 0.1, "method": "exact"}, "but the exact method leaves nothing to grow"),
        ({"tol": 0.1, "landmarks": [1, 2]}, "but 2 landmarks leaves nothing to grow"),
        ({"tol": 0.1, "time_budget": "soon"}, "'soon' is not a time"),
        ({"tol": 0.1, "time_budget": 0}, "a time budget must be positive"),
        ({"time_budget": "1 min"}, "give a tolerance, tol, with it"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: dict[str, Any], message: str, digits: Any, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=message):
        bigkpca.fit(digits[:100], str(tmp_path / "model.zarr"), **options)


# Components


def clustered(clusters: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    centres = 6 * rng.normal(size=(clusters, 8))
    return np.concatenate([centre + 0.5 * rng.normal(size=(60, 8)) for centre in centres])


@pytest.mark.parametrize("method", ["nystroem", "exact", "rff"])
@pytest.mark.parametrize("clusters", [3, 5])
def test_the_largest_gap_lies_behind_the_components_that_part_clusters(clusters: int, method: str) -> None:
    X = clustered(clusters)
    size = {"nystroem": {"size": 100}, "rff": {"size": 1000}}.get(method, {})
    model = fit(X, components="auto", sigma=6.0, method=method, **size)
    assert model.components == chosen(model)["components"] == clusters - 1
    assert_same_bits(model, fit(X, components=clusters - 1, sigma=6.0, method=method, **size))


def test_gaps_are_looked_for_among_trustworthy_components_alone() -> None:
    assert certificate.trustworthy(("solid", "fair", "doubtful", "solid")) == 2
    assert certificate.trustworthy(("solid", "fair")) == 2
    assert certificate.before_largest_gap(np.array([8.0, 7.0, 2.0, 1.5])) == (2, 3.5)
    assert certificate.before_largest_gap(np.array([8.0])) == (1, 1.0)


def test_no_trustworthy_component_leaves_one(digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FAIR", "SOLID"):
        monkeypatch.setattr(certificate, name, 2.0)
    for name in ("SMALL", "MODERATE"):
        monkeypatch.setattr(certificate, name, 0.0)
    model = fit(digits[:300], components="auto", size=50)
    assert model.components == 1
    assert "not even the first is trustworthy" in model.provenance["choices"][-1]["reason"]


def test_trust_that_nothing_can_tell_is_an_error(digits: Any) -> None:
    solution = fit(digits[:300], components=2, method="rff", size=64).solution
    with pytest.raises(SpecError, match=r"components=.auto. needs to know which are .*, which rff cannot tell here"):
        chosen_components(FitSpec.checked(components="auto", method="rff"), lambda _: (solution, Certificate()))


def test_a_share_of_the_variance_is_reported_with_what_was_reached(digits: Any) -> None:
    enough = fit(digits[:300], components=0.5, size=100).provenance["choices"][-1]
    assert enough["option"] == "components"
    assert enough["reason"].startswith("the fewest with 0.5 of the variance: at least 0.5")
    few = fit(digits[:300], components=0.99, size=5).provenance["choices"][-1]
    assert few["value"] == 5
    assert few["reason"].startswith("all there are: at least 0.")


def test_components_are_chosen_again_when_rows_are_added() -> None:
    X = clustered(3)
    kpca = KernelPCA("auto", sigma=6.0, size=100, random_state=0).fit(X[::2])
    kpca.partial_fit(X[1::2])
    assert kpca.n_components_ == 2
    assert [choice["option"] for choice in kpca.model_.provenance["choices"]] == ["landmarks", "components"]


# Reports


def test_every_automatic_choice_is_reported_with_its_reason(digits: Any) -> None:
    model = fit(digits[:300], components=5)
    assert chosen(model) == {"sigma": model.features.kernel.sigma, "landmarks": "kmeans", "size": 300}
    assert all(choice["reason"] for choice in model.provenance["choices"])
    assert chosen(fit(digits[:300], sigma=20.0, size=50, landmarks="kmeans")) == {}
    random = fit(digits[:300], method="rff-pca")
    assert chosen(random)["n_directions"] == random.features.axes.shape[1]
    assert chosen(random)["size"] == 2048


@pytest.mark.parametrize("kernel", ["gaussian", "sigmoid", "polynomial"])
def test_landmark_rules_come_with_their_reason(kernel: str) -> None:
    rows = ArrayRows(np.zeros((9, 2)))
    found = resolve(FitSpec.checked(kernel=kernel), rows)
    assert {"kmeans": "x - y", "uniform": "semidefinite", "rpcholesky": "no length"}[
        found.rule.name
    ] in found.rule_reason
    assert "uniformly" in resolve(FitSpec.checked(kernel=kernel, method="columns"), rows).rule_reason


def test_commands_report_what_they_chose(digits: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "digits.npy", digits[:700])
    run = CliRunner().invoke
    model = str(tmp_path / "model.zarr")
    shown = run(main, ["fit", str(tmp_path / "digits.npy"), model, "--tol", "0.3", "--components", "auto"])
    assert shown.exit_code == 0, shown.output
    size = chosen(load_model(model))["size"]
    assert f"chosen: size {size}, the smallest, to a tenth, with tol=0.3: an error of 0." in shown.output
    assert "chosen: components 1, " in shown.output
    assert "size 100: error 0." in shown.stderr
    assert f"chosen: size {size}" in run(main, ["info", model]).output
    facts = json.loads(run(main, ["info", model, "--json"]).output)
    assert {choice["option"] for choice in facts["choices"]} == {"sigma", "landmarks", "size", "components"}


def test_the_error_of_random_features_is_shown_and_marked_as_estimated(digits: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "digits.npy", digits[:300])
    model = str(tmp_path / "model.zarr")
    options = ["--method", "rff", "--size", "200", "--components", "3"]
    shown = CliRunner().invoke(main, ["fit", str(tmp_path / "digits.npy"), model, *options])
    assert "error of the centred kernel matrix: " in shown.output
    assert load_model(model).certificate.kernel_error > 0  # type: ignore[operator]


def test_the_same_growth_is_the_same_file(digits: Any, tmp_path: Path) -> None:
    first, second = (bigkpca.fit(digits[:300], str(tmp_path / name), tol=0.3, **OPTIONS) for name in ("a", "b"))
    assert model_digest(first) == model_digest(second)


def test_a_plan_counts_the_largest_size_that_a_tolerance_may_need(digits: Any) -> None:
    plan = plan_fit(open_rows(digits), FitSpec.checked(tol=0.1), 1)
    assert plan.size == 1797
    assert plan.passes == 1


def test_a_saturated_sigmoid_is_refused_with_a_gamma_that_suits_the_rows(digits: np.ndarray[Any, Any]) -> None:
    for rows in (digits, digits.astype(float) * 16):
        with pytest.raises(SpecError, match=r"is 1 or -1 for 100% of sampled pairs of rows, with gamma=") as caught:
            KernelPCA(4, kernel="sigmoid", size=100, random_state=0).fit(rows)
        found = re.search(r"a smaller gamma, about ([\de.-]+) for", str(caught.value))
        assert found is not None
        with pytest.warns(IndefiniteKernelWarning):
            kpca = KernelPCA(4, kernel="sigmoid", gamma=float(found[1]), size=100, random_state=0).fit(rows)
        assert 0.1 < kpca.explained_variance_ratio_.sum() < 0.9
    with pytest.raises(SpecError, match="take a coef0 near 0"):
        KernelPCA(1, kernel="sigmoid", coef0=20.0, size=20, random_state=0).fit(np.eye(40))
