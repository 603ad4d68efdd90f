"""The line of each key of a TOML text."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from bigkpca.spec.job.text import lines_of_keys

TEXTS = [
    ("a = 1", {("a",): 1}),
    ("\n\n# c\na = 1 # [b]\n\nb = 2", {("a",): 4, ("b",): 6}),
    ("[t]\na = 1\n[u]\na = 2", {("t",): 1, ("t", "a"): 2, ("u",): 3, ("u", "a"): 4}),
    ("  [ t . 'u.v' ] # x\n a = 1", {("t",): 1, ("t", "u.v"): 1, ("t", "u.v", "a"): 2}),
    ('t."a \\" = b".c = 1\nt.d = 2', {("t",): 1, ("t", 'a " = b'): 1, ("t", 'a " = b', "c"): 1, ("t", "d"): 2}),
    ("[t.u]\na = 1\n[t]\nb = 2", {("t", "u"): 1, ("t", "u", "a"): 2, ("t",): 3, ("t", "b"): 4}),
    ("[[t]]\na = 1\n[[t]]\na = 2\nb = 3", {("t",): 1, ("t", "a"): 2, ("t", "b"): 5}),
    ("a = { b = 1, c.d = 2 }\ne = 1", {("a",): 1, ("a", "b"): 1, ("a", "c"): 1, ("a", "c", "d"): 1, ("e",): 2}),
    ("a = {}\nb = { c = {} }\nd = 1", {("a",): 1, ("b",): 2, ("b", "c"): 2, ("d",): 3}),
    ("a = { b = [\n1, # c = 1\n2 ], c = 3 }\nd = 4", {("a",): 1, ("a", "b"): 1, ("a", "c"): 3, ("d",): 4}),
    ("a = [[1,\n2], []]\nb = 1", {("a",): 1, ("b",): 3}),
    ("a = [ { x = 1 },\n{ y = 2 } ]\nb = 1", {("a",): 1, ("a", "x"): 1, ("a", "y"): 2, ("b",): 3}),
    ('a = """\n[t]\nb = 1\n\\""" = """\nc = 1', {("a",): 1, ("c",): 5}),
    ('a = """x"""""\nb = """"""\nc = ""\nd = 1', {("a",): 1, ("b",): 2, ("c",): 3, ("d",): 4}),
    ("a = '''\n[t]\nb = 1\\'''''\nb = ''''''\nc = ''\nd = 1", {("a",): 1, ("b",): 4, ("c",): 5, ("d",): 6}),
    ('a = "# [t]\\\\"\nb = \'\\\'\nc = "\\"\\""\nd = 1', {("a",): 1, ("b",): 2, ("c",): 3, ("d",): 4}),
    ("a = 1979-05-27 07:32:00\nb = -1.5e+3\nc = 1", {("a",): 1, ("b",): 2, ("c",): 3}),
    ("1.5 = 2\n'' . x = 1\n\"x\" = 3", {("1",): 1, ("1", "5"): 1, ("",): 2, ("", "x"): 2, ("x",): 3}),
]


def test_lines_of_nasty_texts():
    for text, lines in TEXTS:
        tomllib.loads(text)
        assert lines_of_keys(text) == lines, text


WITHOUT_TABLES = [(text, lines) for text, lines in TEXTS if not text.lstrip().startswith("[")]
BETWEEN = st.sampled_from(["", "\n\n", "# [x]\n", '# """ = {\n', "  # ' [\n"])
NAMES = st.sampled_from(["k", "a-b", "'a.b'", '"[x]"', '"q\\""', '"x = 1"', "'#'", '"é"', "'{'", "3"])


@given(st.lists(st.tuples(BETWEEN, NAMES, st.booleans(), st.sampled_from(WITHOUT_TABLES)), max_size=6))
def test_lines_of_texts_one_after_another_in_tables_of_any_name(parts):
    text, expected = "", {}
    for number, (between, name, nested, (inner, lines)) in enumerate(parts):
        text += f"{between}[ t{number} . {name} ]\n" if nested else f"{between}[t{number}]\n"
        above = (f"t{number}", next(iter(tomllib.loads(f"{name} = 1"))))[: 1 + nested]
        first = text.count("\n")
        expected |= {above[: depth + 1]: first for depth in range(len(above))}
        expected |= {(*above, *key): first + line for key, line in lines.items()}
        text += f"{inner}\n"
    tomllib.loads(text)
    assert lines_of_keys(text) == expected
