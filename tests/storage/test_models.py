"""Models on disk: they come back as they were, and what is damaged or unknown is refused."""

import itertools
import os
import shutil
from dataclasses import fields, make_dataclass, replace

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca import KernelPCA, kernels
from bigkpca.data.rows import ArrayRows, OneHot
from bigkpca.errors import CorruptionError, IncompleteError, SpecError
from bigkpca.numerics.certificates import Certificate
from bigkpca.numerics.outliers import Limit
from bigkpca.storage import models
from bigkpca.storage.describe import info
from bigkpca.storage.models import _parts, assembled, load_model, model_digest
from bigkpca.workflows.fit import save
from tests.data.cases import case
from tests.helpers.disks import tree_bytes
from tests.helpers.fits import fit
from tests.storage import hostile
from tests.storage.outputs import FIT, X


def test_a_saved_model_is_the_model_with_its_reference(home):
    fitted = fit(X, **FIT)
    save(fitted, "saved.zarr")
    loaded = load_model("saved.zarr")
    assert model_digest(loaded) == model_digest(fitted)
    for name in loaded.reference.shapes:
        stored = zarr.open_array(f"saved.zarr/reference_{name}", mode="r")
        assert stored.dtype == np.float64
        np.testing.assert_array_equal(stored[...], getattr(fitted.reference, name))
        np.testing.assert_array_equal(stored[...], getattr(loaded.reference, name))
    assert model_digest(replace(loaded, reference=None)) != model_digest(loaded)
    assert info("m.zarr")["reference_rows"] == load_model("m.zarr").reference.rows == 45
    zarr.open_array("saved.zarr/reference_lower", mode="r+")[0, 0] = 0.5
    with pytest.raises(CorruptionError, match="does not match its digest"):
        load_model("saved.zarr")


def test_a_model_without_a_reference_loads(home):
    plain = replace(load_model("m.zarr"), reference=None)
    save(plain, "plain.zarr")
    assert "reference" not in hostile.attribute("plain.zarr")
    loaded = load_model("plain.zarr")
    assert loaded.reference is None
    assert model_digest(loaded) == model_digest(plain)
    assert info("plain.zarr")["reference_rows"] is None


def test_a_number_that_certificates_have_since_then_leaves_digests_as_they_were(home):
    model = load_model("m.zarr")
    later = make_dataclass("Later", [("later", float | None, None)], bases=(Certificate,), frozen=True)
    known = {part.name: getattr(model.certificate, part.name) for part in fields(Certificate)}
    assert model_digest(replace(model, certificate=later(**known))) == model_digest(model)
    assert model_digest(replace(model, certificate=later(**known, later=1.0))) != model_digest(model)


def test_a_reference_that_is_none_is_refused(home):
    written = tree_bytes("m.zarr")
    for name, change, message in (
        ("edges", lambda values: values[:, ::-1], "do not ascend"),
        ("edges", lambda values: values * np.nan, "is empty, or contains NaN"),
        ("edges", lambda values: values[:-1], r"reference_edges has the shape \(3, 64\), and not \(r\+1, m\)"),
        ("upper", lambda values: values[:, 1:], r"reference_upper has the shape \(4, 63\)"),
        ("edges", lambda values: (values[::-1, ::-1] > 0).astype(np.uint8), "do not ascend"),
    ):
        values = zarr.open_array(f"m.zarr/reference_{name}", mode="r")[...]
        hostile.set_array("m.zarr", f"reference_{name}", np.ascontiguousarray(change(values)))
        with case((name, message)), pytest.raises(CorruptionError, match=message):
            load_model("m.zarr")
        hostile.put("m.zarr", written)


@pytest.mark.full
def test_a_reference_that_is_described_otherwise_is_refused(home):
    attribute = hostile.attribute("m.zarr")
    for about in [
        *({"rows": rows} for rows in (0, -1, 2.5, True, "many", 10**30)),
        [],
        "x",
        {},
        {"rows": 5, "name": 1},
    ]:
        hostile.forge("m.zarr", attribute | {"reference": about})
        with case(about), pytest.raises(CorruptionError, match="reference"):
            load_model("m.zarr")


