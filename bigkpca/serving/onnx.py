"""The scores of a model as an ONNX graph.

    rows (n, d) -> (x - offset) / scale -> v(x) -> (v(x) - mean) @ components = scores (n, r)

Everything is in float64 except the input and the output. Source of the operators: https://onnx.ai/onnx/operators.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigkpca.errors import Array, SpecError, require
from bigkpca.numerics import kernels
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, FourierRows, GivenKernels, KernelRows, PrincipalFourierRows

_FAR = 32.0  # lengths from the middle of the landmarks; beyond, distances come from differences
_OPSET, _IR = 17, 8  # of ONNX 1.12 (2022), which every runtime in use reads


class _Graph:
    """Nodes and constants of a graph; each operation returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        """An array or a number in float64; whole numbers as they are."""
        from onnx import numpy_helper

        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(np.float64)
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def do(self, operator: str, *inputs: Any, **options: Any) -> str:
        """An operation on results and constants."""
        from onnx import helper

        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [name], **options))
        return name

    def squared_norms(self, X: str) -> str:
        """|x_i|² of rows (n, d), (n, 1)."""
        return self.do("ReduceSum", self.do("Mul", X, X), np.array([1], np.int64), keepdims=1)

    def cosines(self, angles: str) -> str:
        """Cosines as sines, since runtimes implement only the sine in float64."""
        return self.do("Sin", self.do("Add", angles, np.pi / 2))


def onnx_model(features: FeatureMap, solution: Solution) -> Any:
    """An ONNX model that maps "rows" (n, d), in the dtype of block work, to "scores" (n, r) of the same dtype.

    Raises SpecError for kernels and features that ONNX has no operators for, and if the library is missing.
    """
    require("onnx", "onnx", "an ONNX file")
    from onnx import TensorProto, checker, helper

    graph = _Graph()
    kind = TensorProto.FLOAT if features.dtype == np.float32 else TensorProto.DOUBLE
    X = graph.do("Sub", graph.do("Cast", "rows", to=TensorProto.DOUBLE), features.offset)
    if features.scale is not None:
        X = graph.do("Div", X, features.scale)
    V = _features(features, graph, X)
    scores = graph.do("MatMul", graph.do("Sub", V, solution.mean), solution.components)
    graph.nodes.append(helper.make_node("Cast", [scores], ["scores"], to=kind))
    given = helper.make_tensor_value_info("rows", kind, ["n", features.columns])
    found = helper.make_tensor_value_info("scores", kind, ["n", len(solution.eigenvalues)])
    whole = helper.make_graph(graph.nodes, "kernel PCA", [given], [found], graph.constants)
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="bigkpca")
    model.ir_version = _IR
    checker.check_model(model)
    return model


def _features(features: FeatureMap, graph: _Graph, X: str) -> str:
    """v(x) of shifted rows."""
    match features:
        case KernelRows():
            return _kernel(features.kernel, graph, X, features.landmark_rows.astype(np.float64))
        case GivenKernels():
            return X
        case FourierRows():
            at_zero = float(features.kernel.diagonal(np.zeros((1, features.columns)))[0])
            amplitude = graph.constant(np.sqrt(at_zero / len(features.frequencies)))
            return _waves(graph, X, features.frequencies, features.phases, amplitude)
        case PrincipalFourierRows():
            P = graph.do("MatMul", X, features.axes.astype(np.float64))
            amplitude = np.sqrt(1 / len(features.frequencies))
            if features.factor is not None:
                factor = graph.constant(amplitude * features.factor)
                return _waves(graph, P, features.frequencies, features.phases, factor)
            left = graph.do("Max", graph.do("Sub", graph.squared_norms(X), graph.squared_norms(P)), 0.0)
            factors = graph.do("Mul", graph.do("Exp", graph.do("Mul", left, -features.kernel.gamma)), amplitude)
            return _waves(graph, P, features.frequencies, features.phases, factors)
    raise SpecError(f"{features.name} features have no operators in ONNX: use landmarks or random Fourier features")


def _waves(graph: _Graph, X: str, frequencies: Array, phases: Array | None, amplitude: str) -> str:
    """amplitude (cos, sin) of the angles, side by side; with phases, √2 amplitude cos of the shifted angles."""
    angles = graph.do("MatMul", X, frequencies.T.astype(np.float64))
    if phases is None:
        found = graph.do("Concat", graph.cosines(angles), graph.do("Sin", angles), axis=1)
    else:
        found = graph.do("Mul", graph.cosines(graph.do("Add", angles, phases)), np.sqrt(2))
    return graph.do("Mul", found, amplitude)


