"""Make the decoder of a model, which maps scores back to rows, from the fit itself or from sampled rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bigkpca.data.blocks import sample_rows
from bigkpca.errors import Array
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.numerics.features import has_landmarks
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import REFERENCES, random_stream
from bigkpca.numerics.span import Span
from bigkpca.spec import FitSpec


def with_decoder(model: Model, sample: Array | None, spec: FitSpec, span: Span | None = None) -> Model:
    """The model with its decoder, if its kernel and method have one. No pass.

    `sample` are sampled rows (m, d) in the units of the data, if `spec.keeps_sample`; models that keep all rows draw
    from these. `span` is that of the landmarks, if the fit already has it.
    """
    if not spec.reconstructs:
        return model
    sample = _own_rows(model, spec) if sample is None else sample
    with single_threaded_blas:
        fitted = replace(model.fitted, basis=None if span is None else span.basis)
        return replace(model, decoder=spec.preimage_value.decoder(fitted, sample))


def _own_rows(model: Model, spec: FitSpec) -> Array:
    """As many of the rows that a model keeps as its pre-image needs, (m, d), in the units of the data."""
    features, most = model.features, spec.preimage_value.most_rows(model.method)
    if not (most and has_landmarks(features)):
        return np.empty((0, model.columns))
    rows = features.landmark_rows
    n, d = rows.shape
    numbers = random_stream(spec.random_state, REFERENCES).choice(n, min(most, sample_rows(n, d, 0)), replace=False)
    return features.unshifted(rows[np.sort(numbers)])


def extend_decoder(model: Model, before: Model, spec: FitSpec) -> Model:
    """The model after its solution changed, with a decoder made from the sampled rows that the decoder `before` keeps.
    Rows that were added since are not among them. No pass."""
    if before.decoder is None:
        return model
    with single_threaded_blas:
        sample = before.decoder.kept_rows(model.features)
        return replace(model, decoder=spec.preimage_value.decoder(model.fitted, sample))
