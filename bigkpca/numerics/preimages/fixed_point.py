""" "fixed-point": the fixed-point iteration of Mika et al. (1999), with the mean of the data and guarded steps.

|φ(z) - φ^|² = |φ^|² - 2 F(z), so a pre-image is a maximum of F. For every kernel with a gradient weight, the gradient
of F is image - weight z, whose zero is the fixed point z = image / weight. Source: `docs/numerics.md`, section 18.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.expansion import Expansion, Fitted, expansion
from bigkpca.numerics.features import FeatureMap, PrincipalFourierRows, Shape, has_landmarks
from bigkpca.numerics.kernels import Kernel, Polynomial, squared_norms
from bigkpca.numerics.kernels.base import no_gradient
from bigkpca.numerics.methods import Method
from bigkpca.numerics.preimages.base import Decode, Decoder, Preimage, Preimages, least_squares, sampled

_LEAST_WEIGHT = 1e-6


@dataclass(frozen=True)
class Gradient:
    """F (b,) and its gradient image (b, d) - weight (b,) z at rows z.

    total (b,) is what the weight would be without cancellation: a weight far below it is noise, and has no direction.
    """

    value: Array
    weight: Array
    total: Array
    image: Array


@dataclass(frozen=True)
class Objective:
    """F for weights gamma over landmarks, or over random features, with rows from which to increase it.

    at(Z (b, d), gamma (b, D)) -> Gradient, in float64, by two matrix products; it owns its work space. length is that
    of the kernel, in the units of z. own is the gradient weight p(z, z) (its mean over landmarks). Below the share
    `least` of total, weight is noise. reach · Σ|gamma| is the largest possible total, 0 if it is not bounded.
    candidates C (c, d) are some of the landmarks, with their features V (c, D) and k(c, c); random features, which are
    noise where they have no direction, have none.
    """

    at: Callable[[Array, Array], Gradient]
    length: float
    own: float
    reach: float
    least: float
    candidates: Array
    V: Array
    diagonal: Array


_MOST_ROWS = 512
_MOST_KERNELS = 2**22


def objective(features: FeatureMap, most_rows: int) -> Objective:
    """F for tiles of at most `most_rows` rows."""
    if not has_landmarks(features):
        return _over_waves(features)  # `check` rejects all others
    kernel, S = features.kernel, features.landmark_rows.astype(np.float64)
    evaluate = kernel.gradient_weights(S, most_rows)
    values, slopes = np.empty((2, most_rows, len(S)))
    own, level = float(kernel.own_gradient_weight(S).mean()), float(kernel.diagonal(S).mean())
    of_difference = kernel.towards == "difference"

    def at(Z: Array, gamma: Array) -> Gradient:
        K, A = values[: len(Z)], slopes[: len(Z)]
        evaluate(Z, K, A)
        A *= gamma
        inner, image = np.einsum("ij,ij->i", gamma, K), A @ S
        if of_difference:
            return Gradient(inner, A.sum(axis=1), np.abs(A, out=A).sum(axis=1), image)
        value, weight = inner - kernel.diagonal(Z) / 2, kernel.own_gradient_weight(Z)
        return Gradient(value, weight, np.full(len(Z), own), image)

    C = S[:: -(-len(S) // min(_MOST_ROWS, max(16, _MOST_KERNELS // len(S))))]
    length, reach = float(np.sqrt(level / own)), own if of_difference else 0.0
    return Objective(at, length, own, reach, _LEAST_WEIGHT, C, kernel(C, S), kernel.diagonal(C))


def _over_waves(features: Any) -> Objective:
    """F over random Fourier features."""
    kernel, frequencies = features.kernel, features.frequencies.astype(np.float64)
    zero = np.zeros((1, features.columns))
    own, level = float(kernel.own_gradient_weight(zero)[0]), float(kernel.diagonal(zero)[0])
    m = len(frequencies)
    amplitude = np.sqrt(level / m)

    def waves(P: Array, gamma: Array) -> tuple[Array, Array]:
        """z(p)'gamma, and its gradient in p."""
        angles = P @ frequencies.T
        cosines, sines = np.cos(angles), np.sin(angles)
        value = np.einsum("ij,ij->i", gamma[:, :m], cosines) + np.einsum("ij,ij->i", gamma[:, m:], sines)
        sines *= gamma[:, :m]
        cosines *= gamma[:, m:]
        cosines -= sines
        return amplitude * value, amplitude * (cosines @ frequencies)

    def on_axes(Z: Array, gamma: Array) -> tuple[Array, Array]:
        """a(z) waves(p) for the projection p of z, and its gradient; off the axes only a(z) contributes."""
        axes = features.axes.astype(np.float64)
        P = Z @ axes
        value, gradient = waves(P, gamma)
        if features.factor is not None:
            return features.factor * value, features.factor * (gradient @ axes.T)
        rest = Z - P @ axes.T
        a = np.exp(-features.kernel.gamma * squared_norms(rest))
        value *= a
        return value, (a[:, None] * gradient) @ axes.T - (2 * features.kernel.gamma * value)[:, None] * rest

    slope = on_axes if isinstance(features, PrincipalFourierRows) else waves

    def at(Z: Array, gamma: Array) -> Gradient:
        value, gradient = slope(Z, gamma)
        weight = own * value  # that of the kernel that the features approximate
        total = own * np.sqrt(level * squared_norms(gamma))
        return Gradient(value, weight, total, gradient + weight[:, None] * Z)

    # For a row far from all data, value / (√k(0) |z^|) is the inner product of two independent unit vectors in R^D:
    # about 1 / √D.
    least, none = 3 / float(np.sqrt(features.size)), np.empty((0, features.size))
    return Objective(
        at, float(np.sqrt(level / own)), own, 0.0, least, np.empty((0, features.columns)), none, none[:, 0]
    )


