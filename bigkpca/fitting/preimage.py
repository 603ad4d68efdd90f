"""Make the decoder of a model, which maps scores back to rows: from the fit itself, or trained in one more pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bigkpca.data.blocks import sample_rows
from bigkpca.data.rows import Rows
from bigkpca.errors import Array, SpecError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine, sum_by_block
from bigkpca.execution.passes import block_regression
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import has_landmarks
from bigkpca.numerics.model import Model
from bigkpca.numerics.preimages import Expansion, expansion
from bigkpca.numerics.random_streams import REFERENCES, TRAINING, random_stream
from bigkpca.numerics.span import Span
from bigkpca.spec import FitSpec


def with_decoder(
    model: Model,
    rows: Rows,
    sample: Array | None,
    spec: FitSpec,
    engine: Engine,
    span: Span | None = None,
) -> Model:
    """The model with its decoder: one pass for ridge and denoising, none for the other pre-images.

    `sample` are sampled rows (m, d) in the units of the data, if `spec.keeps_sample`; refined and exact models sample
    the rows that they keep. `span` is that of the landmarks, if the fit already has it.
    """
    if not spec.reconstructs:
        return model
    preimage: Any = spec.preimage_value
    if sample is None and preimage.needs_rows:  # of the rows that the model keeps
        features = model.features
        assert has_landmarks(features)
        n, d = features.landmarks.shape
        count = spec.preimage_rows(sample_rows(n, d, 0))
        numbers = np.sort(random_stream(spec.random_state, REFERENCES).choice(n, count, replace=False))
        few = replace(features, landmarks=features.landmarks[numbers])
        sample = few.landmarks_in_user_units()
    with single_threaded_blas:
        if not preimage.trained:
            with single_threaded_blas:
                fitted = replace(model.fitted, basis=None if span is None else span.basis)
                return replace(model, decoder=preimage.decoder(fitted, sample))
        seed = np.random.SeedSequence(spec.random_state, spawn_key=(TRAINING,))
        training = preimage.training(model.fitted, sample, rows.shape[0], seed)
        given = model.features, training
        sums = sum_by_block("training pre-images", block_regression, rows, given, spec.block_rows, engine)
        return replace(model, decoder=training.decoder(sums))


def extend_decoder(model: Model, before: Model, spec: FitSpec) -> Model:
    """The model after rows were added, with a decoder made from its earlier one without reading rows: reference rows
    stay, and random features, which have no landmarks, keep the linear map from scores to rows."""
    old_decoder: Any = before.decoder
    if old_decoder is None:
        return model
    preimage: Any = spec.preimage_value
    with single_threaded_blas:
        if old_decoder.reference_rows is not None:
            # In float64: far from 0, the units of the data do not fit the precision of the model.
            reference = model.features.unshifted(old_decoder.reference_rows)
            return replace(model, decoder=preimage.decoder(model.fitted, reference))
        if model.method.landmarks:
            return replace(model, decoder=preimage.decoder(model.fitted))
        start = _carried_over(old_decoder, before.solution, expansion(model.fitted))
        # The decoder made from one row instead of a sample only provides the type; its arrays are replaced.
        decoder = preimage.decoder(model.fitted, model.features.unshifted(start["mean_row"][None]))
        return replace(model, decoder=replace(decoder, **start))


def _carried_over(old_decoder: Any, old: Solution, new: Expansion) -> dict[str, Array]:
    """The linear map of an old decoder from scores to rows, expressed for the new scores."""
    to_old = new.map.T @ old.components
    weights = to_old @ old_decoder.weights
    mean_score = np.linalg.lstsq(to_old.T, old_decoder.mean_score - (new.origin - old.mean) @ old.components)[0]
    shift = (new.origin - old.mean) @ old.components + mean_score @ to_old - old_decoder.mean_score
    return {
        "mean_score": mean_score,
        "mean_row": old_decoder.mean_row + shift @ old_decoder.weights,
        "weights": weights,
    }


def of_leading(model: Model, r: int) -> Model:
    """The model of the r leading components, with the pre-image that a fit of only these would make; reads no rows.
    Raises SpecError if the pre-image was trained on the scores of all components."""
    if r == model.components or model.decoder is None:
        return model if r == model.components else model.leading(r)
    spec = FitSpec.of(model)
    if spec.preimage_value.trained:
        raise SpecError(
            f"preimage={spec.preimage_value.name!r} was trained on scores of all {model.components} components, but "
            f"these are scores of {r}: transform without n_components, or fit with n_components={r}"
        )
    return extend_decoder(model.leading(r), model, spec)


def check_extensible(spec: FitSpec) -> None:
    """Raise SpecError if the pre-image is trained on all rows, which includes those fitted before."""
    if spec.preimage_value.trained:
        raise SpecError(
            f"preimage={spec.preimage_value.name!r} was trained on the earlier rows and cannot take more: fit again on "
            "all rows, or use preimage='auto' or 'fixed-point'"
        )
