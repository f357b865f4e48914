"""Regions for oneDNN: every operator with its edge shapes, and the function that each must call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from codegen_cc.libraries.onednn.rules import EXACT
from codegen_cc.node import Step
from codegen_cc.region.graph import Region, Value
from tests.ir.regions import RegionBuilder

Build = Callable[[RegionBuilder], Value]
BIAS, RESIDUAL = Step("bias"), Step("residual")
#: Values for functions that have parameters.
PARAMETERS = {"clip": (-0.5, 0.8), "hard_sigmoid": (0.2, 0.4), "leaky_relu": (0.1,), "elu": (0.7,)}
#: Operators that only move values: the built-in library lowers them.
MOVEMENT = ("permute", "slice", "reshape", "broadcast_to")


@dataclass(frozen=True)
class Case:
    """A region of one oneDNN call; ``copies`` are the copies besides, None where any number do."""

    name: str
    function: str
    build: Build
    copies: int | None = None

    def region(self) -> Region:
        """The region; all nodes that do more than move values are oneDNN's."""
        b = RegionBuilder(f"r_{self.name}")
        region = b.done(self.build(b))
        for node in region.nodes:
            own = "builtin" if node.node.op in MOVEMENT else "onednn"
            node.node = replace(node.node, library=own)
        return region


def step(kind: str) -> Step:
    """An activation, with parameters if it has any."""
    return Step(kind, *PARAMETERS.get(kind, ()))


def same_image(b: RegionBuilder, shape: tuple[int, ...]) -> Value:
    """An NCHW input."""
    return b.input(*shape)


def channels_last(b: RegionBuilder, shape: tuple[int, ...]) -> Value:
    """An image of that NCHW shape that lies channels-last."""
    n, c, h, w = shape
    return b.add("permute", {"input": b.input(n, h, w, c)}, shape, axes=[0, 3, 1, 2])


def part_of_channels(b: RegionBuilder, shape: tuple[int, ...]) -> Value:
    """The first of twice as many channels, channels-last: there are gaps between the pixels."""
    n, c, h, w = shape
    bounds = {"begin": [0, 0, 0, 0], "end": [n, c, h, w], "strides": [1, 1, 1, 1]}
    return b.add("slice", {"input": channels_last(b, (n, 2 * c, h, w))}, shape, **bounds)


def conv(
    x: tuple[int, ...],
    weight: tuple[int, ...],
    *steps: Step,
    strides: tuple[int, ...] = (1, 1),
    padding: tuple[int, ...] = (0, 0, 0, 0),
    dilation: tuple[int, ...] = (1, 1),
    groups: int = 1,
    output_padding: tuple[int, ...] | None = None,
    image: Callable[[RegionBuilder, tuple[int, ...]], Value] = same_image,
) -> Build:
    """A convolution of two or three axes; with ``output_padding`` a transposed one."""
    rank = len(weight) - 2
    transposed = output_padding is not None
    op = "conv3d" if rank == 3 else "conv2d_transpose" if transposed else "conv2d"

    def extent(axis: int) -> int:
        reach = (weight[2 + axis] - 1) * dilation[axis] + 1
        pads = padding[axis] + padding[axis + rank]
        if output_padding is not None:
            return (x[2 + axis] - 1) * strides[axis] + reach - pads + output_padding[axis]
        return (x[2 + axis] + pads - reach) // strides[axis] + 1

    def build(b: RegionBuilder) -> Value:
        outputs = weight[1] * groups if transposed else weight[0]
        shape = (x[0], outputs, *map(extent, range(rank)))
        operands = {"input": image(b, x), "weight": b.constant(*weight)}
        if BIAS in steps:
            operands["bias"] = b.constant(outputs)
        if RESIDUAL in steps:
            operands["residual"] = image(b, shape)
        attrs = {"strides": list(strides), "padding": list(padding), "dilation": list(dilation)}
        if transposed:
            attrs["output_padding"] = list(output_padding)
        return b.add(op, operands, shape, steps, groups=groups, **attrs)

    return build


def matmul(
    *shapes: tuple[int, ...],
    steps: tuple[Step, ...] = (),
    constant: bool = True,
    lhs: tuple[int, ...] = (),
    rhs: tuple[int, ...] = (),
    residual: tuple[int, ...] = (),
) -> Build:
    """A product of two shapes, given with the result's; axes of the inputs that are permuted."""

    def operand(b: RegionBuilder, shape: tuple[int, ...], axes: tuple[int, ...]) -> Value:
        if not axes:
            return b.input(*shape)
        stored = b.input(*(shape[axes.index(axis)] for axis in range(len(axes))))
        return b.add("permute", {"input": stored}, shape, axes=list(axes))

    def build(b: RegionBuilder) -> Value:
        left, right, result = shapes
        operands = {"lhs": operand(b, left, lhs)}
        operands["rhs"] = b.constant(*right) if constant else operand(b, right, rhs)
        if BIAS in steps:
            operands["bias"] = b.constant(result[-1])
        if RESIDUAL in steps:
            operands["residual"] = operand(b, result, residual)
        return b.add("matmul", operands, result, steps)

    return build


