"""argreduce, cumsum, cumprod and topk: kernels that see x as [outer, reduce, inner] of memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from codegen_cc.dim import Dim, normal
from codegen_cc.dtypes import KERNEL_INDICES, SINGLE
from codegen_cc.node import Node, Result
from codegen_cc.operator import Kernels, Operator
from codegen_cc.operators.dtype_rules import c_dtype, one_of, only, operands_only
from codegen_cc.operators.normalisation import adjacent
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.operators.told import along_axis, flags, unless
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.region.graph import RegionNode

ARG_KINDS = ("argmax", "argmin")

#: What a node of ``topk`` gives: its results are these, or one of them.
VALUES, INDICES = TOPK_RESULTS = ("values", "indices")


def check_dtypes(node: Node) -> str | None:
    """float32; ``argreduce`` gives positions, which are int64; the others take integers too."""
    if node.op != "argreduce":
        same = (node.operand("input").dtype,)
        return only(node, (SINGLE, *KERNEL_INDICES)) or one_of("result", node.dtype, same)
    return operands_only(node, (SINGLE,)) or one_of("result", node.dtype, ("int64",))


def supports(node: Node) -> str | None:
    """None if the kernels can compute the node, else the reason."""
    if node.op == "argreduce" and node.attrs["kind"] not in ARG_KINDS:
        return f"argreduce kind {node.attrs['kind']}; need one of {', '.join(ARG_KINDS)}"
    extent = node.operand("input").shape[node.attrs["axis"]]
    if node.op == "argreduce" and extent == 0:
        return "axis of extent 0; need 1 element at least"
    return None


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_argreduce``, ``ext_cumsum``, ``ext_cumsum_integers`` or ``ext_cumprod``."""
    (_argreduce if node.node.op == "argreduce" else _running)(node, builder)


def _argreduce(node: RegionNode, builder: PlanBuilder) -> None:
    attrs, axis = node.node.attrs, node.node.attrs["axis"]
    x, outer, reduce, inner = adjacent(builder, builder.tensor(node.role("input")), [axis])
    kept = [a for a in x.order() if a != axis]
    order = (axis, *kept) if attrs["keepdims"] else tuple(a - (a > axis) for a in kept)
    y = builder.space(node.node.shape, node.node.dtype, order)
    comment = f"{node.node.composite} axis {axis}: {list(x.shape)} -> {list(y.shape)}"
    least = int(attrs["kind"] == "argmin")
    builder.call("ext_argreduce", [least, outer, reduce, inner, x, y], y, comment)
    builder.place(node.output, y)


def _running(node: RegionNode, builder: PlanBuilder) -> None:
    attrs = node.node.attrs
    x, outer, reduce, inner = adjacent(builder, builder.tensor(node.role("input")), [attrs["axis"]])
    y = builder.space(x.shape, node.node.dtype, x.order())
    flags = [int(attrs["exclusive"]), int(attrs["reverse"])]
    comment = f"{node.node.composite} axis {attrs['axis']}: {list(x.shape)}"
    function, first = "ext_cumsum", []
    if node.node.op == "cumprod":
        function, first = "ext_cumprod", [c_dtype(x.dtype)]
    elif x.dtype != SINGLE:
        function, first = "ext_cumsum_integers", [c_dtype(x.dtype)]
    builder.call(function, [*first, *flags, outer, reduce, inner, x, y], y, comment)
    builder.place(node.output, y)


def topk_results(node: Node) -> dict[str, Result]:
    """The results that a node of ``topk`` has, by name."""
    returned = node.attrs["ret_type"]
    names = TOPK_RESULTS if returned == "both" else (returned,)
    return dict(zip(names, node.results, strict=True))


def check_topk_dtypes(node: Node) -> str | None:
    """Values are float32, int32 or int64, as the operand is; indices int32 or int64."""
    allowed = {VALUES: (node.operand("input").dtype,), INDICES: KERNEL_INDICES}
    found = topk_results(node).items()
    reasons = (one_of(name, result.dtype, allowed[name]) for name, result in found)
    taken = operands_only(node, (SINGLE, *KERNEL_INDICES))
    return taken or next(filter(None, reasons), None)


