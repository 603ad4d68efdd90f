"""Labels, wherever they come from."""

import os
import re

import numpy as np
import pytest
from sklearn.datasets import load_digits

import bigkpca
from bigkpca.errors import SpecError
from bigkpca.execution.progress import Progress
from bigkpca.ingesting import ingest
from bigkpca.reporting import report_data
from tests.reporting.conftest import drawn


def labels_of(place, labels):
    """(labels of the rows of a report, their numbers)."""
    model = bigkpca.load(str(place / "m.zarr"))
    found = report_data.collect_report_data(model, None, labels, None, None, Progress())
    return found.labels, found.numbers


@pytest.mark.full
def test_labels_come_from_everywhere_as_names_kinds_or_bins(place, tmp_path):
    for given in (place / "labels.npy", "y", place / "d.zarr", place / "d.zarr" / "y"):
        found, numbers = labels_of(place, given)
        np.testing.assert_array_equal(found.values, load_digits().target[numbers].astype(str))
    np.save(tmp_path / "many.npy", np.repeat(np.arange(14), [*range(1, 14), 1797 - 91]))
    many, _ = labels_of(place, tmp_path / "many.npy")
    assert many.names == (*map(str, range(3, 14)), "other")
    assert np.count_nonzero(many.values == "other") == 1 + 2 + 3
    np.save(tmp_path / "zeros.npy", np.maximum(np.linspace(-1, 1, 1797), 0))
    zeros, _ = labels_of(place, tmp_path / "zeros.npy")
    assert set(zeros.names) == set(zeros.values)
    np.save(tmp_path / "numbers.npy", np.linspace(0, 1, 1797))
    bins, _ = labels_of(place, tmp_path / "numbers.npy")
    assert bins.names == ("0 to 0.2", "0.2 to 0.4", "0.4 to 0.6", "0.6 to 0.8", "0.8 to 1")
    assert {np.count_nonzero(bins.values == name) for name in bins.names} <= {359, 360}


@pytest.mark.filterwarnings("ignore::bigkpca.errors.DominantVariableWarning")
@pytest.mark.usefixtures("sketched")
def test_ends_of_components_have_the_names_of_categories(tmp_path):
    lines = [f"{value},{value % 3},{'low' if value < 20 else 'high'}" for value in range(40)]
    (tmp_path / "x.csv").write_text("\n".join(["a,b,kind", *lines]))
    ingest([tmp_path / "x.csv"], tmp_path / "d.zarr", labels="kind")
    bigkpca.fit(tmp_path / "d.zarr", tmp_path / "m.zarr", n_components=2, size=20)
    text = drawn(tmp_path / "m.zarr", tmp_path / "r.html")
    ends = (
        "The 6 lowest scores have label (low and the 6 highest scores have label high|high and the 6 .* label low)\\."
    )
    assert re.search(ends, text)


@pytest.mark.full
@pytest.mark.usefixtures("sketched")
def test_other_labels_and_rows_make_another_report(tmp_path):
    rows, labels = load_digits().data[:60], np.arange(60) % 3
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "y.npy", np.where(labels, "<few>", "many"))
    bigkpca.fit(tmp_path / "x.npy", tmp_path / "m.zarr", n_components=2, size=20)
    out, given = tmp_path / "r.html", {"labels": tmp_path / "y.npy"}
    bigkpca.report(tmp_path / "m.zarr", out, **given)
    first = out.read_bytes()
    assert b"&lt;few&gt;" in first
    assert b"<few>" not in first
    bigkpca.report(tmp_path / "m.zarr", out, **given)
    for changed, values in (("y.npy", labels[::-1]), ("x.npy", rows + 1)):
        np.save(tmp_path / changed, values)
        os.utime(tmp_path / changed, ns=(1, 1))
        with pytest.raises(SpecError, match="already exists: it is another report"):
            bigkpca.report(tmp_path / "m.zarr", out, **given)
        bigkpca.report(tmp_path / "m.zarr", out, overwrite=True, **given)
        assert out.read_bytes() != first
