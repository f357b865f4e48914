"""take: rows of a table, or elements along any axis; lookup: bytes in a table of 256.

gather and scatter read or write what indices point at: an element each (``gather_elements``,
``scatter_elements``), or a run for some coordinates (``gather_nd``, ``scatter_nd``).
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen_cc import dtypes
from codegen_cc.dim import Dim, at_most, product, same
from codegen_cc.dtypes import KERNEL_BYTES, KERNEL_DTYPES, KERNEL_INDICES, SINGLE
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Layout, Number, Operator
from codegen_cc.operators.dtype_rules import c_dtype, one_of
from codegen_cc.operators.movement import scattered_state
from codegen_cc.operators.operands import all_constant
from codegen_cc.operators.sample import REAL, Sample, Shape, sample_node
from codegen_cc.operators.told import unless
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import Tensor
from codegen_cc.region.graph import RegionNode


def check_dtypes(node: Node) -> str | None:
    """Values of any dtype, which the result has too; integers as indices."""
    values, indices = node.operand("input").dtype, node.operand("indices").dtype
    reason = one_of("input", values, KERNEL_DTYPES) or one_of("result", node.dtype, (values,))
    return reason or one_of("indices", indices, KERNEL_INDICES)


def supports(node: Node) -> str | None:
    """None if the kernel can compute the node, else the reason."""
    return all_constant(node)


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_take``, which checks every index at run time."""
    axis = node.node.attrs["axis"]
    x = builder.dense(builder.tensor(node.role("input")))
    indices = builder.dense(builder.tensor(node.role("indices")))
    y = builder.space(node.node.shape, x.dtype)
    fields: dict[str, object] = {**_sizes(x.shape, axis, indices.size)}
    fields["element_size"] = dtypes.of(x.dtype).bytes
    fields["index_dtype"] = c_dtype(indices.dtype)
    comment = f"{node.node.composite} axis {axis}: {list(x.shape)} at {list(indices.shape)}"
    builder.call("ext_take", [Struct("ext_take_params", fields), x, indices, y], y, comment)
    builder.place(node.output, y)


def _numbers(node: Node) -> dict[str, Number]:
    count = product(node.operand("indices").shape)
    return _sizes(node.operand("input").shape, node.attrs["axis"], count)


def _sizes(shape: tuple[Dim, ...], axis: int, count: Dim) -> dict[str, Number]:
    outer, inner = product(shape[:axis]), product(shape[axis + 1 :])
    return {"outer": outer, "extent": shape[axis], "inner": inner, "count": count}


def _samples() -> Iterator[Sample]:
    for dtype in ("int32", "int64"):
        operands = {"input": ((4, 32), REAL), "indices": ((3,), dtype)}
        yield Sample(f"{dtype} indices", sample_node("take", operands, (3, 32), axis=0))


TAKE = Operator(
    "take",
    roles=("input", "indices"),
    attributes={"axis": "one"},
    facts=Facts(
        names=("outer", "extent", "inner", "count"),
        numbers=_numbers,
        told_by={"axis": ("outer inner",)},
    ),
    kernels=Kernels(lower, check_dtypes, supports),
    samples=_samples,
)


# ---------------------------------------------------------------- functions of bytes


def _lookup_dtypes(node: Node) -> str | None:
    """Bytes, a table of bytes, whose dtype the result has."""
    table = node.operand("table").dtype
    reason = one_of("input", node.operand("input").dtype, KERNEL_BYTES)
    return reason or one_of("table", table, KERNEL_BYTES) or one_of("result", node.dtype, (table,))


def _lookup_unfit(node: Node) -> str | None:
    table = node.operand("table")
    if table.shape != (_ENTRIES,) or not table.constant:
        return f"table has shape {list(table.shape)}; need a constant of {_ENTRIES} elements"
    return None


