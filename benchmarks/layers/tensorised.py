"""A convolution whose loops are TVM's and whose inner product is a register tile in C.

The tile is ``byoc_bench_tile`` (``tile.c``): some pixels of a row by the channels of two vector
registers, over all input channels. TVM pads the image in a loop nest of its own, walks over blocks
of channels, rows and tiles, and adds bias, residual and activation to each tile. Weights are stored
by blocks, [O / n, KH, KW, I, n], and the result is [N, H, W, O / n, n], which is channels-last.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tvm
from tvm import relax, te, tirx, topi
from tvm.relax import op
from tvm.s_tir import Schedule, TensorIntrin
from tvm.script import tirx as T

from benchmarks.layers.doors import channels_last_variables
from benchmarks.layers.network import Layer
from codegen_cc.node import Node, Step

SOURCE = Path(__file__).with_name("tile.c")

_ACTIVATIONS: dict[str, Callable[[tirx.Expr, Step], tirx.Expr]] = {
    "relu": lambda x, step: te.max(x, 0.0),
    "clip": lambda x, step: te.min(te.max(x, step.alpha), step.beta),
    "sigmoid": lambda x, step: te.sigmoid(x),
    "silu": lambda x, step: x * te.sigmoid(x),
    "tanh": lambda x, step: te.tanh(x),
    "hard_sigmoid": lambda x, step: te.min(te.max(step.alpha * x + step.beta, 0.0), 1.0),
    "hard_swish": lambda x, step: x * te.min(te.max(x / 6.0 + 0.5, 0.0), 1.0),
    "gelu": lambda x, step: 0.5 * x * (1.0 + te.erf(x * 0.5**0.5)),
    "leaky_relu": lambda x, step: tirx.Select(x < 0.0, step.alpha * x, x),
}


def refuses(node: Node, rows: int) -> str | None:
    """Why a convolution is not tensorised in tiles of at most so many rows, or None."""
    if node.attrs["groups"] != 1:
        return f"groups={node.attrs['groups']}; need 1"
    if greatest_divisor(node.shape[3], rows) == 1:
        return f"width {node.shape[3]}; need a divisor of 2 to {rows}, the rows of a tile"
    known = ("bias", "residual", *_ACTIVATIONS)
    unknown = [step.kind for step in node.epilogue if step.kind not in known]
    return f"activation {unknown[0]}; need one of {', '.join(_ACTIVATIONS)}" if unknown else None


def tensorised_module(layer: Layer, rows: int, columns: int) -> tvm.IRModule:
    """A Relax function of the channels-last image, and of the residual if the layer has one.

    Tiles have at most so many rows and columns: the greatest divisors of an image's width and of
    the output channels. The residual has the shape of the result, [N, H, W, O / n, n].
    """
    node = layer.node
    outputs = node.shape[1]
    tile = (greatest_divisor(node.shape[3], rows), greatest_divisor(outputs, columns))
    blocks = outputs // tile[1]
    weight = layer.constants["weight"]
    weight = weight.reshape(blocks, tile[1], *weight.shape[1:]).transpose(0, 3, 4, 2, 1)
    bias = layer.constants.get("bias", np.zeros(outputs, np.float32)).reshape(blocks, tile[1])
    constants = [relax.const(np.ascontiguousarray(array)) for array in (weight, bias)]
    builder = relax.BlockBuilder()
    function = _schedule(node, _convolution(node, tile[1]), *tile)
    type_ = relax.TensorType(_blocked(node, tile[1]), "float32")
    image = channels_last_variables(layer)[0]
    given = [relax.Var("residual", type_)] if node.operand("residual") is not None else []
    with builder.function("main", [image, *given]):
        with builder.dataflow():
            kernel = builder.add_func(function, "convolution")
            operands = [image, *constants, *given]
            result = builder.emit_output(op.call_tir(kernel, operands, type_))
        builder.emit_func_output(result)
    return builder.get()


def _convolution(node: Node, columns: int) -> tirx.PrimFunc:
    """The computation: ``padded`` (if anything is), ``products``, ``result``."""
    batch, inputs, height, width = node.operand("input").shape
    outputs, _, kernel_h, kernel_w = node.operand("weight").shape
    attrs, blocks = node.attrs, outputs // columns
    (stride_h, stride_w), (dilation_h, dilation_w) = attrs["strides"], attrs["dilation"]
    top, left, bottom, right = attrs["padding"]
    image = te.placeholder((batch, height, width, inputs), "float32", "image")
    weight = te.placeholder((blocks, kernel_h, kernel_w, inputs, columns), "float32", "weight")
    bias = te.placeholder((blocks, columns), "float32", "bias")
    shape = _blocked(node, columns)
    residual = te.placeholder(shape, "float32", "residual")
    padded = image
    if _is_padded(node):
        padded = topi.nn.pad(image, (0, top, left, 0), (0, bottom, right, 0), name="padded")
    r = te.reduce_axis((0, kernel_h), "r")
    q = te.reduce_axis((0, kernel_w), "q")
    i = te.reduce_axis((0, inputs), "i")
    # A tile's axes are the last two: tensorize wants that.
    products = te.compute(
        (batch, shape[1], blocks, shape[2], columns),
        lambda n, y, c, x, o: te.sum(
            padded[n, y * stride_h + r * dilation_h, x * stride_w + q * dilation_w, i]
            * weight[c, r, q, i, o],
            axis=[r, q, i],
        ),
        "products",
    )

    def epilogue(n: tirx.Var, y: tirx.Var, x: tirx.Var, c: tirx.Var, o: tirx.Var) -> tirx.Expr:
        value = products[n, y, c, x, o]
        for step in node.epilogue:
            if step.kind == "bias":
                value = value + bias[c, o]
            elif step.kind == "residual":
                value = value + residual[n, y, x, c, o]
            else:
                value = _ACTIVATIONS[step.kind](value, step)
        return value

    result = te.compute(shape, epilogue, "result")
    given = [residual] if node.operand("residual") is not None else []
    return te.create_prim_func([image, weight, bias, *given, result])


def _schedule(node: Node, function: tirx.PrimFunc, rows: int, columns: int) -> tirx.PrimFunc:
    """Cut the loops into tiles, replace the inner three by the call, add the rest tile by tile."""
    stride, inputs = node.attrs["strides"][1], node.operand("input").shape[1]
    name = f"benchmarks.tile_{rows}_{columns}_{inputs}_{stride}"
    TensorIntrin.register(name, *_intrinsic(rows, columns, inputs, stride), override=True)
    schedule = Schedule(function)
    products, result = (schedule.get_sblock(block) for block in ("products", "result"))
    n, y, c, x, o, r, q, i = schedule.get_loops(products)
    x, pixels = schedule.split(x, [None, rows])
    schedule.reorder(n, c, y, x, r, q, pixels, o, i)
    schedule.parallel(schedule.fuse(n, c, y))
    schedule.reverse_compute_at(result, x)
    schedule.vectorize(schedule.get_loops(result)[-1])
    schedule.decompose_reduction(products, r)
    schedule.tensorize(pixels, name)
    if _is_padded(node):
        image, row, *_ = schedule.get_loops(schedule.get_sblock("padded"))
        schedule.parallel(schedule.fuse(image, row))
    return schedule.mod["main"].with_attr("global_symbol", "convolution")


def _intrinsic(rows: int, columns: int, depth: int, step: int) -> tuple[T.PrimFunc, T.PrimFunc]:
    """What the tile computes, and how it is called; its rows of A are ``step`` pixels apart."""
    span = step * (rows - 1) + 1

    @T.prim_func(s_tir=True)
    def computes(a: T.handle, b: T.handle, c: T.handle):
        A = T.match_buffer(a, (span, depth), "float32", offset_factor=1)
        B = T.match_buffer(b, (depth, columns), "float32", offset_factor=1)
        C = T.match_buffer(c, (rows, columns), "float32", offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:rows, 0:columns], A[0:span, 0:depth], B[0:depth, 0:columns])
            T.writes(C[0:rows, 0:columns])
            for i, j, k in T.grid(rows, columns, depth):
                with T.sblock("update"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    C[vi, vj] = C[vi, vj] + A[vi * step, vk] * B[vk, vj]

    @T.prim_func(s_tir=True)
    def calls(a: T.handle, b: T.handle, c: T.handle):
        a_row, b_row, c_row = T.int32(), T.int32(), T.int32()
        A = T.match_buffer(a, (span, depth), "float32", offset_factor=1, strides=[a_row, 1])
        B = T.match_buffer(b, (depth, columns), "float32", offset_factor=1, strides=[b_row, 1])
        C = T.match_buffer(c, (rows, columns), "float32", offset_factor=1, strides=[c_row, 1])
        with T.sblock("root"):
            T.reads(C[0:rows, 0:columns], A[0:span, 0:depth], B[0:depth, 0:columns])
            T.writes(C[0:rows, 0:columns])
            T.evaluate(
                T.call_extern(
                    "int32", "byoc_bench_tile", A.access_ptr("r"), a_row * step,
                    B.access_ptr("r"), b_row, C.access_ptr("rw"), c_row, rows, columns, depth,
                )
            )  # fmt: skip

    return computes, calls


def _blocked(node: Node, columns: int) -> list[int]:
    batch, outputs, height, width = node.shape
    return [batch, height, width, outputs // columns, columns]


def _is_padded(node: Node) -> bool:
    return any(node.attrs["padding"])


def greatest_divisor(number: int, most: int) -> int:
    """The greatest divisor of a number that is at most ``most``."""
    return max(d for d in range(1, most + 1) if number % d == 0)
