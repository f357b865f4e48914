"""Rotary embeddings as exporters write them.

    x * cosine + concat(-second, first) * sine      tables of x's width: transformers
    concat(first * cosine - second * sine,          tables of half the width: RotaryEmbedding,
           first * sine + second * cosine)          ONNX's and com.microsoft's

``first`` and ``second`` are the halves of x along its last axis.
"""

from __future__ import annotations

from typing import NamedTuple

from tvm import relax

from byoc.ir.dataflow import Block, dtype_of, shape_of
from byoc.ir.pattern import call, find, plus, times
from byoc.patterns.movement import build_concat, build_slice
from byoc.patterns.row import Candidate, tensor
from codegen_cc.dim import Dim, same
from codegen_cc.node import Node

_FIRST = call("strided_slice", "x", name="first")
_SECOND = call("strided_slice", "x", name="second")
REAL = call("subtract", times(_FIRST, "cosine"), times(_SECOND, "sine"))
IMAGINARY = plus(times(_FIRST, "sine"), times(_SECOND, "cosine"))
_NEGATIVE = call("negative", _SECOND)

#: A candidate and the bindings that it stands for.
Rotary = tuple[Candidate, tuple[relax.Expr, ...]]


def rotary_of_rows(block: Block, var: relax.Var) -> Rotary | None:
    """``x * cosine + turned * sine`` that ends in ``var``."""
    summands = tuple(block.values[var].args)
    for straight, turned in (summands, summands[::-1]):
        product = block.call(straight, "relax.multiply")
        found = None if product is None else _turned(block, turned)
        if found is None or found.x not in list(product.args):
            continue
        cosine = product.args[1] if product.args[0] == found.x else product.args[0]
        return _rotary(block, var, found.x, (cosine, found.sine), (straight, *found.bindings))
    return None


class _Turned(NamedTuple):
    """``concat(-second, first) * sine``: what it is of, and its bindings."""

    x: relax.Expr
    sine: relax.Expr
    bindings: tuple[relax.Expr, ...]


def _turned(block: Block, expr: relax.Expr) -> _Turned | None:
    product = block.call(expr, "relax.multiply")
    for place in () if product is None else (0, 1):
        join = product.args[place]
        parts = _parts(block, join)
        second = None if parts is None else find(block, parts[0], _NEGATIVE)
        first = None if second is None else find(block, parts[1], _FIRST)
        if first is None or first["x"] != second["x"]:
            continue
        if _are_halves(block, first["first"], second["second"]):
            bindings = (expr, join, *second.bindings, *first.bindings)
            return _Turned(first["x"], product.args[1 - place], bindings)
    return None


def rotary_of_halves(block: Block, var: relax.Var) -> Rotary | None:
    """Both turned halves, which ``var`` puts together."""
    parts = _parts(block, var)
    real = None if parts is None else find(block, parts[0], REAL)
    if real is None or not _are_halves(block, real["first"], real["second"]):
        return None
    imaginary = find(block, parts[1], IMAGINARY)
    names = ("x", "first", "second", "cosine", "sine")
    if imaginary is None or any(imaginary[name] != real[name] for name in names):
        return None
    bindings = (*real.bindings, *imaginary.bindings)
    return _rotary(block, var, real["x"], (real["cosine"], real["sine"]), bindings)


def _rotary(
    block: Block,
    var: relax.Var,
    x: relax.Expr,
    tables: tuple[relax.Expr, relax.Expr],
    bindings: tuple[relax.Expr, ...],
) -> Rotary | None:
    """The candidate; halves that others read as well stay outside."""
    if shape_of(x) is None or shape_of(x) != shape_of(var):
        return None
    inside = {*bindings, var}
    own = (b for b in inside if not (_is_slice(block, b) and {*block.users(b)} - inside))
    roles = {"input": x, "cosine": tables[0], "sine": tables[1]}
    operands = tuple(tensor(expr, role) for role, expr in roles.items())
    node = Node("rotary", operands, shape_of(var), dtype_of(var))
    return Candidate(node, tuple(roles.values())), tuple(own)


def _is_slice(block: Block, expr: relax.Expr) -> bool:
    return block.call(expr, "relax.strided_slice") is not None


def _parts(block: Block, expr: relax.Expr) -> tuple[relax.Expr, relax.Expr] | None:
    """What is put together along the last axis, if it is two tensors."""
    join = block.call(expr, "relax.concat")
    node = None if join is None else build_concat(join)
    if node is None or len(node.arguments) != 2:
        return None
    return node.arguments if node.node.attrs["axis"] == len(node.node.shape) - 1 else None


def _are_halves(block: Block, first: relax.Expr, second: relax.Expr) -> bool:
    """Whether these slices are the halves of what they are of, along its last axis."""
    nodes = [build_slice(block.values[part]).node for part in (first, second)]
    whole = nodes[0].operands[0].shape
    half = nodes[0].shape[-1] if nodes[0].shape else 0
    if any(node.operands[0].shape != whole or set(node.attrs["strides"]) != {1} for node in nodes):
        return False
    if not same(whole[-1], 2 * half) or any(n.shape != (*whole[:-1], half) for n in nodes):
        return False
    return [node.attrs["begin"] for node in nodes] == [_begin(whole, 0), _begin(whole, half)]


def _begin(shape: tuple[Dim, ...], first: Dim) -> list[Dim]:
    return [0] * (len(shape) - 1) + [first]
