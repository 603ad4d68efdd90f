"""The examples of docs/extending.md work as they stand there: no file of a copy of the package changes but those named.

A process that finds the copy first runs what the page runs, and what CHECKS holds.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

import bigkpca
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
        text = PAGE.read_text(encoding="utf-8")
        section = re.split(r"^## ", text.split(f"\n## {title}\n", 1)[1], maxsplit=1, flags=re.M)[0]
        use = re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)
        new = {path: use.pop(0) for path in re.findall(r"New file\s+`(\S+)`", section)}
        paths = re.findall(r"Changed file\s+`(\S+)`", section)
        changed = list(zip(paths, re.findall(r"^```diff\n(.*?)^```$", section, re.M | re.S), strict=True))
        commands = [shlex.split(line) for line in re.findall(r"^\$ bigkpca (.*)$", section, re.M)]
        (tests,) = re.findall(r"^```python\n(.*?)^```$", text.split("\n## Testing a new kind\n")[1], re.M | re.S)
        return cls(new, changed, use, commands, tests)

    def add_to(self, root):
        """Add the new file and change the others in a copy of the package."""
        for path, source in self.new.items():
            assert not (root / path).exists()
            (root / path).write_text(source, encoding="utf-8")
        for path, change in self.changed:
            before = (root / path).read_text(encoding="utf-8")
            (root / path).write_text(patched(before, change), encoding="utf-8")


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


# Use of the new kind once more, against computations that are as plain as can be.
CHECKS = {
    "A kernel": """
        X, named = np.load("fingerprints.npy"), {"kernel": "tanimoto", "random_state": 0}
        K = np.array([[(x & y).sum() / max((x | y).sum(), 1) for y in X[:150]] for x in X[:150]])
        H = np.eye(150) - 1 / 150
        exact = KernelPCA(5, method="exact", **named).fit(X[:150])
        assert_allclose(exact.eigenvalues_, np.linalg.eigvalsh(H @ K @ H)[::-1][:5], rtol=1e-4)

        assert KernelPCA.load("tanimoto.zarr").kernel == "tanimoto"
        run("transform", "tanimoto.zarr", "fingerprints.npy", "scores.zarr")
        assert_array_equal(rows_at("scores.zarr"), kpca.transform(X))
        plan = ("plan", "fingerprints.npy", "--kernel")
        assert "did you mean 'tanimoto'" in run(*plan, "tanimotto", code=2)
        assert "the tanimoto kernel has no gamma" in run(*plan, "tanimoto", "--gamma", "1", code=2)
        assert "the tanimoto kernel has no spectral density" in run(*plan, "tanimoto", "--method", "rff", code=2)
        there = KernelPCA(10, size=200, device="array_api_strict", **named).fit(X)
        assert_allclose(there.eigenvalues_, kpca.eigenvalues_, rtol=1e-5)
        assert_allclose(on_device.eigenvalues_, cauchy.eigenvalues_, rtol=1e-5)
        assert not kernels.Tanimoto().on_devices and Cauchy(5.0).on_devices
        contract("tanimoto", "test_a_kernel")
        exec(TESTS, names)
        names["test_tanimoto_is_common_bits_by_all_bits"]()
    """,
    "A landmark rule": """
        from bigkpca.comparing.trials import all_variants
        from bigkpca.numerics.kernels import Gaussian
        sample, kernel, rule = digits[:200], Gaussian(20.0), landmarks.named("farthest-point")
        chosen = rule.choose(sample, kernel, 12, np.random.default_rng(5))
        naive, K = [int(np.random.default_rng(5).integers(200))], kernel(sample, sample)
        for _ in range(11):
            naive.append(int(np.argmax([min(2 - 2 * K[i, j] for j in naive) for i in range(200)])))
        assert_array_equal(chosen, sample[naive])
        assert "nystroem farthest-point" in map(str, all_variants())
        loaded = KernelPCA.load("farthest.zarr")
        assert loaded.landmarks == "farthest-point"
        assert all((np.abs(digits - landmark).max(axis=1) < 1e-9).any() for landmark in loaded.landmarks_)
        run("transform", "farthest.zarr", "digits.npy", "scores.zarr")
        assert_array_equal(rows_at("scores.zarr"), kpca.transform(digits))
        assert "peak bytes" in run("plan", "digits.npy", "--landmarks", "Farthest_Point")
        contract("farthest-point", "test_a_rule")
    """,
    "A pre-image": """
        scores, of_landmarks = kpca.transform(digits), kpca.transform(kpca.landmarks_)
        naive = []
        for squares in ((scores[:50, None] - of_landmarks) ** 2).sum(axis=2):
            near = np.argsort(squares)[:5]
            naive.append(np.average(kpca.landmarks_[near], axis=0, weights=1 / np.maximum(squares[near], 1e-200)))
        assert_allclose(rows[:50], naive, rtol=1e-3, atol=1e-3)

        assert_array_equal(rows_at("scores.zarr"), scores)
        assert_array_equal(rows_at("rows.zarr"), rows)
        fit = ("fit", "digits.npy", "other.zarr", "--preimage")
        assert "need landmarks" in run(*fit, "nearest-landmarks", "--method", "rff", code=2)
        assert "neighbours must be at least 1" in run(*fit, "nearest-landmarks:neighbours=0", code=2)
        contract("nearest-landmarks", "test_a_preimage")
    """,
    "A file format": """
        for path in ("sift.zarr", "from_python.zarr"):
            assert_array_equal(rows_at(path), vectors)
        Path("again.fvecs").write_bytes(whole := Path("sift.fvecs").read_bytes())
        run("ingest", "again.fvecs", "sift.zarr", "--append")
        assert_array_equal(rows_at("sift.zarr"), np.concatenate([vectors, vectors]))
        for spoiled, said in (
            (whole[:-5], "is truncated: its last row lacks 5 bytes"),
            (whole[:2], "does not decode"),
            (whole[:52] + bytes([11]) + whole[53:], "row 1 (counted from 0) says 11 columns"),
            (bytes(4) + whole[4:], "its first row has 0 columns"),
        ):
            Path("bad.fvecs").write_bytes(spoiled)
            assert said in run("ingest", "bad.fvecs", "bad.zarr", code=7).replace("\\n", " ")
        assert "without a member" in run("ingest", "sift.fvecs", "other.zarr", "--member", "x", code=2)
        Path("words.odt").write_text("words")
        assert ".fvecs" in run("ingest", "words.odt", "other.zarr", code=2)
    """,
    "An option": """
        from bigkpca.execution.progress import Progress
        from bigkpca.spec.job import read_job
        from bigkpca.workflows.scheduled import _options
        assert wider.features.kernel.sigma == 2 * usual.features.kernel.sigma
        assert KernelPCA.load("model.zarr").sigma_factor == 2
        assert inspect.signature(KernelPCA).parameters["sigma_factor"].default == 1
        assert "Number of threads of this process" in bigkpca.fit.__doc__
        tables = "[input]\\npath='a'\\n[model]\\npath='m'\\n[output]\\npath='o'\\n[run]\\nthreads=2\\n"
        Path("job.toml").write_text(tables)
        options = _options(read_job("job.toml", {}), Progress())
        with options.engine() as engine:
            assert engine.threads == 2
        run("sigma", "rows.npy", "--threads", "1")
        assert "sigma_factor='0'" in run("fit", "rows.npy", "m.zarr", "--sigma-factor", "0", code=2)
    """,
    "A field of the certificate": """
        import json
        values, known = kpca.eigenvalues_, json.loads(run("info", "model.zarr", "--json"))["certificate"]["estimated"]
        assert known["condition"] == kpca.certificate_.condition == values[0] / values[-1]
        assert KernelPCA.load("model.zarr").certificate_.condition == known["condition"]
    """,
    "A field of the model": """
        assert KernelPCA.load("model.zarr").model_.provenance["source"] == kpca.model_.provenance["source"]
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
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


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