def _kernel(kernel: kernels.Kernel, graph: _Graph, X: str, Y: Array) -> str:
    """k(x_i, y_j), (n, l), of rows X and landmarks Y (l, d)."""
    do = graph.do
    match kernel:
        case kernels.Gaussian():
            return do("Exp", do("Mul", _squared_distances(graph, X, Y, kernel.sigma), -0.5))
        case kernels.RationalQuadratic():
            squares = _squared_distances(graph, X, Y, kernel.sigma)
            base = do("Add", do("Div", squares, 2 * kernel.alpha), 1.0)
            return do("Exp", do("Mul", do("Log", base), -kernel.alpha))
        case kernels.Matern():
            coefficients = {0.5: (1.0,), 1.5: (1.0, 1.0), 2.5: (1.0, 1.0, 1 / 3)}.get(kernel.nu)
            if coefficients is None:
                raise SpecError(
                    f"ONNX has no Bessel functions: the matern kernel needs nu = 0.5, 1.5 or 2.5, not {kernel.nu}"
                )
            squares = do("Mul", _squared_distances(graph, X, Y, kernel.sigma), 2 * kernel.nu)
            s = do("Min", do("Sqrt", squares), 1e4)  # where exp(-s) is zero, and powers of s are finite
            polynomial = graph.constant(coefficients[-1])
            for coefficient in coefficients[-2::-1]:
                polynomial = do("Add", do("Mul", polynomial, s), coefficient)
            return do("Mul", polynomial, do("Exp", do("Neg", s)))
        case kernels.Laplacian():
            rows = do("Unsqueeze", X, np.array([1], np.int64))  # (n, 1, d): n l d numbers are in memory at once
            distances = do("ReduceSum", do("Abs", do("Sub", rows, Y)), np.array([2], np.int64), keepdims=0)
            return do("Exp", do("Div", distances, -kernel.sigma))
        case kernels.Linear():
            return do("MatMul", X, Y.T)
        case kernels.Polynomial() | kernels.Sigmoid():
            affine = do("Add", do("Mul", do("MatMul", X, Y.T), float(kernel.gamma)), float(kernel.coef0))
            if isinstance(kernel, kernels.Sigmoid):
                return do("Tanh", affine)
            return do("Pow", affine, float(kernel.degree))
        case kernels.Cosine():
            lengths = do("Max", do("Sqrt", graph.squared_norms(X)), np.finfo(np.float64).tiny)
            norms = np.sqrt(kernels.squared_norms(Y))
            return do("MatMul", do("Div", X, lengths), (Y / np.where(norms > 0, norms, 1)[:, None]).T)
        case kernels.Sum() | kernels.Product():
            both = _kernel(kernel.left, graph, X, Y), _kernel(kernel.right, graph, X, Y)
            return do("Add" if isinstance(kernel, kernels.Sum) else "Mul", *both)
        case kernels.Scaled():
            return do("Mul", _kernel(kernel.kernel, graph, X, Y), float(kernel.factor))
    raise SpecError(f"the {kernel.name} kernel has no operators in ONNX")


def _squared_distances(graph: _Graph, X: str, Y: Array, sigma: float) -> str:
    """|x_i - y_j|² / sigma², never negative."""
    center = np.median(Y, axis=0) / sigma  # the median, which landmarks far from the others do not move
    rows = graph.do("Sub", graph.do("Div", X, sigma), center)
    scaled = Y / sigma - center
    # As in kernels.stationary: products lose digits for far landmarks, so their distances come from differences.
    far = kernels.squared_norms(scaled) > _FAR**2
    near = np.where(far[:, None], 0, scaled)
    products = graph.do("Mul", graph.do("MatMul", rows, near.T), -2.0)
    sums = graph.do("Add", graph.squared_norms(rows), kernels.squared_norms(near))
    found = graph.do("Max", graph.do("Add", products, sums), 0.0)
    if not far.any():
        return found
    apart = graph.do("Sub", graph.do("Unsqueeze", rows, np.array([1], np.int64)), scaled[far])
    exact = graph.do("ReduceSum", graph.do("Mul", apart, apart), np.array([2], np.int64), keepdims=0)
    both = graph.do("Concat", found, exact, axis=1)
    places = np.arange(len(Y))
    places[far] = len(Y) + np.arange(far.sum())
    return graph.do("Gather", both, places.astype(np.int64), axis=1)
