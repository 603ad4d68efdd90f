"""Pages are right: their Python runs, their commands run and print what the page shows, and the reference is complete.

Each page is run in an empty folder that holds small stand-ins for the files that it names (`STAND_INS`), Python and
commands apart, both from top to bottom: all ```python blocks, and all lines `$ bigkpca ...` of other blocks.
"""

import doctest
import gzip
import inspect
import json
import os
import re
import shlex
import sys
from importlib import import_module

import click
import numpy as np
import pandas as pd
import pytest

import bigkpca
from bigkpca import KernelPCA, errors
from bigkpca.cli import main
from bigkpca.ingesting import ingest
from bigkpca.numerics.kernels import Gaussian
from tests.helpers.commands import finished, run
from tests.helpers.files import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ADDRESS = re.compile(r"tcp://[\w.]+:\d+")
ELSEWHERE = {"extending.md"}  # run by test_extending.py, on a copy of the package with what the page adds
MANY, FEW = 510, 150  # `evaluate` takes 500 rows


def blocks_of(page):
    """(language, line, text) of every fenced block."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```([^`\n]*)\n(.*?)^```$", text, re.M | re.S)
    return [(block[1], text[: block.start(2)].count("\n"), block[2]) for block in found]


def python_of(page):
    return [(line, text) for language, line, text in blocks_of(page) if language == "python"]


def commands_of(page):
    """Every command of ours, and the lines shown below it."""
    found = []
    for language, _, text in blocks_of(page):
        for part in re.split(r"^\$ ", text, flags=re.M)[1:] if language != "python" else []:
            command, *shown = part.split("\n")
            found += [(command, shown)] if command.startswith("bigkpca ") else []
    return found


def labels(lines):
    """What stands first on each line that has columns, numbers as #."""
    told = [line.strip() for line in lines if re.search(r"\S  +\S", line)]
    return [re.sub(r"\d[\d,.]*", "#", re.split(r"  +", line)[0]) for line in told]


def missing(shown, printed):
    """The labels that a page shows and a command did not print, in this order."""
    rest = iter(printed)
    return [label for label in shown if label not in rest]


def images(digits):
    """Digits of 8 x 8 and 16 grey values as 24 x 24 amid 28 x 28, and 240: as MNIST's, but for the blocks."""
    large = np.kron(digits[:MANY].reshape(-1, 8, 8) * np.uint8(15), np.ones((3, 3), np.uint8))
    return np.pad(large, ((0, 0), (2, 2), (2, 2)))


