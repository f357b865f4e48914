"""compare, logical, where and cast: one pass over memory."""

from __future__ import annotations

from collections.abc import Iterator

from codegen_cc import dtypes
from codegen_cc.dtypes import KERNEL_DTYPES, KERNEL_NUMBERS
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Layout, Operator
from codegen_cc.operators.dtype_rules import c_dtype, one_of, only, operands_only
from codegen_cc.operators.elementwise import broadcast_loop
from codegen_cc.operators.operands import all_constant
from codegen_cc.operators.sample import REAL, Sample, Shape, sample_node
from codegen_cc.operators.told import broadcast_operand, kind_number
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.region.graph import RegionNode

KINDS = {
    "compare": ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    "logical": ("and", "or", "xor"),
}


def check_dtypes(node: Node) -> str | None:
    """Operands of one dtype; what ``compare`` and ``logical`` give, and conditions, are bool."""
    if node.op == "cast":
        return only(node, KERNEL_DTYPES)
    if node.op == "where":
        values = Node("where", node.operands[1:], node.shape, node.dtype)
        condition = one_of("condition", node.operands[0].dtype, ("bool",))
        return condition or only(values, KERNEL_DTYPES) or only(values, (node.dtype,))
    if node.op == "logical":
        return only(node, ("bool",))
    operands = operands_only(node, KERNEL_NUMBERS) or operands_only(node, (node.operands[0].dtype,))
    return operands or one_of("result", node.dtype, ("bool",))


def supports(node: Node) -> str | None:
    """None if the kernels can compute the node, else the reason."""
    known = KINDS.get(node.op)
    if known and node.attrs["kind"] not in known:
        return f"{node.op} kind {node.attrs['kind']}; need one of {', '.join(known)}"
    return all_constant(node)


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_compare``, ``ext_where`` or ``ext_cast``."""
    {"where": _where, "cast": _cast}.get(node.node.op, _compare)(node, builder)


def _compare(node: RegionNode, builder: PlanBuilder) -> None:
    descriptor = node.node
    loop = broadcast_loop(builder, node, {"a": node.role("lhs"), "b": node.role("rhs")})
    a, b, y = loop.operands["a"], loop.operands["b"], loop.y
    kind = f"EXT_{descriptor.attrs['kind'].upper()}"
    fields = {"kind": kind, "dtype": c_dtype(a.dtype), **loop.fields}
    shapes = ", ".join(str(list(value.shape)) for value in node.inputs)
    comment = f"{descriptor.composite}: {shapes} -> {list(y.shape)}"
    builder.call("ext_compare", [Struct("ext_compare_params", fields), a, b, y], y, comment)
    builder.place(node.output, y)


def _where(node: RegionNode, builder: PlanBuilder) -> None:
    descriptor = node.node
    roles = {"c": "condition", "a": "lhs", "b": "rhs"}
    operands = {name: node.role(role) for name, role in roles.items()}
    loop = broadcast_loop(builder, node, operands)
    (c, a, b), y = loop.operands.values(), loop.y
    fields = {"element_size": dtypes.of(descriptor.dtype).bytes, **loop.fields}
    shapes = ", ".join(str(list(value.shape)) for value in operands.values())
    comment = f"{descriptor.composite}: {shapes} -> {list(y.shape)}"
    builder.call("ext_where", [Struct("ext_where_params", fields), c, a, b, y], y, comment)
    builder.place(node.output, y)


def _cast(node: RegionNode, builder: PlanBuilder) -> None:
    x = builder.tensor(node.role("input"))
    if x.dtype == node.node.dtype:
        builder.place(node.output, x)
        return
    x = builder.compact(x)
    y = builder.space(x.shape, node.node.dtype, x.order())
    comment = f"{node.node.composite} {x.dtype} to {y.dtype}: {list(x.shape)}"
    arguments = [c_dtype(x.dtype), c_dtype(y.dtype), x.size, x, y]
    builder.call("ext_cast", arguments, y, comment)
    builder.place(node.output, y)


# ---------------------------------------------------------------- the records

_SHAPE: Shape = (4, 32)
_FLOATS = {role: (_SHAPE, REAL) for role in ("lhs", "rhs")}
_TRUTHS = {role: (_SHAPE, "bool") for role in ("lhs", "rhs")}


def _two_sided(op: str, operands: dict[str, tuple], kind: str) -> Operator:
    """A comparison, or a function of truth values."""
    return Operator(
        op,
        roles=("lhs", "rhs"),
        attributes={"kind": ", ".join(KINDS[op])},
        about="operands are repeated to the result, which is bool",
        layout=Layout.LOOP,
        elementwise=True,
        named_by=("op", "kind"),
        facts=Facts(
            names=("kind",),
            numbers=kind_number,
            told_by={"kind": ("kind",)},
            unfit=broadcast_operand,
            params="ext_compare_params",
        ),
        kernels=Kernels(lower, check_dtypes, supports),
        samples=lambda: [Sample("", sample_node(op, operands, _SHAPE, "bool", kind=kind))],
    )


def _where_samples() -> Iterator[Sample]:
    operands = {"condition": (_SHAPE, "bool"), **_FLOATS}
    yield Sample("", sample_node("where", operands, _SHAPE))


WHERE = Operator(
    "where",
    roles=("condition", "lhs", "rhs"),
    about="condition ? lhs : rhs; operands are repeated to the result",
    layout=Layout.LOOP,
    elementwise=True,
    facts=Facts(params="ext_where_params", unfit=broadcast_operand),
    kernels=Kernels(lower, check_dtypes, supports),
    samples=_where_samples,
)

CAST = Operator(
    "cast",
    roles=("input",),
    about="to the dtype of the result",
    layout=Layout.KEEP,
    elementwise=True,
    kernels=Kernels(lower, check_dtypes, supports),
    samples=lambda: [Sample("", sample_node("cast", {"input": (_SHAPE, "int64")}, _SHAPE))],
)

OPERATORS = (
    _two_sided("compare", _FLOATS, "less"),
    _two_sided("logical", _TRUTHS, "and"),
    WHERE,
    CAST,
)
