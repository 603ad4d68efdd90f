"""Paths of a job that are none, and paths of which one would be written over another."""

import numpy as np

from tests.helpers.jobs import LEAST, problems_of, problems_of_model

RUN = LEAST + "[run]\n"
LINES = {"input": 2, "model": 4, "output": 6}
TOGETHER = "these paths are the same, or one lies in the other: give each a separate path"
OVERLAPS = [
    (("a", "m", "a"), "output", "input"),
    (("a", "m", "./b/../a/"), "output", "input"),
    (("a", "m", "a/b"), "output", "input"),
    (("a", "a", "o"), "model", "input"),
    (("a", "m", "m"), "model", "output"),
    (("s3://b/a", "m", "s3://b/a/"), "output", "input"),
    (("s3://b/a/c", "m", "s3://b/a"), "output", "input"),
    (("real", "m", "link"), "output", "input"),
]
NO_PLACES = [
    (("a", "m", "nightly.toml"), "output", "this is the job file or a folder that contains it"),
    (("s3://b/a", "s3://b/m", "../here"), "output", "this is the job file or a folder that contains it"),
    (("a", "m", "/"), "output", "/ is the current folder or contains it"),
    (("a", "m", "file/x"), "output", "HERE/file/x cannot be written: HERE/file is a file"),
    (("a", "m", "ftp://b/x"), "output", "ftp://b/x: only local paths and s3://"),
    (("a\\u0000b", "m", "o"), "input", "a path cannot contain a zero character"),
    (("", "m", "o"), "input", 'give text such as "rows.zarr"'),
]


def test_problems_of_paths(tmp_path):
    here = tmp_path / "here"
    (here / "real").mkdir(parents=True)
    (here / "link").symlink_to("real")
    (here / "file").write_text("")
    for paths, key, of in OVERLAPS + NO_PLACES:
        text = "".join(f'[{key}]\npath = "{path}"\n' for key, path in zip(LINES, paths, strict=True))
        named = {key: f'{key}.path = "{path}"' for key, path in zip(LINES, paths, strict=True)}
        if of in LINES:
            first, second = sorted((LINES[key], LINES[of]))
            problem = f"lines {first} and {second}: {named[key]} and {named[of]}: {TOGETHER}"
        else:
            problem = f"line {LINES[key]}: {named[key]}: {of}"
        (found,) = problems_of(here, text)
        assert found.replace(str(here), "HERE").startswith(problem), paths


def test_metrics_and_landmarks_are_not_written_over(tmp_path):
    (found,) = problems_of(tmp_path, RUN + 'metrics = "features.zarr/m.prom"')
    assert found.startswith(
        'lines 6 and 8: output.path = "features.zarr" and run.metrics = "features.zarr/m.prom": these'
    )
    (found,) = problems_of(tmp_path, RUN + 'metrics = "nightly.toml"')
    assert found.startswith('line 8: run.metrics = "nightly.toml": this is the job file or a folder that contains it')
    np.save(tmp_path / "l.npy", np.eye(2))
    (found,) = problems_of_model(tmp_path, f'landmarks = "../{tmp_path.name}/l.npy"\n[run]\nmetrics = "l.npy"')
    assert found.startswith("lines 5 and 7: run.metrics = ")
