"""One layer as an ONNX model: what ONNX Runtime is asked for the answer to."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from byoc.errors import ByocError
from byoc.tuning.layers import TO_CHANNELS_FIRST, TO_CHANNELS_LAST, Layer
from codegen_cc.node import JOINED, Step

OPSET = 20  # the first with Gelu
IR_VERSION = 9

_CONVOLUTIONS = {"conv2d": "Conv", "conv2d_transpose": "ConvTranspose"}

#: ONNX operators of activations, with the names of what ``alpha`` and ``beta`` are to them.
_OPERATORS: dict[str, tuple[str, dict[str, str]]] = {
    "hard_sigmoid": ("HardSigmoid", {"alpha": "alpha", "beta": "beta"}),
    "hard_swish": ("HardSwish", {}),
    "leaky_relu": ("LeakyRelu", {"alpha": "alpha"}),
    "elu": ("Elu", {"alpha": "alpha"}),
    **{
        kind: (kind.capitalize(), {})
        for kind in (
            *("relu", "sigmoid", "tanh", "exp", "log", "erf", "sqrt", "abs", "neg", "selu"),
            *("mish", "softplus", "floor", "ceil", "round", "sin", "cos", "tan", "sign"),
            *("reciprocal", "gelu"),
        )
    },
}


def onnx_model(layer: Layer, channels_last: bool = False) -> onnx.ModelProto:
    """The layer with its weights; inputs are named as roles, the output is ``output``.

    With ``channels_last`` the images of a convolution come and go as [N, H, W, C], through
    transposes that cost nothing in a region, where they are views.
    """
    return _Single(layer, channels_last and layer.node.op == "conv2d").model()


def onnxruntime_answer(
    layer: Layer, inputs: Mapping[str, np.ndarray]
) -> tuple[np.ndarray | None, str]:
    """ONNX Runtime's answer, and who can be asked: ONNX Runtime, or why only ``builtin`` can."""
    try:
        import onnxruntime

        model = onnx_model(layer).SerializeToString()
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        return session.run(None, dict(inputs))[0], "ONNX Runtime"
    except ImportError:
        return None, "builtin (ONNX Runtime is not installed)"
    except Exception as error:  # its own classes, and what it has no operator for
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return None, f"builtin (ONNX Runtime: {lines[0]})"


class _Single:
    def __init__(self, layer: Layer, channels_last: bool) -> None:
        self.layer, self.channels_last = layer, channels_last
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def model(self) -> onnx.ModelProto:
        """Contraction, epilogue and, for images that are channels-last, transposes around them."""
        node = self.layer.node
        bias = self.layer.constants.get("bias")
        roles = [operand.role for operand in node.operands if operand.role != "bias"]
        operands = {role: self.operand(role) for role in roles}
        if node.op in _CONVOLUTIONS:
            attrs = node.attrs
            flat = [] if bias is None else [self.constant(bias.ravel())]
            extra = {k: attrs[k] for k in ("output_padding",) if k in attrs}
            result = self.op(
                _CONVOLUTIONS[node.op],
                *(operands["input"], operands["weight"], *flat),
                kernel_shape=node.operand("weight").shape[2:],
                strides=attrs["strides"],
                pads=attrs["padding"],
                dilations=attrs["dilation"],
                group=attrs["groups"],
                **extra,
            )
        else:
            result = self.op("MatMul", operands["lhs"], operands["rhs"])
            if bias is not None:
                result = self.op("Add", result, self.constant(bias))
        for step in node.epilogue:
            if step.kind in JOINED:
                kind = "Mul" if step.kind == "factor" else "Add"
                result = self.op(kind, result, operands[step.kind])
            elif step.kind != "bias":
                result = self.activation(step, result)
        if self.channels_last:
            result = self.op("Transpose", result, perm=TO_CHANNELS_LAST)
        return self.build(result)

    def operand(self, role: str) -> str:
        """The name of an operand: a constant, an input, or an input made channels-first."""
        if role in self.layer.constants:
            return self.constant(self.layer.constants[role])
        return self.op("Transpose", role, perm=TO_CHANNELS_FIRST) if self.channels_last else role

    def constant(self, values: np.ndarray) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, order="C"), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def activation(self, step: Step, x: str) -> str:
        if step.kind == "silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if step.kind == "rsqrt":
            return self.op("Reciprocal", self.op("Sqrt", x))
        if step.kind == "gelu_tanh":
            return self.op("Gelu", x, approximate="tanh")
        if step.kind == "clip":
            bounds = (self.constant(np.float32(value)) for value in (step.alpha, step.beta))
            return self.op("Clip", x, *bounds)
        if step.kind not in _OPERATORS:
            raise ByocError(f"layer {self.layer.name}: ONNX has no activation {step.kind}")
        kind, names = _OPERATORS[step.kind]
        return self.op(kind, x, **{name: getattr(step, own) for own, name in names.items()})

    def build(self, result: str) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [result], ["output"], "output"))
        shapes = {operand.role: operand.shape for operand in self.layer.operands}
        shapes["output"] = self.layer.node.shape
        infos = []
        for name, shape in shapes.items():
            if self.channels_last:
                shape = [shape[axis] for axis in TO_CHANNELS_LAST]
            infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        graph = helper.make_graph(self.nodes, "layer", infos[:-1], infos[-1:], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = IR_VERSION
        return model
