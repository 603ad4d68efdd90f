"""Models on disk: they come back as they were, and what is damaged or unknown is refused."""

import itertools
import os
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca import kernels
from bigkpca.data.rows import ArrayRows, OneHot
from bigkpca.errors import CorruptionError, IncompleteError, SpecError
from bigkpca.numerics.calibration import Limit
from bigkpca.storage import models
from bigkpca.storage.describe import info
from bigkpca.storage.models import _parts, assembled, load_model, model_digest
from bigkpca.workflows.fit import save
from tests.data.cases import case, refused
from tests.helpers.disks import tree_bytes
from tests.helpers.fits import fit
from tests.storage import hostile
from tests.storage.outputs import FIT, X


def test_a_saved_model_is_the_model_with_its_calibration_if_it_has_one(home):
    fitted = fit(ArrayRows(X), **FIT, calibration_rows=9)
    for name, model, rows in (("whole", fitted, 9), ("plain", replace(fitted, calibration=None), None)):
        save(model, f"{name}.zarr")
        assert model_digest(load_model(f"{name}.zarr")) == model_digest(model)
        assert info(f"{name}.zarr")["calibration_rows"] == rows
    assert model_digest(load_model("plain.zarr")) != model_digest(fitted)
    for name in fitted.calibration.shapes:
        found = getattr(load_model("whole.zarr").calibration, name)
        np.testing.assert_array_equal(found, getattr(fitted.calibration, name))
    zarr.open_array("whole.zarr/calibration_residuals", mode="r+")[0] = 0.5
    refused(load_model, ("whole.zarr", CorruptionError, "does not match its digest"))


def test_a_model_whose_kernel_is_a_function_cannot_be_saved(home):
    fitted = fit(X, **FIT, kernel=kernels.Gaussian(2.0).__call__)
    message = "whose kernel is a function cannot be saved"
    refused(partial(bigkpca.fit, kernel=kernels.Gaussian(2.0).__call__), (X, "o.zarr", SpecError, message))
    refused(save, (fitted, "o.zarr", SpecError, message))


def test_a_damaged_model_or_one_of_an_unknown_version_is_refused(home):
    bigkpca.fit("d.zarr", "n.zarr", **FIT)
    written, chunk = tree_bytes("n.zarr"), home / "n.zarr" / "components" / "c" / "0" / "0"
    zarr.open_array("n.zarr/eigenvalues", mode="r+")[0] = 1.0
    refused(bigkpca.load, ("n.zarr", CorruptionError, "does not match its digest"))
    for damage in (lambda content: content[:-5], lambda content: content[:20] + b"\1" + content[21:]):
        chunk.write_bytes(damage(chunk.read_bytes()))
        message = r"components: (rows 0 to 9 cannot be read|an array does not decode)"
        refused(bigkpca.load, ("n.zarr", CorruptionError, message))
    for name in ("components/zarr.json", "components/c/0/0"):
        (home / "n.zarr" / name).unlink()
        refused(bigkpca.load, ("n.zarr", CorruptionError, "components"))
    with pytest.raises(CorruptionError, match=r"fit the model again with --overwrite"):
        bigkpca.fit("d.zarr", "n.zarr", **FIT)
    bigkpca.fit("d.zarr", "n.zarr", overwrite=True, **FIT)
    assert tree_bytes("n.zarr") == written
    hostile.set_attribute("n.zarr", hostile.attribute("n.zarr") | {"format_version": 99})
    refused(bigkpca.load, ("n.zarr", SpecError, "model format version 99; this bigkpca reads only version 1"))


def test_a_model_that_is_replaced_while_it_is_read_is_read_again(home, monkeypatch):
    bigkpca.fit("d.zarr", "n.zarr", **FIT | {"size": 12})
    expected, read_arrays, swaps = load_model("n.zarr"), models.read_arrays, itertools.count()

    def replaced(often):
        def read(*given):
            if next(swaps) < often:  # between its manifest and its arrays
                for source, target in (("m.zarr", "o.zarr"), ("n.zarr", "m.zarr"), ("o.zarr", "n.zarr")):
                    os.rename(source, target)
                path, _ = given
                return read_arrays(path, hostile.attribute(path)["arrays"])
            return read_arrays(*given)

        monkeypatch.setattr(models, "read_arrays", read)

    replaced(1)
    assert model_digest(load_model("m.zarr")) == model_digest(expected)
    replaced(10**6)
    message = r"m\.zarr was replaced while it was being read: run the same command"
    refused(load_model, ("m.zarr", IncompleteError, message))


def test_an_estimator_makes_the_model_of_the_command(home):
    bigkpca.KernelPCA(3, size=10, random_state=0).fit("d.zarr").save("k.zarr")
    bigkpca.fit("d.zarr", "c.zarr", **FIT)
    assert tree_bytes("k.zarr") == tree_bytes("c.zarr")


