"""Kernels of ``kernels.c`` as rows of a table, and regions that need them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from byoc.library import Kernel, Library, Link
from codegen_cc.dim import symbol
from codegen_cc.node import Step
from codegen_cc.region.graph import Region
from tests.ir.regions import RegionBuilder

HERE = Path(__file__).parent

_CONV_SIZES = (
    *("batch", "in_c", "in_h", "in_w", "out_c", "out_h", "out_w", "kernel_h", "kernel_w"),
    *("stride_h", "stride_w", "pad_top", "pad_left", "dilation_h", "dilation_w", "groups"),
)
_NHWC = {"input": "NHWC", "output": "NHWC"}
_FULL = ("bias", "activation", "residual", "activation")

KERNELS = (
    Kernel(
        "matmul",
        "t_prepared",
        ("state", "lhs", "output", "m", "n", "k"),
        supports=lambda node: None if node.source == ("prepared",) else "not this one",
        state="t_state",
        prepare="t_prepare",
        prepare_arguments=("state", "rhs", "n", "k"),
    ),
    Kernel(
        "matmul",
        "t_packed",
        ("lhs", "rhs", "output", "m", "n", "k"),
        supports=lambda node: None if node.source == ("packed",) else "not this one",
        pack={"rhs": lambda array, node: array.T.astype(np.float64)},
    ),
    Kernel(
        "matmul",
        "t_matmul",
        ("lhs", "rhs", "bias", "relu", "output", "m", "n", "k"),
        epilogue=("bias", "relu"),
        supports=lambda node: "strided" if node.source == ("strided",) else None,
        algorithm="three loops",
        cost=lambda node: 1e-9 * node.macs,
    ),
    Kernel(
        "matmul",
        "t_batched",
        ("lhs", "rhs", "output", "batch", "m", "n", "k"),
        supports=lambda node: "strided" if node.source == ("strided",) else None,
    ),
    Kernel("matmul", "t_strided", ("params", "lhs", "rhs", "epilogue", "output"), epilogue=_FULL),
    Kernel(
        "conv2d",
        "t_pixels",
        ("params", "input", "weight", "epilogue", "output"),
        epilogue=_FULL,
        attributes={"groups": 1, "dilation": (1, 1)},
        layouts={**_NHWC, "weight": "HWIO"},
        supports=lambda node: None if node.source == ("pixels",) else "not this one",
    ),
    Kernel(
        "conv2d",
        "t_conv2d",
        ("input", "weight", "bias", "clip", "clip.alpha", "clip.beta", "output", *_CONV_SIZES),
        epilogue=("bias", "clip"),
    ),
    Kernel(
        "max_pool2d",
        "t_pool",
        ("input", "output", "scratch", "params"),
        layouts=_NHWC,
        scratch=lambda node: 4 * node.shape[1],
        returns="void",
    ),
    Kernel("softmax", "t_softmax", ("outer", "reduce", "inner", "attr.log", "input", "output")),
    Kernel(
        "reduce",
        "t_sum",
        ("outer", "reduce", "inner", "input", "output"),
        attributes={"kind": "sum"},
    ),
    Kernel("layer_norm", "t_norm", ("rows", "n", "epsilon", "input", "gamma", "beta", "output")),
    Kernel(
        "attention",
        "t_attention",
        (
            *("query", "key", "value", "mask", "scale", "output"),
            *("heads", "queries", "keys", "depth", "width"),
        ),
        attributes={},
        supports=lambda node: None if node.shape[0] == 1 else "one batch only",
    ),
    Kernel(
        "unary",
        "t_unary",
        ("kind", "alpha", "beta", "size", "input", "output"),
        layouts={"input": "any", "output": "any"},
    ),
    Kernel(
        "binary",
        "t_subtract",
        ("size", "lhs", "rhs", "activation", "activation.alpha", "output"),
        attributes={"kind": "sub"},
        epilogue=("activation",),
    ),
    Kernel(
        "concat",
        "t_concat",
        ("input0", "input1", "output", "input0.0", "input0.1", "input1.1"),
        attributes={"axis": 1},
    ),
    Kernel(
        "take",
        "t_take",
        ("input", "indices", "output", "outer", "extent", "inner", "count"),
        dtypes={"indices": "int64"},
    ),
)


def table(*kernels: Kernel) -> Library:
    link = Link(headers=("kernels.h",), include_dirs=(HERE,), sources=(HERE / "kernels.c",))
    return Library("table", version="1", abi=1, link=link, kernels=kernels or KERNELS)


# ---------------------------------------------------------------- regions


def kind(name: str, alpha: float = 0.0) -> dict:
    return {"kind": name, "alpha": alpha, "beta": 0.0}


def conv_attrs(**others) -> dict:
    plain = {"strides": [1, 1], "padding": [0] * 4, "dilation": [1, 1], "groups": 1}
    return plain | others


def matmul(b: RegionBuilder):
    x = b.input(2, 3, 5)
    operands = {"lhs": x, "rhs": b.constant(5, 4), "bias": b.constant(4)}
    return b.add("matmul", operands, (2, 3, 4), [Step("bias"), Step("relu")])


def matmul_plain(b: RegionBuilder):
    return b.add("matmul", {"lhs": b.input(3, 5), "rhs": b.input(5, 4, name="w")}, (3, 4))


def matmul_symbolic(b: RegionBuilder):
    n = symbol("n")
    x = b.input(n, 5)
    return b.add("matmul", {"lhs": x, "rhs": b.constant(5, 4)}, (n, 4))


def matmul_batched(b: RegionBuilder):
    return b.add("matmul", {"lhs": b.input(2, 3, 5), "rhs": b.input(2, 5, 4)}, (2, 3, 4))


def matmul_strided(b: RegionBuilder):
    """A transposed left side, read where it lies, and every step of an epilogue."""
    x = b.input(2, 5, 3)
    turned = b.add("permute", {"input": x}, (2, 3, 5), axes=[0, 2, 1])
    residual = b.input(2, 3, 4, name="r")
    rhs = {"rhs": b.constant(5, 4), "bias": b.constant(1, 4), "residual": residual}
    steps = [Step("bias"), Step("tanh"), Step("residual"), Step("relu")]
    return named(b, "strided", "matmul", {"lhs": turned, **rhs}, (2, 3, 4), steps)


def matmul_prepared(b: RegionBuilder):
    x = b.input(3, 5)
    return named(b, "prepared", "matmul", {"lhs": x, "rhs": b.constant(5, 4)}, (3, 4))


def matmul_packed(b: RegionBuilder):
    x = b.input(3, 5)
    return named(b, "packed", "matmul", {"lhs": x, "rhs": b.constant(5, 4)}, (3, 4))


def named(b: RegionBuilder, source: str, *arguments, **attrs):
    value = b.add(*arguments, **attrs)
    last = b.region.nodes[-1]
    last.node = replace(last.node, source=(source,))
    return value


def conv2d(b: RegionBuilder):
    operands = {"input": b.input(2, 4, 7, 6), "weight": b.constant(6, 2, 3, 2)}
    attrs = conv_attrs(strides=[2, 1], padding=[1, 0, 2, 1], dilation=[1, 2], groups=2)
    steps = [Step("bias"), Step("clip", -0.5, 1.5)]
    return b.add("conv2d", {**operands, "bias": b.constant(6)}, (2, 6, 4, 5), steps, **attrs)


def conv2d_pixels(b: RegionBuilder):
    """Channels-last, on a slice of channels that is read where it lies."""
    x = b.add("unary", {"input": b.input(1, 5, 4, 4)}, (1, 5, 4, 4), **kind("abs"))
    whole = {"input": x, "weight": b.constant(8, 5, 1, 1), "bias": b.constant(8)}
    first = named(b, "pixels", "conv2d", whole, (1, 8, 4, 4), [Step("bias")], **conv_attrs())
    part = b.add(
        "slice",
        {"input": first},
        (1, 6, 4, 4),
        **{"begin": [0, 1, 0, 0], "end": [1, 7, 4, 4], "strides": [1] * 4},
    )
    rest = {"input": part, "weight": b.constant(8, 6, 3, 3), "residual": first}
    attrs = conv_attrs(padding=[1, 1, 1, 1])
    steps = [Step("residual"), Step("relu")]
    return named(b, "pixels", "conv2d", rest, (1, 8, 4, 4), steps, **attrs)


def max_pool2d(b: RegionBuilder):
    attrs = {"pool_size": [3, 2], "strides": [2, 2], "padding": [1, 0, 1, 0], "dilation": [1, 1]}
    attrs |= {"ceil_mode": False, "count_include_pad": False}
    return b.add("max_pool2d", {"input": b.input(1, 5, 7, 6)}, (1, 5, 4, 3), **attrs)


def softmax(b: RegionBuilder):
    return b.add("softmax", {"input": b.input(2, 5, 3)}, (2, 5, 3), axis=1, log=True)


def reduce(b: RegionBuilder):
    attrs = {"kind": "sum", "axes": [1, 2], "keepdims": False}
    return b.add("reduce", {"input": b.input(2, 3, 4, 5)}, (2, 5), **attrs)


def layer_norm(b: RegionBuilder):
    operands = {"input": b.input(2, 3, 8), "gamma": b.constant(8), "beta": b.constant(8)}
    return b.add("layer_norm", operands, (2, 3, 8), axes=[2], epsilon=1e-3)


def attention(b: RegionBuilder):
    sides = {role: b.input(1, 2, n, 4, name=role) for role, n in (("query", 3), ("key", 5))}
    return b.add("attention", {**sides, "value": b.input(1, 2, 5, 6)}, (1, 2, 3, 6), scale=0.5)


def unary(b: RegionBuilder):
    return b.add("unary", {"input": b.input(3, 4)}, (3, 4), **kind("leaky_relu", 0.25))


def binary(b: RegionBuilder):
    operands = {"lhs": b.input(3, 4), "rhs": b.input(3, 4, name="b")}
    return b.add("binary", operands, (3, 4), [Step("leaky_relu", 0.5)], kind="sub")


def concat(b: RegionBuilder):
    return b.add("concat", {"input0": b.input(3, 4), "input1": b.input(3, 2)}, (3, 6), axis=1)


def take(b: RegionBuilder):
    indices = b.value(np.array([3, 0, 3], np.int64))
    return b.add("take", {"input": b.input(2, 4, 3), "indices": indices}, (2, 3, 3), axis=1)


def region_of(build, library: Library) -> Region:
    b = RegionBuilder(f"r_{build.__name__}")
    region = b.done(build(b))
    for entry in region.nodes:
        if library.supports(entry.node) is None:
            entry.node = replace(entry.node, library=library.name)
    return region
