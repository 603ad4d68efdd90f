"""Files from others: whatever they hold, they load to something that works, or are refused with an error of bigkpca."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import bigkpca
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import BigKPCAError, CorruptionError, SpecError
from bigkpca.spec import FitSpec
from bigkpca.storage.describe import info, model_info
from bigkpca.storage.models import load_model
from bigkpca.workflows.inputs import open_scores
from tests.data.cases import case, refused
from tests.helpers.disks import tree_bytes
from tests.helpers.fits import scores as transformed
from tests.storage import hostile
from tests.storage.outputs import FIT, X


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The files of one model of each kind."""
    folder, found = tmp_path_factory.mktemp("kinds"), {}
    for kind, options in hostile.KINDS.items():
        rows = np.abs(X[:40]) if kind != "given" else X[:40] @ X[:40].T
        bigkpca.fit(rows, folder / f"{kind}.zarr", **FIT | options)
        found[kind] = tree_bytes(folder / f"{kind}.zarr")
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Where each test, and each example, puts a model of its own."""
    return tmp_path_factory.mktemp("place") / "model.zarr"


def check_model(path):
    """Whether the model at `path` loads; then its uses give results of the right kind, or errors of bigkpca."""
    model = hostile.used(lambda: load_model(path), path)
    if model is None:
        return False
    rows = ArrayRows(np.resize(np.abs(X), (7, model.columns)))
    scores = hostile.used(lambda: transformed(model, rows))
    assert scores is None or scores.shape == (7, model.components)
    if scores is not None and (held := model.calibration) is not None:
        drift = hostile.used(lambda: held.drift(held.counted(scores, scores[:, 0])))
        assert drift is None or 0 <= drift.figure <= 1
    facts = hostile.used(lambda: model_info(model, str(path)))
    assert facts is None or facts["kind"] == "model"
    assert isinstance(hostile.used(lambda: FitSpec.of(model)), FitSpec | None)
    assert str(model)
    return True


kinds = st.sampled_from(list(hostile.KINDS))


@given(kind=kinds, changes=hostile.DRAWS)
def test_a_model_with_another_attribute(models, place, kind, changes):
    hostile.put(place, models[kind])
    hostile.forge(place, hostile.changed(hostile.attribute(place), changes))
    check_model(place)


@pytest.mark.full
@given(kind=kinds, number=st.integers(0, 100), changes=hostile.DRAWS)
def test_a_model_with_other_metadata_of_an_array(models, place, kind, number, changes):
    hostile.put(place, models[kind])
    names = hostile.attribute(place)["arrays"]
    file = place / names[number % len(names)] / "zarr.json"
    file.write_text(json.dumps(hostile.changed(json.loads(file.read_text()), changes)))
    check_model(place)


@pytest.mark.full
@given(
    kind=kinds,
    number=st.integers(0, 100),
    shape=st.sampled_from([(), (1,), (2,), (3,), (4,), (10,), (3, 3), (10, 3), (10, 4), (3, 10), (1, 1), (5, 2)]),
    dtype=st.sampled_from(["f8", "f4", "i4", "u1", "b1", "i8"]),
    value=st.sampled_from([0.0, -1.0, 1e308, 5e-324, np.nan, np.inf, 2.0]),
)
def test_a_model_with_another_array(models, place, kind, number, shape, dtype, value):
    """Shapes, types and values that the digest vouches for."""
    hostile.put(place, models[kind])
    names = hostile.attribute(place)["arrays"]
    name = names[number % len(names)]
    old = zarr.open_array(f"{place}/{name}", mode="r").shape
    new = np.full(shape or old, value if np.isfinite(value) or dtype[0] == "f" else 0)
    with np.errstate(over="ignore", invalid="ignore"):
        hostile.set_array(place, name, new.astype(dtype))
    check_model(place)


@pytest.mark.full
@given(kind=kinds, number=st.integers(0, 200), at=st.integers(0, 5000), how=st.integers(0, 3))
def test_a_model_with_damaged_files(models, place, kind, number, at, how):
    content = dict(models[kind])
    name = sorted(content)[number % len(content)]
    at %= len(content[name]) + 1
    before, after = content[name][:at], content[name][at:]
    content[name] = [before, before + b"\xff" + after[1:], before + b"\0" * 9 + after, b"[" * at][how]
    if number % 7 == 0:
        del content[name]
    hostile.put(place, content)
    check_model(place)


def test_forms_and_sizes_of_arrays_that_models_do_not_have_are_refused_in_little_memory(models, place):
    hostile.put(place, models["landmarks"])
    file = place / "components" / "zarr.json"
    written = json.loads(file.read_text())

    def shaped(shape, *chunk):
        return {"shape": shape, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}}}

    more = r"an array does not decode \(shape .* takes .* bytes, but"

    def load(changes):
        file.write_text(json.dumps(written | changes))
        hostile.bounded(lambda: load_model(place))

    for changes, message in (
        (shaped([10**15, 3], 2**20, 3), more),
        (shaped([10**15], 2**20), more),
        (shaped([3, 10**15], 3, 10**15), more),
        (shaped([2**40, 2**40], 2**20, 2**40), more),
        (shaped([10, 3], 10**9, 3), "has shape .* and chunks of 1000000000 rows"),
        (shaped([10, 3], 0, 3), "has shape .* and chunks of 0 rows, as no array of a model"),
        (shaped([10, 3]), "an array does not decode"),
        ({"chunk_grid": 3}, "an array does not decode"),
        ({"data_type": "variable_length_utf8"}, "has shape .* type 'variable_length_utf8'"),
        ({"shape": [-1, 3]}, r"has shape \[-1, 3\]"),
        ({"shape": [10, 3, 1]}, "has shape"),
    ):
        refused(load, (changes, CorruptionError, f"components:? {message}"))


def test_other_metadata_of_an_array_are_not_used(models, place):
    hostile.put(place, models["landmarks"])
    file = place / "components" / "zarr.json"
    written, expected = json.loads(file.read_text()), load_model(place).solution.components
    values, check = written["codecs"]
    zstd = {"name": "zstd", "configuration": {"level": 0, "checksum": False}}
    sharded = {"chunk_shape": [1, 3], "codecs": [values, check], "index_codecs": [values, check]}
    for changes in (
        {"codecs": [values, zstd, check]},
        {"codecs": [{"name": "sharding_indexed", "configuration": sharded}]},
        {"chunk_key_encoding": {"name": "v2"}},
        {"storage_transformers": [{"name": "x"}]},
        {"fill_value": 3.0},
        {"zarr_format": 2},
        {"new": 1},
    ):
        file.write_text(json.dumps(written | changes))
        with case(changes):
            np.testing.assert_array_equal(load_model(place).solution.components, expected)
    root = json.loads((place / "zarr.json").read_text())
    larger = {"components": written | {"shape": [10**15, 3]}}
    root["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": larger}
    (place / "zarr.json").write_text(json.dumps(root))
    np.testing.assert_array_equal(load_model(place).solution.components, expected)


def test_json_is_read_up_to_a_limit(models, place):
    hostile.put(place, models["landmarks"])
    hostile.forge(place, hostile.attribute(place) | {"note": '\\"[{' * 500})  # which does not nest
    assert check_model(place)
    text = (place / "zarr.json").read_text()
    for broken, message in (
        (text + "[" * 300, "nests more than 200 deep"),
        ("[" * 10**6, "nests"),
        (text[:-9], "Unterminated|Expecting"),
    ):
        (place / "zarr.json").write_text(broken)
        message = f"is not a bigkpca model: its zarr.json cannot be parsed .*{message}"
        refused(load_model, (place, SpecError, message))


def test_a_kernel_of_many_sums_loads_and_more_are_refused(models, place):
    kernel = {"name": "linear"}
    for _ in range(190):
        kernel = {"name": "sum", "left": kernel, "right": {"name": "linear"}}
    hostile.put(place, models["landmarks"])
    about = hostile.attribute(place)
    hostile.forge(place, about | {"kernel": kernel})
    model = load_model(place)
    assert model.features.kernel.isotropic
    assert len(model.projecting(2)(X[:2])) == 2


def test_loading_executes_nothing_and_opens_nothing_else(models, place):
    for content in models.values():
        load_model(hostile.put(place, content))  # what is imported when it is first needed
        events, opened = hostile.watched(lambda: load_model(place))
        assert events == []
        # Threads of Dask, of other tests, look at the processes that they started.
        others = {file for file in opened if not file.startswith("/proc/")}
        assert others
        assert {file for file in others if not file.startswith(f"{place}/")} == set()


def test_names_of_arrays_lead_nowhere(models, place):
    secret = place.with_name("secret")
    hostile.put(secret, {key: models["landmarks"][f"mean/{key}"] for key in ("zarr.json", "c/0")})
    hostile.put(place, models["landmarks"])
    about = hostile.attribute(place)

    def load():
        refused(load_model, (place, CorruptionError, r"its list of arrays is .* not a list of plain names"))

    for name in ("../secret", "/etc", "a/b", "..", ".", "", "a\0b", 3, None, ["mean"], "mean/../mean"):
        hostile.set_attribute(place, about | {"arrays": [*about["arrays"], name]})
        with case(name):
            load()
            _, opened = hostile.watched(load)
            assert not [file for file in opened if "secret" in file]


def test_pickles_are_no_codec(tmp_path):
    """Zarr's format 2 names a codec that unpickles; a version of Zarr that took it for numbers would run code."""
    for codecs in ({"compressor": {"id": "pickle", "protocol": 5}}, {"filters": [{"id": "pickle", "protocol": 5}]}):
        metadata = {"zarr_format": 2, "shape": [2, 2], "chunks": [2, 2], "dtype": "<f8", "order": "C", "fill_value": 0}
        content = {".zarray": json.dumps({"compressor": None, "filters": None} | metadata | codecs).encode()}
        path = hostile.put(tmp_path / "rows.zarr", content | {"0.0": b"cos\nsystem\n(S'true'\ntR."})
        with pytest.raises(BigKPCAError, match=r"rows\.zarr"):
            open_rows(path).block(0, 2)


