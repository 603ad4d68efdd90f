"""ONNX: the scores of KernelPCA by another runtime."""

import sys

import numpy as np
import onnxruntime
import pytest

import bigkpca
from bigkpca import KernelPCA, kernels
from bigkpca.errors import SpecError
from tests.helpers.commands import run
from tests.serving.cases import CASES, NEW, X, fitted, largest_difference


def by_runtime(path, rows):
    """The scores of rows by onnxruntime."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    kind = {"tensor(float)": np.float32, "tensor(double)": np.float64}[session.get_inputs()[0].type]
    (scores,) = session.run(["scores"], {"rows": rows.astype(kind)})
    return np.asarray(scores)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("columns", "exact", "not centred")])
def test_scores_are_those_of_the_model(name, tmp_path):
    kpca = fitted(name)
    bigkpca.export(kpca, tmp_path / "model.onnx")
    expected = kpca.transform(NEW)
    found = by_runtime(tmp_path / "model.onnx", NEW)
    assert found.dtype == expected.dtype
    assert largest_difference(found, expected) < (1e-5 if found.dtype == np.float32 else 1e-9)
    assert largest_difference(by_runtime(tmp_path / "model.onnx", NEW[:1]), expected[:1]) < 1e-5


def test_rows_far_from_the_origin_and_sentinels_among_the_landmarks(tmp_path):
    path, rows = tmp_path / "model.onnx", np.random.default_rng(0).normal(size=(800, 5))
    far = KernelPCA(4, size=80, random_state=0).fit(X + 1e5)
    bigkpca.export(far, path)
    assert largest_difference(by_runtime(path, NEW + 1e5), far.transform(NEW + 1e5)) < 1e-7
    rows[::20, 2] = -1e8
    sentinels = KernelPCA(3, sigma=2.0, size=60, random_state=0).fit(rows)
    bigkpca.export(sentinels, path, overwrite=True)
    assert largest_difference(by_runtime(path, rows), sentinels.transform(rows)) < 1e-6


@pytest.mark.full
def test_the_command_writes_a_model(tmp_path):
    bigkpca.fit(X, tmp_path / "model.zarr", n_components=3, size=60)
    command = ("export", tmp_path / "model.zarr", tmp_path / "model.onnx")
    done, again = run(*command), run(*command)
    assert (done.exit_code, again.exit_code) == (0, 2), done.output
    expected = KernelPCA.load(tmp_path / "model.zarr").transform(NEW)
    assert largest_difference(by_runtime(tmp_path / "model.onnx", NEW), expected) < 1e-9
    assert "model.onnx already exists" in again.output


def test_what_onnx_cannot_hold(tmp_path, monkeypatch):
    bessel = KernelPCA(2, kernel=kernels.Matern(30.0, nu=0.8), size=50).fit(X)
    sketch = KernelPCA(2, kernel="polynomial", method="rff", size=64).fit(X)
    function = KernelPCA(2, kernel=lambda A, B: A @ B.T, size=50).fit(X)
    for kpca, message in (
        (bessel, "ONNX has no Bessel functions: the matern kernel needs nu = 0.5, 1.5 or 2.5, not 0.8"),
        (sketch, "tensor-sketch features have no operators in ONNX"),
        (function, "kernel has no operators in ONNX"),
    ):
        with pytest.raises(SpecError, match=message):
            bigkpca.export(kpca, tmp_path / "model.onnx")
    with pytest.raises(SpecError, match=r"a \.onnx file has no column of labels"):
        bigkpca.export(bessel, tmp_path / "model.onnx", labels="y")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(SpecError, match=r"needs onnx: pip install 'bigkpca\[onnx\]'"):
        bigkpca.export(fitted("linear"), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
