"""Puts small faults into the code, one at a time, and reports which of them the tests catch.

    python -m tests.mutations                  # by the quick tests
    python -m tests.mutations --tier full      # what those let through: by the full ones, too
    python -m tests.mutations --only 3 17      # some faults, by their numbers

A fault that nothing catches shows a test that is missing. Works in a copy of the last commit, where all tests of the
tier must pass first, without a fault. Each fault is tried on the tests of its own file and folder, and on all where
these pass. Takes hours: up to minutes for a fault that its own tests catch, and a run of the tier for each other one.
"""

import argparse
import io
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent.parent
SECONDS = 1800  # of one run of tests: more is a hang


class Fault(NamedTuple):
    """In `file`, `old` becomes `new`; `note` says what goes wrong, where that is not obvious."""

    file: str
    old: str
    new: str
    note: str = ""


FAULTS = [
    Fault("bigkpca/numerics/kernels/stationary.py", "_FAR = 32.0", "_FAR = 1e6", "distances of far rows cancel"),
    Fault("bigkpca/numerics/linalg.py", "itemsize <= 4 else", "itemsize < 4 else", "noise of float32 counts as rank"),
    Fault("bigkpca/numerics/moments.py", "sqrt(self.squares / self.weight)", "sqrt(self.squares / (self.weight - 1))"),
    Fault("bigkpca/numerics/moments.py", "weight, self.mean + delta * (other", "weight, self.mean + delta * (self"),
    Fault("bigkpca/numerics/solvers.py", "A.mean(axis=1)[:, None]", "A.mean(axis=0)[:, None]", "columns, thesis"),
    Fault("bigkpca/numerics/linalg.py", "_are_leading(A, *found, second)", "True", "multiple eigenvalues are missed"),
    Fault("bigkpca/numerics/judge.py", "(weights - 1) * own * Q", "0 * own * Q", "rare rows count twice"),
    Fault(
        "bigkpca/numerics/judge.py", "upper_mean(s, 1 -", "upper_mean(s, 1.6 -", "the bound fails in two of three fits"
    ),
    Fault("bigkpca/numerics/drawn_rows.py", "(draw.seed, DRAWN, self._at,", "(draw.seed, DRAWN, 0,", "equal tiles"),
    Fault("bigkpca/numerics/precision.py", "np.sqrt(np.cumsum(slack.of_values(A) ** 2))", "0.0", "errors of values"),
    Fault("bigkpca/numerics/moments.py", "length * rounding.errors", "rounding.errors", "of one row, not all"),
    Fault("bigkpca/fitting/certify.py", "bounds.upper[-1])) + missed.most", "bounds.upper[-1]))", "nothing is missed"),
    Fault("bigkpca/numerics/landmarks/sampling.py", "chance * bound[j]", "chance * bound.max()", "another law"),
    Fault(
        "bigkpca/numerics/features.py", "np.result_type(dtype_of(X), dtype_of(out))", "out.dtype", "far columns cancel"
    ),
    Fault(
        "bigkpca/numerics/preimages/fixed_point.py", "(2 * features.kernel.gamma", "(features.kernel.gamma", "rff-pca"
    ),
    Fault("bigkpca/evaluating.py", "counter=[0, 0, 0, number]", "counter=[0, 0, 0, 0]", "rows share noise"),
    Fault(
        "bigkpca/numerics/linear_pca.py",
        "weights = LinearPCA.of(others, r)",
        "weights = LinearPCA.of(np.vstack([others, judged]), r)",
        "PCA saw them",
    ),
    Fault("bigkpca/numerics/calibration.py", "2 * self.count", "2 * rows", "many new rows: chance counts as drift"),
    Fault("bigkpca/numerics/evaluation.py", "4 * left", "left", "a pair belongs to two rows"),
    Fault("bigkpca/numerics/display.py", "if found >= value or", "if True or", "proven bounds, in print"),
    Fault(
        "bigkpca/data/zarr_stores.py",
        "if not found and not is_metadata(key)",
        "if False",
        "lost chunks are fill values",
    ),
    Fault("bigkpca/errors.py", '"ESTALE", ', "", "NFS: a stale handle counts as damage"),
    Fault("bigkpca/data/stores/objects.py", "if held == before:", "if True:", "claims of others are replaced"),
    Fault("bigkpca/data/stores/local.py", "LOCK_EX", "LOCK_SH", "two writers at once"),
    Fault("bigkpca/data/zarr_stores.py", "if (self.root / key).exists()", "if False", "lost if the power fails"),
    Fault("bigkpca/data/sparse.py", "check_format(full_check=True)", "check_format(full_check=False)", "the next row"),
    Fault("bigkpca/storage/models.py", "digest.update(little_endian(values))", "pass", "damaged models load"),
    Fault("bigkpca/storage/output.py", "if _content_of(self.claim) != _content", "if False and", "late tasks write"),
    Fault("bigkpca/storage/output.py", "            _remove_behind(path, about)", "            pass", "rows of others"),
    Fault("bigkpca/storage/output.py", "if start < block.start:", "if False:", "fill values for published rows"),
    Fault(
        "bigkpca/storage/output.py", "overwrite=self.overwrite)  # again", "overwrite=True)  # again", "what appeared"
    ),
    Fault("bigkpca/spec/checks.py", 'not in ("auto", "uniform")', 'not in ("auto", "uniform", "rpcholesky")'),
    Fault(
        "bigkpca/execution/graph.py", "start + power_of_two(stop - start - 1)", "(start + stop) // 2", "order of sums"
    ),
    Fault(
        "bigkpca/execution/on_cluster.py", "        look(path, digest)", "        pass", "workers with another mount"
    ),
    Fault("bigkpca/execution/plan.py", "* (at_work + min(blocks, waiting))", "* at_work", "memory over plan"),
    Fault("bigkpca/execution/engine.py", "self._left -= count", "self._left -= 0", "over the limit"),
    Fault("bigkpca/fitting/calibration.py", "without(rows, numbers), numbers", "rows, numbers", "they are fitted"),
    Fault("bigkpca/fitting/refine.py", "eps * size) * n / len(X)", "eps * size)", "rounding of few rows, not all"),
    Fault("bigkpca/ingesting/arrays.py", "if file.read(1):", "if False:", "checksums are not looked at"),
    Fault("bigkpca/ingesting/encoder.py", "sum() - 1", "sum()", "counts of missing values"),
    Fault("bigkpca/workflows/checkpoints.py", "made_by, name, *given)", "made_by, name)", "of others"),
    Fault("bigkpca/workflows/scheduled/records.py", "if job.output.must_exist:", "if False:", "no volume"),
    Fault("bigkpca/workflows/scheduled/night.py", "and block.start >= asked.first", "", "rows that readers see change"),
    Fault("bigkpca/workflows/scheduled/finding.py", "int(done) if waits else", "", "fill values as rows"),
    Fault("bigkpca/estimator/__init__.py", "rows, self.noise, engine", "rows, None, engine", "score"),
    Fault("bigkpca/reporting/__init__.py", "if file.read() == page:", "if True:", "old reports stay"),
    Fault("bigkpca/comparing.py", "_LITTLE_LONGER * min(", "_LITTLE_LONGER * max(", "advises slow fits"),
    Fault(
        "bigkpca/serving/__init__.py", "if given is not None and names", "if False and names", "columns in any order"
    ),
    Fault("bigkpca/cli/command.py", "isinstance(error, OSError) else", "False else", "a full disk: 1, not 6"),
]


