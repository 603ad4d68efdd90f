"""The examples of docs/extending.md work as they stand there: no file of a copy of the package changes but those named.

A process that finds the copy first runs what the page runs, and what CHECKS holds.
"""

import os
import re
import shlex
import shutil
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

import bigkpca
from tests.helpers.commands import finished
from tests.helpers.files import ROOT

PAGE = ROOT / "docs" / "extending.md"
PACKAGE = Path(bigkpca.__file__).parent


@dataclass(frozen=True)
class Example:
    """What a section of the page shows."""

    new: dict[str, str]  # sources of new files by their paths
    changed: list[tuple[str, str]]  # paths and changes of others
    use: list[str]
    commands: list[list[str]]
    tests: str

    @classmethod
    def of(cls, title):
        first, *sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)
        named = {name: text for name, _, text in (section.partition("\n") for section in sections)}
        section = named[title]
        use = blocks("python", section)
        new = {path: use.pop(0) for path in re.findall(r"New file\s+`(\S+)`", section)}
        paths = re.findall(r"Changed file\s+`(\S+)`", section)
        changed = list(zip(paths, blocks("diff", section), strict=True))
        commands = [shlex.split(line) for line in re.findall(r"^\$ bigkpca (.*)$", section, re.M)]
        (tests,) = blocks("python", named["Testing a new kind"])
        return cls(new, changed, [*blocks("python", first), *use], commands, tests)

    def add_to(self, root):
        """Add the new file and change the others in a copy of the package."""
        for path, source in self.new.items():
            assert not (root / path).exists()
            (root / path).write_text(source, encoding="utf-8")
        for path, change in self.changed:
            before = (root / path).read_text(encoding="utf-8")
            (root / path).write_text(patched(before, change), encoding="utf-8")


def blocks(language, text):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def patched(text, change):
    """The text with a change that is shown as a diff, its parts divided by @@."""
    for part in change.split("@@\n"):
        lines = part.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
        assert text.count(old) == 1, f"the page shows what is not there:\n{old}"
        text = text.replace(old, new)
    return text


def files(root):
    return {str(path.relative_to(root.parent)): path.read_bytes() for path in root.rglob("*.py")}


# What the page promises of each new kind.
CHECKS = {
    "A kernel": """
        from bigkpca import kernels
        combined = kernels.Cauchy(60.0) + 0.5 * kernels.Linear()
        assert KernelPCA(5, kernel=combined, size=50).fit(digits).certificate_.proven
        run("fit", "digits.npy", "cauchy.zarr", "--kernel", "cauchy", "--components", "10", "--size", "200")
        assert KernelPCA.load("cauchy.zarr").kernel == "cauchy"
        run("transform", "cauchy.zarr", "digits.npy", "scores.zarr")
        assert_array_equal(rows_at("scores.zarr"), kpca.transform(digits))
        plan = ("plan", "digits.npy", "--kernel")
        assert "did you mean 'cauchy'" in run(*plan, "cuachy", code=2)
        assert "the cauchy kernel has no spectral density" in run(*plan, "cauchy", "--method", "rff", code=2)
        there = KernelPCA(10, kernel="cauchy", size=200, random_state=0, device="array_api_strict").fit(digits)
        assert_allclose(there.eigenvalues_, kpca.eigenvalues_, rtol=1e-5)
        contract("cauchy", "test_a_kernel")
        exec(TESTS, names)
        names["test_cauchy_is_its_formula"]()
    """,
    "A landmark rule": """
        from bigkpca.comparing import all_methods
        assert "nystroem/farthest-point" in all_methods()
        kpca.save("farthest.zarr")
        loaded = KernelPCA.load("farthest.zarr")
        assert loaded.landmarks == "farthest-point"
        assert all((np.abs(digits - landmark).max(axis=1) < 1e-9).any() for landmark in loaded.landmarks_)
        assert "peak bytes" in run("plan", "digits.npy", "--landmarks", "Farthest_Point")
        contract("farthest-point", "test_a_rule")
    """,
    "A pre-image": """
        A = np.column_stack([kpca.transform(kpca.landmarks_), np.ones(300)])
        weights = np.linalg.solve(A.T @ A, A.T @ kpca.landmarks_)
        assert_allclose(rows, kpca.transform(digits) @ weights[:-1] + weights[-1], atol=1e-2)

        kpca.save("model.zarr")
        run("transform", "model.zarr", "digits.npy", "scores.zarr")
        run("reconstruct", "model.zarr", "scores.zarr", "rows.zarr")
        assert_array_equal(rows_at("rows.zarr"), rows)
        fit = ("fit", "digits.npy", "other.zarr", "--preimage")
        assert "needs landmarks" in run(*fit, "linear-map", "--method", "rff", code=2)
        contract("linear-map", "test_a_preimage")
    """,
    "An option": """
        from bigkpca import fit, kernels
        assert KernelPCA.load("model.zarr").nu == 2.5
        assert fit(digits, "again.zarr", n_components=3, size=50, kernel="matern", nu=2.5).features.kernel.nu == 2.5
        assert inspect.signature(KernelPCA).parameters["nu"].default == kernels.Matern(1.0).nu
        assert "nu='0'" in run("fit", "digits.npy", "m.zarr", "--kernel", "matern", "--nu", "0", code=2)
        assert "works only with the matern kernel" in run("fit", "digits.npy", "m.zarr", "--nu", "2", code=2)
    """,
    "A file format": """
        assert_array_equal(rows_at("digits.zarr"), digits[:, 20:22])
        Path("folder/part=1").mkdir(parents=True)
        Path("digits.orc").rename("folder/part=1/digits.orc")
        run("ingest", "folder", "parts.zarr", "--columns", "b,part")
        assert_array_equal(rows_at("parts.zarr"), np.column_stack([digits[:, 21], np.ones(len(digits))]))
        Path("broken.orc").write_bytes(b"ORC")
        assert "broken.orc" in run("ingest", "broken.orc", "broken.zarr", code=7)
        Path("digits.new").touch()
        assert ".orc" in run("ingest", "digits.new", "new.zarr", code=2)
    """,
}