def lower_topk(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_topk``, or ``ext_topk_integers``; the results lie as the operand does."""
    axis = node.node.attrs["axis"]
    x, outer, extent, inner = adjacent(builder, builder.tensor(node.role("input")), [axis])
    tensors = [builder.space(value.shape, value.dtype, x.order()) for value in node.outputs]
    results = dict(zip(topk_results(node.node), tensors, strict=True))
    values, indices = map(results.get, TOPK_RESULTS)
    fields: dict[str, object] = {
        "outer": outer,
        "extent": extent,
        "inner": inner,
        "k": node.node.shape[axis],
        "least": int(not node.node.attrs["largest"]),
        "index_dtype": c_dtype("int64" if indices is None else indices.dtype),
    }
    comment = f"{node.node.composite} axis {axis}: {list(x.shape)} -> {list(node.node.shape)}"
    arguments = [Struct("ext_topk_params", fields), x, values, indices]
    function = "ext_topk"
    if x.dtype != SINGLE:
        function, arguments = "ext_topk_integers", [c_dtype(x.dtype), *arguments]
    builder.call(function, arguments, tensors, comment)
    for value, tensor in zip(node.outputs, tensors, strict=True):
        builder.place(value, tensor)


def _left_by_topk(node: Node) -> tuple[Dim]:
    """How many elements of the axis are neither among the greatest nor the least ones."""
    axis = node.attrs["axis"]
    return (normal(node.operand("input").shape[axis] - node.shape[axis]),)


# ---------------------------------------------------------------- the records

_ROWS = {"input": ((4, 32), REAL)}


def _argreduce_samples() -> Iterator[Sample]:
    for kind in ARG_KINDS:
        attrs = {"kind": kind, "axis": 1, "keepdims": False}
        yield Sample(kind, sample_node("argreduce", _ROWS, (4,), "int64", **attrs))


ARGREDUCE = Operator(
    "argreduce",
    roles=("input",),
    attributes={"kind": ", ".join(ARG_KINDS), "axis": "one", "keepdims": "true or false"},
    about="the first position of the extreme value, int64",
    named_by=("kind",),
    filled=lambda node: (node.attrs["axis"],),
    facts=along_axis(
        "least",
        numbers=lambda node: {"least": int(node.attrs["kind"] == "argmin")},
        told_by={"kind": ("least",)},
    ),
    kernels=Kernels(lower, check_dtypes, supports),
    samples=_argreduce_samples,
)


_RUNNING_FLAGS = ("exclusive", "reverse")


def _running_results(op: str) -> Operator:
    """Sums or products of all elements up to each along an axis."""
    attrs = {"axis": 1, "exclusive": False, "reverse": False}
    return Operator(
        op,
        roles=("input",),
        attributes={"axis": "one", **dict.fromkeys(_RUNNING_FLAGS, "true or false")},
        facts=along_axis(
            *_RUNNING_FLAGS,
            numbers=lambda node: flags(node, *_RUNNING_FLAGS),
            told_by={flag: (flag,) for flag in _RUNNING_FLAGS},
            neutral={flag: unless(flag, 0) for flag in _RUNNING_FLAGS},
        ),
        kernels=Kernels(lower, check_dtypes, supports),
        samples=lambda: [Sample("", sample_node(op, _ROWS, (4, 32), **attrs))],
    )


CUMSUM, CUMPROD = (_running_results(op) for op in ("cumsum", "cumprod"))


def _topk_samples() -> Iterator[Sample]:
    for dtype, largest in (("int64", True), ("int64", False), ("int32", True)):
        attrs = {"axis": 1, "largest": largest, "ret_type": "both"}
        node = sample_node("topk", _ROWS, (4, 5), **attrs)
        variant = f"{'greatest' if largest else 'least'}, {dtype} indices"
        yield Sample(variant, replace(node, further=(Result((4, 5), dtype),)))


def _k_untold(node: Node, told: Collection[str], function: str) -> str | None:
    """The results' extent says how many elements are wanted."""
    k = node.shape[node.attrs["axis"]]
    return None if "k" in told else f"k is {k}, which {function} is not told"


TOPK = Operator(
    "topk",
    roles=("input",),
    attributes={"axis": "one", "largest": "true or false", "ret_type": "both, values, indices"},
    results=TOPK_RESULTS,
    about="the k greatest or least elements in order, k being the results' extent; equal ones by"
    " their index, NaN above every number",
    rests=_left_by_topk,
    facts=replace(
        along_axis(
            "k",
            "least",
            numbers=lambda node: {
                "k": node.shape[node.attrs["axis"]],
                "least": int(not node.attrs["largest"]),
            },
            told_by={"largest": ("least",), "ret_type": ()},
            neutral={"largest": unless("largest", True), "ret_type": unless("ret_type", "both")},
        ),
        unfit=_k_untold,
    ),
    kernels=Kernels(lower_topk, check_topk_dtypes),
    samples=_topk_samples,
)

OPERATORS = (ARGREDUCE, CUMSUM, CUMPROD, TOPK)