_LEAST_COSINE = 0.5  # between φ(z) and φ^; a landmark with less explains too little to start from


def begin(goal: Objective, Z: Array, gamma: Array, norms: Array, *, known: bool) -> tuple[Array, Array]:
    """Rows to start from (b, d), and which of them are far (b,), for starts Z and |φ^| = norms (b,).

    A row without a reliable direction moves to the candidate with the largest F. It is far where φ of that candidate
    has a small cosine with φ^. It is also far where the start is the caller's own row (`known`) and has no kernel value
    with any landmark, since its scores then contain no information about it.
    """
    at = goal.at(Z, gamma)
    nothing = at.total <= goal.least * goal.reach * np.abs(gamma).sum(axis=1)
    far = nothing | ~(at.weight > goal.least * at.total)
    anew = np.flatnonzero(far & ~nothing if known else far)
    if not len(anew) or not len(goal.candidates):
        return Z, far
    inner = gamma[anew] @ goal.V.T
    best = (inner - goal.diagonal / 2).argmax(axis=1)  # of F
    largest = _LEAST_COSINE * norms[anew] * np.sqrt(goal.diagonal[best])
    Z, far = Z.copy(), far.copy()
    Z[anew], far[anew] = goal.candidates[best], inner[np.arange(len(anew)), best] <= largest
    return Z, far


_SMALLEST_STEP = 2.0**-12
_STEPS = (0.1, 4.0)  # bounds of the step length after a successful step; up to 10 converges no sooner
_ROUNDING = 1e-14


def climb(goal: Objective, Z: Array, gamma: Array, *, hold: float, tol: float, most: int) -> Preimages:
    """Increase F from rows Z (b, d), by at most `most` steps.

    The first step goes to the fixed point image / weight. Later steps follow the same direction, with a length
    suggested by the last step; a step is halved while F would decrease. `hold` adds the gradient weight of a landmark
    at the start. A row has converged when its fixed point is within `tol` lengths of the kernel; finished rows leave
    the batch.
    """

    def place(Z: Array, gamma: Array, start: Array) -> tuple[Array, Array, Array]:
        """F at rows Z, the fixed points at which a step from there aims, and whether those are reliable."""
        at = goal.at(Z, gamma)
        sound = at.weight > goal.least * at.total
        weight = np.where(sound, at.weight, 1) + hold
        value = at.value - hold / 2 * squared_norms(Z - start)
        return value, (at.image + hold * start) / weight[:, None], sound

    rows, iterations, converged = Z.copy(), np.full(len(Z), most), np.zeros(len(Z), bool)
    number, start, step = np.arange(len(Z)), Z, np.ones(len(Z))
    value, target, _ = place(Z, gamma, start)
    for iteration in range(most + 1):
        # Never before the first step: with a very wide kernel every row is within tol, and one step is enough.
        arrived = (squared_norms(target - Z) <= (tol * goal.length) ** 2) & (iteration > 0)
        finished = arrived | (step < _SMALLEST_STEP) | (iteration == most)
        if finished.any():
            numbers = number[finished]
            rows[numbers], iterations[numbers], converged[numbers] = Z[finished], iteration, arrived[finished]
            left = ~finished
            number, gamma, start, step = number[left], gamma[left], start[left], step[left]
            Z, value, target = Z[left], value[left], target[left]
        if not len(step):
            break
        moved_Z = Z + step[:, None] * (target - Z)
        moved_value, moved_target, sound = place(moved_Z, gamma, start)
        better = sound & (moved_value >= value - _ROUNDING * np.abs(value))
        # The next step is |s|² / s'y of the distance of the fixed point, s the last move, y the change that it made to
        # the vector from the iterate to the fixed point (Barzilai and Borwein 1988).
        move = moved_Z - Z
        shrunk = np.einsum("ij,ij->i", move, (target - Z) - (moved_target - moved_Z))
        squares = squared_norms(move)
        longer = np.clip(np.divide(squares, shrunk, out=np.ones(len(squares)), where=shrunk > 0), *_STEPS)
        step = np.where(better, longer, step / 2)
        Z, target = np.where(better[:, None], moved_Z, Z), np.where(better[:, None], moved_target, target)
        value = np.where(better, moved_value, value)
    return Preimages(rows, converged, iterations, np.zeros(len(rows), bool))