def test_a_model_whose_kernel_is_a_function_cannot_be_saved(home):
    fitted = fit(X, **FIT, kernel=kernels.Gaussian(2.0).__call__)
    for action in (
        lambda: bigkpca.fit(X, "o.zarr", kernel=kernels.Gaussian(2.0).__call__),
        lambda: save(fitted, "o.zarr"),
    ):
        with pytest.raises(SpecError, match="whose kernel is a function cannot be saved"):
            action()


def test_a_damaged_model_or_one_of_an_unknown_version_is_refused(home):
    zarr.open_array("m.zarr/eigenvalues", mode="r+")[0] = 1.0
    with pytest.raises(CorruptionError, match="does not match its digest"):
        bigkpca.load("m.zarr")
    for damage in (lambda content: content[:-5], lambda content: content[:20] + b"\1" + content[21:]):
        chunk = home / "m.zarr" / "components" / "c" / "0" / "0"
        chunk.write_bytes(damage(chunk.read_bytes()))
        with pytest.raises(CorruptionError, match=r"components: (rows 0 to 9 cannot be read|an array does not decode)"):
            bigkpca.load("m.zarr")
    for name in ("components/zarr.json", "components/c/0/0"):
        (home / "m.zarr" / name).unlink()
        with pytest.raises(CorruptionError, match=r"components"):
            bigkpca.load("m.zarr")
    metadata = home / "m.zarr" / "zarr.json"
    metadata.write_text(metadata.read_text().replace('"format_version": 2', '"format_version": 99'))
    with pytest.raises(SpecError, match="model format version 99; this bigkpca reads only version 2"):
        bigkpca.load("m.zarr")


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
    with pytest.raises(IncompleteError, match=r"m\.zarr was replaced while it was being read: run the same command"):
        load_model("m.zarr")


def test_an_estimator_makes_the_model_of_the_command(home):
    bigkpca.KernelPCA(3, size=10, random_state=0).fit("d.zarr").save("k.zarr")
    bigkpca.fit("d.zarr", "c.zarr", **FIT)
    assert tree_bytes("k.zarr") == tree_bytes("c.zarr")


def test_large_arrays_of_a_model_are_stored_in_pieces_and_missed_when_they_are_gone(home, monkeypatch):
    monkeypatch.setattr("bigkpca.storage.models._CHUNK_BYTES", 1024)
    fitted = bigkpca.fit(X, "model.zarr", method="exact", n_components=3)
    assert len(list((home / "model.zarr" / "landmarks" / "c").iterdir())) == 3
    np.testing.assert_array_equal(bigkpca.load("model.zarr").features.landmarks, fitted.features.landmarks)
    shutil.rmtree("model.zarr/landmarks")
    with pytest.raises(CorruptionError, match=r"landmarks \(the rows with which it compares others\) are missing"):
        bigkpca.transform("model.zarr", X, "scores.zarr")


def test_paths_that_hold_something_else(home):
    for path, message in (
        ("nothing.zarr", "does not exist: no model"),
        ("d.zarr/x", "exists, but is not a bigkpca model"),
        ("s.zarr", "is a bigkpca feature store, not a model"),
    ):
        with case(path), pytest.raises(SpecError, match=message):
            bigkpca.load(path)