def pool(op: str, x: tuple[int, ...], y: tuple[int, int], size: int, **attrs: object) -> Build:
    """A square pooling to an image of ``y`` pixels."""
    given = {"pool_size": [size, size], "strides": [2, 2], "dilation": [1, 1], "padding": [0] * 4}
    given |= {"ceil_mode": False, "count_include_pad": False, **attrs}
    return lambda b: b.add(op, {"input": channels_last(b, x)}, (*x[:2], *y), **given)


def one(op: str, x: tuple[int, ...], order: tuple[int, ...] = (), **attrs: object) -> Build:
    """An operator of one input; with ``order`` of a permutation of one."""

    def build(b: RegionBuilder) -> Value:
        value = b.input(*x)
        if order:
            shape = tuple(x[axis] for axis in order)
            value = b.add("permute", {"input": value}, shape, axes=list(order))
        operands = {"input": value}
        if op == "layer_norm":
            sizes = [value.shape[axis] for axis in attrs["axes"]]
            operands |= {"gamma": b.constant(*sizes), "beta": b.constant(*sizes)}
        return b.add(op, operands, value.shape, **attrs)

    return build


def unary(kind: str) -> Build:
    """A function of its own."""
    found = step(kind)
    return one("unary", (3, 37), kind=kind, alpha=found.alpha, beta=found.beta)


def binary(kind: str, lhs: tuple[int, ...], rhs: tuple[int, ...], *steps: Step) -> Build:
    """A function of two inputs, the shape of the result being the longer one's."""

    def build(b: RegionBuilder) -> Value:
        operands = {"lhs": b.input(*lhs), "rhs": b.input(*rhs)}
        return b.add("binary", operands, max(lhs, rhs, key=_elements), steps, kind=kind)

    return build


def _elements(shape: tuple[int, ...]) -> int:
    return sum(shape) + 100 * len(shape)


def _repeated_rows(b: RegionBuilder) -> Value:
    wide = b.add("broadcast_to", {"input": b.input(1, 8)}, (5, 8))
    return b.add("matmul", {"lhs": wide, "rhs": b.constant(8, 6)}, (5, 6))


def _two_orders(b: RegionBuilder) -> Value:
    other = b.add("permute", {"input": b.input(6, 5)}, (5, 6), axes=[1, 0])
    return b.add("binary", {"lhs": b.input(5, 6), "rhs": other}, (5, 6), kind="sub")


def _per_channel(b: RegionBuilder) -> Value:
    shape = (1, 20, 4, 5)
    operands = {"lhs": b.constant(1, 20, 1, 1), "rhs": channels_last(b, shape)}
    return b.add("binary", operands, shape, (step("clip"),), kind="mul")


