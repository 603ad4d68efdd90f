"""Type checkers report the mistakes in a user's script, and nothing in a script without mistakes."""

import json
import os
import re
import shutil
import sys

import pytest

from tests.helpers.commands import finished
from tests.helpers.files import ROOT

WRONG = """
import dask.array as da
import numpy as np

import bigkpca
from bigkpca import KernelPCA, kernels

X = np.ones((9, 3))
kpca = KernelPCA(3).fit(X)

KernelPCA(n_component=3)  # wrong
KernelPCA(n_components=[3])  # wrong
KernelPCA(3, size=1.5)  # wrong
KernelPCA(3).fit()  # wrong
KernelPCA.load(3)  # wrong
kpca.transform(X).compute()  # wrong
kpca.score(X, noise=1.0)  # wrong
kernels.Gaussian(sigma=2.0, degree=3)  # wrong
bigkpca.fit("rows.zarr", "model.zarr", component=3)  # wrong


def scores_of(rows: da.Array) -> list[float]:
    return kpca.fit_transform(rows)  # wrong
"""
RIGHT = """
from typing import Any, assert_type

import dask.array as da
import numpy as np

import bigkpca
from bigkpca import KernelPCA, kernels

X = np.ones((9, 3))
kpca = KernelPCA(n_components=3, kernel=kernels.Gaussian(2.0), size=5, random_state=0).fit(X)
assert_type(kpca, KernelPCA)
assert_type(kpca.partial_fit(X), KernelPCA)
assert_type(kpca.score(X), float)
assert_type(kpca.transform(X), np.ndarray[Any, Any])
assert_type(kpca.fit_transform(X), np.ndarray[Any, Any])
shape: tuple[int, ...] = kpca.transform(X, "scores.zarr").shape
model = bigkpca.fit("rows.zarr", "model.zarr", n_components=3, random_state=0)
bigkpca.transform(model, "rows.zarr", "scores.zarr")


def lazy_scores(rows: da.Array) -> None:
    assert_type(kpca.transform(rows), da.Array)
    assert_type(kpca.transform("rows.zarr"), da.Array)
    assert_type(kpca.fit_transform(rows), da.Array)
"""
CHECKERS = {
    "mypy": ["--config-file=", "--strict", "--follow-imports=silent", "--cache-dir=cache", "--python-executable"],
    "basedpyright": ["--pythonpath"],  # pyright, with a Node.js of its own
}


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_type_checker_reports_each_wrong_line_of_a_script_and_no_other(checker, tmp_path):
    found = shutil.which(checker, path=f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{checker} is not installed")
    for name, script in {"wrong.py": WRONG, "right.py": RIGHT}.items():
        (tmp_path / name).write_text(script)
    config = {"extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [found, *CHECKERS[checker], sys.executable, "wrong.py", "right.py"]
    shown = finished(*command, code=1, cwd=tmp_path, env=os.environ | {"MYPYPATH": str(ROOT)}).stdout
    reported = set(re.findall(r"(wrong|right)\.py:(\d+):.*error", shown))
    marked = [i for i, line in enumerate(WRONG.splitlines(), 1) if line.endswith("# wrong")]
    assert len(marked) == 10
    assert reported == {("wrong", str(i)) for i in marked}, shown