_STARTING_ROWS = 2000  # sampled rows of random features, for the linear map
_TOLERANCE = 1e-12


@dataclass(frozen=True)
class FixedPoint(Preimage):
    """z = Σ gamma_i p(z, s_i) s_i / Σ gamma_i p(z, s_i), iterated: the row whose φ(z) is nearest to φ^.

    For kernels with a gradient weight p. The iteration starts at the row itself if that is known (denoising), or at a
    given start; otherwise at x_bar + (y - y_bar)'B, with B by least squares over the landmarks and their scores, or for
    random features over 2000 sampled rows, which the model keeps. Steps are shortened so that |φ(z) - φ^| never grows.
    For the linear kernel, the fixed point is the reconstruction of linear PCA.

    Needs no pass. A step takes two products with the landmarks, 2 b l d multiplications for b rows; USPS needs 4 to 8
    steps. Raises SpecError if an option is out of range, or the kernel or the method is unsuitable. Source: Mika et al.
    (1999), *NIPS*; Kwok and Tsang (2004); Abrahamsen and Hansen (2011) for the anchor; `docs/numerics.md`, section 18.

    Parameters
    ----------
    mean_term : bool
        False: the thesis's update, which drops the mean in feature space and has no guards; for replication.
    anchor : float
        Holds rows near their start x: for the Gaussian,
        z = (Σ gamma_i k(z, s_i) s_i + anchor x) / (Σ gamma_i k(z, s_i) + anchor). Not negative.
    iterations : int
        The largest number of steps.
    tol : float
        Step length at which to stop, in lengths of the kernel.
    """

    name: ClassVar[str] = "fixed-point"
    mean_term: bool = True
    anchor: float = 0.0
    iterations: int = 100
    tol: float = 1e-4

    def __post_init__(self) -> None:
        if not (np.isfinite(self.anchor) and self.anchor >= 0):
            raise SpecError(f"{self}: the anchor must be a nonnegative number")
        if self.anchor and not self.mean_term:
            raise SpecError(f"{self}: the thesis's update (mean_term=False) has no anchor; omit one of them")
        if self.iterations < 1 or not self.tol > 0:
            raise SpecError(f"{self}: at least one iteration and a positive tol are needed")

    def check(self, kernel: Kernel, method: Method) -> None:
        if not method.landmarks and isinstance(kernel, Polynomial):
            raise SpecError(
                "pre-images of a tensor sketch have no fixed point: use 'ridge' or 'denoising', or landmarks "
                "(method='nystroem')"
            )
        if not method.landmarks and not method.pairs:
            raise SpecError(
                "pre-images by 'fixed-point' need pairs of a sine and a cosine, whose length is the same for all rows: "
                "with form='phase', use 'mds', 'ridge' or 'denoising'"
            )
        if kernel.towards is None:
            raise no_gradient(kernel)

    def most_rows(self, method: Method) -> int:
        return 0 if method.landmarks else _STARTING_ROWS

    def making_bytes(self, rows: int, columns: int, components: int) -> int:
        return 8 * rows * (3 * columns + 2 * components)

    def decoder(self, fitted: Fitted, rows: Array) -> FixedPointDecoder:
        features, solution = fitted.features, fitted.solution
        self.check(features.kernel, fitted.method)
        given = expansion(fitted)
        if not self.mean_term:
            given = given.without_mean()
        if has_landmarks(features):
            R, Y, kept = features.landmark_rows, fitted.landmark_scores(), None
        else:
            rows = sampled(rows, _STARTING_ROWS, "pre-images of random features")
            R = kept = features.shifted(rows)
            Y = fitted.scores(rows)
        mean_score, mean_row = Y.mean(axis=0), R.mean(axis=0, dtype=np.float64)
        Y = Y - mean_score
        weights = least_squares(Y.T @ Y, Y.T @ (R - mean_row), _TOLERANCE)
        return FixedPointDecoder(
            given.origin,
            given.constant,
            given.linear,
            mean_score,
            mean_row,
            weights,
            map=None if given.map is solution.components else given.map,
            quadratic=given.quadratic,
            rows=kept,
            **vars(self),
        )