def _lower_lookup(node: RegionNode, builder: PlanBuilder) -> None:
    x = builder.compact(builder.tensor(node.role("input")))
    y = builder.space(x.shape, node.node.dtype, x.walk())
    table = builder.constant(node.role("table").data)
    comment = f"{node.node.composite}: {list(x.shape)}"
    builder.call("ext_lookup", [x.size, x, table, y], y, comment)
    builder.place(node.output, y)


def _lookup_samples() -> Iterator[Sample]:
    for dtype in KERNEL_BYTES:
        operands = {"input": ((4, 32), dtype), "table": ((_ENTRIES,), f"constant {dtype}")}
        yield Sample(dtype, sample_node("lookup", operands, (4, 32), dtype))


_ENTRIES = 256

LOOKUP = Operator(
    "lookup",
    roles=("input", "table"),
    about="table[input]; negative numbers count from the end of the table",
    layout=Layout.KEEP,
    kernels=Kernels(_lower_lookup, _lookup_dtypes, _lookup_unfit),
    samples=_lookup_samples,
)

# ---------------------------------------------------------------- elements, runs by coordinates


def _indexed_dtypes(node: Node) -> str | None:
    """Values of any dtype, which updates and result have too; integers as indices.

    Sums, products and extremes are of float32, int32 or int64.
    """
    source, indices = node.operands[:2]
    combines = node.attrs.get("reduction", UPDATE) != UPDATE
    reason = one_of(source.role, source.dtype, _COMBINED if combines else KERNEL_DTYPES)
    for operand in node.operands[2:]:
        reason = reason or one_of(operand.role, operand.dtype, (source.dtype,))
    reason = reason or one_of("result", node.dtype, (source.dtype,))
    return reason or one_of("indices", indices.dtype, KERNEL_INDICES)


def _indexed_unfit(node: Node) -> str | None:
    """None if each index has a place in memory whatever it is, else the reason."""
    source, indices = (operand.shape for operand in node.operands[:2])
    reduction = node.attrs.get("reduction", UPDATE)
    if reduction not in REDUCTIONS:
        return f"reduction {reduction!r}; need one of {', '.join(REDUCTIONS)}"
    told = f"indices {list(indices)} of {node.operands[0].role} {list(source)}"
    if "axis" in node.attrs:
        others = [a for a in range(len(source)) if a != node.attrs["axis"]]
        if not all(at_most(indices[a], source[a]) for a in others):
            return f"{told}; need none longer but along axis {node.attrs['axis']}"
        moved = indices
    else:
        first, count = node.attrs.get("batch_dims", 0), indices[-1]
        if not isinstance(count, int) or not 0 < count <= len(source) - first:
            return f"{told}; need 1 to {len(source) - first} coordinates, a known number"
        if not all(map(same, indices[:first], source)):
            return f"{told}; need the same first extents"
        moved = (*indices[:-1], *source[first + count :])
    found = node.shape if len(node.operands) < 3 else node.operand("updates").shape
    if len(found) != len(moved) or not all(map(same, found, moved)):
        return f"{told} for {list(found)}; need {list(moved)}"
    return all_constant(node)


def _lower_gather(node: RegionNode, builder: PlanBuilder) -> None:
    x = builder.tensor(node.role("input"))
    x = x if "axis" in node.node.attrs else builder.dense(x)
    indices = builder.dense(builder.tensor(node.role("indices")))
    y = builder.space(node.node.shape, x.dtype)
    comment = f"{node.node.composite}: {list(x.shape)} at {list(indices.shape)}"
    builder.call("ext_gather", [_indexed_params(node, x, indices), x, indices, y], y, comment)
    builder.place(node.output, y)


def _lower_scatter(node: RegionNode, builder: PlanBuilder) -> None:
    roles = ("data", "indices", "updates")
    data, indices, updates = (builder.dense(builder.tensor(node.role(role))) for role in roles)
    kept = scattered_state(builder.region, node) is not None
    y = data if kept else builder.space(data.shape, data.dtype)
    # What is read while elements are stored cannot be what they are stored in.
    apart = data.buffer not in (indices.buffer, updates.buffer)
    kind = f"EXT_SCATTER_{node.node.attrs['reduction'].upper()}"
    arguments = [_indexed_params(node, data, indices), kind, data, indices, updates, y]
    comment = f"{node.node.composite}: {list(data.shape)} at {list(indices.shape)}"
    builder.call("ext_scatter", arguments, y, comment, over=[data] if apart and not kept else [])
    builder.place(node.output, y)