_SAME = (1, 1, 1, 1)
_CONV2D = {
    "plain": conv((1, 3, 9, 8), (16, 3, 3, 3)),
    "relu": conv((1, 16, 9, 8), (32, 16, 3, 3), BIAS, step("relu"), padding=_SAME),
    "residual": conv((2, 16, 7, 7), (8, 16, 1, 1), BIAS, RESIDUAL, step("relu")),
    "functions": conv((1, 8, 6, 6), (8, 8, 3, 3), step("silu"), RESIDUAL, step("gelu")),
    "groups": conv((1, 12, 6, 6), (9, 4, 3, 3), BIAS, step("clip"), groups=3, padding=_SAME),
    "depthwise": conv((1, 21, 9, 9), (21, 1, 3, 3), BIAS, step("hard_swish"), groups=21),
    "multiplied": conv((1, 6, 9, 9), (12, 1, 3, 3), BIAS, groups=6, strides=(2, 2)),
    "dilation": conv((1, 5, 11, 9), (7, 5, 3, 2), dilation=(2, 3), padding=(1, 2, 0, 1)),
    "odd": conv((3, 7, 5, 4), (5, 7, 2, 3), BIAS, strides=(2, 1), padding=(1, 0, 0, 1)),
    "pixel": conv((1, 20, 1, 1), (10, 20, 1, 1), BIAS, step("gelu_tanh")),
    "unread_pixels": conv((1, 4, 8, 8), (6, 4, 1, 1), strides=(3, 3)),
    "stem": conv((1, 3, 20, 20), (16, 3, 7, 7), BIAS, strides=(2, 2), padding=(3, 3, 3, 3)),
    "selu": conv((1, 8, 4, 4), (16, 8, 1, 1), BIAS, step("selu"), RESIDUAL, step("mish")),
}
_TRANSPOSED = {
    "stride": conv((1, 6, 5, 4), (6, 8, 2, 2), BIAS, strides=(2, 2), output_padding=(0, 0)),
    "groups": conv(
        *((2, 6, 5, 4), (6, 4, 3, 3), step("leaky_relu")),
        **{"strides": (2, 3), "padding": _SAME, "groups": 2, "output_padding": (1, 2)},
    ),
}
_CONV3D = conv(
    *((1, 4, 5, 6, 7), (8, 2, 3, 2, 3), BIAS, step("relu")),
    **{"strides": (1, 2, 1), "padding": (1, 0, 1, 0, 1, 1), "dilation": (1, 1, 2), "groups": 2},
)
_CONSTANT = {
    "plain": matmul((5, 7), (7, 9), (5, 9)),
    "epilogue": matmul((5, 8), (8, 16), (5, 16), steps=(BIAS, step("gelu"), RESIDUAL)),
    "turned": matmul(
        *((5, 8), (8, 16), (5, 16)), steps=(RESIDUAL, step("elu")), lhs=(1, 0), residual=(1, 0)
    ),
    "row": matmul((1, 64), (64, 10), (1, 10), steps=(BIAS,)),
    "column": matmul((9, 8), (8, 1), (9, 1), steps=(BIAS,)),
    "folded": matmul((2, 3, 5, 8), (8, 6), (2, 3, 5, 6), steps=(BIAS, step("relu"))),
    "batch": matmul((3, 5, 8), (3, 8, 6), (3, 5, 6)),
    "repeated_rows": _repeated_rows,
}
_COMPUTED = {
    "plain": matmul((3, 5, 8), (3, 8, 6), (3, 5, 6), constant=False),
    "repeated": matmul((2, 1, 5, 8), (3, 8, 6), (2, 3, 5, 6), constant=False),
    "attention": matmul(
        *((2, 4, 6, 8), (2, 4, 8, 6), (2, 4, 6, 6)),
        **{"constant": False, "lhs": (0, 2, 1, 3), "rhs": (0, 2, 3, 1)},
    ),
    "heads": matmul((4, 6, 8), (4, 8, 6), (4, 6, 6), constant=False, lhs=(1, 0, 2)),
    "residual": matmul((3, 5, 8), (3, 8, 6), (3, 5, 6), steps=(RESIDUAL,), constant=False),
}
_POOLS = {
    "max": pool("max_pool2d", (1, 64, 9, 9), (5, 5), 3, padding=[1] * 4),
    "max_odd": pool("max_pool2d", (2, 13, 7, 6), (3, 2), 3),
    "max_ceil": pool("max_pool2d", (1, 8, 7, 7), (4, 4), 2, ceil_mode=True),
    "without": pool("avg_pool2d", (1, 16, 6, 6), (3, 3), 3, padding=[1] * 4),
    "with": pool("avg_pool2d", (1, 16, 6, 6), (3, 3), 3, padding=[1] * 4, count_include_pad=True),
    "ceil": pool("avg_pool2d", (1, 16, 6, 6), (3, 3), 3, ceil_mode=True),
    "whole": pool("avg_pool2d", (1, 40, 7, 7), (1, 1), 7),
}
_OTHERS = [
    Case("softmax", "softmax", one("softmax", (4, 5, 17), axis=2, log=False), 0),
    Case("softmax_log", "softmax", one("softmax", (4, 17), axis=1, log=True), 0),
    Case("softmax_middle", "softmax", one("softmax", (4, 5, 17), axis=1, log=False)),
    Case(
        "softmax_channels",
        "softmax",
        one("softmax", (1, 4, 4, 9), (0, 3, 1, 2), axis=1, log=False),
        1,  # the output of the region is plain
    ),
    Case("layer_norm", "layer_norm", one("layer_norm", (3, 5, 40), axes=[2], epsilon=1e-5), 0),
    Case("layer_norm_two", "layer_norm", one("layer_norm", (3, 5, 7), axes=[1, 2], epsilon=0.1), 0),
    Case("add", "binary", binary("add", (3, 4, 5), (3, 4, 5)), 0),
    Case("sub_row", "binary", binary("sub", (3, 4, 5), (5,), step("relu")), 0),
    Case("div_column", "binary", binary("div", (3, 4, 5), (3, 1, 1)), 0),
    Case("add_scalar", "binary", binary("add", (), (3, 4, 5), step("tanh")), 0),
    Case("mul_channels", "binary", _per_channel, 1),
    Case("sub_orders", "binary", _two_orders, 1),
]


def _named(prefix: str, function: str, builds: dict[str, Build]) -> list[Case]:
    return [Case(f"{prefix}_{name}", function, build) for name, build in builds.items()]


CASES = [
    *_named("conv", "conv2d", _CONV2D),
    Case(
        "conv_channels_last",
        "conv2d",
        conv((1, 16, 5, 5), (8, 16, 1, 1), RESIDUAL, image=channels_last),
        1,
    ),
    Case("conv_gaps", "conv2d", conv((1, 8, 5, 5), (8, 8, 3, 3), image=part_of_channels), 2),
    *_named("transposed", "conv2d_transpose", _TRANSPOSED),
    Case("conv3d", "conv3d", _CONV3D),
    *_named("matmul", "matmul_constant", _CONSTANT),
    *_named("product", "matmul", _COMPUTED),
    *[
        Case(f"pool_{name}", "max_pool2d" if "max" in name else "avg_pool2d", build)
        for name, build in _POOLS.items()
    ],
    *_OTHERS,
    *[Case(f"unary_{kind}", "unary", unary(kind), 0) for kind in EXACT],
]
