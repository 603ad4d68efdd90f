"""Datasets, scores, options and paths in files from others: used as what they are, or refused."""

import json
import os
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigkpca
from bigkpca.data.opening import open_rows
from bigkpca.errors import CorruptionError, SpecError
from bigkpca.spec import FitSpec
from bigkpca.storage.describe import info
from bigkpca.storage.models import load_model
from bigkpca.workflows.scores import open_scores
from tests.data.cases import case
from tests.helpers.disks import tree_bytes
from tests.storage import hostile
from tests.storage.outputs import FIT


def test_a_dataset_that_vouches_for_what_it_has_not(home):
    about = hostile.attribute(home / "d.zarr")
    for changes, message in (
        ({"rows": 91}, "says that it has 91 rows, and its array x has 90"),
        ({"rows": 10**15}, "says that it has"),
        ({"rows": 0}, "says that it has 0 rows"),
        ({"rows": -1}, "says that it has"),
        ({"rows": "90"}, "says that it has '90' rows"),
        ({"rows": True}, "says that it has True rows"),
        ({"rows": 9.5}, "says that it has"),
        ({"column_names": ["a"]}, "its column names are"),
        ({"column_names": "abcd"}, "its column names are 'abcd', for 4 columns"),
        ({"column_names": [1, 2, 3, 4]}, "its column names are"),
        ({"row_shape": "x"}, "row_shape is 'x'"),
        ({"labels": {"path": 3}}, "labels is"),
    ):
        hostile.set_attribute(home / "d.zarr", about | changes)
        with case(changes), pytest.raises(CorruptionError, match=f"d.zarr.*{message}"):
            hostile.bounded(lambda: info("d.zarr"))


@pytest.mark.parametrize("name", ["d.zarr/x", "s.zarr/scores"])
def test_arrays_of_rows_that_claim_any_number_of_chunks(home, name):
    file = home / name / "zarr.json"
    metadata = json.loads(file.read_text())
    metadata["shape"][0] = 10**15
    file.write_text(json.dumps(metadata))
    group = home / name.split("/")[0]
    if group.name == "d.zarr":
        hostile.set_attribute(group, hostile.attribute(group) | {"rows": 10**15})
    with pytest.raises(CorruptionError, match=r"does not have the digests of|there are 90 rows, and its array has"):
        hostile.bounded(lambda: open_rows(str(group)))
    with pytest.raises(CorruptionError):
        hostile.bounded(lambda: info(str(group)))


def test_a_manifest_of_scores_that_does_not_count_them_is_refused(home):
    manifest = home / "s.zarr" / "scores" / "manifest.json"
    values = json.loads(manifest.read_text())
    message = r"scores/manifest\.json says that there are 0 rows, and its array has 90"
    for changes in ({"rows": "many"}, {"block_rows": None}, {"blocks": [{}]}):
        manifest.write_text(json.dumps(values | changes))
        with case(changes), pytest.raises(CorruptionError, match=message):
            open_rows("s.zarr")


@pytest.fixture(scope="module")
def copies(made, tmp_path_factory):
    """A folder for the dataset and the scores of each example, and their files as they were made."""
    files = {name: tree_bytes(made / name) for name in ("d.zarr", "s.zarr")}
    return tmp_path_factory.mktemp("copies"), files, load_model(made / "m.zarr")


@given(
    target=st.sampled_from(["d.zarr/zarr.json", "s.zarr/zarr.json", "s.zarr/scores/manifest.json"]),
    changes=hostile.DRAWS,
)
def test_datasets_and_scores_with_other_attributes_and_manifests(copies, target, changes):
    (folder, files, model), group = copies, target.split("/")[0]
    path = hostile.put(folder / group, files[group])
    values = json.loads((folder / target).read_text())
    if "attributes" in values:
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


SPECS = [
    FitSpec.checked(**{key: value for key, value in (FIT | options).items() if value != "auto"}).to_dict()
    for options in hostile.KINDS.values()
]


@given(number=st.integers(0, len(SPECS) - 1), changes=hostile.DRAWS)
def test_options_from_a_file(number, changes):
    values = hostile.changed(SPECS[number], changes)
    spec = hostile.used(lambda: FitSpec.from_dict(values, np.ones((3, 2))))
    if spec is not None:
        assert FitSpec.from_dict(json.loads(json.dumps(spec.to_dict())), np.ones((3, 2))) == spec


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
