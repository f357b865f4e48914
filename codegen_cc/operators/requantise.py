"""Nodes on 8-bit integers that stand for other numbers, and what follows the sums of products.

    v = before(sum scale + bias)
    v = (round(v / inner_scale)) inner_scale, where a step ``requantise`` is not the last one
    v = after(v + (residual - residual_zero_point) residual_scale)
    y = v, or round(v / y_scale) + y_zero_point

The scales are operands of the node: of a product ``x_scale`` and ``x_zero_point`` of the data and
``w_scale`` of the weight (one, or one for each channel), of a binary function those of ``lhs`` and
``rhs``; ``y_scale`` and ``y_zero_point`` are those of the last step ``requantise``, ``inner_scale``
and ``inner_zero_point`` those of one before it.  The first two may be computed, as in networks that
are quantised dynamically; the others are constants.
Sums are exact; the rest is computed in float32.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from codegen_cc.dim import Dim, is_static, product, same
from codegen_cc.dtypes import KERNEL_BYTES, SINGLE
from codegen_cc.node import Node
from codegen_cc.operators.dtype_rules import c_dtype, one_of, only_single
from codegen_cc.operators.epilogue import activation_struct
from codegen_cc.operators.packing import PanelFormat, pad_channels
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Element, Struct
from codegen_cc.plan.tensors import Tensor
from codegen_cc.region.graph import RegionNode

#: The step of an epilogue that makes 8-bit integers of the result.
REQUANTISE = "requantise"

#: Operands that say what integers stand for, of products and of binary functions.
OUTPUT_SCALES = ("y_scale", "y_zero_point")
DATA_SCALES = ("x_scale", "x_zero_point")
INPUT_SCALES = (*DATA_SCALES, "w_scale")
INNER_SCALES = ("inner_scale", "inner_zero_point")
RESIDUAL_SCALES = ("residual_scale", "residual_zero_point")
SCALES = (*INPUT_SCALES, *INNER_SCALES, *RESIDUAL_SCALES, *OUTPUT_SCALES)
BINARY_SCALES = (
    *("lhs_scale", "lhs_zero_point", "rhs_scale", "rhs_zero_point"),
    *OUTPUT_SCALES,
)

#: What the kernels for 8-bit integers read: four products at a time.
INT8_PANELS = PanelFormat("int8", 4)

#: ``EXT_QUANTISED_TERMS``: the sum of so many products of 8-bit integers always fits 32 bits.
MOST_PRODUCTS = 65536


def is_quantised(node: Node) -> bool:
    """Whether a node computes on integers that stand for other numbers."""
    return any(node.operand(role) is not None for role in ("x_scale", "lhs_scale"))


def product_dtypes(node: Node) -> str | None:
    """float32, or 8-bit data and an int8 weight with float32 scales."""
    if not is_quantised(node):
        return only_single(node)
    data, weight = node.operands[:2]
    reason = one_of(weight.role, weight.dtype, ("int8",))
    return reason or quantised_dtypes(node, (data.role,), (weight.role,))


def quantised_dtypes(
    node: Node, integers: tuple[str, ...], others: tuple[str, ...] = ()
) -> str | None:
    """Why a quantised node has other dtypes than its kernel, or None.

    ``integers`` are the roles of 8-bit operands, ``others`` those that are judged elsewhere.
    """
    zero_points = (role for role in (*SCALES, *BINARY_SCALES) if role.endswith("zero_point"))
    bytes_ = (*integers, "residual", *zero_points)
    for operand in node.operands:
        if operand.role in others:
            continue
        wanted = KERNEL_BYTES if operand.role in bytes_ else (SINGLE,)
        if (reason := one_of(operand.role, operand.dtype, wanted)) is not None:
            return reason
    requantised = node.operand("y_scale") is not None
    return one_of("result", node.dtype, KERNEL_BYTES if requantised else (SINGLE,))


def computed_scale(node: Node) -> str | None:
    """Why a scale or zero point that has to be known when compiling is not, or None.

    Those of a product's data may be computed, if they are single numbers.
    """
    for role in (*SCALES, *BINARY_SCALES):
        operand = node.operand(role)
        if operand is None or operand.constant:
            continue
        if role not in DATA_SCALES:
            return f"{role} is computed; need a constant"
        if not same(product(operand.shape), 1):
            return f"{role} has shape {list(operand.shape)}; need one element"
    return None


def unfit_integers(node: Node, products: Dim) -> str | None:
    """Why the integers of a quantised product cannot be summed up, or None.

    ``products`` is how many of them an element of the result is the sum of.
    """
    if not is_quantised(node):
        return None
    if node.operand("residual") is not None and node.operand("inner_scale") is None:
        return "a residual after sums of integers; need them requantised before"
    if is_static([products]) and products > MOST_PRODUCTS:
        return f"sums of {products} products of integers; need at most {MOST_PRODUCTS}"
    return computed_scale(node)


def sample_scales(*tensors: str) -> dict[str, tuple]:
    """Operands of a sample node: scale and zero point of tensors that are uint8."""
    kinds = {"scale": "constant float32", "zero_point": "constant uint8"}
    return {f"{name}_{what}": ((), kind) for name in tensors for what, kind in kinds.items()}


def zero_point(node: RegionNode, role: str) -> int:
    """The zero point of the tensor that a role begins with: ``x``, ``y``, ``lhs``."""
    return int(node.role(f"{role}_zero_point").data.item())


def scale_fields(node: RegionNode, names: Mapping[str, str]) -> dict[str, object]:
    """``<field>_scale`` and ``<field>_zero`` from the operands of a role, where there are any."""
    fields: dict[str, object] = {}
    for role, name in names.items():
        if node.role(f"{role}_scale") is not None:
            fields[f"{name}_scale"] = float(node.role(f"{role}_scale").data.item())
            fields[f"{name}_zero"] = zero_point(node, role)
    return fields


def data_zero_point(node: RegionNode, builder: PlanBuilder) -> int | Element:
    """The zero point of a product's data, as an argument of a call."""
    value = node.role("x_zero_point")
    known = value.data is not None
    return zero_point(node, "x") if known else Element(builder.dense(builder.tensor(value)))


