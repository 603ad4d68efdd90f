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


def test_what_is_no_weight_is_refused_in_the_words_typed(rows, tmp_path):
    for typed, message in {
        ("origin",): "--weight origin: give a column and its weight, 0 or more, e.g. --weight distance=2.5",
        ("=3",): "--weight =3: give a column and its weight",
        ("origin=1", "origin=much"): "--weight origin=much: give a column and its weight",
        ("origin=-1",): "the weight of 'origin' is -1.0: give a finite number, 0 or more",
        ("origni=2",): "a weight is given for 'origni', which is not a column of",
    }.items():
        words = [word for each in typed for word in ("--weight", each)]
        shown = run("fit", rows, tmp_path / "m.zarr", *words)
        assert (shown.exit_code, message in shown.stderr) == (2, True), shown.output
    assert not (tmp_path / "m.zarr").exists()
