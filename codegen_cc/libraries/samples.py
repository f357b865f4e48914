"""Sample nodes of every operator: what a table of "who supports what" asks the libraries about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from codegen_cc.dim import Dim, symbol
from codegen_cc.node import ACTIVATIONS, Node, Operand, Step

Shape = tuple[Dim, ...]

#: Stands for the dtype that ``samples`` is asked for.
REAL = "real"

#: alpha and beta of the activations that have them.
_PARAMETERS = {
    "clip": (0.0, 6.0),
    "hard_sigmoid": (0.2, 0.5),
    "leaky_relu": (0.1, 0.0),
    "elu": (1.0, 0.0),
}


@dataclass(frozen=True)
class Sample:
    """A node, and in which way it differs from the plainest of its operator (empty for that)."""

    variant: str
    node: Node


def samples(dtype: str) -> Iterator[Sample]:
    """The samples of all operators, in the order of ``codegen_cc.node.OPERATORS``.

    ``dtype`` is that of the floating-point numbers in them.
    """
    for sample in _samples():
        node = sample.node
        operands = tuple(replace(o, dtype=_named(o.dtype, dtype)) for o in node.operands)
        typed = replace(node, operands=operands, dtype=_named(node.dtype, dtype))
        yield Sample(_named(sample.variant, dtype), typed)


def _named(text: str, dtype: str) -> str:
    return dtype if text == REAL else text


def _samples() -> Iterator[Sample]:
    yield from _convolutions("conv2d", 2)
    yield from _convolutions("conv2d_transpose", 2)
    yield from _convolutions("conv3d", 3)
    yield from _products()
    yield from _attention()
    yield from _pools()
    yield from _others()
    yield from _elementwise()
    yield from _movement()


def _node(op: str, operands: dict[str, tuple], shape: Shape, dtype: str = REAL, **attrs):
    """Operands are (shape, dtype or "constant"); constants are real."""
    described = tuple(
        Operand(role, s, REAL if kind == "constant" else kind, kind == "constant")
        for role, (s, kind) in operands.items()
    )
    return Node(op, described, shape, dtype, attrs)


def _with_steps(node: Node, *steps: str) -> Node:
    """The node with an epilogue, and the operands that it needs."""
    channels = node.shape[1] if node.op.startswith("conv") else node.shape[-1]
    shapes = {"bias": (channels,), "residual": node.shape}
    operands = tuple(
        Operand(step, shapes[step], REAL, step == "bias") for step in steps if step in shapes
    )
    kinds = tuple(Step(step, *_PARAMETERS.get(step, ())) for step in steps)
    return replace(node, operands=(*node.operands, *operands), epilogue=kinds)


def _fused(node: Node) -> Iterator[Sample]:
    yield Sample("bias", _with_steps(node, "bias"))
    for step in ("relu", "clip", "gelu"):
        yield Sample(step, _with_steps(node, step))
    yield Sample("residual", _with_steps(node, "bias", "residual", "relu"))
    yield Sample("activation before residual", _with_steps(node, "relu", "residual"))


def _convolutions(op: str, rank: int) -> Iterator[Sample]:
    def node(kernel: int = 3, per_group: int = 16, weight: str = "constant", **attrs) -> Node:
        groups = 16 // per_group
        plain = {"strides": [1] * rank, "padding": [kernel // 2] * (2 * rank)}
        plain |= {"dilation": [1] * rank, "groups": groups}
        if op == "conv2d_transpose":
            plain["output_padding"] = [0] * rank
        image = (2, 16, *(8,) * rank)
        operands = {
            "input": (image, REAL),
            "weight": ((16, per_group, *(kernel,) * rank), weight),
        }
        out = [4 if attrs.get("strides") and op != "conv2d_transpose" else 8] * rank
        return _node(op, operands, (2, 16, *out), **plain | attrs)

    yield Sample("", node())
    yield Sample("1x1", node(1))
    yield Sample("strided", node(strides=[2] * rank))
    yield Sample("dilated", node(dilation=[2] * rank, padding=[2] * (2 * rank)))
    yield Sample("grouped", node(per_group=4))
    yield Sample("depthwise", node(per_group=1))
    yield Sample("computed weight", node(weight=REAL))
    n = symbol("n")
    plain = node()
    data = replace(plain.operands[0], shape=(n, *plain.operands[0].shape[1:]))
    shape = (n, *plain.shape[1:])
    symbolic = replace(plain, operands=(data, *plain.operands[1:]), shape=shape)
    yield Sample("symbolic batch", symbolic)
    yield from _fused(plain)


def _products() -> Iterator[Sample]:
    def node(lhs: Shape, rhs: Shape, out: Shape, kind: str = "constant") -> Node:
        return _node("matmul", {"lhs": (lhs, REAL), "rhs": (rhs, kind)}, out)

    plain = node((32, 64), (64, 48), (32, 48))
    yield Sample("", plain)
    yield Sample("computed right side", node((32, 64), (64, 48), (32, 48), REAL))
    yield Sample("lhs of rank 3", node((2, 32, 64), (64, 48), (2, 32, 48)))
    yield Sample("batched", node((2, 32, 64), (2, 64, 48), (2, 32, 48), REAL))
    wide = node((1, 32, 64), (2, 64, 48), (2, 32, 48), REAL)
    yield Sample("broadcast batches", wide)
    n = symbol("n")
    yield Sample("symbolic rows", node((n, 64), (64, 48), (n, 48)))
    yield from _fused(plain)


def _attention() -> Iterator[Sample]:
    heads = {role: ((1, 2, 16, 8), REAL) for role in ("query", "key", "value")}
    yield Sample("", _node("attention", heads, (1, 2, 16, 8), scale=0.5))
    masked = heads | {"mask": ((1, 1, 1, 16), REAL)}
    yield Sample("masked", _node("attention", masked, (1, 2, 16, 8), scale=0.5))


def _pools() -> Iterator[Sample]:
    image = {"input": ((1, 16, 8, 8), REAL)}
    plain = {"pool_size": [2, 2], "strides": [2, 2], "padding": [0] * 4, "dilation": [1, 1]}
    plain |= {"ceil_mode": False, "count_include_pad": False}
    padded = plain | {"pool_size": [3, 3], "padding": [1] * 4}
    for op in ("max_pool2d", "avg_pool2d"):
        yield Sample("", _node(op, image, (1, 16, 4, 4), **plain))
        yield Sample("padded", _node(op, image, (1, 16, 4, 4), **padded))
        if op == "avg_pool2d":
            counted = padded | {"count_include_pad": True}
            yield Sample("padding counted", _node(op, image, (1, 16, 4, 4), **counted))
        dilated = plain | {"dilation": [2, 2], "strides": [1, 1]}
        yield Sample("dilated", _node(op, image, (1, 16, 6, 6), **dilated))


def _others() -> Iterator[Sample]:
    image, x = {"input": ((1, 16, 8, 8), REAL)}, {"input": ((4, 32), REAL)}
    resize = {"coordinate": "half_pixel", "rounding": ""}
    resize |= {"cubic_alpha": -0.5, "cubic_exclude": 0}
    for method in ("nearest", "linear", "cubic"):
        yield Sample(method, _node("resize2d", image, (1, 16, 16, 16), **resize, method=method))
    for mode in ("constant", "reflect", "edge"):
        pad = {"pads": [0, 1, 0, 1], "mode": mode, "value": 0.0}
        yield Sample(mode, _node("pad", x, (4, 34), **pad))
    for kind in ("sum", "mean", "max", "min", "prod"):
        attrs = {"kind": kind, "axes": [1], "keepdims": False}
        yield Sample(kind, _node("reduce", x, (4,), **attrs))
    for kind in ("argmax", "argmin"):
        attrs = {"kind": kind, "axis": 1, "keepdims": False}
        yield Sample(kind, _node("argreduce", x, (4,), "int64", **attrs))
    yield Sample("", _node("cumsum", x, (4, 32), axis=1, exclusive=False, reverse=False))
    yield Sample("", _node("softmax", x, (4, 32), axis=1, log=False))
    yield Sample("logarithm", _node("softmax", x, (4, 32), axis=1, log=True))
    yield Sample("first axis", _node("softmax", x, (4, 32), axis=0, log=False))
    affine = {role: ((32,), "constant") for role in ("gamma", "beta")}
    attrs = {"axes": [1], "epsilon": 1e-5}
    yield Sample("", _node("layer_norm", x | affine, (4, 32), **attrs))
    gamma = {"gamma": affine["gamma"]}
    yield Sample("", _node("rms_norm", x | gamma, (4, 32), **attrs))


def _elementwise() -> Iterator[Sample]:
    shape: Shape = (4, 32)
    for kind in ACTIVATIONS:
        alpha, beta = _PARAMETERS.get(kind, (0.0, 0.0))
        attrs = {"kind": kind, "alpha": alpha, "beta": beta}
        yield Sample(kind, _node("unary", {"input": (shape, REAL)}, shape, **attrs))
    sides = {role: (shape, REAL) for role in ("lhs", "rhs")}
    for kind in ("add", "sub", "mul", "div", "max", "min", "pow", "prelu"):
        yield Sample(kind, _node("binary", sides, shape, kind=kind))
    row = sides | {"rhs": ((32,), "constant")}
    yield Sample("broadcast", _node("binary", row, shape, kind="add"))
    whole = {role: (shape, "int32") for role in ("lhs", "rhs")}
    yield Sample("int32", _node("binary", whole, shape, "int32", kind="add"))
    relu = replace(_node("binary", sides, shape, kind="add"), epilogue=(Step("relu"),))
    yield Sample("activation", relu)
    yield Sample("", _node("compare", sides, shape, "bool", kind="less"))
    truths = {role: (shape, "bool") for role in ("lhs", "rhs")}
    yield Sample("", _node("logical", truths, shape, "bool", kind="and"))
    yield Sample("", _node("where", {"condition": (shape, "bool"), **sides}, shape))
    yield Sample("", _node("cast", {"input": (shape, "int64")}, shape))


def _movement() -> Iterator[Sample]:
    shape: Shape = (4, 32)
    x = {"input": (shape, REAL)}
    for dtype in ("int32", "int64"):
        taken = x | {"indices": ((3,), dtype)}
        yield Sample(f"{dtype} indices", _node("take", taken, (3, 32), axis=0))
    for dtype in (REAL, "int64"):
        yield Sample(dtype, _node("arange", {}, (128,), dtype))
    yield Sample("", _node("reshape", x, (128,)))
    yield Sample("", _node("permute", x, (32, 4), axes=[1, 0]))
    pair = {f"input{i}": (shape, REAL) for i in range(2)}
    yield Sample("", _node("concat", pair, (8, 32), axis=0))
    bounds = {"begin": [0, 0], "end": [2, 32], "strides": [1, 1]}
    yield Sample("", _node("slice", x, (2, 32), **bounds))
    yield Sample("", _node("broadcast_to", {"input": ((1, 32), REAL)}, shape))
