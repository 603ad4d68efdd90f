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
from tests.storage import hostile
from tests.storage.outputs import FIT


@pytest.mark.parametrize(
    ("changes", "message"),
    [
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
    ],
)
def test_a_dataset_that_vouches_for_what_it_has_not(home, changes, message):
    hostile.set_attribute(home / "d.zarr", hostile.attribute(home / "d.zarr") | changes)
    with pytest.raises(CorruptionError, match=f"d.zarr.*{message}"):
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


@hostile.few_and_many(60)
def test_datasets_and_scores_with_other_attributes_and_manifests(home, count):
    made = {name: hostile.files(home / name) for name in ("d.zarr", "s.zarr")}
    model = load_model("m.zarr")
    targets = ["d.zarr/zarr.json", "s.zarr/zarr.json", "s.zarr/scores/manifest.json"]

    def used(path):
        for use in (open_rows, info, lambda place: open_scores(model, place)):
            message = hostile.refusal(lambda: use(path))  # noqa: B023 - called at once
            assert message is None or path in message

    @hostile.examples(count)
    @given(target=st.sampled_from(targets), changes=hostile.DRAWS)
    def each(target, changes):
        group = target.split("/")[0]
        hostile.put(home / group, made[group])
        file = home / target
        values = json.loads(file.read_text())
        if file.name == "zarr.json":
            values["attributes"] = hostile.changed(values["attributes"], changes)
        else:
            values = hostile.changed(values, changes)
        file.write_text(json.dumps(values))
        used(group)

    each()


@hostile.few_and_many(150)
def test_options_from_a_file(count):
    specs = [
        FitSpec.checked(**{key: value for key, value in (FIT | options).items() if value != "auto"}).to_dict()
        for options in hostile.KINDS.values()
    ]

    @hostile.examples(count)
    @given(number=st.integers(0, len(specs) - 1), changes=hostile.DRAWS)
    def each(number, changes):
        values = hostile.changed(specs[number], changes)
        hostile.refusal(lambda: json.dumps(FitSpec.from_dict(values, np.ones((3, 2))).to_dict()))

    each()


# Paths in files


def test_a_path_in_a_model_is_only_read(home):
    """`report` reads the rows that the model names, and writes nowhere else."""
    victim = hostile.files(home / "d.zarr")
    about = hostile.attribute("m.zarr")
    for path in (str(home / "d.zarr"), "/etc/passwd", "https://example.org/x"):
        identity = about["identity"] | {"path": path}
        hostile.forge("m.zarr", about | {"identity": identity})
        shutil.rmtree("out", ignore_errors=True)
        os.mkdir("out")
        message = hostile.refusal(lambda: bigkpca.report("m.zarr", "out/report.html"))
        assert message is None or path in message
        assert hostile.files(home / "d.zarr") == victim
        assert set(os.listdir("out")) <= {"report.html"}
    hostile.forge("m.zarr", about | {"identity": about["identity"] | {"path": str(home / "out")}})
    with pytest.raises(SpecError, match="inside"):
        bigkpca.report("m.zarr", "out/report.html", overwrite=True)
