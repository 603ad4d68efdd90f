"""Numbers of components and landmark rules that the package chooses, and how it tells its choices."""

import json

import numpy as np
import pytest

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
