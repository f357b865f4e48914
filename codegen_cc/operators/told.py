"""What families share of the facts for users' tables: what need not be told, numbers of axes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from codegen_cc.dim import Dim, product, same
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Neutral, Number

AXIS_NAMES = ("outer", "reduce", "inner")
AXIS_TOLD = ("outer reduce inner",)


def unless(name: str, value: object) -> Neutral:
    """An attribute need not be told where it, or each element of it, is this value."""

    def neutral(node: Node, told: Collection[str]) -> bool:
        del told
        found = node.attrs.get(name, value)
        return all(item == value for item in (found if isinstance(found, list) else [found]))

    return neutral


def around(node: Node, axes: list[int]) -> dict[str, Number]:
    """The input as [outer, reduce, inner], where the axes are neighbours."""
    shape = node.operand("input").shape
    first, last = (axes[0], axes[-1] + 1) if axes else (len(shape), len(shape))
    return {
        "outer": product(shape[:first]),
        "reduce": product(shape[first:last]),
        "inner": product(shape[last:]),
    }


def along_axis(
    *names: str,
    numbers: Callable[[Node], Mapping[str, Number]] = lambda node: {},
    told_by: Mapping[str, tuple[str, ...]] | None = None,
    neutral: Mapping[str, Neutral] | None = None,
) -> Facts:
    """Facts of an operator along the attribute ``axis``, with further names."""
    return Facts(
        names=(*AXIS_NAMES, *names),
        numbers=lambda node: around(node, [node.attrs["axis"]]) | dict(numbers(node)),
        told_by={"axis": AXIS_TOLD, **(told_by or {})},
        neutral=neutral or {},
    )


def flags(node: Node, *names: str) -> dict[str, Number]:
    """Attributes that are true or false, as 1 or 0."""
    return {name: int(node.attrs[name]) for name in names}


def kind_number(node: Node) -> dict[str, Number]:
    """The enumerator of the attribute ``kind``."""
    return {"kind": f"EXT_{node.attrs['kind'].upper()}"}


def equal_shapes(one: Sequence[Dim], other: Sequence[Dim]) -> bool:
    """Whether two shapes have the same extents."""
    return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))


def broadcast_operand(node: Node, told: Collection[str], function: str) -> str | None:
    """Which operand is repeated to the result's shape, which sizes alone do not tell."""
    del told, function
    for operand in node.operands:
        if operand.role != "bias" and not equal_shapes(operand.shape, node.shape):
            shape = list(operand.shape)
            return f"{operand.role} {shape} is broadcast; need {list(node.shape)}"
    return None