def test_metadata_of_three_gigabytes_are_refused_and_not_read(models, place, tmp_path):
    most = "has more than 64,000,000 bytes, so it does not describe an array or a group"
    for number, name in enumerate(("zarr.json", "x/zarr.json", ".zarray", ".zgroup", "x/.zarray", ".zmetadata")):
        path, zarr_format = tmp_path / f"{number}.zarr", 3 if "zarr.json" in name else 2
        if name == ".zarray":
            zarr.create_array(path, shape=(4, 2), dtype="f4", zarr_format=2)
        else:
            zarr.create_group(path, zarr_format=zarr_format).create_array("x", shape=(4, 2), dtype="f4")
        with (path / name).open("ab") as file:
            file.truncate(3 * 10**9)  # and takes no room
        with case(name), pytest.raises(CorruptionError, match=f"{path / name} {most}"):
            hostile.bounded(lambda: info(str(path)), 150)  # noqa: B023 - called at once
    os.truncate(Path(hostile.put(place, models["waves"])) / "zarr.json", 3 * 10**9)
    with pytest.raises(SpecError, match=r"cannot be parsed \(it has more than 64,000,000 bytes\)"):
        hostile.bounded(lambda: load_model(place), 150)


def test_manifests_that_vouch_for_what_is_not_there(home):
    names = ["a"], "abcd", [1, 2, 3, 4]
    for path, key, values in (
        *((path, "rows", (91, 0, -1, 10**15, "90", True, None, 9.5)) for path in ("d.zarr", "s.zarr")),
        *(("d.zarr", key, values) for key, values in (("column_names", names), ("row_shape", ["x"]))),
    ):
        about = hostile.attribute(home / path)
        for value in values:
            hostile.set_attribute(home / path, about | {key: value})
            message = rf"{path}.*(claims to have|{key}|column names).*"
            with case((path, key, value)):
                refused(lambda path: hostile.bounded(lambda: info(path)), (path, CorruptionError, message))
                if key == "rows":
                    message = rf"{path} claims to have {value!r} rows"
                    refused(lambda path: hostile.bounded(lambda: open_rows(path)), (path, CorruptionError, message))
        hostile.set_attribute(home / path, about)