def test_large_arrays_of_a_model_are_stored_in_pieces_and_missed_when_they_are_gone(home, monkeypatch):
    monkeypatch.setattr("bigkpca.storage.models._CHUNK_BYTES", 1024)
    # Packed sums of 67 landmarks are 2345 numbers, of which few divisors are near a kilobyte.
    options = {"n_components": 3, "size": 67, "kernel": "linear", "landmarks": "uniform"}
    fitted = bigkpca.fit(np.tile(X, (1, 2)), "model.zarr", **options)
    for name, array in zarr.open_group("model.zarr", mode="r").arrays():
        assert -(-array.shape[0] // array.chunks[0]) <= 1 + array.nbytes / 512, name
    np.testing.assert_array_equal(bigkpca.load("model.zarr").features.landmarks, fitted.features.landmarks)
    shutil.rmtree("model.zarr/landmarks")
    message = r"landmarks \(the rows with which it compares others\) are missing"
    refused(bigkpca.transform, ("model.zarr", X, "scores.zarr", CorruptionError, message))


def test_a_limit_is_checked():
    model = fit(ArrayRows(X), **FIT, calibration_rows=9)
    assert model.calibration.limit is None
    about, arrays = _parts(model)
    limit = {"value": 3.0, "alpha": 0.1, "contamination": None, "left_out": 0}
    found = assembled({**about, "calibration": {"limit": limit}}, arrays)
    assert found.calibration.limit == Limit(3.0, 0.1)
    assert _parts(found)[0]["calibration"] == {"limit": limit}
    refused(
        lambda wrong: assembled({**about, "calibration": {"limit": wrong}}, arrays),
        (3.0, SpecError, "limit is 3.0"),
        ({"value": 3.0}, SpecError, "the limit of the calibration lacks its parameter alpha"),
        ({**limit, "value": "3"}, SpecError, "value must be of type float, not '3'"),
        ({**limit, "more": 3}, SpecError, "unknown parameter of the limit"),
    )
    del arrays["calibration_scores"]
    refused(assembled, (about, arrays, SpecError, "the part 'calibration' lacks its parameter scores"))


def test_parts_that_do_not_make_a_model_are_named():
    rows = ArrayRows(X, names=tuple("abcd"), one_hot=(OneHot("kind", 1, 3),))
    about, arrays = _parts(fit(rows, **FIT, standardize=True, calibration_rows=9))
    assert assembled(about, arrays).variables == {"a": slice(0, 1), "kind": slice(1, 3), "d": slice(3, 4)}
    scale, held = arrays["scale"], arrays["calibration_scores"]
    categories = [["kind", 1, 3], ["other", 2, 4]], [["kind", 1]], {"kind": 1}
    for changes, others, message in (
        ({"solution": {"total_variance": -1.0}}, {}, "total_variance is -1.0, not a positive number"),
        ({"column_names": ["a"]}, {}, "1 column names for 4 columns"),
        ({"features": {"name": "x"}}, {}, "unknown feature map 'x'"),
        ({"features": {"name": "fourier"}, "kernel": {"name": "linear"}}, {}, "'fourier' has no form for the kernel"),
        ({"certificate": 3}, {}, "certificate is 3"),
        ({"sums": about["sums"] | {"count": -1, "weight": 1.0}}, {}, "sums is of -1 rows"),
        ({"kernel": {"name": "x"}}, {}, "unknown kernel 'x'"),
        ({"decoder": {"name": "x"}}, {}, "'x'"),
        ({"one_hot": [["kind", 1, 9]]}, {}, "columns of categories up to column 9, of 4"),
        *(({"one_hot": wrong}, {}, "one_hot is") for wrong in categories),
        *(({"calibration": wrong}, {}, "calibration") for wrong in ([], "x", {"rows": 5, "name": 1})),
        ({}, {"calibration_scores": held * np.nan}, "is empty, or contains NaN"),
        ({}, {"calibration_scores": held[:-1]}, r"calibration_\w+ has the shape \(\d(, \d)?,?\), and not \(c"),
        ({}, {"offset": None}, "the array mean, components or offset is missing"),
        ({}, {"scale": -scale}, "the array scale holds numbers that are not positive"),
        ({}, {"scale": scale[:3]}, r"the array scale has the shape \(3,\), and not \(d\)"),
        ({}, {"mean": arrays["mean"] * np.nan}, "the array mean is empty, or contains NaN or infinity"),
        ({}, {"landmarks": arrays["landmarks"].astype("f2")}, "block work in float16"),
    ):
        given = {name: values for name, values in {**arrays, **others}.items() if values is not None}
        with case((changes, message)), pytest.raises(SpecError, match=message):
            assembled({**about, **changes}, given)