def write_idx(path, values):
    head = bytes([0, 0, 8, values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(gzip.compress(head + values.tobytes()))


def write_dataset(path, values):
    raw = path.with_name(path.stem + "-source.npy")
    np.save(raw, values)
    ingest([raw], path)


def noisy(digits):
    return images(digits)[:FEW] + np.random.default_rng(0).normal(0, 64, (FEW, 28, 28)).astype(np.float32)


def write_job(path, digits):
    """The job file of the page about scheduled runs, and the rows of two nights."""
    page = (ROOT / "docs" / "scheduled.md").read_text()
    path.write_text(re.findall(r"^```toml\n(.*?)^```", page, re.M | re.S)[0])
    for name, rows in (("first.npy", images(digits)), ("tonight.npy", images(digits)[:FEW])):
        np.save(path.with_name(name), rows.reshape(len(rows), -1))


def write_features(path, digits):
    """The output of a run of that job."""
    write_job(path.with_name("nightly.toml"), digits)
    write_dataset(path.with_name("lake.zarr"), images(digits))
    bigkpca.run(path.with_name("nightly.toml"))


def write_flights(path, digits):
    """A table of flights: dates, numbers and words."""
    rng, n = np.random.default_rng(0), 8 * MANY
    minutes = rng.integers(5 * 60, 23 * 60, n)
    date = pd.Timestamp("2001-01-01") + pd.to_timedelta(24 * 60 * rng.integers(0, 28, n) + minutes, "min")
    delay = np.where(np.arange(n) % 800 == 7, 1440, rng.normal(5, 30, n).round()).astype(int)
    flights = {"date": date.strftime("%Y-%m-%d %H:%M"), "delay": delay, "distance": rng.choice([200, 760, 1400], n)}
    flights |= {"origin": rng.choice(["JFK", "LGA"], n), "destination": rng.choice(["ORD", "DFW", "LAX"], n)}
    pd.DataFrame(flights).assign(hour=(minutes / 60).round(2)).to_csv(path, index=False)


def write_flights_dataset(path, digits):
    write_flights(path.with_suffix(".csv"), digits)
    ingest(path.with_suffix(".csv"), path, categorical=["origin", "destination"])


def write_survey(path, digits):
    """Answers of people, and how many households each stands for."""
    rng = np.random.default_rng(0)
    answers = pd.DataFrame(rng.integers(1, 6, (MANY, 4)), columns=["rent", "rooms", "noise", "garden"])
    answers.assign(households=rng.integers(0, 900, MANY)).to_csv(path, index=False)


STAND_INS = {
    "train-images-idx3-ubyte.gz": lambda path, digits: write_idx(path, images(digits)),
    "train-labels-idx1-ubyte.gz": lambda path, digits: write_idx(path, np.arange(MANY, dtype=np.uint8) % 10),
    "mnist.zarr": lambda path, digits: write_dataset(path, images(digits)),
    "noisy.zarr": lambda path, digits: write_dataset(path, noisy(digits)),
    "flights.csv": write_flights,
    "flights.zarr": write_flights_dataset,
    "survey.csv": write_survey,
    "nightly.toml": write_job,
    "monday.npy": lambda path, digits: np.save(path, digits[:FEW]),
    "tuesday.npy": lambda path, digits: np.save(path, digits[1 : FEW + 1]),
    "wednesday.npy": lambda path, digits: np.save(path, digits[2 : FEW + 2]),
    "features.zarr": write_features,
    "gram.zarr": lambda path, digits: write_dataset(path, Gaussian(30.0).gram(digits[:FEW] * 1.0)),
}


@pytest.fixture
def prepared(tmp_path, digits, monkeypatch, quiet_signals, request):
    """Makes what a text names and does not ingest itself, in a folder of its own; to read lines with real addresses."""
    monkeypatch.chdir(tmp_path)

    def prepare(text):
        made = re.findall(r"""^bigkpca ingest .*?([\w-]+\.zarr)|\bingest\(.*?"([\w-]+\.zarr)\"""", text, re.M)
        made = ["".join(each) for each in made]
        made += ["features.zarr"] if "bigkpca run " in text else []
        for name in {*re.findall(r"[\w-]+\.(?:zarr|gz|toml|csv|npy)\b", text)} & {*STAND_INS} - {*made}:
            STAND_INS[name](tmp_path / name, digits)
        address = request.getfixturevalue("cluster_elsewhere").client.scheduler.address if ADDRESS.search(text) else ""
        return lambda line: ADDRESS.sub(address, line)

    return prepare


def having(found):
    return [pytest.param(page, id=page.stem) for page in PAGES if page.name not in ELSEWHERE and found(page)]


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::bigkpca.errors.DominantVariableWarning")  # a page shows where it is due
@pytest.mark.parametrize("page", having(python_of))
def test_the_python_of_a_page_runs(page, prepared):
    names = {}
    here = prepared("".join(text for _, text in python_of(page)))
    for line, code in python_of(page):
        exec(compile("\n" * line + here(code), page, "exec"), names)


@pytest.mark.full
@pytest.mark.parametrize("page", having(commands_of))
def test_the_commands_of_a_page_run_and_print_what_it_shows(page, prepared):
    here = prepared("\n".join(command for command, _ in commands_of(page)))
    for command, shown in commands_of(page):
        done = run(*shlex.split(here(command))[1:])
        assert done.exit_code == 0, (command, done.output)
        assert missing(labels(shown), labels(done.stdout.split("\n"))) == [], (command, done.stdout)


def test_examples_of_clusters_listen_on_this_machine_alone():
    lines = [line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()]
    told = [line for line in lines if line.startswith("dask ")]
    bound = [line for line in told if "--host 127.0.0.1 " in line and "--dashboard-address 127.0.0.1:" in line]
    assert bound == told != []


@pytest.mark.full
def test_the_notebook_runs_without_warnings_and_is_stored_without_outputs(tmp_path):
    cells = json.loads((ROOT / "docs" / "gallery" / "first_steps.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    runnable = ["".join(cell["source"]) for cell in code if "install" not in cell["metadata"].get("tags", [])]
    (tmp_path / "notebook.py").write_text("\n\n".join(runnable), encoding="utf-8")
    environment = os.environ | {"MPLBACKEND": "agg", "PYTHONPATH": str(ROOT)}
    warned = "-W", "error", "-W", "ignore:FigureCanvasAgg is non-interactive"
    done = finished(sys.executable, *warned, "notebook.py", cwd=tmp_path, env=environment)
    assert done.stdout.startswith("eigenvalue 1: ")
    assert (tmp_path / "scores.zarr").is_dir()


def test_the_reference_of_the_command_line_has_every_command():
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    listed = re.findall(r"^   :commands: (\S+)$", page, re.M)
    assert listed == [",".join(main.list_commands(click.Context(main)))]


def documented():
    """What the pages of the reference have an entry for, by its name below `bigkpca`."""
    found = set()
    for page in (ROOT / "docs").glob("api*.md"):
        text = page.read_text(encoding="utf-8")
        found |= set(re.findall(r"^\.\. auto\w+:: bigkpca\.([\w.]+)", text, re.M))
        found |= {f"KernelPCA.{name}" for name in re.findall(r"^   \.\. automethod:: (\w+)", text, re.M)}
        found |= set(re.findall(r"^\* `(\w+\.\w+)`: ", text, re.M))
    return found


def test_tests_that_pages_name_are_there():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "deploy").glob("*/README.md"))]:
        for name in re.findall(r"`(?:tests/)?([\w/]*test_\w+\.py)", page.read_text(encoding="utf-8")):
            assert (ROOT / "tests" / name).exists(), f"{page.name}: {name}"


def test_the_reference_has_every_public_name_method_and_attribute_and_what_public_functions_return():
    public = set()
    for name in bigkpca.__all__:
        value = getattr(bigkpca, name)
        public |= {f"{name}.{part}" for part in value.__all__} if inspect.ismodule(value) else {name}
    kinds = {name: value for name, value in vars(errors).items() if inspect.isclass(value)}
    public |= {f"errors.{name}" for name, value in kinds.items() if issubclass(value, Exception)}
    assert public - documented() == set()
    functions = [value for name in bigkpca.__all__ if inspect.isfunction(value := getattr(bigkpca, name))]
    classes = {value.__annotations__["return"] for value in functions} - {"str", "Stored"}  # Stored: an array of Zarr
    named = {name.rpartition(".")[2] for name in documented()}
    assert {name for name in classes if name.isidentifier()} - named == set()
    own = [kind for kind in KernelPCA.__mro__ if kind.__module__.startswith("bigkpca.")]
    public = {name: value for kind in own for name, value in vars(kind).items() if not name.startswith("_")}
    attributes = {name for name, value in public.items() if isinstance(value, property)}
    methods = {name for name in public.keys() - attributes if not name.endswith("_request")}  # made by scikit-learn
    assert {f"KernelPCA.{name}" for name in methods} - documented() == set()
    lines = re.findall(r"^(\w+_(?:, \w+_)*) : ", inspect.getdoc(KernelPCA), re.M)
    assert attributes - {name for line in lines for name in line.split(", ")} == set()


def examples():
    """The examples of every docstring of the package."""
    modules = [
        import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
        for path in sorted((ROOT / "bigkpca").rglob("*.py"))
        if ">>> " in path.read_text(encoding="utf-8")
    ]
    known = {"np": np, "KernelPCA": KernelPCA, "bigkpca": bigkpca}
    found = [example for module in modules for example in doctest.DocTestFinder().find(module, extraglobs=known)]
    return [example for example in found if example.examples]


@pytest.mark.full
def test_the_examples_of_docstrings_print_what_they_show(tmp_path, monkeypatch):
    for number, example in enumerate(examples()):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example).failed == 0, example.name
