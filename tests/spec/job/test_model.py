"""The table [model] of a job file: fields of FitSpec that are wrong, alone and together."""

import numpy as np

from tests.helpers.jobs import LEAST, job_of, problems_of, problems_of_model

OF_ONE_OPTION = [
    ("components = 0", "give a whole number of at least 1, a number above 0 and below 1"),
    ('components = "0.9"', "give a whole number of at least 1, a number above"),
    ("sigma = -1", 'give a number above 0 or text such as "3 median"'),
    ('sigma = "0 median"', 'give a number above 0 or text such as "3 median"'),
    ("tol = 1.0", "give a number above 0 and below 1"),
    ('center = "true"', "give true or false, without quotes"),
    ('dtype = "float46"', 'did you mean "float64"? give "float32" or "float64"'),
    ("seed = 1", "unknown key of [model]: it belongs before the first table"),
    ('kernel = "gausian"', 'did you mean "gaussian"? give "gaussian", "laplacian"'),
    ('kernel = "spektrum:k=4"', "unknown kernel 'spektrum': did you mean 'spe"),
    ('kernel = "spectrum:l=4"', "unknown option of kernel 'spectrum' 'l'"),
    ('kernel = "precomputed"', "a job extracts features of rows, and a kernel matrix"),
    ('method = "nystron"', 'did you mean "nystrom"? give "nystroem", "columns"'),
    ('landmarks = "kmaens"', 'did you mean "kmeans"? give "auto", "kmeans"'),
    ("landmarks = [...]", 'give "auto", "kmeans", "uniform"'),
    ('landmarks = "none.npy"', "landmarks cannot be read from /"),
    ('preimage = "ridge:siz=5"', "unknown option of preimage 'ridge' 'siz'"),
    ('preimage = "denoising"', "pre-images by 'denoising' need the standard"),
    ("n_directions = 3", "n_directions=3 works only with method='rff-pca', not with 'nyst"),
]
OF_SEVERAL_OPTIONS = [
    (
        'kernel = "matern:sigma=2"\nsigma = 3',
        'lines 5 and 6: model.kernel = "matern:sigma=2" and model.sigma = 3: sigma=3.0 and kernel=\'matern:sigma=2',
    ),
    (
        'kernel = "poly:degree=2"\ndegree = 3',
        'lines 5 and 6: model.degree = 3 and model.kernel = "poly:degree=2": degree is already set by kernel',
    ),
    (
        "sigma = 2\n\ngamma = 1",
        "lines 5 and 7: model.sigma = 2 and model.gamma = 1: both sigma and gamma are set: keep only one (gamma",
    ),
    ('kernel = "precomputed:"\nmethod = "exact"', 'line 5: model.kernel = "precomputed:": a job extracts features'),
    ('kernel = "Precomputed"\nmethod = "exact"', 'line 5: model.kernel = "Precomputed": a job extracts features'),
]


def test_problems_of_the_model(tmp_path):
    of_one = [(option.replace("...", "[1.0]"), f"line 5: model.{option}: {reason}") for option, reason in OF_ONE_OPTION]
    for options, problem in of_one + OF_SEVERAL_OPTIONS:
        assert [found[: len(problem)] for found in problems_of_model(tmp_path, options)] == [problem]


def test_what_does_not_go_together_is_told_beside_what_is_wrong_by_itself(tmp_path):
    found = problems_of_model(
        tmp_path, 'dtype = "f4"\nsigma = 2\ngamma = 1\nsolver = "randomized"\nmethod = "nystroem"\nsize = 0'
    )
    assert [problem.partition(":")[0] for problem in found] == ["line 5", "lines 6 and 7", "lines 8 and 9", "line 10"]


def test_nothing_is_said_of_what_depends_on_a_value_that_is_wrong(tmp_path):
    (found,) = problems_of_model(tmp_path, 'method = "rff-pac"\nn_directions = 3\nsolver = "randomized"')
    assert found.startswith('line 5: model.method = "rff-pac": did you mean "rff-pca"?')
    (found,) = problems_of_model(tmp_path, 'kernel = "${KERNEL}"\ndegree = 3\ncoef0 = 2')
    assert found == 'line 5: model.kernel = "${KERNEL}": the environment variable KERNEL is not set'


def test_landmarks_that_are_no_rows(tmp_path):
    np.save(tmp_path / "nan.npy", np.full((2, 2), np.nan))
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "empty.npy").write_bytes(b"")
    reasons = {"nan": "row 0, column 0 is NaN", "cube": "of shape", "text": "be read", "empty": "be read"}
    for name, reason in reasons.items():
        (found,) = problems_of_model(tmp_path, f'landmarks = "{name}.npy"')
        assert found.startswith(f'line 5: model.landmarks = "{name}.npy": ')
        assert reason in found


def test_weights_of_columns_are_a_table_of_numbers(tmp_path):
    wanted = "give a table of names, each with a number of at least 0, such as {origin = 4}"
    for written in ("{origin = -1}", '{origin = "4"}', "{origin = inf}", "{origin = nan}", "{origin = {a = 1}}"):
        assert problems_of_model(tmp_path, f"column_weights = {written}") == [
            f"line 5: [model.column_weights]: {wanted}"
        ]
    for written in ("[1, 2]", '"${W}"'):
        assert problems_of_model(tmp_path, f"column_weights = {written}", W="{}")[0].endswith(wanted)
    text = LEAST.replace("[output]", "[model.column_weights]\norigin = 4\n'kind=a' = 0.5\n[output]")
    assert job_of(tmp_path, text).model.spec.column_weights == {"kind=a": 0.5, "origin": 4.0}
    text = text.replace("origin = 4", "origin = '${W}'")
    assert job_of(tmp_path, text, W="0.25").model.spec.column_weights["origin"] == 0.25
    assert problems_of(tmp_path, text)[0].endswith("the environment variable W is not set")
    assert problems_of(tmp_path, text, W="-9")[0].endswith(f"[model.column_weights]: {wanted}")
    (clash,) = problems_of_model(tmp_path, "kernel = 'spectrum'\ncolumn_weights = {a = 1}")
    assert "does not work with" in clash
