"""Job files that are wrong: every problem is told at once, with line, key, value and what it may be."""

import pytest

from bigkpca.errors import SpecError
from bigkpca.spec.job import read_job
from tests.helpers.jobs import LEAST, problems_of, written

RUN = LEAST + "[run]\n"


def test_all_problems_are_told_at_once_in_the_order_of_the_file(tmp_path):
    path = written(
        tmp_path,
        """# nightly
seed = -1
workers = 4
[input]
pth = "rows.zarr"
[modle]
path = "model.zarr"
[output]
path = "${OUT}/features.zarr"   # unset
block_rows = 0
[run]
drift_treshold = 0.2
on_drift = "wran"
drift_threshold = 1.5
workers = "4"
timeout = "soon"
""",
    )
    with pytest.raises(SpecError) as raised:
        read_job(path, {})
    assert raised.value.exit_code == 2
    assert str(raised.value).replace(str(path), "nightly.toml") == (
        'nightly.toml: the table [model] is missing: add [model], and below it, for example, path = "model.zarr"\n'
        "nightly.toml, line 2: seed = -1: give a whole number of at least 0\n"
        "nightly.toml, line 3: workers = 4: unknown key: it belongs in [run]\n"
        'nightly.toml, line 4: [input] lacks path: add, for example, path = "rows.zarr"\n'
        'nightly.toml, line 5: input.pth = "rows.zarr": unknown key of [input]: did you mean path? known are path, '
        "array, sample_weight\n"
        "nightly.toml, line 6: unknown table [modle]: did you mean [model]? known are [input], [model], "
        "[output], [run]\n"
        'nightly.toml, line 9: output.path = "${OUT}/features.zarr": the environment variable OUT is not set\n'
        "nightly.toml, line 10: output.block_rows = 0: give a whole number of at least 1\n"
        "nightly.toml, line 12: run.drift_treshold = 0.2: unknown key of [run]: did you mean drift_threshold? known "
        "are scheduler, workers, device, memory, timeout, on_drift, drift_threshold, metrics, "
        "log\n"
        'nightly.toml, line 13: run.on_drift = "wran": did you mean "warn"? give "warn" or "fail"\n'
        "nightly.toml, line 14: run.drift_threshold = 1.5: give a number above 0 and at most 1\n"
        'nightly.toml, line 15: run.workers = "4": give a whole number of at least 1, without quotes\n'
        'nightly.toml, line 16: run.timeout = "soon": give a time such as "90 s" or "10 min", or a number of seconds'
    )