def _factors(node: RegionNode, builder: PlanBuilder, shape: tuple[int, ...]) -> Tensor:
    """The scale of the data times those of the weight, padded; computed where the former is."""
    data, weight = node.role("x_scale"), node.role("w_scale").data.reshape(-1)
    if data.data is not None:
        factors = np.broadcast_to(data.data.reshape(-1) * weight, shape)
        return builder.constant(pad_channels(factors))
    each = builder.constant(pad_channels(np.broadcast_to(weight, shape)))
    factors = builder.space(each.shape, each.dtype)
    fields = {"kind": "EXT_MUL", "ndim": 1, "shape": [each.size]}
    fields |= {"a_strides": [1], "b_strides": [0]}
    one = builder.dense(builder.tensor(data))
    arguments = [Struct("ext_binary_params", fields), each, one, factors]
    builder.call("ext_binary", arguments, factors, f"scales of {node.node.composite}")
    return factors


def requantise_struct(
    node: RegionNode,
    builder: PlanBuilder,
    sums: np.ndarray,
    residual: Tensor | None,
    residual_stride: Dim,
) -> Struct:
    """The ``ext_requantise`` of a quantised product.

    ``sums`` are those of the weight's integers for each channel of the result.
    """
    descriptor = node.node
    fields: dict[str, object] = {
        "w_sums": builder.constant(pad_channels(sums.astype(np.int32))),
        "scale": _factors(node, builder, sums.shape),
    }
    slot = "before"
    for step in descriptor.epilogue:
        if step.kind == "bias":
            fields["bias"] = builder.constant(pad_channels(node.role("bias").data))
        elif step.kind == REQUANTISE:
            slot = "after"
        elif step.kind != "residual":
            fields["after" if "before" in fields else slot] = activation_struct(step)
    if (inner := node.role("inner_zero_point")) is not None:
        fields["inner_dtype"] = c_dtype(inner.data.dtype.name)
    if residual is not None:
        fields |= {"residual": residual, "residual_stride": residual_stride}
        fields["residual_dtype"] = c_dtype(residual.dtype)
    fields["y_dtype"] = c_dtype(descriptor.dtype)
    fields |= scale_fields(node, {name: name for name in ("inner", "residual", "y")})
    return Struct("ext_requantise", fields)
