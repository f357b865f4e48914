"""Read a partitioned module into numbers.

Operators are Relax calls after canonicalisation: one for each call inside a composite, one for
each call that stays with TVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import tvm
from rich.console import Console
from tvm import relax

from codegen_cc.node import CONSTANTS_ATTRIBUTE, NODE_ATTRIBUTE, Node

from ..dataflow import describe, is_candidate, op_name, shape_of
from .render import coverage_line, render

IN_BRANCH = "inside a branch; need straight-line code"
UNKNOWN = "no pattern row"

#: Dtypes whose size is not what the digits in their name say.
ODD_SIZES = {"bool": 8}


@dataclass(frozen=True)
class RegionSummary:
    """One region: operators in it, multiply-accumulates, bytes of its inputs, outputs, weights."""

    name: str
    operators: int
    macs: int
    bytes_in: int
    bytes_out: int
    weight_bytes: int


@dataclass(frozen=True)
class Left:
    """One call that stays with TVM: its variable, operator, operand and result shapes, reason."""

    name: str
    op: str
    shapes: str
    reason: str
    macs: int = 0


@dataclass(frozen=True)
class Report:
    """Coverage of one partition."""

    regions: tuple[RegionSummary, ...]
    left: tuple[Left, ...]

    @property
    def offloaded(self) -> int:
        """Operators in regions."""
        return sum(region.operators for region in self.regions)

    @property
    def operators(self) -> int:
        """Operators in all."""
        return self.offloaded + len(self.left)

    @property
    def offloaded_macs(self) -> int:
        """Multiply-accumulates in regions."""
        return sum(region.macs for region in self.regions)

    @property
    def macs(self) -> int:
        """Multiply-accumulates in all: convolutions (transposed too) and matrix products."""
        return self.offloaded_macs + sum(left.macs for left in self.left)

    @classmethod
    def of(cls, mod: tvm.IRModule, reasons: Mapping[relax.Var, str] | None = None) -> Report:
        """Read a partitioned module; ``reasons`` are those that the partitioner collected."""
        functions = dict(mod.functions.items())
        regions = [
            _summarise(str(func.attrs["global_symbol"]), func)
            for func in functions.values()
            if isinstance(func, relax.Function) and func.attrs and "Codegen" in func.attrs
        ]
        left = [
            entry
            for func in functions.values()
            if is_candidate(func)
            for entry in _left_of(func, reasons or {})
        ]
        return cls(tuple(sorted(regions, key=lambda region: region.name)), tuple(left))

    def summary(self) -> str:
        """One line: operators, multiply-accumulates and regions."""
        return coverage_line(self)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts, for ``json.dumps``."""
        return {
            "operators": self.operators,
            "offloaded": self.offloaded,
            "macs": self.macs,
            "offloaded_macs": self.offloaded_macs,
            "regions": [asdict(region) for region in self.regions],
            "left": [
                {"name": e.name, "op": e.op, "shapes": e.shapes, "reason": e.reason}
                for e in self.left
            ],
        }

    def render(self, console: Console | None = None) -> None:
        """Print the coverage line, tables of regions and of what is left, and a hint if any."""
        render(self, console or Console())


def _summarise(name: str, region: relax.Function) -> RegionSummary:
    nodes: list[Node] = []
    operators = 0
    for block in region.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Function):
                nodes.append(Node.from_json(str(value.attrs[NODE_ATTRIBUTE])))
                operators += sum(len(inner.bindings) for inner in value.body.blocks)
    weights = region.attrs.get(CONSTANTS_ATTRIBUTE, ())
    return RegionSummary(
        name,
        operators,
        sum(node.macs for node in nodes),
        sum(_bytes(param) for param in region.params),
        _bytes(region.body.body),
        sum(prod(weight.shape) * _itemsize(str(weight.dtype)) for weight in weights),
    )


def _bytes(expr: relax.Expr) -> int:
    """Bytes of a tensor or of all tensors of a tuple; 0 where the shape is not static."""
    types = expr.ty.fields if isinstance(expr.ty, relax.TupleType) else [expr.ty]
    total = 0
    for ty in types:
        probe = relax.Var("probe", ty)
        shape = shape_of(probe)
        if shape is not None:
            total += prod(shape) * _itemsize(str(ty.dtype))
    return total


def _itemsize(dtype: str) -> int:
    digits = "".join(c for c in dtype if c.isdigit())
    return ODD_SIZES.get(dtype, int(digits or 8)) // 8


def _left_of(func: relax.Function, reasons: Mapping[relax.Var, str]) -> Iterator[Left]:
    for block in func.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.If):
                for branch in (value.true_branch, value.false_branch):
                    yield from _left_of_branch(branch)
            elif isinstance(value, relax.Function):
                yield from _left_of_branch(value.body)
            elif isinstance(value, relax.Call) and not _calls_function(value):
                reason = reasons.get(binding.var)
                if reason is None:
                    straight = isinstance(block, relax.DataflowBlock)
                    reason = UNKNOWN if straight else "outside of a dataflow block; need one"
                yield _left(binding.var, value, reason)


def _left_of_branch(body: relax.Expr) -> Iterator[Left]:
    if not isinstance(body, relax.SeqExpr):
        return
    for block in body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.If):
                yield from _left_of_branch(binding.value.true_branch)
                yield from _left_of_branch(binding.value.false_branch)
            elif isinstance(binding.value, relax.Call):
                yield _left(binding.var, binding.value, IN_BRANCH)


def _calls_function(call: relax.Call) -> bool:
    """Whether a call runs a Relax function: a region, or another function of the module."""
    return isinstance(call.op, tvm.ir.GlobalVar | relax.Var)


def _left(var: relax.Var, call: relax.Call, reason: str) -> Left:
    name = op_name(call) or type(call.op).__name__
    if name == "relax.call_tir" and isinstance(call.args[0], tvm.ir.GlobalVar):
        name = f"relax.call_tir({call.args[0].name_hint})"
    operands = [
        describe(item)
        for argument in call.args
        for item in (argument.fields if isinstance(argument, relax.Tuple) else [argument])
        if isinstance(item.ty, relax.TensorType | relax.TupleType)
    ]
    shapes = f"{', '.join(operands)} -> {describe(call)}" if operands else describe(call)
    return Left(var.name, name, shapes, reason, _macs(call))


def _macs(call: relax.Call) -> int:
    """Multiply-accumulates of a call that stays; 0 where it has none or shapes are unknown."""
    name = op_name(call) or ""
    shapes = [shape_of(argument) for argument in call.args[:2]]
    result = shape_of(call)
    if result is None or None in shapes or len(shapes) < 2:
        return 0
    if name == "relax.matmul":
        return prod(result) * shapes[0][-1]
    if name.startswith("relax.nn.conv") and name.endswith("_transpose"):
        return prod(shapes[0]) * prod(shapes[1][1:])
    if name.startswith("relax.nn.conv"):
        return prod(result) * prod(shapes[1][1:])
    return 0
