"""attention on ``ext_attention`` or, in bfloat16, ``ext_attention_bf16``.

Both read and write heads where they lie.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from codegen_cc.dim import Dim, is_static, product, same
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Layout, Narrow, Number, Operator
from codegen_cc.operators.bfloat16 import in_bfloat16, narrow, short_name
from codegen_cc.operators.dtype_rules import as_stored, c_dtype, only_single
from codegen_cc.operators.matmul import result_order
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.operators.told import unless
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import Pending, Tensor
from codegen_cc.region.graph import RegionNode, Value

#: ``guarded``, an ``ext_guard``: rows of weights that are 0 are none, those that have a NaN, those
#: of exponents that are all -inf, as where a mask leaves no key.
GUARD_NONE, GUARD_NAN, GUARD_KEYS = range(3)


def supports(node: Node) -> str | None:
    """None if the kernel can compute the node, else the reason.

    The kernel divides by the sum of the exponentials last, after the product with the values, which
    may overflow where that of the weights does not: not for an exact node.
    """
    if node.exact:
        return "attention in one kernel is not exact; its operators are computed one by one"
    query, key, value = (node.operand(role) for role in ("query", "key", "value"))
    for operand in (query, key, value):
        if len(operand.shape) != 4:
            return f"{operand.role} has rank {len(operand.shape)}; need 4"
    for operand in (key, value):
        for extent, wanted in zip(operand.shape[:2], query.shape[:2], strict=True):
            if extent != 1 and not same(extent, wanted):
                return f"{operand.role} has shape {list(operand.shape)}; need the query's batch"
    if not same(key.shape[3], query.shape[3]) or not same(key.shape[2], value.shape[2]):
        return f"key has shape {list(key.shape)}; does not fit query and value"
    mask = node.operand("mask")
    if mask is not None:
        scores = (*query.shape[:3], key.shape[2])
        pairs = zip(mask.shape[::-1], scores[::-1], strict=False)
        if len(mask.shape) > 4 or any(m != 1 and not same(m, s) for m, s in pairs):
            return f"mask has shape {list(mask.shape)}; need one that broadcasts to {list(scores)}"
    return None


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call; an operand is copied only if its rows are not contiguous."""
    descriptor = node.node
    q = _rows(builder, builder.tensor(node.role("query")))
    group, k, v = _shared(node, builder)
    y = builder.space(
        descriptor.shape, builder.stored_dtype(node.output), result_order(node, builder)
    )
    batch, heads, queries, _ = q.shape
    fields: dict[str, object] = {**_sizes(descriptor, q.shape, k.shape[2], v.shape[3])}
    if group > 1:
        fields["group"] = group
    for name, tensor, count in (("q", q, 1), ("k", k, group), ("v", v, group), ("y", y, 1)):
        wide = tensor.broadcast_to((batch, heads // count, *tensor.shape[2:]))
        fields[f"{name}_strides"] = list(wide.strides[:3])
    mask = None
    if node.role("mask") is not None:
        mask = _rows(builder, builder.tensor(node.role("mask")))
        wide = mask.broadcast_to((batch, heads, queries, k.shape[2]))
        fields["mask_strides"] = [*wide.strides[:3], wide.strides[3] if k.shape[2] != 1 else 0]
    comment = f"{descriptor.composite}: {list(q.shape)}, {list(k.shape)} -> {list(y.shape)}"
    arguments = [Struct("ext_attention_params", fields), q, k, v, mask, y]
    function = "ext_attention"
    if in_bfloat16(descriptor):
        stored = {name: c_dtype(x.dtype) for name, x in (("q", q), ("k", k), ("v", v), ("y", y))}
        arguments.insert(1, Struct("ext_attention_storage", stored))
        function = "ext_attention_bf16"
    builder.call(function, arguments, y, comment)
    builder.place(node.output, y)


def _shared(node: RegionNode, builder: PlanBuilder) -> tuple[int, Tensor, Tensor]:
    """How many heads share keys and values, and these; a copy for each of them is not made."""
    values = [node.role(role) for role in ("key", "value")]
    found = [_before_repeating(builder.pending(value), value) for value in values]
    if None not in found and found[0][0] == found[1][0]:
        return (found[0][0], *(_rows(builder, tensor) for _, tensor in found))
    return (1, *(_rows(builder, builder.tensor(value)) for value in values))


def _before_repeating(pending: Pending | None, value: Value) -> tuple[int, Tensor] | None:
    """[batch, groups, rows, columns] of which each group was repeated, and how often.

    That is a view [batch, groups, times, rows, columns] still to be copied, with stride 0.
    """
    if pending is None or len(pending.source.shape) != 5 or pending.source.strides[2] != 0:
        return None
    batch, groups, times, rows, columns = pending.source.shape
    shape = (batch, groups * times, rows, columns)
    if not is_static([groups, times]) or not all(map(same, shape, value.shape)):
        return None
    strides = pending.source.strides
    kept = replace(
        pending.source,
        shape=(batch, groups, rows, columns),
        strides=(*strides[:2], *strides[3:]),
    )
    return times, kept


def _computes(node: Node) -> str | None:
    """None for bfloat16, else the reason."""
    return None if in_bfloat16(node) else as_stored(node)


def _narrow(node: Node) -> Narrow:
    return narrow("query", "key", "value") if in_bfloat16(node) else Narrow()


def _rows(builder: PlanBuilder, tensor: Tensor) -> Tensor:
    """The tensor with a contiguous last axis."""
    if not tensor.shape or tensor.shape[-1] == 1 or tensor.strides[-1] == 1:
        return tensor
    return builder.dense(tensor)


# ---------------------------------------------------------------- the record


def _macs(node: Node) -> Dim:
    """Scores of every query and key, and as many shares of values."""
    query, keys = node.operand("query"), node.operand("key").shape[2]
    return keys * (product(query.shape) + product(node.shape))


def _numbers(node: Node) -> dict[str, Number]:
    return _sizes(node, node.operand("query").shape, *node.operand("value").shape[2:])


def _sizes(node: Node, query: tuple[Dim, ...], keys: Dim, width: Dim) -> dict[str, Number]:
    batch, heads, queries, depth = query
    numbers = {"batch": batch, "heads": heads, "queries": queries, "keys": keys}
    numbers |= {"depth": depth, "width": width, "scale": float(node.attrs["scale"])}
    return numbers | {"guarded": int(node.attrs.get("guarded", GUARD_NONE))}


def _unfit(node: Node, told: Collection[str], function: str) -> str | None:
    """Which operand is repeated along an axis whose extent the kernel is not told."""
    del function
    query, key, value = (node.operand(role).shape for role in ("query", "key", "value"))
    mask = node.operand("mask")
    wanted = {"key": (*query[:2], *key[2:]), "value": (*query[:2], *value[2:])}
    if mask is not None:
        wanted["mask"] = (*query[:3], key[2])
    for role, whole in wanted.items():
        shape = node.operand(role).shape
        for axis, (extent, full) in enumerate(zip(shape, whole, strict=True)):
            repeated = same(extent, 1) and f"{role}.{axis}" in told
            if not same(extent, full) and not repeated:
                return (
                    f"{role} {list(shape)} is broadcast; need {list(whole)}, or to tell the kernel"
                    f" {role}.{axis}"
                )
    return None


def _samples() -> Iterator[Sample]:
    heads = {role: ((1, 2, 16, 8), REAL) for role in ("query", "key", "value")}
    yield Sample("", sample_node("attention", heads, (1, 2, 16, 8), scale=0.5))
    masked = heads | {"mask": ((1, 1, 1, 16), REAL)}
    yield Sample("masked", sample_node("attention", masked, (1, 2, 16, 8), scale=0.5))
    guarded = sample_node("attention", masked, (1, 2, 16, 8), scale=0.5, guarded=GUARD_NAN)
    yield Sample("masked, guarded", guarded)


ATTENTION = Operator(
    "attention",
    roles=("query", "key", "value", "mask"),
    optional=("mask",),
    attributes={"scale": "a number", "guarded": "0, 1 or 2"},
    about="softmax(scale query key^T + mask) value over [batch, heads, rows, columns]; guarded:"
    " 0 behind the softmax for NaN (1), or for rows of which all it is of is -inf (2)",
    macs=_macs,
    layout=Layout.FREE,
    facts=Facts(
        ranks={"query": 4, "key": 4, "value": 4},
        names=("batch", "heads", "queries", "keys", "depth", "width", "scale", "guarded"),
        numbers=_numbers,
        told_by={"scale": ("scale",), "guarded": ("guarded",)},
        neutral={"guarded": unless("guarded", GUARD_NONE)},
        unfit=_unfit,
    ),
    kernels=Kernels(
        lower,
        only_single,
        supports,
        algorithm=lambda node: f"attention, {short_name(node)}" if node.compute else "attention",
        computes=_computes,
        narrow=_narrow,
    ),
    samples=_samples,
)

OPERATORS = (ATTENTION,)
