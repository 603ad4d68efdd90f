"""Landmarks, numbers of components and rules that a fit chooses, and how it tells its choices."""

import json

import numpy as np
import pytest

from bigkpca import KernelPCA, landmarks
from bigkpca.errors import SpecError
from bigkpca.numerics import methods
from bigkpca.storage.models import load_model
from tests.fitting.cases import chosen
from tests.helpers.commands import run
from tests.helpers.fits import fit


def fitted(X, **options):
    return fit(X, **{"n_components": 5, "random_state": 3} | options)


def test_a_share_of_the_variance_is_reported_with_what_was_reached(digits):
    for share, size, reason in (
        (0.5, 100, "the fewest with 0.5 of the variance: at least 0.5"),
        (0.99, 5, "all there are: at least 0."),
    ):
        choices = fitted(digits[:150], n_components=share, size=size).provenance["choices"]
        (found,) = [each for each in choices if each["option"] == "n_components"]
        assert found["reason"].startswith(reason)


def test_every_automatic_choice_is_reported_with_its_reason(digits):
    model = fitted(digits[:150], n_components=5)
    assert chosen(model) == {"sigma": model.features.kernel.sigma, "landmarks": "kmeans", "size": 150}
    assert all(choice["reason"] for choice in model.provenance["choices"])
    assert chosen(fitted(digits[:150], sigma=20.0, size=50, landmarks="kmeans")) == {}
    random = fitted(digits[:60], method="rff-pca", size=100)
    assert chosen(random)["n_directions"] == random.features.axes.shape[1]


def test_commands_report_what_they_chose(digits, tmp_path):
    np.save(tmp_path / "digits.npy", digits[:300])
    model = str(tmp_path / "model.zarr")
    shown = run("fit", tmp_path / "digits.npy", model, "--tol", "0.3", "--components", "0.3")
    size, components = (chosen(load_model(model))[option] for option in ("size", "n_components"))
    assert components == load_model(model).components
    assert f"chosen: size {size}, the first of 100, 200, 400, ... for tol=0.3: it has an error of 0." in shown.output
    assert f"chosen: n_components {components}, " in shown.output
    facts = json.loads(run("info", model, "--json").output)
    assert {choice["option"] for choice in facts["choices"]} == {"sigma", "landmarks", "size", "n_components", "dtype"}


@pytest.mark.parametrize(("form", "frequencies"), [("orthogonal", 8), ("phase", 16)])
def test_no_more_axes_are_kept_than_there_are_frequencies(digits, form, frequencies):
    """A feature with a phase has a frequency of its own, so that 15 components keep their axes."""
    method = methods.PrincipalFeatures(form=form)
    found = fitted(digits[:300], method=method, size=16, n_components=15)
    assert found.features.axes.shape[1] == frequencies


def test_rpcholesky_stops_at_its_tolerance_with_fewer_rows_as_landmarks(X):
    sigmoid = {"kernel": "sigmoid", "gamma": 3e-4, "coef0": -1.0}
    with pytest.raises(SpecError, match=r"rpcholesky needs a positive semidefinite kernel, but k\(x, x\) = -0\.\d"):
        fitted(X, size=60, landmarks="rpcholesky", **sigmoid)
    loose, tight = (fitted(X, sigma=60.0, size=250, landmarks=landmarks.RPCholesky(tol=tol)) for tol in (0.1, 0.02))
    assert loose.features.size < tight.features.size < 250
    assert loose.solution.unexplained < 0.11
    assert tight.solution.unexplained < 0.022
    assert (np.abs(X[:, None] - tight.features.landmarks_in_user_units()).max(axis=2).min(axis=0) < 1e-9).all()


def test_what_does_not_fit_the_rows_is_refused(X):
    for options, message in (
        ({"landmarks": np.arange(15.0).reshape(5, 3)}, "landmarks have 3 columns, the array has 64"),
        ({"landmarks": [1, 300]}, "landmark 300 is not a row of the array, which has 300 rows, counted from 0"),
        ({"landmarks": np.array([2**63], np.uint64)}, "landmark 9223372036854775808 is not a row of the array, which"),
        ({"method": "rff-pca", "n_directions": 65}, "n_directions=65, but the array has only 64 columns"),
    ):
        with pytest.raises(SpecError, match=f"(?s){message}"):
            KernelPCA(**{"n_components": 5, **options}).fit(X)
