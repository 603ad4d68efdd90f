"""Models that are merged from paths to path, and by the command."""

from pathlib import Path

import numpy as np
import pytest

import bigkpca
from bigkpca import KernelPCA
from bigkpca.errors import CorruptionError, SpecError
from tests.helpers.commands import run
from tests.helpers.disks import tree_bytes

pytestmark = pytest.mark.usefixtures("quiet_signals")
OPTIONS = {"n_components": 3, "size": 30, "random_state": 2, "block_rows": 50}
ROWS = np.random.default_rng(0).normal(size=(300, 4)) * [3, 2, 1, 0.5]


@pytest.fixture
def parts(tmp_path):
    """The paths of models of three parts of ROWS."""
    paths = [str(tmp_path / f"{number}.zarr") for number in range(3)]
    for number, path in enumerate(paths):
        np.save(tmp_path / f"{number}.npy", ROWS[number * 100 : (number + 1) * 100])
        bigkpca.fit(tmp_path / f"{number}.npy", path, **({"like": paths[0]} if number else OPTIONS))
    return paths


def test_the_command_writes_what_the_function_writes(parts, tmp_path):
    merged = bigkpca.merge(parts, tmp_path / "merged.zarr")
    done = run("merge", *parts, str(tmp_path / "again.zarr"))
    assert "unexplained by the landmarks" in done.stdout
    before = tree_bytes(tmp_path / "merged.zarr")
    assert tree_bytes(tmp_path / "again.zarr") == before
    for models, code in ((parts, 0), (parts[:2], 2)):  # which is there already, or another
        assert run("merge", *models, str(tmp_path / "merged.zarr")).exit_code == code
        assert tree_bytes(tmp_path / "merged.zarr") == before
    facts = bigkpca.info(tmp_path / "merged.zarr")
    assert [each["rows"] for each in facts["added"]] == [100, 100]
    scores = bigkpca.transform(tmp_path / "merged.zarr", ROWS, tmp_path / "scores.zarr")
    np.testing.assert_allclose(scores[:].mean(axis=0), 0, atol=1e-9)
    assert merged.sums.count == 300


def test_what_cannot_be_merged_is_told(parts, tmp_path):
    done = run("merge", parts[0], str(tmp_path / "none.zarr"), str(tmp_path / "merged.zarr"))
    assert (done.exit_code, "none.zarr" in done.stderr) == (2, True)
    with pytest.raises(SpecError, match="pass the models as a list"):
        bigkpca.merge(parts[0])
    (Path(parts[1]) / "components" / "c" / "0" / "0").write_bytes(b"damaged")
    with pytest.raises(CorruptionError, match="components"):
        bigkpca.merge(parts)
    assert not (tmp_path / "merged.zarr").exists()


def test_a_fit_like_a_model_knows_which(parts, tmp_path):
    rows, out = str(tmp_path / "1.npy"), parts[1]
    assert "nothing to do" in run("fit", rows, out, "--like", parts[0]).stderr
    other = run("fit", rows, out, "--like", parts[2])
    assert other.exit_code == 2
    assert "like is" in other.stderr
    refused = run("fit", rows, out, "--like", parts[0], "--size", "20")
    assert "size=20, but the model was fitted with 30" in refused.stderr
    bigkpca.fit(rows, tmp_path / "new.zarr", like=parts[0], transform=tmp_path / "new-scores.zarr")
    assert bigkpca.info(tmp_path / "new-scores.zarr")["shape"] == [100, 3]
    # An estimator fits what the function fits, and finds its model there.
    KernelPCA().fit(rows, like=parts[0]).save(parts[1])  # which is there already


@pytest.mark.full
def test_a_fit_is_not_taken_for_one_with_the_features_of_another_model(parts, tmp_path):
    merged, turned = tmp_path / "merged.zarr", tmp_path / "turned.zarr"
    bigkpca.merge(parts[:2], merged)
    bigkpca.merge(parts[1::-1], turned)
    for rows, out, options in (
        ("1.npy", parts[1], OPTIONS),  # which has the features of the first part
        ("0.npy", merged, OPTIONS),  # which has the rows of another part, too
        ("1.npy", turned, {"like": parts[0]}),
    ):
        with pytest.raises(SpecError, match="already holds"):
            bigkpca.fit(tmp_path / rows, out, **options)
