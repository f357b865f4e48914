"""Random numbers: the same at every run, different for every node and seed.

    u[i] = (hash(i, seed) + 1/2) / 2^24             uniform in (0, 1)
    z[i] = sqrt(-2 ln u[i]) cos(2 pi u'[i])         normal, of two hashes

A compiled model is a function of its inputs; a node without a seed gets one from its name.  No two
engines draw the same numbers.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable

import numpy as np
import onnx
from tvm import relax, te, tirx

from byoc.frontends.onnx.converters.node import Node

_U32 = "uint32"
_BITS = 24


def random(node: Node) -> relax.Expr:
    """RandomNormal, RandomUniform, and those that are like a tensor."""
    attrs, like = node.attrs, node.operator.endswith("Like")
    if like:
        extents = node.inputs[0].ty.shape
        if extents is None:
            raise ValueError("a tensor of unknown shape; need a known one")
        dtype = node.dtype()
        extents = list(extents.values)
    else:
        extents, dtype = list(attrs["shape"]), "float32"
    if "dtype" in attrs:
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(attrs["dtype"]))
    if "seed" in attrs:
        seed = int(np.float32(attrs["seed"]).view(np.uint32))
    else:
        seed = zlib.crc32(attrs["tvm_custom"]["name"].encode())
    normal = "Normal" in node.operator
    first, second = ("mean", "scale") if normal else ("low", "high")
    begin, width = attrs.get(first, 0.0), attrs.get(second, 1.0)
    width = width if normal else width - begin
    numbers = node.emit(node.bb.emit_te(_loops(extents, seed, normal, begin, width)))
    return numbers if dtype == "float32" else relax.op.astype(numbers, dtype)


def _loops(
    extents: list[tirx.Expr], seed: int, normal: bool, begin: float, width: float
) -> Callable[[], te.Tensor]:
    def loops() -> te.Tensor:
        def at(*place: tirx.Var) -> tirx.Expr:
            index: tirx.Expr = tirx.const(0, "int64")
            for i, extent in zip(place, extents, strict=True):
                index = index * extent + i
            index = tirx.Cast(_U32, index)
            value = _uniform(index, seed)
            if normal:
                angle = _uniform(index, seed ^ 0x9E3779B9) * tirx.const(2 * math.pi, "float32")
                value = tirx.sqrt(tirx.log(value) * tirx.const(-2, "float32")) * tirx.cos(angle)
            return value * tirx.const(width, "float32") + tirx.const(begin, "float32")

        return te.compute(extents, at, name="random")

    return loops


def _uniform(index: tirx.Expr, seed: int) -> tirx.Expr:
    """A hash of an index whose every bit depends on every bit of it, as a number in (0, 1)."""
    c = lambda value: tirx.const(value & 0xFFFFFFFF, _U32)  # noqa: E731
    x = index * c(0x9E3779B1) + c(seed * 0x85EBCA6B + 0x27D4EB2F)
    for by, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> c(by))) * c(factor)
    x = x ^ (x >> c(16))
    top = tirx.Cast("float32", x >> c(32 - _BITS))
    return (top + tirx.const(0.5, "float32")) * tirx.const(2.0**-_BITS, "float32")
