"""What is at a path: groups of each kind, and unfinished ones."""

import os
import shutil
from unittest.mock import Mock

import numpy as np
import zarr

from bigkpca.data.stores import LocalDisk
from bigkpca.errors import CorruptionError, IncompleteError, SpecError
from bigkpca.storage import groups
from bigkpca.storage.describe import info
from tests.data.cases import case, refused
from tests.storage import hostile


def test_a_group_is_opened_as_the_kind_that_it_is(home):
    os.makedirs("new.zarr.partial")
    for name in ("version.zarr", "main.zarr", "kept.zarr"):
        shutil.copytree("s.zarr", name)
    zarr.create_group("plain.zarr")
    hostile.put("other.zarr", {"zarr.json": b'{"attributes": {"bigkpca": {"format": "x"}}}'})
    about = hostile.attribute("s.zarr")
    hostile.set_attribute("version.zarr", about | {"format_version": 2})
    shutil.rmtree("main.zarr/scores")
    refused(
        groups.open_main,
        ("new.zarr", "features", IncompleteError, r"new\.zarr is not finished: run the command that makes it again"),
        ("nothing.zarr", "dataset", SpecError, r"nothing\.zarr does not exist: no dataset"),
        ("plain.zarr", "features", SpecError, r"plain\.zarr exists, but is not a bigkpca feature store"),
        ("s.zarr", "dataset", SpecError, r"s\.zarr is a bigkpca feature store, not a dataset"),
        ("d.zarr", "features", SpecError, r"d\.zarr is a bigkpca dataset, not a feature store"),
        ("version.zarr", "features", SpecError, "feature store format version 2; this bigkpca reads only version 1"),
        ("other.zarr", "x", SpecError, r"other\.zarr is a bigkpca 'x', a kind that this bigkpca does not have"),
        ("main.zarr", "features", CorruptionError, r"main\.zarr: its array scores is missing; make it again"),
    )
    assert groups.open_main("s.zarr", "features").shape == (90, 3)
    assert info("d.zarr/x")["missing_chunks"] == 0
    hostile.put("kept.zarr", {"zarr.json": b'{"zarr_format": 3, "node_type": "array", "attributes": {}}'})
    hostile.set_attribute("kept.zarr", about)
    message = r"kept\.zarr/zarr\.json does not describe a Zarr group"
    refused(groups.open_group, ("kept.zarr", "features", CorruptionError, message))


def test_a_manifest_that_cannot_be_read_now_is_not_one_that_is_missing(home, monkeypatch):
    denied = PermissionError(13, "Permission denied", "m.zarr/zarr.json")
    monkeypatch.setattr(LocalDisk, "open", Mock(side_effect=denied))
    message = r"m\.zarr/zarr\.json: Permission denied: this user needs permission to read it"
    refused(groups.describe, ("m.zarr", SpecError, message))


def test_an_array_that_a_run_made_is_kept_and_another_one_replaced(tmp_path):
    def created(dtype="f4", columns=2, rows=4, chunk_rows=2):
        return groups.create_array(str(tmp_path / "x"), groups.NewArray(dtype, (columns,)), rows, chunk_rows)

    created()[:] = 1
    assert created()[:].sum() == created(rows=0)[:].sum() == 8  # 0: to which rows are added
    for other in ({"rows": 5}, {"dtype": "f8"}, {"chunk_rows": 4}, {"columns": 3}):
        with case(other):
            assert np.isnan(created(**other)[:]).all()
    for damage in (b"", b"{"):
        created()[:] = 1
        (tmp_path / "x" / "zarr.json").write_bytes(damage)
        assert created()[:].sum() == 8
