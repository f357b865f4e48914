"""matmul on ``ext_matmul_packed`` (constant right side) and ``ext_matmul`` (variable one).

Row, column and batch strides are the kernel's own, so that permuted operands (attention heads) are
read where they lie.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from codegen_cc.dim import Dim, estimate, normal, product, same, symbol
from codegen_cc.dtypes import of as dtype_of
from codegen_cc.node import JOINED, Node
from codegen_cc.operator import Facts, Kernels, Layout, Narrow, Number, Operator
from codegen_cc.operators.bfloat16 import (
    BFLOAT16_PANELS,
    BFLOAT16X3_PANELS,
    in_bfloat16,
    in_parts,
    narrow,
    no_gain,
    short_name,
    storage_struct,
)
from codegen_cc.operators.block_weight import (
    BLOCK_SCALES,
    block_weight_dtypes,
    block_weight_struct,
    has_block_weight,
    rounds_data,
    unfit_block_weight,
)
from codegen_cc.operators.dtype_rules import c_dtype, only
from codegen_cc.operators.epilogue import PRODUCT_EPILOGUE, epilogue_struct, joined_role
from codegen_cc.operators.operands import all_constant
from codegen_cc.operators.packing import FLOAT32_PANELS, PanelFormat
from codegen_cc.operators.placement import Placement
from codegen_cc.operators.requantise import (
    INT8_PANELS,
    SCALES,
    data_zero_point,
    is_quantised,
    product_dtypes,
    requantise_struct,
    sample_scales,
    unfit_integers,
)
from codegen_cc.operators.sample import REAL, Sample, Shape, fused, sample_node, with_steps
from codegen_cc.operators.told import equal_shapes
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import Tensor
from codegen_cc.region.graph import RegionNode, Value

MAX_BATCH_AXES = 4

#: Integers that are multiplied as they are.
WHOLE = ("int32", "int64")


def supports(node: Node) -> str | None:
    """None if the kernels can compute the product, else the reason."""
    lhs, rhs = node.operand("lhs"), node.operand("rhs")
    if len(lhs.shape) < 2 or len(rhs.shape) < 2:
        return f"ranks {len(lhs.shape)} and {len(rhs.shape)}; need at least 2"
    for operand in (lhs, rhs):
        if operand.constant and 0 in operand.shape:
            return f"{operand.role} has shape {list(operand.shape)}; need an element at least"
    wide = sum(extent != 1 for extent in node.shape[:-2])
    if wide > MAX_BATCH_AXES:
        return f"{wide} batch axes; need at most {MAX_BATCH_AXES}"
    if is_quantised(node) and len(rhs.shape) != 2:
        return f"rhs {list(rhs.shape)} of integers; need one matrix"
    if is_quantised(node) and node.operand("factor") is not None:
        return "a factor of a product of integers; need it behind the product"
    if has_block_weight(node) and (reason := unfit_block_weight(node)) is not None:
        return reason
    if not has_block_weight(node) and (reason := _unequal(lhs.shape[-1], rhs.shape[-2])):
        return reason
    if _is_whole(node) and (node.epilogue or node.operand("factor") is not None):
        return f"steps behind a product of {node.dtype}; need them as operators"
    return all_constant(node) or unfit_integers(node, lhs.shape[-1])


def _unequal(a: Dim, b: Dim) -> str | None:
    """Why not to sum over that many elements, of which one number may depend on the call."""
    if same(a, b) or not (isinstance(a, int) or isinstance(b, int)):
        return None
    return f"sums over {a} and {b} elements; need equally many"


@dataclass
class _Axis:
    """One batch axis (or the rows): its extent and each tensor's stride along it."""

    extent: Dim
    a: Dim
    b: Dim
    y: Dim
    residual: Dim

    def follows(self, inner: _Axis) -> bool:
        """Whether this axis and the next inner one are one evenly spaced axis in every tensor."""
        return all(
            same(getattr(self, name), inner.extent * getattr(inner, name))
            for name in ("a", "b", "y", "residual")
        )


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call; leading axes that lie evenly in every tensor are folded into the rows."""
    if is_quantised(node.node):
        lower_integers(node, builder)
        return
    if _is_whole(node.node):
        lower_whole(node, builder)
        return
    if in_bfloat16(node.node):
        lower_bfloat16(node, builder)
        return
    if has_block_weight(node.node):
        lower_block_weight(node, builder)
        return
    panels, function = None, "ext_matmul"
    if node.role("rhs").data is not None:
        parts = in_parts(node.node)
        panels = _panels(node, builder, BFLOAT16X3_PANELS if parts else FLOAT32_PANELS)
        function = "ext_matmul_bf16x3" if parts else "ext_matmul_packed"
    placed = place_matmul(node, builder, panels)
    lhs, rhs = placed.inputs["lhs"], placed.inputs["rhs"]
    arguments = [placed.params, lhs, rhs, placed.epilogue, placed.output]
    placed.call(node, builder, function, arguments)


def lower_integers(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_qmatmul``."""
    panels = builder.constant(INT8_PANELS.pack(node.role("rhs").data[None]))
    placed = place_matmul(node, builder, (panels, ()))
    lhs = placed.inputs["lhs"]
    zero = data_zero_point(node, builder)
    numbers = [c_dtype(lhs.dtype), zero]
    arguments = [placed.params, *numbers, lhs, panels, placed.epilogue, placed.output]
    placed.call(node, builder, "ext_qmatmul", arguments)


