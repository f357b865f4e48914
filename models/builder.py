"""One small writer of ONNX graphs with seeded weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: The opset of most of today's exporters; LayerNormalization needs 17.
OPSET = 17
#: The IR version that belongs to this opset, so that older runtimes read the file as well.
IR_VERSION = 8


class GraphBuilder:
    """Collects nodes, weights, inputs and outputs; every method returns tensor names.

    Weights are drawn from one ``numpy`` generator in the order of the calls, so a seed gives the
    same model on every machine.  They are scaled so that activations keep their size from layer
    to layer (He et al., "Delving Deep into Rectifiers", 2015).
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    # ------------------------------------------------------------------ the graph

    def input(self, name: str, shape: Sequence[int | str], dtype: str = "float32") -> str:
        """Declare a graph input; a string in ``shape`` is a dynamic axis of that name."""
        self._inputs.append(_value_info(name, dtype, shape))
        return name

    def output(self, tensor: str, name: str, shape: Sequence[int | str]) -> None:
        """Declare ``tensor`` as the fp32 graph output ``name``."""
        self._nodes.append(helper.make_node("Identity", [tensor], [name], name=f"output_{name}"))
        self._outputs.append(_value_info(name, "float32", shape))

    def constant(self, value: np.ndarray, hint: str = "constant") -> str:
        """Store ``value`` as an initializer."""
        name = f"{hint}_{len(self._initializers)}"
        self._initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def op(self, op_type: str, *inputs: str, **attributes: object) -> str:
        """Append a node with one output."""
        name = f"{op_type.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    def several(
        self, op_type: str, wanted: Sequence[bool], *inputs: str, **attributes: object
    ) -> list[str]:
        """Append a node with several outputs; those that are not wanted have no name."""
        name = f"{op_type.lower()}_{len(self._nodes)}"
        outputs = [f"{name}_{i}" if asked else "" for i, asked in enumerate(wanted)]
        self._nodes.append(helper.make_node(op_type, inputs, outputs, name=name, **attributes))
        return outputs

    def split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Append a Split into parts of these sizes; one name for each."""
        places = self.constant(np.array(sizes, np.int64), "sizes")
        return self.several("Split", [True] * len(sizes), x, places, axis=axis)

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """Reshape; 0 keeps an axis and -1 takes the rest."""
        return self.op("Reshape", x, self.constant(np.array(shape, np.int64), "extents"))

    def build(self, checked: bool = True) -> onnx.ModelProto:
        """The finished model, checked by ``onnx.checker`` unless it has operators of others."""
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, self._initializers
        )
        domains = {node.domain: 1 for node in self._nodes} | {"": OPSET}
        imports = [helper.make_opsetid(*domain) for domain in sorted(domains.items())]
        model = helper.make_model(graph, opset_imports=imports)
        model.ir_version = IR_VERSION
        if checked:
            onnx.checker.check_model(model)
        return model

    # ------------------------------------------------------------------ layers

    def normal(self, shape: Sequence[int], deviation: float, hint: str = "weight") -> str:
        """A constant of normally distributed fp32 numbers."""
        values = self._random.standard_normal(tuple(shape), dtype=np.float32)
        values *= np.float32(deviation)
        return self.constant(values, hint)

    def conv(
        self,
        x: str,
        channels: tuple[int, int],
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        bias: bool = True,
        gain: float = 2.0,
        padding: int | None = None,
    ) -> str:
        """A convolution from ``channels[0]`` to ``channels[1]`` channels, padded by half.

        ``gain`` is the factor of the weights' variance: 2 where a ReLU follows, 1 where not.
        """
        in_channels, out_channels = channels
        pad = kernel // 2 if padding is None else padding
        shape = (out_channels, in_channels // groups, kernel, kernel)
        inputs = [x, self.normal(shape, np.sqrt(gain / np.prod(shape[1:])))]
        if bias:
            inputs.append(self.normal((out_channels,), 0.1, "bias"))
        return self.op(
            "Conv",
            *inputs,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
            dilations=[1, 1],
            group=groups,
        )

    def batch_norm(self, x: str, channels: int, scale: float = 1.0) -> str:
        """Inference-mode batch normalisation whose statistics are near those of the data.

        ``scale`` is the size of its gamma: residual branches take a small one, as trained ones do,
        so that the sum of many branches keeps its size.
        """
        draw = self._random
        gamma = draw.uniform(0.8 * scale, 1.2 * scale, channels).astype(np.float32)
        beta = draw.normal(0.0, 0.1, channels).astype(np.float32)
        mean = draw.normal(0.0, 0.1, channels).astype(np.float32)
        variance = draw.uniform(0.8, 1.25, channels).astype(np.float32)
        statistics = [
            self.constant(value, hint)
            for value, hint in ((gamma, "gamma"), (beta, "beta"), (mean, "mean"), (variance, "var"))
        ]
        return self.op("BatchNormalization", x, *statistics, epsilon=1e-5)

    def relu6(self, x: str) -> str:
        """Clip to [0, 6], as exporters write ReLU6."""
        low = self.constant(np.float32(0.0), "low")
        high = self.constant(np.float32(6.0), "high")
        return self.op("Clip", x, low, high)

    def gemm(self, x: str, features: tuple[int, int], gain: float = 1.0) -> str:
        """A fully connected layer with bias, weights stored [out, in]."""
        in_features, out_features = features
        weight = self.normal((out_features, in_features), np.sqrt(gain / in_features))
        return self.op("Gemm", x, weight, self.normal((out_features,), 0.1, "bias"), transB=1)

    def linear(self, x: str, features: tuple[int, int]) -> str:
        """MatMul and Add over the last axis, as exporters write a linear layer on rank 3."""
        in_features, out_features = features
        weight = self.normal((in_features, out_features), np.sqrt(1.0 / in_features))
        return self.op(
            "Add", self.normal((out_features,), 0.02, "bias"), self.op("MatMul", x, weight)
        )

    def layer_norm(self, x: str, features: int) -> str:
        """LayerNormalization over the last axis."""
        gamma = self._random.uniform(0.8, 1.2, features).astype(np.float32)
        beta = self._random.normal(0.0, 0.1, features).astype(np.float32)
        scale, shift = self.constant(gamma, "gamma"), self.constant(beta, "beta")
        return self.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-12)

    def silu(self, x: str) -> str:
        """x * sigmoid(x), in exporters' two nodes."""
        return self.op("Mul", x, self.op("Sigmoid", x))

    def gelu(self, x: str) -> str:
        """The exact GELU, x * 0.5 * (1 + erf(x / sqrt(2))), in exporters' five nodes."""
        root = self.constant(np.float32(np.sqrt(2.0)), "root")
        erf = self.op("Erf", self.op("Div", x, root))
        plus = self.op("Add", erf, self.constant(np.float32(1.0), "one"))
        return self.op("Mul", self.op("Mul", x, plus), self.constant(np.float32(0.5), "half"))


def _value_info(name: str, dtype: str, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    element = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}[dtype]
    return helper.make_tensor_value_info(name, element, list(shape))