@dataclass(frozen=True, repr=False)
class FixedPointDecoder(Decoder):
    """Decoder of `FixedPoint`: the expansion of φ^, and the linear map to start from.

    map is None if it equals the components of the model. Models with landmarks keep no sampled rows.
    """

    name: ClassVar[str] = "fixed-point"
    shapes: ClassVar[Mapping[str, Shape]] = {
        "origin": ("D",),
        "linear": ("r",),
        "mean_score": ("r",),
        "mean_row": ("d",),
        "weights": ("r", "d"),
        "map": ("D", "r"),
        "quadratic": ("r", "r"),
        "rows": ("m", "d"),
    }
    origin: Array
    constant: float
    linear: Array
    mean_score: Array
    mean_row: Array
    weights: Array
    mean_term: bool
    anchor: float
    iterations: int
    tol: float
    map: Array | None = None
    quadratic: Array | None = None
    rows: Array | None = None  # of random features

    def __post_init__(self) -> None:
        FixedPoint(self.mean_term, self.anchor, self.iterations, self.tol)  # checks what a file holds

    def decoding(self, features: FeatureMap, solution: Solution, most_rows: int) -> Decode:
        goal, given = objective(features, most_rows), self._expansion(solution)
        # With one factor for all rows, features do not depend on what lies off the axes; only the linear map does.
        blind = isinstance(features, PrincipalFourierRows) and features.factor is not None

        def decode(Y: Array, start: Array | None) -> Preimages:
            gamma = given.weights(Y)
            if blind:
                start = None
            Z = self.mean_row + (Y - self.mean_score) @ self.weights if start is None else start.astype(np.float64)
            if not self.mean_term:
                return self._as_in_the_thesis(goal, Z, gamma)
            squares = np.maximum(given.squares(Y), 0)
            Z, far = begin(goal, Z, gamma, np.sqrt(squares), known=start is not None)
            hold = self.anchor * goal.own
            found = climb(goal, Z[~far], gamma[~far], hold=hold, tol=self.tol, most=self.iterations)
            b = len(far)  # far rows become the mean
            rows, converged, iterations = np.tile(self.mean_row, (b, 1)), np.zeros(b, bool), np.zeros(b, np.intp)
            rows[~far], converged[~far], iterations[~far] = found.rows, found.converged, found.iterations
            return Preimages(rows, converged, iterations, far)

        return decode

    @np.errstate(all="ignore")  # steps without guards
    def _as_in_the_thesis(self, goal: Objective, Z: Array, gamma: Array) -> Preimages:
        """All steps of the thesis's update from rows Z (b, d); rows that leave the numbers are far."""
        before = Z
        for _ in range(self.iterations):
            at, before = goal.at(Z, gamma), Z
            Z = at.image / at.weight[:, None]
        converged = squared_norms(Z - before) <= (self.tol * goal.length) ** 2  # never if it is NaN
        far = np.logical_not(np.isfinite(Z).all(axis=1))
        return Preimages(np.where(far[:, None], self.mean_row, Z), converged, np.full(len(Z), self.iterations), far)

    def expansion(self, solution: Solution) -> Expansion | None:
        return self._expansion(solution) if self.mean_term else None

    def _expansion(self, solution: Solution) -> Expansion:
        """The expansion to use, in the thesis's form without the mean."""
        G = solution.components if self.map is None else self.map
        return Expansion(self.origin, G, self.constant, self.linear, self.quadratic)