def lower_whole(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_matmul_integers``."""
    placed = place_matmul(node, builder)
    lhs, rhs, y = placed.inputs["lhs"], placed.inputs["rhs"], placed.output
    arguments = [c_dtype(y.dtype), placed.params, lhs, rhs, y]
    placed.call(node, builder, "ext_matmul_integers", arguments)


def lower_bfloat16(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_matmul_bf16``."""
    placed = place_matmul(node, builder, _panels(node, builder, BFLOAT16_PANELS))
    lhs, rhs, y = placed.inputs["lhs"], placed.inputs["rhs"], placed.output
    residual = placed.epilogue.fields.get("residual") if placed.epilogue else None
    storage = storage_struct(lhs, residual, y)
    arguments = [placed.params, storage, lhs, rhs, placed.epilogue, y]
    placed.call(node, builder, "ext_matmul_bf16", arguments)


def lower_block_weight(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_matmul_block``."""
    weight = block_weight_struct(node, builder)
    placed = place_matmul(node, builder, (weight.fields["values"], ()))
    lhs = placed.inputs["lhs"]
    arguments = [placed.params, weight, lhs, placed.epilogue, placed.output]
    placed.call(node, builder, "ext_matmul_block", arguments)


def _is_whole(node: Node) -> bool:
    """Whether it is a product of wide integers, which stand for nothing but themselves."""
    return node.dtype in WHOLE and not is_quantised(node)


def dtypes(node: Node) -> str | None:
    """Of products of floats, of integers, or of both."""
    if _is_whole(node):
        return only(node, (node.dtype,))
    return block_weight_dtypes(node) if has_block_weight(node) else product_dtypes(node)


def algorithm(node: Node) -> str:
    """Products of integers, of bfloat16 and with weights of integers are told apart in reports."""
    if has_block_weight(node):
        bits = dtype_of(node.operand("rhs").dtype).bits
        return f"matmul, {bits}-bit weight" + (", int8 data" if rounds_data(node) else "")
    if node.compute:
        return f"matmul, {short_name(node)}"
    if _is_whole(node):
        return f"matmul, {node.dtype}"
    return "matmul, int8" if is_quantised(node) else "matmul"


def computes(node: Node) -> str | None:
    """None for products with a constant in bfloat16 or parts of it, else the reason.

    With a weight of 4 or 8 bits, for those with data of 8 bits.
    """
    if has_block_weight(node):
        if rounds_data(node):
            return None
        return "a weight of 4 or 8 bits; its products are float32, or int8 by int8-data"
    if _is_whole(node):
        return f"a product of {node.dtype}; need float32"
    if reason := no_gain(node):
        return reason
    return None if node.operand("rhs").constant else "rhs is computed; need a constant for bfloat16"


def place_matmul(
    node: RegionNode,
    builder: PlanBuilder,
    packed: tuple[Tensor, tuple[int, ...]] | None = None,
    plain: bool = False,
) -> Placement:
    """The operands where they lie, and the ``ext_matmul_params``.

    ``packed`` is the right operand in the kernel's own format and the strides of its batch axes; by
    default it is read as it is, a constant row-major. With ``plain``, operands are copied that BLAS
    could not read (neither rows nor columns contiguous, or entwined ones), and a residual whose
    order is not the result's.
    """
    shape = node.node.shape
    a = _matrix(builder, node.role("lhs"), plain)
    if is_quantised(node.node) and a.shape[-1] != 1 and a.strides[-1] != 1:
        a = builder.dense(a)
    n, k = shape[-1], a.shape[-1]
    if packed is None:
        b = _matrix(builder, node.role("rhs"), plain)
        pairs = zip(b.shape[:-2], b.strides[:-2], strict=True)
        b_strides = tuple(0 if extent == 1 else stride for extent, stride in pairs)
    else:
        b, b_strides = packed
    y = builder.space(shape, builder.stored_dtype(node.output), result_order(node, builder))
    residual, role = None, joined_role(node)
    if role is not None:
        residual = builder.tensor(node.role(role))
        if plain:
            residual = builder.dense(residual, y.order())
        elif n != 1 and residual.strides[-1] != 1:
            residual = builder.dense(residual)
    rows, batch = _folded(a, b_strides, y, residual)
    fields: dict[str, object] = {"m": rows.extent, "n": n, "k": k, "a_row": rows.a}
    fields["a_col"] = a.strides[-1] if k != 1 else 1
    if packed is None:
        fields |= {"b_row": b.strides[-2], "b_col": b.strides[-1]}
    fields["y_row"] = rows.y
    if batch:
        fields["batch_ndim"] = len(batch)
        fields["batch"] = [axis.extent for axis in batch]
        for name in ("a", "b", "y", *(["residual"] if residual is not None else [])):
            fields[f"{name}_batch"] = [getattr(axis, name) for axis in batch]
    if is_quantised(node.node):
        sums = node.role("rhs").data.sum(axis=0, dtype=np.int64)
        epilogue = requantise_struct(node, builder, sums, residual, rows.residual)
    else:
        epilogue = epilogue_struct(node, builder, residual, rows.residual)
    right = list(node.role("rhs").shape)
    comment = f"{node.node.composite}: {list(a.shape)} x {right} -> {list(shape)}"
    params = Struct("ext_matmul_params", fields)
    return Placement(params, {"lhs": a, "rhs": b}, epilogue, y, comment)


def _matrix(builder: PlanBuilder, value: Value, plain: bool) -> Tensor:
    """An operand, copied if it has to be one that BLAS could read and is not."""
    tensor = builder.tensor(value)
    sides = zip(tensor.shape[-2:], tensor.strides[-2:], strict=True)
    readable = any(extent == 1 or stride == 1 for extent, stride in sides) and _is_nested(tensor)
    return builder.dense(tensor) if plain and not readable else tensor


def _is_nested(tensor: Tensor) -> bool:
    """Whether each axis steps over all of the axes inside of it; rows of stride 0 do not."""
    pairs = zip(tensor.strides, tensor.shape, strict=True)
    wide = sorted((estimate(stride), estimate(e)) for stride, e in pairs if e != 1)
    reach = 1
    for stride, extent in wide:
        if stride < reach:
            return False
        reach = stride * extent
    return True


def _panels(
    node: RegionNode, builder: PlanBuilder, format: PanelFormat
) -> tuple[Tensor, tuple[int, ...]]:
    """The constant right operand in panels, and the strides of its own batch axes."""
    value = node.role("rhs")
    matrices = value.data.reshape(-1, *value.shape[-2:])
    panels = format.pack(matrices)
    step = panels[0].size if len(panels) else 0
    batch_shape = value.shape[:-2]
    strides = tuple(
        0 if extent == 1 else step * prod(batch_shape[axis + 1 :])
        for axis, extent in enumerate(batch_shape)
    )
    return builder.constant(panels), strides


def _folded(
    a: Tensor, b_strides: tuple[int, ...], y: Tensor, residual: Tensor | None
) -> tuple[_Axis, list[_Axis]]:
    """The rows and the batch axes, those that lie evenly in every tensor folded together."""
    rows = _Axis(
        y.shape[-2], a.strides[-2], 0, y.strides[-2], residual.strides[-2] if residual else 0
    )
    batch = _batch_axes(a, b_strides, y, residual, y.shape)
    if rows.extent == 1 and batch:  # one row each: the innermost batch axis may serve as rows
        rows.a, rows.y, rows.residual = batch[-1].a, batch[-1].y, batch[-1].residual
    while batch and batch[-1].follows(rows):
        inner = batch.pop()
        rows = _Axis(normal(inner.extent * rows.extent), rows.a, 0, rows.y, rows.residual)
    merged: list[_Axis] = []
    for axis in reversed(batch):
        if merged and axis.follows(merged[0]):
            merged[0].extent = normal(merged[0].extent * axis.extent)
        else:
            merged.insert(0, axis)
    return rows, merged


def _batch_axes(
    a: Tensor,
    b_strides: tuple[int, ...],
    y: Tensor,
    residual: Tensor | None,
    shape: tuple[int, ...],
) -> list[_Axis]:
    """Batch axes wider than 1; an operand that lacks or repeats an axis has stride 0 there."""
    axes = []
    b_shape_missing = len(shape) - 2 - len(b_strides)
    a_missing = len(shape) - len(a.shape)
    for axis, extent in enumerate(shape[:-2]):
        if extent == 1:
            continue
        a_axis, b_axis = axis - a_missing, axis - b_shape_missing
        a_stride = a.strides[a_axis] if a_axis >= 0 and a.shape[a_axis] != 1 else 0
        b_stride = b_strides[b_axis] if b_axis >= 0 else 0
        residual_stride = residual.strides[axis] if residual else 0
        axes.append(_Axis(extent, a_stride, b_stride, y.strides[axis], residual_stride))
    return axes


def result_order(node: RegionNode, builder: PlanBuilder) -> tuple[int, ...] | None:
    """The order in which a following permute is dense, if rows stay innermost.

    Attention writes its heads side by side this way: the permute and the reshape after it then
    only change the view.
    """
    consumers = builder.consumers.get(node.output, [])
    if len(consumers) == 1 and consumers[0].node.op == "permute":
        axes = tuple(consumers[0].node.attrs["axes"])
        if axes[-1] == len(axes) - 1:
            return axes
    return None


# ---------------------------------------------------------------- the record


def matmul_numbers(node: Node) -> dict[str, Number]:
    """m, n, k and batch; leading axes of lhs are rows where rhs is one matrix."""
    lhs, rhs = node.operand("lhs").shape, node.operand("rhs").shape
    one = product(rhs[:-2]) == 1 or has_block_weight(node)
    m, batch = (product(lhs[:-1]), 1) if one else (lhs[-2], product(node.shape[:-2]))
    return {"m": m, "n": node.shape[-1], "k": lhs[-1], "batch": batch}


def _macs(node: Node) -> Dim:
    return product(node.shape) * node.operand("lhs").shape[-1]


def _unfit(node: Node, told: Collection[str], function: str) -> str | None:
    lhs, rhs = node.operand("lhs").shape, node.operand("rhs").shape
    if len(lhs) < 2 or len(rhs) < 2:
        return f"ranks {len(lhs)} and {len(rhs)}; need at least 2"
    if same(product(rhs[:-2]), 1):
        return None
    if "batch" not in told:
        return f"rhs {list(rhs)} has batch axes; {function} is not told 'batch'"
    if not equal_shapes(lhs[:-2], rhs[:-2]):
        return f"lhs {list(lhs)} and rhs {list(rhs)}; need equal batch axes"
    return None


def _samples() -> Iterator[Sample]:
    def node(lhs: Shape, rhs: Shape, out: Shape, kind: str = "constant") -> Node:
        return sample_node("matmul", {"lhs": (lhs, REAL), "rhs": (rhs, kind)}, out)

    plain = node((32, 64), (64, 48), (32, 48))
    yield Sample("", plain)
    yield Sample("computed right side", node((32, 64), (64, 48), (32, 48), REAL))
    yield Sample("lhs of rank 3", node((2, 32, 64), (64, 48), (2, 32, 48)))
    yield Sample("batched", node((2, 32, 64), (2, 64, 48), (2, 32, 48), REAL))
    wide = node((1, 32, 64), (2, 64, 48), (2, 32, 48), REAL)
    yield Sample("broadcast batches", wide)
    n = symbol("n")
    yield Sample("symbolic rows", node((n, 64), (64, 48), (n, 48)))
    yield from fused(plain)
    yield Sample("factor", with_steps(plain, "bias", "factor"))
    operands = {"lhs": ((32, 64), "uint8"), "rhs": ((64, 48), "constant int8")}
    operands |= sample_scales("x") | {"w_scale": ((48,), "constant float32")}
    yield Sample("int8", sample_node("matmul", operands, (32, 48)))
    numbers = {"lhs": ((32, 64), "int64"), "rhs": ((64, 48), "int64")}
    yield Sample("int64", sample_node("matmul", numbers, (32, 48), "int64"))
    operands = {"lhs": ((32, 64), REAL), "rhs": ((2, 32, 48), "constant uint4")}
    operands |= {role: ((2, 1, 48), "constant float32") for role in BLOCK_SCALES}
    yield Sample("weight of 4 bits in blocks", sample_node("matmul", operands, (32, 48)))


MATMUL = Operator(
    "matmul",
    roles=("lhs", "rhs", *SCALES, "w_zero_point"),
    optional=(*SCALES, "w_zero_point"),
    about="batch axes broadcast; of int32 or int64, or, with their scales, of 8-bit integers or"
    " with a weight of 4 or 8 bits",
    macs=_macs,
    layout=Layout.FREE,
    epilogue=PRODUCT_EPILOGUE,
    facts=Facts(
        names=("m", "n", "k", "batch"),
        numbers=matmul_numbers,
        unfit=_unfit,
        params="ext_matmul_params",
        place=place_matmul,
    ),
    kernels=Kernels(
        lower,
        dtypes,
        supports,
        algorithm,
        computes=computes,
        narrow=lambda node: narrow("lhs", *JOINED) if in_bfloat16(node) else Narrow(),
    ),
    samples=_samples,
)

OPERATORS = (MATMUL,)
