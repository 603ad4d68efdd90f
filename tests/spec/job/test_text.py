"""Files that cannot be read as job files."""

import re

import pytest

from bigkpca.errors import SpecError
from bigkpca.spec.job import read_job
from tests.helpers.jobs import refusal, written


def test_files_that_cannot_be_read(tmp_path):
    for content, message in [
        (b"", " is empty: a job file has the tables [input], [model] and [output], each with a path"),
        (b" \n\n", " is empty: a job file has"),
        (b"[input\n", ", line 1, column 7: not valid TOML: Expected ']' at the end of a table declaration"),
        (b"# x\n[a]\np = rows\n", ", line 3, column 5: not valid TOML: Invalid value (text must be in quotes)"),
        (b"seed = 1\nseed = 2\n", ", line 2, column 9: not valid TOML: Cannot overwrite a value"),
        (b"[a]\n[a]\n", ", line 2, column 3: not valid TOML: Cannot declare"),
        (b'a = """\n\n', ", line 3, column 1: not valid TOML: Unterminated string"),
        (b"a = 1\nb = '\xe9'\n", ", line 2: byte 0xe9 is not UTF-8: save the file as UTF-8"),
        ("a = 1".encode("utf-16"), ", line 1: byte 0xff is not UTF-8"),
        (b"a = " + b"9" * 5000, " is not valid TOML: "),
        (b"a = 1\n" * 200_000, " is larger than 1 MB: a job file is a short text"),
    ]:
        path = written(tmp_path, content)
        assert refusal(path, {}).startswith(f"{path}{message}"), content[:20]
    deep = refusal(written(tmp_path, "a = " + "[" * 100_000), {})
    assert re.search(r"lists or tables are nested too deeply|not valid TOML", deep)
    assert refusal("/dev/zero", {}).startswith("/dev/zero is larger than 1 MB")  # and is not read to its end


def test_paths_at_which_there_is_no_file(tmp_path):
    (tmp_path / "file").write_text("")
    for path, message in [
        (tmp_path / "nightly.toml", f"there is no job file {tmp_path}/nightly.toml"),
        (tmp_path, f"{tmp_path} is a folder: give the job file itself, e.g. {tmp_path}/nightly.toml"),
        ("s3://lake/nightly.toml", "s3://lake/nightly.toml: a job file must be on a local disk"),
        (tmp_path / "file" / "nightly.toml", "Not a directory"),
        (tmp_path / ("x" * 300), "File name too long"),
        (f"{tmp_path}/a\0b", "cannot be read: embedded null byte"),
    ]:
        with pytest.raises(SpecError, match=re.escape(message)):
            read_job(path, {})