PROGRAM = """
import inspect
import tempfile
import warnings
from pathlib import Path

import bigkpca
import numpy as np
from bigkpca import KernelPCA
from bigkpca.cli import main
from bigkpca.data.opening import open_rows
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal
import test_kinds

assert Path(bigkpca.__file__).parent == Path({package!r}), bigkpca.__file__
warnings.simplefilter("error")

def run(*arguments, code=0):
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == code, (arguments, done.output)
    return done.output

def rows_at(path):
    rows = open_rows(path)
    return rows.block(0, rows.shape[0])

def contract(kind, beginning):
    tests = [test for name, test in vars(test_kinds).items() if name.startswith(beginning)]
    assert tests
    for test in tests:
        needs = inspect.signature(test).parameters
        given = dict(name=kind, tmp_path=Path(tempfile.mkdtemp(dir=".")))
        test(**{{name: value for name, value in given.items() if name in needs}})

names = {{}}
for code in {use!r}:
    exec(code, names)
for arguments in {commands!r}:
    run(*arguments)
TESTS = {tests!r}
globals().update(names)
{check}
print("done")
"""


def python(program, folder, *found):
    """What a program prints, to a folder in which it runs, and with those in which it finds modules."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, found)), "OMP_NUM_THREADS": "1"}
    return finished(sys.executable, "-c", program, cwd=folder, env=env).stdout


def test_the_examples_change_what_is_there():
    for title in CHECKS:
        example = Example.of(title)
        assert not any((PACKAGE.parent / path).exists() for path in example.new), title
        for path, change in example.changed:
            patched((PACKAGE.parent / path).read_text(encoding="utf-8"), change)


@pytest.mark.full
@pytest.mark.parametrize("title", CHECKS)
def test_an_example_works_and_changes_no_other_file(title, tmp_path):
    example, copy = Example.of(title), tmp_path / "copy" / "bigkpca"
    shutil.copytree(PACKAGE, copy)  # what Python has compiled comes along
    before, root, here = files(copy), copy.parent, tmp_path / "here"
    example.add_to(root)
    here.mkdir()
    program = PROGRAM.format(package=str(copy), check=textwrap.dedent(CHECKS[title]), **vars(example))
    assert python(program, here, root, Path(__file__).parent, ROOT).endswith("done\n")
    after = files(copy)
    named = {*example.new, *(path for path, _ in example.changed)}
    assert {name for name in after if after[name] != before.get(name)} == named
    assert before.keys() <= after.keys()


@pytest.mark.full
def test_the_examples_keep_to_the_contracts_about_imports(tmp_path):
    pytest.importorskip("importlinter", reason="it checks imports: pip install '.[dev]'")
    shutil.copytree(PACKAGE, tmp_path / "bigkpca")
    shutil.copy(PACKAGE.parent / "pyproject.toml", tmp_path)
    for title in CHECKS:
        Example.of(title).add_to(tmp_path)
    python("from importlinter.cli import lint_imports; assert lint_imports(no_cache=True) == 0", tmp_path, tmp_path)
