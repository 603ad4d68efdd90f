"""Numbers of components and landmark rules that the package chooses, and how it tells its choices."""

import json

import numpy as np
import pytest

from bigkpca import KernelPCA
from bigkpca.errors import SpecError
from bigkpca.fitting.solve import chosen_components
from bigkpca.numerics import certificates, methods
from bigkpca.numerics.certificates import Certificate
from bigkpca.spec import FitSpec
from bigkpca.storage.models import load_model
from tests.fitting.cases import assert_same_bits, chosen
from tests.helpers.commands import run
from tests.helpers.fits import fit


def fitted(X, **options):
    return fit(X, **{"n_components": 5, "random_state": 3} | options)


def clustered(clusters):
    rng = np.random.default_rng(0)
    centres = 6 * rng.normal(size=(clusters, 8))
    return np.concatenate([centre + 0.5 * rng.normal(size=(60, 8)) for centre in centres])


@pytest.mark.parametrize(
    ("method", "clusters", "size"),
    [("nystroem", 3, 60), ("exact", 5, "auto"), pytest.param("rff", 3, 1000, marks=pytest.mark.full)],
)
def test_the_largest_gap_lies_behind_the_components_that_part_clusters(method, clusters, size):
    X = clustered(clusters)
    model = fitted(X, n_components="auto", sigma=6.0, method=method, size=size)
    assert model.components == chosen(model)["n_components"] == clusters - 1
    assert_same_bits(model, fitted(X, n_components=clusters - 1, sigma=6.0, method=method, size=size))


def test_gaps_are_looked_for_among_trustworthy_components_and_where_there_are_none_one_is_left(digits, monkeypatch):
    assert certificates.trustworthy(("solid", "fair", "doubtful", "solid")) == 2
    assert certificates.before_largest_gap(np.array([8.0, 7.0, 2.0, 1.5])) == (2, 3.5)
    assert certificates.before_largest_gap(np.array([8.0])) == (1, 1.0)
    for name in ("FAIR", "SOLID"):
        monkeypatch.setattr(certificates, name, 2.0)
    for name in ("SMALL", "MODERATE"):
        monkeypatch.setattr(certificates, name, 0.0)
    model = fitted(digits[:100], n_components="auto", size=50)
    assert model.components == 1
    assert "not even the first is trustworthy" in model.provenance["choices"][-1]["reason"]


def test_trust_that_nothing_can_tell_is_an_error(digits):
    solution = fitted(digits[:50], n_components=2, method="rff", size=64).solution
    with pytest.raises(
        SpecError, match=r"n_components=.auto. needs to know which are .*, which rff cannot determine here"
    ):
        chosen_components(FitSpec.checked(n_components="auto", method="rff"), lambda _: (solution, Certificate()))


def test_a_share_of_the_variance_is_reported_with_what_was_reached(digits):
    enough = fitted(digits[:150], n_components=0.5, size=100).provenance["choices"][-1]
    assert enough["option"] == "n_components"
    assert enough["reason"].startswith("the fewest with 0.5 of the variance: at least 0.5")
    few = fitted(digits[:150], n_components=0.99, size=5).provenance["choices"][-1]
    assert few["value"] == 5
    assert few["reason"].startswith("all there are: at least 0.")


def test_components_are_chosen_again_when_rows_are_added():
    X = clustered(3)
    kpca = KernelPCA("auto", sigma=6.0, size=100, random_state=0).fit(X[::2])
    kpca.partial_fit(X[1::2])
    assert kpca.n_components_ == 2
    assert [choice["option"] for choice in kpca.model_.provenance["choices"]] == ["landmarks", "n_components"]


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
    shown = run("fit", tmp_path / "digits.npy", model, "--tol", "0.3", "--components", "auto")
    assert shown.exit_code == 0, shown.output
    size, components = (chosen(load_model(model))[option] for option in ("size", "n_components"))
    assert components == load_model(model).components
    assert f"chosen: size {size}, the smallest, to a tenth, with tol=0.3: an error of 0." in shown.output
    assert f"chosen: n_components {components}, " in shown.output
    assert "size 100: error 0." in shown.stderr
    assert f"chosen: size {size}" in run("info", model).output
    facts = json.loads(run("info", model, "--json").output)
    assert {choice["option"] for choice in facts["choices"]} == {"sigma", "landmarks", "size", "n_components"}
    random = ("--method", "rff", "--size", 200, "--components", 3)
    shown = run("fit", tmp_path / "digits.npy", tmp_path / "random.zarr", *random)
    assert "error of the centred kernel matrix: " in shown.output


@pytest.mark.parametrize(("form", "frequencies"), [("orthogonal", 8), ("phase", 16)])
def test_no_more_axes_are_kept_than_there_are_frequencies(digits, form, frequencies):
    """A feature with a phase has a frequency of its own, so that 15 components keep their axes."""
    method = methods.PrincipalFeatures(form=form)
    found = fitted(digits[:300], method=method, size=16, n_components=15)
    assert found.features.axes.shape[1] == frequencies