@pytest.mark.parametrize("name", ["d.zarr/x", "s.zarr/scores"])
def test_arrays_of_rows_that_claim_any_number_of_chunks(home, name):
    group, file = name.split("/")[0], home / name / "zarr.json"
    metadata = json.loads(file.read_text())
    metadata["shape"][0] = 10**15
    file.write_text(json.dumps(metadata))
    hostile.bounded(lambda: open_rows(group).block(0, 90))  # all that its manifest names
    hostile.set_attribute(group, hostile.attribute(group) | {"rows": 10**15})
    with pytest.raises(CorruptionError, match="stored chunks are missing, the first with row 96"):
        hostile.bounded(lambda: open_rows(group))


@pytest.fixture(scope="module")
def copies(made, tmp_path_factory):
    """A folder for the dataset and the scores of each example, and their files as they were made."""
    files = {name: tree_bytes(made / name) for name in ("d.zarr", "s.zarr")}
    return {"folder": tmp_path_factory.mktemp("copies"), "model": load_model(made / "m.zarr"), "files": files}


@given(
    target=st.sampled_from(["d.zarr/zarr.json", "s.zarr/zarr.json", "d.zarr/x/zarr.json", "s.zarr/scores/zarr.json"]),
    changes=hostile.DRAWS,
)
def test_datasets_and_scores_with_other_manifests_and_metadata(copies, target, changes):
    folder, model, group = copies["folder"], copies["model"], target.split("/")[0]
    path = hostile.put(folder / group, copies["files"][group])
    values = json.loads((folder / target).read_text())
    if target.count("/") == 1:
        values["attributes"] = hostile.changed(values["attributes"], changes)
    else:
        values = hostile.changed(values, changes)
    (folder / target).write_text(json.dumps(values))
    rows = hostile.used(lambda: open_rows(path), group)
    assert rows is None or rows.shape == (90, 4 if group == "d.zarr" else 3)
    facts = hostile.used(lambda: info(path), group)
    assert facts is None or facts["path"] == path
    scores = hostile.used(lambda: open_scores(model, path), group)
    assert scores is None or scores.shape[1] == model.components


@pytest.mark.full
def test_a_path_in_a_model_is_only_read(home):
    """`report` reads the rows that the model names, and writes nowhere else."""
    victim, about = tree_bytes(home / "d.zarr"), hostile.attribute("m.zarr")
    for path in (str(home / "d.zarr"), "/etc/passwd"):
        hostile.forge("m.zarr", about | {"identity": about["identity"] | {"path": path}})
        shutil.rmtree("out", ignore_errors=True)
        os.mkdir("out")
        hostile.used(lambda: bigkpca.report("m.zarr", "out/report.html"), path)
        assert tree_bytes(home / "d.zarr") == victim
        assert set(os.listdir("out")) <= {"report.html"}
    hostile.forge("m.zarr", about | {"identity": about["identity"] | {"path": str(home / "out")}})
    with pytest.raises(SpecError, match="inside"):
        bigkpca.report("m.zarr", "out/report.html", overwrite=True)
