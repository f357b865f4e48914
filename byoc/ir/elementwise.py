"""Operators of Relax that compute each element by itself."""

from __future__ import annotations

#: Operators that are one unary function, and its name in the node.
SIMPLE_UNARY = {
    "relax.nn.relu": "relu",
    "relax.clip": "clip",
    "relax.sigmoid": "sigmoid",
    "relax.tanh": "tanh",
    "relax.exp": "exp",
    "relax.log": "log",
    "relax.erf": "erf",
    "relax.sqrt": "sqrt",
    "relax.rsqrt": "rsqrt",
    "relax.abs": "abs",
    "relax.negative": "neg",
    "relax.nn.silu": "silu",
    "relax.nn.gelu": "gelu",
    "relax.nn.gelu_tanh": "gelu_tanh",
    "relax.nn.leakyrelu": "leaky_relu",
    "relax.nn.selu": "selu",
    "relax.nn.softplus": "softplus",
    "relax.floor": "floor",
    "relax.ceil": "ceil",
    "relax.round": "round",
    "relax.sin": "sin",
    "relax.cos": "cos",
    "relax.tan": "tan",
    "relax.trunc": "trunc",
    **{f"relax.{kind}": kind for kind in ("atan", "asin", "acos", "asinh", "acosh", "atanh")},
    "relax.sign": "sign",
}
