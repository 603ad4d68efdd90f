"""A job that ran once, which every test finds as it was made, and one that did not run."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import bigkpca
from bigkpca.numerics.certificate import Certificate
from bigkpca.workflows.fit import save
from tests.helpers.disks import Restored
from tests.helpers.nights import Night, some_rows


@pytest.fixture(autouse=True)
def _quiet(quiet_signals):
    """Commands run in this process."""


@pytest.fixture(scope="session")
def fitted(tmp_path_factory):
    """A model with the options of the job, and no more arrays than runs need, since each run reads them all."""
    folder = tmp_path_factory.mktemp("fitted")
    options = {"n_components": 3, "size": 20, "random_state": 3, "calibration_rows": 40}
    model = bigkpca.fit(some_rows(90), folder / "whole.zarr", **options)
    save(replace(model, certificate=Certificate.of(3)), folder / "model.zarr")
    return folder / "model.zarr"


@pytest.fixture(scope="session")
def made(tmp_path_factory, fitted):
    """What `night` copies; modules may have another one."""
    night = Night.made(tmp_path_factory.mktemp("made") / "job")
    shutil.copytree(fitted, night.model)
    night.append(some_rows(90))
    night.run()
    return Restored.made(Path(night.folder))


@pytest.fixture
def night(made):
    """A job whose first run extracted 90 rows, in blocks of 32, unless a module makes it otherwise."""
    return Night(made.again())


@pytest.fixture
def new(tmp_path, fitted):
    """A job that has a model, and did not run."""
    night = Night.made(tmp_path / "job")
    shutil.copytree(fitted, night.model)
    return night