def test_arrays_of_a_model_have_no_more_chunks_than_megabytes(tmp_path):
    """Packed sums of 523 landmarks are 273,529 numbers: few divisors of that are near a megabyte."""
    rows = np.random.default_rng(0).normal(size=(530, 100))
    bigkpca.fit(rows, tmp_path / "model.zarr", n_components=5, size=523, kernel="linear", landmarks="uniform")
    for name, array in zarr.open_group(tmp_path / "model.zarr", mode="r").arrays():
        chunks = -(-array.shape[0] // array.chunks[0])
        assert chunks <= 1 + array.nbytes / 2**19, name


def test_a_limit_is_checked():
    model = fit(ArrayRows(X), **FIT, calibration_rows=9)
    assert model.calibration.limit is None
    about, arrays = _parts(model)
    limit = {"value": 3.0, "alpha": 0.1, "contamination": None, "left_out": 0}
    found = assembled({**about, "calibration": {"limit": limit}}, arrays)
    assert found.calibration.limit == Limit(3.0, 0.1)
    assert _parts(found)[0]["calibration"] == {"limit": limit}
    for wrong, message in (
        (3.0, "limit is 3.0"),
        ({"value": 3.0}, "the limit of the calibration lacks its parameter alpha"),
        ({**limit, "value": "3"}, "value must be of type float, not '3'"),
        ({**limit, "more": 3}, "unknown parameter of the limit"),
    ):
        with pytest.raises(SpecError, match=message):
            assembled({**about, "calibration": {"limit": wrong}}, arrays)
    del arrays["calibration_values"]
    with pytest.raises(SpecError, match="the part 'calibration' lacks its parameter values"):
        assembled(about, arrays)


def test_parts_that_do_not_make_a_model_are_named():
    about, arrays = _parts(fit(ArrayRows(X, names=tuple("abcd")), **FIT, standardize=True))
    scale = arrays["scale"]
    for changes, others, message in (
        ({"solution": {"total_variance": -1.0}}, {}, "total_variance is -1.0, not a positive number"),
        ({"column_names": ["a"]}, {}, "1 column names for 4 columns"),
        ({"features": {"name": "x"}}, {}, "unknown feature map 'x'"),
        ({"features": {"name": "fourier"}, "kernel": {"name": "linear"}}, {}, "'fourier' has no form for the kernel"),
        ({"certificate": 3}, {}, "certificate is 3"),
        ({"sums": about["sums"] | {"count": -1, "weight": 1.0}}, {}, "sums is of -1 rows"),
        ({"kernel": {"name": "x"}}, {}, "unknown kernel 'x'"),
        ({"decoder": {"name": "x"}}, {}, "'x'"),
        ({}, {"offset": None}, "the array mean, components or offset is missing"),
        ({}, {"scale": -scale}, "the array scale holds numbers that are not positive"),
        ({}, {"scale": scale[:3]}, r"the array scale has the shape \(3,\), and not \(d\)"),
        ({}, {"mean": arrays["mean"] * np.nan}, "the array mean is empty, or contains NaN or infinity"),
        ({}, {"landmarks": arrays["landmarks"].astype("f2")}, "block work in float16"),
    ):
        given = {name: values for name, values in {**arrays, **others}.items() if values is not None}
        with case(message), pytest.raises(SpecError, match=message):
            assembled({**about, **changes}, given)
    for wrong, message in (
        (KernelPCA(), "this KernelPCA has no model: pass a fitted"),
        (3, "a int is not a model: pass"),
    ):
        with pytest.raises(SpecError, match=message):
            models.model_of(wrong)


def test_a_model_keeps_which_columns_are_one_column_of_categories(tmp_path):
    rows = ArrayRows(X[:, :4], names=tuple("abcd"), one_hot=(OneHot("kind", 1, 3),))
    model = fit(rows, **FIT)
    save(model, str(tmp_path / "m.zarr"))
    assert load_model(str(tmp_path / "m.zarr")).variables == {"a": slice(0, 1), "kind": slice(1, 3), "d": slice(3, 4)}
    about, arrays = _parts(model)
    for wrong, message in (
        ([["kind", 1, 9]], "columns of categories up to column 9, of 4"),
        ([["kind", 1, 3], ["other", 2, 4]], "one_hot is"),
        ([["kind", 1]], "one_hot is"),
        ({"kind": 1}, "one_hot is"),
    ):
        with pytest.raises(SpecError, match=message):
            assembled({**about, "one_hot": wrong}, arrays)