PROBLEMS = [
    ("other = 1\n" + LEAST, "line 1: other = 1: unknown key: known are seed, [input], [model], [output], [run]"),
    (LEAST + "seed = 1", "line 7: output.seed = 1: unknown key of [output]: it belongs before the first table"),
    (LEAST + "block_row = 1", "line 7: output.block_row = 1: unknown key of [output]: did you mean block_rows?"),
    (RUN + "[run.log]\nform = 1", 'line 8: [run.log]: give "plain" or "json"'),
    ("run = 3\n" + LEAST, "line 1: run = 3: this must be a table: write [run], and its keys below"),
    (LEAST.replace("[input]\npath", "input"), 'line 1: input = "rows.zarr": this must be a table: write [input], and'),
    (LEAST + "[[run]]\nworkers = 1", "line 7: run = [...]: this must be a table: write [run], and its keys below"),
    (LEAST + "[[runs]]\nworkers = 1", "line 7: unknown table [runs]: did you mean [run]?"),
    (LEAST + 'flag = "1%"', 'line 7: output.flag = "1%": give a number above 0 and below 1'),
    (
        LEAST + "flag = 0.0004",
        "line 7: output.flag = 0.0004: with 2,000 calibration rows, the least share is 0.0005: give a larger share, or "
        "set a larger model.calibration_rows",
    ),
    (
        LEAST.replace("[output]", "calibration_rows = 99\n[output]") + "flag = 0.009",
        "lines 5 and 8: output.flag = 0.009 and model.calibration_rows = 99: with 99 calibration rows, the least share",
    ),
    *(
        (
            LEAST.replace("[model]", f'sample_weight = "{name}"\n[model]'),
            f'line 3: input.sample_weight = "{name}": give the name of an array in the Zarr group of the rows, such as',
        )
        for name in ("w.npy", "other.zarr/w")
    ),
    *(
        (
            LEAST.replace("[model]", f'sample_weight = "w"\n[model]\n{line}'),
            f'lines 3 and 5: input.sample_weight = "w" and model.{line}: {field} does not take sample weights: omit ',
        )
        for line, field in (
            ('method = "exact"', "method='exact'"),
            ("refine = 2", "refine=2"),
            ('preimage = "ridge"', "preimage='ridge'"),
        )
    ),
    (
        LEAST.replace("[output]", 'method = "exact"\n[output]') + "flag = 0.01",
        "lines 5 and 8: output.flag = 0.01 and model.method = \"exact\": method='exact' does not take flags, which "
        "need calibration rows: omit one of the two, or use method='nystroem'",
    ),
    (
        RUN + 'workers = 2\nscheduler = "tcp://a:1"',
        'lines 8 and 9: run.scheduler = "tcp://a:1" and run.workers = 2: give the address of a scheduler or a '
        "number of local processes, not both",
    ),
]
OF_A_RUN = [
    ('"${KEY}" = 3', "unknown key of [run]"),
    ("path = 1", "unknown key of [run]: it belongs in [input], [model] or [output]"),
    ('"a b" = [...]', "unknown key of [run]: known are"),
    ("workers = true", "give a whole number of at least 1"),
    ("workers = 2.5", "give a whole number of at least 1"),
    ("workers = 1979-05-27", "give a whole number of at least 1"),
    ("drift_threshold = 0.0", "give a number above 0 and at most 1"),
    ('log = "JSON"', 'did you mean "json"? give "plain" or "json"'),
    ("device = 0", 'give text such as "cuda"'),
    ('device = "gpu 1"', 'give the name of a device, such as "cuda", "cuda:1" or "cupy:cuda:0"'),
    ("memory = 2", 'give text such as "2 GB"'),
    ('memory = "2"', 'give an amount of memory with its unit, such as "2 GB"'),
    ('memory = "1e999 GB"', "give an amount of memory"),
    ("timeout = 0", 'give text such as "10 min" or a number above 0'),
    ("timeout = inf", 'give text such as "10 min" or a number above 0'),
    ('scheduler = ""', 'give text such as "tls://scheduler:8786"'),
    ('scheduler = "nowhere"', "give the address of a Dask scheduler"),
    ('metrics = "s3://a/m.prom"', "metrics go to a file for the node"),
]


def test_problems_one_by_one(tmp_path):
    of_a_run = [(RUN + line.replace("...", ""), f"line 8: run.{line}: {reason}") for line, reason in OF_A_RUN]
    for text, problem in PROBLEMS + of_a_run:
        assert [found[: len(problem)] for found in problems_of(tmp_path, text)] == [problem]


def test_each_variable_that_is_not_set_is_told_once(tmp_path):
    assert problems_of(tmp_path, RUN + 'log = "${A}-${B}-${A}-${C}"\nlgo = "${D}"', C="") == [
        'line 8: run.log = "${A}-${B}-${A}-${C}": the environment variable A is not set',
        'line 8: run.log = "${A}-${B}-${A}-${C}": the environment variable B is not set',
        'line 9: run.lgo = "${D}": the environment variable D is not set',
        'line 9: run.lgo = "${D}": unknown key of [run]: did you mean log? known are scheduler, workers, device, '
        "memory, timeout, on_drift, drift_threshold, metrics, log",
    ]


def test_a_file_of_something_else_gets_a_hundred_lines(tmp_path):
    found = problems_of(tmp_path, RUN + "".join(f"k{number} = 1\n" for number in range(1000)))
    assert (len(found), found[-1]) == (101, "and 900 more")


def test_long_values_are_cut_and_control_characters_escaped(tmp_path):
    (found,) = problems_of(tmp_path, RUN + 'log = "\\u001b[1m' + "x" * 10_000 + '"')
    assert found == f'line 8: run.log = "\\u001b[1m{"x" * 76}...": give "plain" or "json"'
    (found,) = problems_of(tmp_path, RUN + 'log = "a\u2028b\u009bc\u00e9"')
    assert found.startswith('line 8: run.log = "a\\u2028b\\u009bcé": give')
    (found,) = problems_of(tmp_path, LEAST.replace("features.zarr", "nightly.toml/\\u001b\\n"))
    assert found.startswith('line 6: output.path = "nightly.toml/\\u001b\\n": ')
    assert "\\u001b\\u000a cannot be written" in found
    for text in (RUN + "x" * 10_000 + " = 1", RUN + "log = " + "9" * 4000, LEAST + "[" + "x" * 10_000 + "]"):
        assert max(map(len, problems_of(tmp_path, text))) < 400
