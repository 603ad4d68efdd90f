"""Weights of columns on the command line: typed, refused and shown."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import bigkpca
from tests.helpers.commands import run

pytestmark = pytest.mark.usefixtures("quiet_signals")
RNG = np.random.default_rng(4)
FRAME = pd.DataFrame({"day": RNG.normal(size=90), "origin": RNG.choice(["A", "B"], 90), "late": RNG.normal(size=90)})
WEIGHTS = ("--weight", "origin=4", "--weight", "late=0.5")


@pytest.fixture
def rows(tmp_path):
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    bigkpca.ingest(tmp_path / "t.csv", tmp_path / "t.zarr", categorical="origin")
    return tmp_path / "t.zarr"


def test_typed_weights_reach_the_model_and_info_shows_them(rows, tmp_path):
    options = ("--standardize", *WEIGHTS, "--components", 2, "--size", 20, "-q")
    assert run("fit", rows, tmp_path / "m.zarr", *options).exit_code == 0
    facts = json.loads(run("info", tmp_path / "m.zarr", "--json").stdout)
    assert facts["options"]["column_weights"] == {"late": 0.5, "origin": 4.0}
    assert re.search("^options .*column weights late 0.5, origin 4$", run("info", tmp_path / "m.zarr").stdout, re.M)
    weights = {"origin": 4, "late": 0.5}
    bigkpca.fit(rows, tmp_path / "p.zarr", standardize=True, column_weights=weights, n_components=2, size=20)
    assert facts["digest"] == bigkpca.info(str(tmp_path / "p.zarr"))["digest"]
    assert run("plan", rows, *WEIGHTS, "-q").exit_code == 0
    found = bigkpca.sigma(rows, column_weights={"origin=A": 9})["median"].sigma  # a name can contain "="
    assert run("sigma", rows, "--weight", "origin=A=9", "-q").stdout.split()[:2] == ["median", f"{found:.6g}"]
    shown = run("fit", rows, tmp_path / "n.zarr", "--weight", "origni=2")
    assert shown.exit_code == 2
    assert "a weight is given for 'origni', which is not a column of" in shown.stderr
    assert not (tmp_path / "n.zarr").exists()
