"""Files of NumPy and IDX that hold more than they say, or nothing."""

import zipfile

from bigkpca.errors import CorruptionError, DataError
from bigkpca.ingesting.formats import binary
from tests.ingesting.files import X, idx_bytes, refuse


def test_more_values_than_the_header_says_are_corrupt(tmp_path):
    (tmp_path / "a").write_bytes(idx_bytes(X) + b"!")
    refuse(tmp_path, CorruptionError, "more values than its header says", tmp_path / "a")


def test_a_zip_without_arrays_is_told_so(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    refuse(tmp_path, DataError, r"holds no array of numbers .* \[\]", tmp_path / "a.npz")
    assert binary.is_idx(b"PK\x03\x04") is False
