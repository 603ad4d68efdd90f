"""Job files changed at random: they are read, or refused by a SpecError that shows nothing of the environment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigkpca.spec.job.tables import TABLES
from tests.helpers.jobs import LEAST, jobs, problems_of, problems_of_model, refusal, toml_of, written

KEYS = [("seed",), *((table, key) for table, kind in TABLES.items() for key in kind.model_fields)]
PIECES = ["\n", "\0", "[run]\n", '"', "'", "[", "]", "{", "}", "=", ".", "#", "\\"]
PIECES += ["${", "${X}", "é", "x", "-1", "1e999", '"""']


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jobs")


@st.composite
def cut_and_pasted(draw):
    content = bytearray(toml_of(draw(jobs())).encode())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        match draw(st.integers(0, 3)):
            case 0:
                del content[at : at + draw(st.integers(1, 9))]
            case 1:
                content[at:at] = draw(st.sampled_from(PIECES)).encode()
            case 2:
                content[at:at] = draw(st.binary(max_size=4))
            case 3:
                lines = content.split(b"\n")
                line = draw(st.integers(0, len(lines) - 1))
                lines.insert(draw(st.integers(0, len(lines))), lines.pop(line))
                content = bytearray(b"\n".join(lines))
    return bytes(content)


@given(content=cut_and_pasted())
def test_files_that_were_cut_and_pasted_are_read_or_refused_by_name(folder, content):
    path = written(folder, content)
    assert all(str(path) in line for line in refusal(path, {}).split("\n") if line)


SECRET = "9381764"  # as a number, as a text, and within others
HOLDING = ["S", "-S", "0.S", "S.5", "sS", "a/S", "~S", "S\n", "S.npy", "S GB", "-S GB", "s3://S", "ftp://S"]
HOLDING += ["s3://u:S@b/x", "ridge:S=1", "ridge:size=-S", "denoising:noise=-S"]


@given(
    values=jobs(),
    keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True),
    forms=st.lists(st.sampled_from(HOLDING), min_size=4, max_size=4),
)
def test_no_message_shows_what_the_environment_holds(folder, values, keys, forms):
    environment = {}
    for number, ((*table, key), form) in enumerate(zip(keys, forms, strict=False)):
        environment[f"V{number}"] = form.replace("S", SECRET)
        (values[table[0]] if table else values)[key] = f"${{V{number}}}"
    assert SECRET not in refusal(written(folder, toml_of(values)), environment)


def test_messages_of_the_model_show_variables(tmp_path):
    hidden = (
        "this conflicts with the other options of the model; the reason is hidden because it would show the environment"
    )
    for option, value, reason in (
        ('kernel = "${V}"', "gausian", 'give "gaussian", "laplacian"'),
        ('size = "${V}"', "0", 'give a whole number of at least 1 or "auto"'),
        ('preimage = "ridge:${V}"', "size=secret", 'give "auto"'),
        ('landmarks = "${V}.npy"', "secret", "landmarks cannot be read"),
        ('n_directions = "${V}"', "3", hidden),
    ):
        (found,) = problems_of_model(tmp_path, option, V=value)
        assert found.startswith(f"line 5: model.{option}: {reason}")
    (found,) = problems_of_model(tmp_path, 'preimage = "ridge"\nkernel = "poly"\ndegree = "${V}"', V="12345")
    assert found == f'lines 6 and 7: model.kernel = "poly" and model.degree = "${{V}}": {hidden}'


def test_messages_of_paths_show_variables(tmp_path):
    text = LEAST.replace("rows.zarr", "${ROWS}").replace("features.zarr", "${OUT}")
    (found,) = problems_of(tmp_path, text, ROWS="secret", OUT="./secret/x")
    assert found.startswith(
        'lines 2 and 6: output.path = "${OUT}" and input.path = "${ROWS}": these paths are the same'
    )
    for path in ("ftp://secret/x", "s3://key:secret@bucket/x", "a\0secret"):
        (found,) = problems_of(tmp_path, text, ROWS=path, OUT="out")
        assert found == (
            'line 2: input.path = "${ROWS}": give a local path, or a URL that begins with s3://, gs:// or az://'
        )
    (found,) = problems_of(tmp_path, text, ROWS="rows", OUT="/")
    assert found == 'line 6: output.path = "${OUT}": nothing can be written there: name a new folder'


def test_passwords_in_urls_are_not_shown(tmp_path):
    (found,) = problems_of(tmp_path, LEAST.replace("rows.zarr", "s3://key:secret@bucket/x?token=secret"))
    assert found.startswith('line 2: input.path = "s3://...@bucket/x?...": a s3:// URL with user:password@')
    (found,) = problems_of(tmp_path, LEAST + '[run]\nschedular = "tls://key:secret@host:1"')
    assert found.startswith('line 8: run.schedular = "tls://...@host:1": unknown key of [run]: did you mean scheduler?')