def _indexed_params(node: RegionNode, x: Tensor, indices: Tensor) -> Struct:
    """Where the elements of ``x`` are that indices point at."""
    attrs, rank = node.node.attrs, len(x.shape)
    if "axis" in attrs:
        items, pointed = indices.shape, [attrs["axis"]]
        own = [0 if a in pointed else x.strides[a] for a in range(rank)]
        run: Dim = 1
    else:
        first, items = attrs.get("batch_dims", 0), indices.shape[:-1]
        past = first + indices.shape[-1]
        pointed, run = list(range(first, past)), product(x.shape[past:])
        own = [*x.strides[:first], *[0] * (len(items) - first)]
    fields: dict[str, object] = {
        "ndim": max(len(items), 1),
        "shape": list(items) or [1],
        "strides": own or [0],
        "coordinates": len(pointed),
        "extents": [x.shape[axis] for axis in pointed],
        "steps": [x.strides[axis] for axis in pointed],
        "run": run,
        "elements": x.size,
        "dtype": c_dtype(x.dtype),
        "index_dtype": c_dtype(indices.dtype),
    }
    return Struct("ext_indexed_params", fields)


def _indexed(
    op: str, about: str, shapes: dict[str, Shape], shape: Shape, **attrs: object
) -> Operator:
    """A gather, or with updates a scatter, and what a sample node of it has."""
    scatters = "updates" in shapes
    meanings = {"axis": "one", "batch_dims": "first axes that items share with the input"}
    meanings["reduction"] = ", ".join(REDUCTIONS)

    def samples() -> Iterator[Sample]:
        operands = {role: (s, "int64" if role == "indices" else REAL) for role, s in shapes.items()}
        yield Sample("", sample_node(op, operands, shape, **attrs))

    return Operator(
        op,
        roles=tuple(shapes),
        attributes={name: meanings[name] for name in attrs},
        about=about,
        facts=Facts(
            told_by=dict.fromkeys(attrs, ()),
            neutral={
                "reduction": unless("reduction", UPDATE),
                "batch_dims": unless("batch_dims", 0),
            },
        ),
        kernels=Kernels(
            _lower_scatter if scatters else _lower_gather, _indexed_dtypes, _indexed_unfit
        ),
        samples=samples,
    )


#: How updates meet what is there.
UPDATE = "update"
REDUCTIONS = (UPDATE, "add", "mul", "max", "min")

#: What updates are added to, multiplied by and compared with.
_COMBINED = (SINGLE, *KERNEL_INDICES)

_TABLE: Shape = (4, 32)

INDEXED = (
    _indexed(
        "gather_elements",
        "an element for each index, whose own place says where it is along the other axes",
        {"input": _TABLE, "indices": (4, 8)},
        (4, 8),
        axis=1,
    ),
    _indexed(
        "gather_nd",
        "what the coordinates along the last axis of indices point at",
        {"input": _TABLE, "indices": (3, 1)},
        (3, 32),
        batch_dims=0,
    ),
    _indexed(
        "scatter_elements",
        "data with an update for each index, whose own place says where along the other axes",
        {"data": _TABLE, "indices": (4, 8), "updates": (4, 8)},
        _TABLE,
        axis=1,
        reduction=UPDATE,
    ),
    _indexed(
        "scatter_nd",
        "data with updates where the coordinates along the last axis of indices point",
        {"data": _TABLE, "indices": (3, 1), "updates": (3, 32)},
        _TABLE,
        reduction=UPDATE,
    ),
)

OPERATORS = (TAKE, LOOKUP, *INDEXED)
