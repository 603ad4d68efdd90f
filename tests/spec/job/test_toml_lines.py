"""The line of each key of a TOML text."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigkpca.spec.job.toml_lines import lines_of_keys


@pytest.mark.parametrize(
    ("text", "lines"),
    [
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
    ],
)
def test_lines_of_nasty_texts(text, lines):
    tomllib.loads(text)
    assert lines_of_keys(text) == lines


class _Writer:
    """Writes random TOML, and notes the line of each key as it does."""

    def __init__(self, draw):
        self.draw, self.text, self.lines, self.count = draw, "", {}, 0  # type: ignore[var-annotated]

    def space(self):
        return self.draw(st.sampled_from(["", " ", "\t"]))

    def name(self, parent):
        """A new key, and how it is written."""
        self.count += 1
        name = self.draw(st.sampled_from(["k", "a-b", "a.b", "[x]", 'q"', "x = 1", "#", "é", "{", "3"])) + str(
            self.count
        )
        if name.replace("-", "").isalnum() and name.isascii() and self.draw(st.booleans()):
            return name, name
        basic = name.replace('"', '\\"')
        return name, self.draw(st.sampled_from([f'"{basic}"', f"'{name}'"]))

    def note(self, key):
        self.lines[key] = self.text.count("\n") + 1

    def key(self, above):
        found = above
        for dotted in range(self.draw(st.integers(1, 3))):
            name, as_written = self.name(above)
            self.text += self.space() + "." + self.space() if dotted else ""
            found = (*found, name)
            self.note(found)
            self.text += as_written
        return found

    def value(self, key, depth=0):
        kind = self.draw(st.integers(0, 3 if depth > 2 else 5))
        if kind == 4:
            self.text += "["
            for _ in range(self.draw(st.integers(0, 3))):
                self.text += self.draw(st.sampled_from(["", "\n", " # ] , = x\n"]))
                self.value((*key, "in a list"), depth + 1)
                self.text += self.draw(st.sampled_from([",", ",\n", " , # [\n"]))
            self.text += "]"
        elif kind == 5:
            self.text += "{"
            for number in range(self.draw(st.integers(0, 3))):
                self.text += ", " if number else " "
                inner = self.key(key)
                self.text += self.space() + "=" + self.space()
                self.value(inner, depth + 1)
            self.text += "}"
        else:
            self.text += self.draw(st.sampled_from(_PLAIN))

    def document(self):
        above = ()
        for _ in range(self.draw(st.integers(0, 8))):
            kind = self.draw(st.integers(0, 4))
            self.text += self.space()
            if kind == 0:
                self.text += self.draw(st.sampled_from(["", "# [c]", "#'", '# """']))
            elif kind == 1:
                self.text += "[" + self.space()
                above = self.key(())
                self.text += self.space() + "]"
            else:
                key = self.key(above)
                self.text += self.space() + "=" + self.space()
                self.value(key)
            self.text += self.draw(st.sampled_from(["\n", " # x = [\n", "\n\n"]))


_PLAIN = [
    "1",
    "-1.5e3",
    "true",
    "inf",
    "07:32:00",
    "1979-05-27 07:32:00Z",
    '"x"',
    '"# \\" [k] = {"',
    "'\\'",
    "''",
    '""',
    '"""\n[no]\nk = 1 \\""" # """',
    '"""a"b""c\\\\"""""',
    '""""""',
    "'''\n[no]\n# ''k = 1'''",
    "''''x'''''",
    '"""x""""',
    "'''x''''",
    "''''''",
]


@st.composite
def documents(draw):
    writer = _Writer(draw)
    writer.document()
    return writer.text, {key: line for key, line in writer.lines.items() if "in a list" not in key}


@given(documents())
def test_lines_are_those_at_which_a_writer_put_the_keys(document):
    text, lines = document
    tomllib.loads(text)
    found = lines_of_keys(text)
    assert {key: found.get(key) for key in lines} == lines


def test_every_key_that_tomllib_reads_has_a_line():
    text = "a.b.c = 1\n[d]\ne = { f = { g = 1 } }\n[h.i]\n[h.j]\nk = [1]"

    def keys(values, above=()):
        found = []
        for name, value in values.items():
            found += [(*above, name), *(keys(value, (*above, name)) if isinstance(value, dict) else [])]
        return found

    assert set(lines_of_keys(text)) == set(keys(tomllib.loads(text)))
