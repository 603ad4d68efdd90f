"""Files that cannot be read as job files."""

import os

import pytest

from bigkpca.errors import SpecError
from bigkpca.spec.job import read_job
from tests.helpers.jobs import LEAST, written


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", " is empty: a job file has the tables [input], [model] and [output], each of them with a path"),
        (b" \n\n", " is empty: a job file has"),
        (b"[input\n", ", line 1, column 7: not valid TOML: Expected ']' at the end of a table declaration"),
        (
            b"# x\n[input]\npath = rows.zarr\n",
            ", line 3, column 8: not valid TOML: Invalid value (text stands in quotes)",
        ),
        (b"seed = 1\nseed = 2\n", ", line 2, column 9: not valid TOML: Cannot overwrite a value"),
        (b"[a]\n[a]\n", ", line 2, column 3: not valid TOML: Cannot declare"),
        (b'a = """\n\n', ", line 3, column 1: not valid TOML: Unterminated string"),
        (b"a = 1\nb = '\xe9'\n", ", line 2: byte 0xe9 is not UTF-8: save the file as UTF-8"),
        ("a = 1".encode("utf-16"), ", line 1: byte 0xff is not UTF-8"),
        (b"a = " + b"9" * 5000, " is not valid TOML: "),
        (b"a = 1\n" * 17_000_000, " is larger than 1 MB: a job file is a short text"),
    ],
    ids=range(11),
)
def test_a_file_that_cannot_be_read(tmp_path, content, message):
    path = written(tmp_path, content)
    with pytest.raises(SpecError) as raised:
        read_job(path, {})
    assert str(raised.value).startswith(f"{path}{message}")


def test_lists_that_lie_too_deep_in_each_other_are_one_clear_error(tmp_path):
    path = written(tmp_path, "a = " + "[" * 100_000)
    with pytest.raises(SpecError, match=r"lists or tables lie too deep in each other|not valid TOML"):
        read_job(path, {})


def test_files_that_are_none(tmp_path):
    with pytest.raises(SpecError, match=rf"^there is no job file {tmp_path}/nightly.toml$"):
        read_job(tmp_path / "nightly.toml", {})
    with pytest.raises(
        SpecError, match=rf"^{tmp_path} is a folder: give the job file itself, e.g. {tmp_path}/nightly.toml"
    ):
        read_job(tmp_path, {})
    with pytest.raises(SpecError, match=r"^s3://lake/nightly.toml: a job file lies on a local disk"):
        read_job("s3://lake/nightly.toml", {})
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match=r"cannot be read: .*Not a directory"):
        read_job(tmp_path / "file" / "nightly.toml", {})
    with pytest.raises(SpecError, match=r"cannot be read: .*File name too long"):
        read_job(tmp_path / ("x" * 300), {})
    with pytest.raises(SpecError, match=r"cannot be read: embedded null byte"):
        read_job(f"{tmp_path}/a\0b", {})


def test_a_device_without_end_is_not_read_to_its_end():
    with pytest.raises(SpecError, match=r"^/dev/zero is larger than 1 MB"):
        read_job("/dev/zero", {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_without_permission(tmp_path):
    path = written(tmp_path, LEAST)
    path.chmod(0)
    with pytest.raises(SpecError, match=r"cannot be read: .*Permission denied"):
        read_job(path, {})
