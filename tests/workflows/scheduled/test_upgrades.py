"""A store of features that meets other packages, or another type of processor."""

import json
from pathlib import Path

import numpy as np
import pytest
from bigkpca.data.versions import read_versions

import bigkpca
from bigkpca.errors import SpecError
from bigkpca.execution.engine import Engine
from bigkpca.storage import jobs, models
from bigkpca.workflows.scheduled import records
from tests.helpers.nights import some_rows, stops_after
from tests.helpers.progress import Recorder


@pytest.fixture
def night(night):
    """A job that ran on 90 rows; 40 more wait."""
    night.append(some_rows(40, 1))
    return night


def upgrade(monkeypatch, **packages):
    """From now on these packages have these versions, as records have it."""
    real = records.version
    monkeypatch.setattr(records, "version", lambda name: packages.get(name) or real(name))


def numbers(night):
    return [each["number"] for each in read_versions(night.out)["versions"]]


@pytest.mark.full
def test_a_model_keeps_its_digest_under_a_later_bigkpca(night, monkeypatch):
    before = models.model_digest(bigkpca.load(night.model))
    monkeypatch.setattr(models, "version", lambda _: "99.0")
    assert models.model_digest(bigkpca.load(night.model)) == before
    assert night.run()[0]["rows"] == [90, 130]
    assert bigkpca.reconstruct(night.model, night.out, f"{night.root}/again.zarr").shape == (130, 4)


def test_a_run_says_once_that_other_packages_made_the_features_that_are_there(night, monkeypatch):
    upgrade(monkeypatch, scipy="9.9", zarr="9.9")  # the latter decides no byte
    told = Recorder()
    (record,) = night.run(told)
    before = records.makers(bigkpca.history(night.out)[0])["scipy"]
    assert record["message"] == (
        f"{night.out}/1 holds features made with scipy {before}, but this run has scipy 9.9: last digits can differ; "
        "to make all features again: bigkpca run JOB.toml --full"
    )
    assert told.notes == [f"warning: {record['message']}"]
    assert record["packages"]["scipy"] == "9.9"
    night.append(some_rows(9))
    assert night.run()[0]["message"] is None
    assert numbers(night) == [1]
    monkeypatch.setattr(Engine, "core_types", lambda _: ["Zen", "Haswell"])
    night.append(some_rows(9))
    assert "but this run has processors Zen, Haswell: " in night.run()[0]["message"]


def test_a_job_may_refuse_to_mix(night, monkeypatch):
    night.set(on_upgrade="fail")
    upgrade(monkeypatch, bigkpca="9.9", numpy="9.9")
    message = r"has bigkpca 9\.9, numpy 9\.9: .*Run with the same versions, or make all"
    for asked in ({}, {"rows": "0:32"}):
        with pytest.raises(SpecError, match=message):
            night.run(**asked)
    assert bigkpca.history(night.out)[-1]["exit_code"] == 2
    assert night.scores().shape == (90, 3)
    assert night.run(full=True)[0]["version"] == 2
    night.append(some_rows(9))
    assert night.run()[0]["total_rows"] == 139


@pytest.mark.parametrize("asked", [{}, pytest.param({"rows": "0:32"}, marks=pytest.mark.full)])
def test_a_job_may_begin_a_version_with_the_new_packages(night, asked, monkeypatch):
    night.set(on_upgrade="full")
    upgrade(monkeypatch, numpy="9.9")
    (record,) = night.run(**asked)
    rows = 130 if not asked else 90
    assert (record["version"], record["extracted"], record["total_rows"]) == (2, [0, rows], rows)
    reason = read_versions(night.out)["versions"][-1]["reason"]
    assert reason == f"all rows extracted again: numpy {np.__version__} before, numpy 9.9 now"
    night.append(some_rows(9))
    assert night.run()[0]["version"] == 2
    upgrade(monkeypatch, numpy="9.10")
    assert night.run()[0]["version"] == 2  # no new rows, nothing is made again
    np.testing.assert_array_equal(night.scores(), night.wanted())
    assert not list(Path(night.out).glob("*.bigkpca-*"))


@pytest.mark.full
@pytest.mark.parametrize("on_upgrade", ["warn", "full"])
def test_blocks_of_a_run_that_was_cut_off_before_an_upgrade_are_made_again(night, on_upgrade, monkeypatch):
    night.set(on_upgrade=on_upgrade)
    night.append(some_rows(200, 2))
    with pytest.raises(KeyboardInterrupt):
        night.run(stops_after())
    assert jobs.read_pinned(night.out)["made_by"]["numpy"] == np.__version__
    upgrade(monkeypatch, numpy="9.9")
    told, stopped = Recorder(), stops_after()
    with pytest.raises(KeyboardInterrupt):
        night.run(stopped)
    assert not any(note.startswith("continuing: ") for note in stopped.notes)
    night.run(told)
    assert any(note.startswith("continuing: ") for note in told.notes)
    np.testing.assert_array_equal(night.scores(), night.wanted())


def test_a_record_that_says_nothing_of_packages_is_compared_with_nothing(night):
    assert records.makers({"packages": None, "processors": "x"}) == {}
    file = Path(night.out, "1", "scores", "manifest.json")
    manifest = json.loads(file.read_text())
    del manifest["run"]["packages"], manifest["run"]["processors"]
    file.write_text(json.dumps(manifest))
    assert night.run()[0]["message"] is None