def copied(folder):
    """The last commit in a folder, with the shared data beside it; what is imported from now on, in any folder."""
    archive = subprocess.run(["git", "-C", HERE, "archive", "HEAD"], check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder / "main", filter="data")
    if (HERE.parent / "shared").exists():
        (folder / "shared").symlink_to((HERE.parent / "shared").resolve())
    for fault in FAULTS:
        text = (folder / "main" / fault.file).read_text("utf-8")
        assert text.count(fault.old) == 1, f"{fault.file}: {text.count(fault.old)} times {fault.old}"
        compile(text.replace(fault.old, fault.new), fault.file, "exec")
    os.environ["PYTHONPATH"] = str(folder / "main")
    command = [sys.executable, "-c", "import bigkpca; print(bigkpca.__file__)"]
    where = subprocess.run(command, cwd="/", check=True, stdout=subprocess.PIPE, text=True).stdout
    assert where.startswith(str(folder)), f"tests would import {where}"
    return folder / "main"


def near(copy, file):
    """The tests that mirror a file of the package: its own and those of its folder, or the nearest that there are."""
    place, found = Path("tests", *Path(file).with_suffix("").parts[1:]), []
    while place != Path("tests"):
        found += [str(each) for each in (place.with_name(f"test_{place.name}.py"), place) if (copy / each).exists()]
        place = place.parent
    return [("quick", each) for each in found[:2]]


def run(copy, *arguments):
    """Run pytest: (passes, caught or unclear; how: mostly the first test that failed)."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=copy, stdout=output, stderr=output, start_new_session=True)
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return "caught", "hangs"
        finally:
            with suppress(ProcessLookupError, PermissionError):  # where no process is left
                os.killpg(process.pid, signal.SIGKILL)  # what hangs, and what tests started and did not end
            process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    first = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
    how = first[1] if first else ""
    if code in (0, 5):  # 5: none of these tests is of this tier
        return "passes", ""
    if re.search(r"^_+ ERROR collecting |^ImportError while loading conftest", text, re.MULTILINE):
        return "caught", f"{how} at import".strip()  # by the fault: without it, all tests passed
    if code < 0:
        return "caught", f"crashes by signal {-code}"
    if code == 1 or (code == 2 and first):  # 2: how pytest-xdist stops at the first failure
        return "caught", how
    return "unclear", f"pytest ended with code {code}"


def tried(copy, fault, parts):
    """What catches a fault, and how."""
    path = copy / fault.file
    before = path.read_text("utf-8")
    path.write_text(before.replace(fault.old, fault.new), "utf-8")
    try:
        for tier, *arguments in [*near(copy, fault.file), *parts]:
            verdict, how = run(copy, *arguments)
            if verdict != "passes":
                return f"caught by {tier}" if verdict == "caught" else "UNCLEAR", how
    finally:
        path.write_text(before, "utf-8")
    return "NOT CAUGHT", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tier", choices=["quick", "full"], default="quick")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", default=range(1, len(FAULTS) + 1))
    asked, counts = parser.parse_args(), Counter()
    parts = [("quick",), ("full", "-m", "full")][: 1 + (asked.tier == "full")]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        copy = copied(Path(folder).resolve())
        for tier, *arguments in parts:
            verdict, how = run(copy, *arguments)
            if verdict != "passes":
                sys.exit(f"the {tier} tests do not pass without a fault: {how}")
        for number in asked.only:
            fault = FAULTS[number - 1]
            verdict, how = tried(copy, fault, parts)
            counts[verdict] += 1
            print(f"{number:>2}  {fault.file}: {fault.old} -> {fault.new}  {verdict}  {how}".rstrip(), flush=True)
    print(f"{counts.total()} faults: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return int(any(not verdict.startswith("caught") for verdict in counts))


if __name__ == "__main__":
    sys.exit(main())
