"""Job files changed at random: they are read, or refused by a SpecError that shows nothing of the environment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigkpca.spec.job.tables import TABLES
from tests.helpers.jobs import LEAST, jobs, problems_of, problems_of_model, refusal, toml_of, written

KEYS = [("seed",), *((table, key) for table, kind in TABLES.items() for key in kind.model_fields)]
PIECES = [
    "\n",
    '"',
    "'",
    "[",
    "]",
    "{",
    "}",
    "=",
    ".",
    "#",
    "\\",
    "${",
    "${X}",
    "\0",
    "é",
    "x",
    "-1",
    "1e999",
    '"""',
    "[run]\n",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jobs")


def check_read_or_refused(folder, content, environment):
    """That a file is read, or refused with one line or more that name the file."""
    path = written(folder, content)
    assert all(str(path) in line for line in refusal(path, environment).split("\n") if line)


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
def test_files_that_were_cut_and_pasted(folder, content):
    check_read_or_refused(folder, content, {})


VALUES = st.one_of(
    st.none().map(lambda _: "${X}"),
    st.integers(-(10**400), 10**400),
    st.integers(-3, 3),
    st.floats(),
    st.booleans(),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=9),
    st.sampled_from(
        ["~", "/", ".", "..", "~nobody/x", "a\0b", "s3://", "s3:/a", "x" * 5000, "l.npy", "ridge:", ":", "none"]
    ),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3).filter(str.isalnum), st.integers(), max_size=2),
)


@given(values=jobs(), keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4), data=st.data())
def test_values_of_any_kind(folder, values, keys, data):
    for *table, key in keys:
        (values[table[0]] if table else values)[key] = data.draw(VALUES)
    content = toml_of(values).encode("utf-8", "replace")
    environment = {"X": data.draw(st.text(max_size=9))} if data.draw(st.booleans()) else {}
    check_read_or_refused(folder, content, environment)


SECRET = "9381764"  # as a number, as a text, and within others


@given(
    values=jobs(),
    keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True),
    forms=st.lists(
        st.sampled_from(
            [
                "S",
                "-S",
                "0.S",
                "S.5",
                "sS",
                "a/S",
                "s3://S",
                "ftp://S",
                "s3://u:S@b/x",
                "ridge:S=1",
                "ridge:size=-S",
                "S.npy",
                "S GB",
                "-S GB",
                "denoising:noise=-S",
                "~S",
                "S\n",
            ]
        ),
        min_size=4,
        max_size=4,
    ),
)
def test_no_message_shows_what_the_environment_holds(folder, values, keys, forms):
    environment = {}
    for number, ((*table, key), form) in enumerate(zip(keys, forms, strict=False)):
        environment[f"V{number}"] = form.replace("S", SECRET)
        (values[table[0]] if table else values)[key] = f"${{V{number}}}"
    assert SECRET not in refusal(written(folder, toml_of(values)), environment)


@pytest.mark.parametrize(
    ("options", "environment", "problem"),
    [
        ('kernel = "${K}"', {"K": "gausian"}, 'line 5: model.kernel = "${K}": give "gaussian", "laplacian", "matern"'),
        ('size = "${N}"', {"N": "0"}, 'line 5: model.size = "${N}": give a whole number of at least 1 or "auto"'),
        (
            'preimage = "ridge:${P}"',
            {"P": "size=secret"},
            'line 5: model.preimage = "ridge:${P}": give "fixed-point", "mds"',
        ),
        (
            'landmarks = "${L}.npy"',
            {"L": "secret"},
            'line 5: model.landmarks = "${L}.npy": landmarks cannot be read from there',
        ),
        (
            'preimage = "ridge"\nkernel = "poly"\ndegree = "${D}"',
            {"D": "12345"},
            'lines 6 and 7: model.kernel = "poly" and model.degree = "${D}": this does not fit the other options of '
            "the model; the reason would show what the environment holds",
        ),
        (
            'n_directions = "${N}"',
            {"N": "3"},
            'line 5: model.n_directions = "${N}": this does not fit the other options of the model; the reason '
            "would show what the environment holds",
        ),
    ],
)
def test_messages_of_the_model_show_variables(tmp_path, options, environment, problem):
    (found,) = problems_of_model(tmp_path, options, **environment)
    assert found.startswith(problem)


def test_messages_of_paths_show_variables(tmp_path):
    text = LEAST.replace("rows.zarr", "${ROWS}").replace("features.zarr", "${OUT}")
    (found,) = problems_of(tmp_path, text, ROWS="secret", OUT="./secret/x")
    assert found.startswith('lines 2 and 6: output.path = "${OUT}" and input.path = "${ROWS}": these are the same path')
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
