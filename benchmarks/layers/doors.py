"""A convolution as ``te.extern``: the whole of it is one call of a packed function by its name.

The function is ``benchmarks.conv2d`` (``extern.c``), the built-in kernel with bias, residual and
activations; TVM has no loops of its own around it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tvm
from tvm import relax, te, tirx

from benchmarks import abi
from benchmarks.layers.network import Layer
from byoc.tuning.layers import TO_CHANNELS_LAST
from codegen_cc.node import Node
from codegen_cc.operators.conv2d_ways import is_depthwise, own_rows
from codegen_cc.operators.packing import (
    FLOAT32_PANELS,
    pack_conv2d,
    pack_depthwise,
    pad_channels,
)

FUNCTION = "benchmarks.conv2d"
SOURCE = Path(__file__).with_name("extern.c")


def extern_module(layer: Layer) -> tvm.IRModule:
    """A Relax function of the channels-last image, and the residual if the layer has one."""
    node = layer.node
    weight = layer.constants["weight"]
    depthwise = is_depthwise(node)
    packed = (
        pack_depthwise(weight)
        if depthwise
        else pack_conv2d(weight, node.attrs["groups"], FLOAT32_PANELS)
    )
    bias = layer.constants.get("bias", np.zeros(node.shape[1], np.float32))
    constants = [relax.const(packed), relax.const(pad_channels(bias))]
    residual = node.operand("residual") is not None
    numbers = [*map(_integer, (depthwise, residual)), *_activations(node)]
    numbers += map(_integer, _sizes(node))
    shape = [node.shape[axis] for axis in TO_CHANNELS_LAST]

    def convolve(*tensors: te.Tensor) -> te.Tensor:
        def call(inputs: list[tirx.Buffer], outputs: list[tirx.Buffer]) -> tirx.Expr:
            operands = [*inputs[:3], inputs[-1], outputs[0]]  # no residual: any tensor will do
            return tirx.call_packed(FUNCTION, *operands, *numbers)

        buffers = [tirx.decl_buffer(tensor.shape, tensor.dtype) for tensor in tensors]
        return te.extern(
            [shape], list(tensors), call, name="convolution", dtype=["float32"], in_buffers=buffers
        )

    builder = relax.BlockBuilder()
    variables = channels_last_variables(layer)
    with builder.function("main", variables):
        with builder.dataflow():
            image, *rest = variables
            result = builder.emit_te(convolve, image, *constants, *rest)
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    return builder.get()


def channels_last_variables(layer: Layer) -> list[relax.Var]:
    """The layer's inputs, images channels-last, as parameters."""
    return [
        relax.Var(o.role, relax.TensorType([o.shape[a] for a in TO_CHANNELS_LAST], o.dtype))
        for o in layer.operands
    ]


def _activations(node: Node) -> list[tirx.Expr]:
    """Kind, alpha and beta of the activations before and after the residual."""
    slots = {"before": (0, 0.0, 0.0), "after": (0, 0.0, 0.0)}
    slot = "before"
    for step in node.epilogue:
        if step.kind == "residual":
            slot = "after"
        elif step.kind != "bias":
            slots[slot] = (abi.UNARY_KIND.index(step.kind), step.alpha, step.beta)
            slot = "after"
    return [
        value
        for kind, alpha, beta in slots.values()
        for value in (_integer(kind), *(tirx.const(float(v), "float64") for v in (alpha, beta)))
    ]


def _sizes(node: Node) -> list[int]:
    """The fields of ``ext_conv2d_params`` in their order."""
    batch, inputs, height, width = node.operand("input").shape
    _, outputs, out_height, out_width = node.shape
    attrs = node.attrs
    return [
        *(batch, height, width, inputs, out_height, out_width, outputs),
        *node.operand("weight").shape[2:],
        *attrs["strides"],
        *attrs["padding"][:2],
        *attrs["dilation"],
        *(attrs["groups"], inputs, outputs, own_rows(node)),
    ]


def _integer(value: int) -> tirx.Expr:
    return tirx.const(int(value), "int64")
