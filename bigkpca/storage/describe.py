"""Describe what is at a path: a dataset, a model, a feature store, or any Zarr array, as JSON-ready values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from bigkpca.data.npy import NpyRows
from bigkpca.data.opening import open_rows
from bigkpca.data.sample_weights import BESIDE
from bigkpca.data.stores import expanded, store_of
from bigkpca.data.zarr import ZarrRows, rows_of_manifest
from bigkpca.errors import Array
from bigkpca.numerics import preimages
from bigkpca.numerics.certificate import Certificate, accuracy
from bigkpca.numerics.display import at_most, share_at_most
from bigkpca.numerics.linear_pca import Captured, judged_on
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec
from bigkpca.storage import groups, models, output, records

# Options of a fit that have entries of their own.
_FACTS = {"kernel", "sigma", "gamma", "degree", "coef0", "center", "standardize", "dtype", "random_state"}
_FACTS |= {"preimage", "noise", "calibration_rows"}
_MOST_COLUMNS = 12  # in words


def info(path: str) -> dict[str, Any]:
    """Facts about what is at `path`, finished or not. Reads metadata and a model's arrays, but no rows.

    Raises SpecError if there is nothing readable, CorruptionError for a damaged model.
    """
    path = expanded(path)
    about = groups.describe(path)
    if about is None and (claim := output.claimed(path)) is not None:
        return {"kind": str(claim.get("format")), "path": path, "finished": False}
    if about is None:
        rows = open_rows(path)
        return {"kind": "npy" if isinstance(rows, NpyRows) else "zarr array", "path": path, **_array_facts(rows)}
    if about["format"] == "model":
        return model_info(models.load_model(path), path)
    if about["format"] != "dataset":
        return _blocks_info(path, about)
    facts = {"kind": "dataset", "path": path, "finished": True}
    records.check(about, records.DATASET, path)
    options = [each.option for each in BESIDE]
    shown = "row_shape", "column_names", "encoding", *options, "categories", "provenance"
    own = {key: about[key] for key in shown if key in about}
    own |= {key: own[key]["path"] for key in options if isinstance(own.get(key), dict)}  # in separate files
    return facts | _array_facts(open_rows(path)) | own | {"bytes": _stored_bytes(path)}


def model_info(model: Model, path: str) -> dict[str, Any]:
    """Facts about a fitted model."""
    records.check(model.provenance, records.FITTED, path or "the model")
    spec, identity = FitSpec.of(model), model.provenance["identity"]
    of_landmarks, default = spec.method_value.landmarks, FitSpec().to_dict()
    way, default_way = preimages.to_dict(spec.own_preimage), preimages.to_dict(type(spec.own_preimage)())
    weights: Any = True if model.sums is None else {"rows": model.sums.count, "sum": model.sums.weight}
    return {
        "kind": "model",
        "path": path,
        "method": spec.method_value.name,
        "features": model.features.name,
        "kernel": model.features.kernel.to_dict(),
        "landmarks" if of_landmarks else "random_features": model.features.size,
        "columns": model.columns,
        **({} if model.names is None else {"column_names": list(model.names)}),
        "components": model.components,
        "center": spec.center,
        "standardize": spec.standardize,
        "dtype": model.features.dtype.name,
        "random_state": spec.random_state,
        "preimage": spec.preimage_value.name if model.decoder else None,
        # Noise that the fit determines is not among these.
        "preimage_options": {key: way[key] for key in way if model.decoder and way[key] != default_way[key]},
        "noise": spec.noise,
        "calibration_rows": None if model.calibration is None else model.calibration.count,
        "options": {
            key: value for key, value in spec.to_dict().items() if key not in _FACTS and value != default.get(key)
        },
        "choices": model.provenance["choices"],
        "fitted_on": {"path": identity["path"], "rows": identity["shape"][0]},
        **({"sample_weight": weights} if model.weighted else {}),
        **({"devices": model.provenance["devices"]} if "devices" in model.provenance else {}),
        "added": [{"path": each.get("path"), "rows": each["shape"][0]} for each in model.provenance.get("added", [])],
        "eigenvalues": model.solution.eigenvalues.tolist(),
        "explained_variance_ratio": model.solution.explained_variance_ratio.tolist(),
        "captured": None if model.captured is None else captured_info(model.captured, model.variables),
        "certificate": certificate_info(model.certificate),
        "digest": models.model_digest(model),
        "bytes": _stored_bytes(path),
    }


def captured_info(found: Captured, variables: Mapping[str, slice]) -> dict[str, Any]:
    """What scores capture, as JSON-ready values: shares of the variance of all columns and of each variable."""
    numbers = {name: getattr(found, name) for name in ("rows", "held_out", "components", "seen")}
    by_scores, by_pca = found.shares
    of_columns = None
    if variables:
        shares = found.of_columns(variables)
        of_columns = {name: {"by_scores": ours, "by_pca": pca} for name, (ours, pca) in shares.items()}
    return {**numbers, "by_scores": by_scores, "by_pca": by_pca, "columns": of_columns}


def captured_in_words(found: Mapping[str, Any]) -> dict[str, str]:
    """The shares of the variance of columns that scores explain, beside linear PCA with as many components."""
    scores = f"{found['components']} scores" if found["components"] > 1 else "the score"
    rows = judged_on(found["held_out"], found["seen"])
    shown = {"captured of the columns": f"{found['by_scores']:.1%} by {scores}, {found['by_pca']:.1%} by PCA ({rows})"}
    if columns := found["columns"]:
        words = [f"{name} {each['by_scores']:.0%} (PCA {each['by_pca']:.0%})" for name, each in columns.items()]
        more = f", ... ({len(words)} in all)" if len(words) > _MOST_COLUMNS else ""
        shown["captured of each column"] = ", ".join(words[:_MOST_COLUMNS]) + more
    return shown


def whole_gram(facts: Mapping[str, Any]) -> bool:
    """Whether the whole Gram matrix was solved, so that the eigenpairs are exact up to rounding."""
    return facts["method"] == "exact" and all(value is None for value in facts["certificate"]["residuals"])


def accuracy_in_words(facts: Mapping[str, Any]) -> dict[str, str]:
    """The error of a model with these facts, proven or with a confidence level, and what its components capture."""
    known, shares, found = facts["certificate"], facts["explained_variance_ratio"], dict[str, str]()
    trust, reliable = tuple(known["trust"]), "exact: the whole Gram matrix was solved"
    if any(value is not None for value in known["residuals"]):
        largest = at_most(max(known["residuals"]), 2)
        found["largest relative residual"] = f"{largest:.2g} (proven: an eigenvalue lies within it)"
    if not whole_gram(facts):
        if known["unexplained"] < 1:
            share = share_at_most(known["unexplained"])
            found["unexplained by the landmarks"] = f"{share} of the variance at most (proven)"
        if known["confidence"]:
            missed = at_most(known["missed"][0] * facts["eigenvalues"][0])
            limit = f"no component with an eigenvalue above {missed:.5g} ({known['confidence']:.0%} confidence)"
            found["missed by the landmarks"] = limit
        reliable = (
            f"{accuracy(trust, np.array(shares))[0]}, {len(trust) - trust.count('doubtful')} of {len(trust)} "
            "components are solid or fair (how well kernel PCA is known, not how useful it is)"
        )
    captured, of_columns = f"{sum(shares):.1%} of the variance", facts["captured"]
    found |= {"approximation": reliable, "captured in feature space": captured}
    return found if of_columns is None else found | captured_in_words(of_columns)


def _listed(values: Array) -> Any:
    """An array as a list, with None for what is not known."""
    return [value if np.isfinite(value) else None for value in values.tolist()]


def certificate_info(certificate: Certificate) -> dict[str, Any]:
    """The certificate as JSON-ready values; None where nothing is known."""
    known = {each.name: getattr(certificate, each.name) for each in fields(certificate)}
    plain = {name: _listed(value) if isinstance(value, np.ndarray) else value for name, value in known.items()}
    return plain | {"trust": list(certificate.trust)}


def _blocks_info(path: str, about: Mapping[str, Any]) -> dict[str, Any]:
    main = groups.open_main(path, about["format"])
    records.check(about, records.OUTPUT, path)
    return {
        "kind": about["format"],
        "path": path,
        "finished": True,
        "shape": [rows_of_manifest(path, about, main), *main.shape[1:]],
        "dtype": str(main.dtype),
        "block_rows": about["block_rows"],
        **({} if about.get("flag") is None else {"flag": about["flag"]}),
        "model": about["model"],
        "input": about["input"]["path"],
        "bytes": _stored_bytes(path),
    }


def _array_facts(rows: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {"shape": list(rows.shape), "dtype": str(rows.dtype)}
    if isinstance(rows, ZarrRows):
        facts["chunks"] = list(rows.array.chunks)
        facts["shards"] = list(rows.array.shards) if rows.array.shards else None
        facts["missing_chunks"] = rows.missing()
    return facts


def _stored_bytes(path: str) -> int:
    return sum(file.bytes for file in store_of(path).files(path).values())
