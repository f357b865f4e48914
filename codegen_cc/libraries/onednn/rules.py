"""What oneDNN can compute as the built-in kernels do, and the reasons where it cannot.

oneDNN takes the maximum of a bound and a NaN to be the bound. Where that would be the whole of a
node, as in a ReLU of its own, the node is refused: any kernel is as fast as memory there. After a
convolution or a product it is accepted.
"""

from __future__ import annotations

from codegen_cc.node import Node, Step
from codegen_cc.operators import (
    conv2d,
    conv2d_transpose,
    dtype_rules,
    elementwise,
    epilogue,
    matmul,
    normalisation,
    pooling,
)

#: Elementwise functions that are the same in oneDNN for every number, infinity and NaN.
EXACT = (
    *("sigmoid", "silu", "hard_swish", "gelu_tanh", "tanh", "leaky_relu", "sqrt", "abs", "neg"),
    *("elu", "mish", "round", "reciprocal"),
)
#: Those that are the same for every finite number, and what differs.
FINITE = {
    "relu": "turns NaN into 0",
    "clip": "turns NaN into a bound",
    "hard_sigmoid": "turns NaN into 1",
    "gelu": "turns infinity into NaN",
    "selu": "runs in its reference implementation",
}
#: Those that differ more, or are not there.
DIFFERENT = {
    "exp": "turns NaN into infinity",
    "log": "is wrong below 1e-38",
    "rsqrt": "turns -infinity into 0",
    "softplus": "is wrong by 2e-6 for small results",
}
FUSED = (*EXACT, *FINITE)
BINARY = ("add", "sub", "mul", "div")


def supports(node: Node) -> str | None:
    """None if oneDNN can compute the node, else the reason."""
    rule = _RULES.get(node.op)
    if rule is None:
        return f"operator {node.op}; need one of {', '.join(_RULES)}"
    reason = dtype_rules.as_stored(node) or dtype_rules.only_single(node)
    return reason or epilogue.supports(node) or _steps(node) or rule(node)


def algorithm(node: Node) -> str:
    """The oneDNN primitive of a supported node."""
    if node.op == "conv2d" and node.attrs["groups"] == node.shape[1] > 1:
        return "depthwise convolution"
    if node.op == "matmul" and not node.operand("rhs").constant:
        return "matmul, weights as they are"
    return _PRIMITIVES[node.op]


def _steps(node: Node) -> str | None:
    """Why an activation of the epilogue cannot be, or None."""
    for step in node.epilogue:
        if step.kind in ("bias", "residual"):
            continue
        if step.kind == "factor":
            return "a factor after the product; need a residual or nothing in its place"
        if step.kind not in FUSED:
            return f"activation {step.kind}: {_lack(step.kind)}; need one of {', '.join(FUSED)}"
        if step.kind == "clip" and not step.alpha <= step.beta:
            return f"clip to [{step.alpha}, {step.beta}]; need bounds in order"
    return None


def _lack(kind: str) -> str:
    return f"oneDNN's {DIFFERENT[kind]}" if kind in DIFFERENT else "oneDNN has none"


def _conv2d(node: Node) -> str | None:
    return conv2d.supports(node) or _channels(node)


def _conv2d_transpose(node: Node) -> str | None:
    return conv2d_transpose.supports(node) or _channels(node)


def _conv3d(node: Node) -> str | None:
    return conv2d.unfit_weight(node, rank=5) or _channels(node)


def _channels(node: Node) -> str | None:
    shape = node.operand("weight").shape
    return f"weight {list(shape)}; need at least one element" if 0 in shape else None


def _pool(node: Node) -> str | None:
    reason = pooling.supports(node)
    if reason is not None:
        return reason
    attrs = node.attrs
    if list(attrs["dilation"]) != [1, 1]:
        return f"dilation {attrs['dilation']}: oneDNN has only its reference implementation; need 1"
    if node.op == "avg_pool2d" and attrs["count_include_pad"] and attrs["ceil_mode"]:
        return "ceil_mode with count_include_pad: oneDNN counts all of a window that sticks out"
    return None


def _unary(node: Node) -> str | None:
    kind = node.attrs["kind"]
    if kind not in EXACT:
        lack = f"oneDNN's {FINITE[kind]}" if kind in FINITE else _lack(kind)
        return f"unary {kind}: {lack}; need one of {', '.join(EXACT)}"
    if Step(kind, node.attrs.get("alpha", 0.0)) == Step("leaky_relu", 0.0):
        return f"leaky_relu of slope 0: oneDNN's {FINITE['relu']}"
    return elementwise.supports(node)


def _binary(node: Node) -> str | None:
    kind = node.attrs["kind"]
    if kind not in BINARY:
        return f"binary {kind}; need one of {', '.join(BINARY)}"
    swap = kind in ("add", "mul")
    shapes = {operand.role: operand.shape for operand in node.operands}
    if shapes["lhs"] != node.shape and not (swap and shapes["rhs"] == node.shape):
        found = f"lhs {list(shapes['lhs'])}, rhs {list(shapes['rhs'])}"
        return f"{kind} of {found}: oneDNN repeats only the right side; need {list(node.shape)}"
    return elementwise.supports(node)


_RULES = {
    "conv2d": _conv2d,
    "conv2d_transpose": _conv2d_transpose,
    "conv3d": _conv3d,
    "matmul": matmul.supports,
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    "softmax": normalisation.supports,
    "layer_norm": normalisation.supports,
    "unary": _unary,
    "binary": _binary,
}
_PRIMITIVES = {
    "conv2d": "direct convolution",
    "conv2d_transpose": "deconvolution",
    "conv3d": "direct convolution",
    "matmul": "matmul, packed weights",
    "max_pool2d": "pooling",
    "avg_pool2d": "pooling",
    "softmax": "softmax",
    "layer_norm": "layer normalisation",
    "unary": "eltwise",
    "binary": "binary",
}
