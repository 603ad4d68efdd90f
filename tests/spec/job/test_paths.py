"""Paths of a job that are none, and paths of which one would be written over another."""

import numpy as np

from tests.helpers.jobs import LEAST, problems_of, problems_of_model

RUN = LEAST + "[run]\n"
TOGETHER = "these are the same path, or one lies in the other: give each a path of its own"


PROBLEMS = [
    (("a", "m", "a"), f'lines 2 and 6: output.path = "a" and input.path = "a": {TOGETHER}'),
    (("a", "m", "./b/../a/"), f'lines 2 and 6: output.path = "./b/../a/" and input.path = "a": {TOGETHER}'),
    (("a", "m", "a/b"), f'lines 2 and 6: output.path = "a/b" and input.path = "a": {TOGETHER}'),
    (("a", "a", "o"), f'lines 2 and 4: model.path = "a" and input.path = "a": {TOGETHER}'),
    (("a", "m", "m"), f'lines 4 and 6: model.path = "m" and output.path = "m": {TOGETHER}'),
    (
        ("s3://b/a", "m", "s3://b/a/"),
        f'lines 2 and 6: output.path = "s3://b/a/" and input.path = "s3://b/a": {TOGETHER}',
    ),
    (
        ("s3://b/a/c", "m", "s3://b/a"),
        f'lines 2 and 6: output.path = "s3://b/a" and input.path = "s3://b/a/c": {TOGETHER}',
    ),
    (("real", "m", "link"), f'lines 2 and 6: output.path = "link" and input.path = "real": {TOGETHER}'),
    (("a", "m", "nightly.toml"), 'line 6: output.path = "nightly.toml": this is, or holds, the job file'),
    (("s3://b/a", "s3://b/m", "../HERE"), 'line 6: output.path = "../HERE": this is, or holds, the job file'),
    (("a", "m", "/"), 'line 6: output.path = "/": / is the current folder, or holds it'),
    (("a", "m", "file/x"), 'line 6: output.path = "file/x": HERE/file/x cannot be written: HERE/file is a file'),
    (("a", "m", "a.bigkpca-x"), 'line 6: output.path = "a.bigkpca-x": HERE/a.bigkpca-x: .bigkpca- in a name marks'),
    (("a", "m", "s3://bucket"), 'line 6: output.path = "s3://bucket": s3://bucket is a whole bucket'),
    (("a", "m", "ftp://b/x"), 'line 6: output.path = "ftp://b/x": ftp://b/x: only local paths and s3://'),
    (("a", "m", "s3:/b/x"), 'line 6: output.path = "s3:/b/x": s3:/b/x: give s3:// as text'),
    (("a\\u0000b", "m", "o"), 'line 2: input.path = "a\\u0000b": a path holds no zero character'),
    (("", "m", "o"), 'line 2: input.path = "": give text such as "rows.zarr"'),
]


def test_problems_of_paths(tmp_path):
    here = tmp_path / "here"
    (here / "real").mkdir(parents=True)
    (here / "link").symlink_to("real")
    (here / "file").write_text("")
    for paths, problem in PROBLEMS:
        rows, model, output = (path.replace("HERE", here.name) for path in paths)
        text = f'[input]\npath = "{rows}"\n[model]\npath = "{model}"\n[output]\npath = "{output}"\n'
        (found,) = problems_of(here, text)
        assert found.replace(str(here), "HERE").replace("../here", "../HERE").startswith(problem), paths


def test_metrics_and_landmarks_are_not_written_over(tmp_path):
    (found,) = problems_of(tmp_path, RUN + 'metrics = "features.zarr/m.prom"')
    assert found.startswith(
        'lines 6 and 8: output.path = "features.zarr" and run.metrics = "features.zarr/m.prom": these'
    )
    (found,) = problems_of(tmp_path, RUN + 'metrics = "nightly.toml"')
    assert found.startswith('line 8: run.metrics = "nightly.toml": this is, or holds, the job file')
    np.save(tmp_path / "l.npy", np.eye(2))
    (found,) = problems_of_model(tmp_path, f'landmarks = "../{tmp_path.name}/l.npy"\n[run]\nmetrics = "l.npy"')
    assert found.startswith("lines 5 and 7: run.metrics = ")
