"""group_norm on ``ext_group_norm``, for images with their channels last or before their pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from codegen_cc.dim import Dim, product, same
from codegen_cc.node import Node, Step
from codegen_cc.operator import Facts, Kernels, Layout, Number, Operator
from codegen_cc.operators import epilogue
from codegen_cc.operators.bfloat16 import BFLOAT16, narrow, storage_struct
from codegen_cc.operators.dtype_rules import only_single
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Argument, Struct
from codegen_cc.plan.tensors import Tensor
from codegen_cc.region.graph import RegionNode

_AFFINE = ("gamma", "beta")


def supports(node: Node) -> str | None:
    """None if the kernels can compute the node, else the reason."""
    shape, groups = node.operand("input").shape, node.attrs["groups"]
    if len(shape) < 2 or not isinstance(shape[1], int):
        return f"input {list(shape)}; need fixed channels on axis 1"
    if groups < 1 or shape[1] % groups:
        return f"groups={groups} does not divide {shape[1]} channels"
    for role in _AFFINE:
        vector = node.operand(role)
        if vector is None or not same(product(vector.shape), shape[1]):
            found = "none" if vector is None else list(vector.shape)
            return f"{role} has shape {found}; need [{shape[1]}]"
    return epilogue.supports(node)


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_group_norm``, or of its form for what is stored in bfloat16."""
    attrs = node.node.attrs
    x, last = _images(builder, builder.tensor(node.role("input")))
    strided = last and _pixels_apart(x) is not None
    if strided:
        y = builder.image_space(node.output)
    else:
        y = builder.space(x.shape, builder.stored_dtype(node.output), x.order())
    batch, channels, *pixels = x.shape
    fields: dict[str, object] = {"batch": batch, "groups": attrs["groups"], "channels": channels}
    fields |= {"inner": product(pixels), "epsilon": float(attrs["epsilon"])}
    if last:
        apart = [_pixels_apart(t) if strided else channels for t in (x, y)]
        fields |= {"channels_last": 1, "x_stride": apart[0], "y_stride": apart[1]}
    if node.node.epilogue:
        fields["after"] = epilogue.activation_struct(node.node.epilogue[0])
    affine = [builder.dense(builder.tensor(node.role(role))) for role in _AFFINE]
    arguments: list[Argument] = [Struct("ext_group_norm_params", fields), x, *affine, y]
    function = "ext_group_norm"
    if BFLOAT16 in (x.dtype, y.dtype):
        arguments.insert(1, storage_struct(x, None, y))
        function += "_bf16"
    comment = f"{node.node.composite} of {attrs['groups']} groups: {list(x.shape)}"
    builder.call(function, arguments, y, comment, over=[x])
    builder.place(node.output, y)


def _images(builder: PlanBuilder, x: Tensor) -> tuple[Tensor, bool]:
    """The images one after another, and whether their channels lie innermost, else outermost.

    Pixels may lie in any order.  Channels innermost may have gaps between pixels.
    """
    wide = [axis for axis in x.walk() if x.shape[axis] != 1]
    last = wide[-1:] == [1] and len(wide) > 1 + (0 in wide)
    if last and _pixels_apart(x) is not None:
        return x, True
    images_first = 0 not in wide[1:]
    channels_first = 1 not in [axis for axis in wide if axis != 0][1:]
    if x.order() is None or not images_first or not (last or channels_first):
        x = builder.dense(x, (0, *range(2, len(x.shape)), 1) if last else None)
    return x, last


def _pixels_apart(x: Tensor) -> Dim | None:
    """How far apart pixels lie in images of two axes that are channels-last, else None."""
    return x.pixel_stride() if len(x.shape) == 4 else None


# ---------------------------------------------------------------- the record


def _numbers(node: Node) -> dict[str, Number]:
    batch, channels, *pixels = node.operand("input").shape
    numbers: dict[str, Number] = {"batch": batch, "channels": channels, "inner": product(pixels)}
    return numbers | {name: node.attrs[name] for name in ("groups", "epsilon")}


def _samples() -> Iterator[Sample]:
    operands = {"input": ((2, 16, 8, 8), REAL)}
    operands |= {role: ((16,), "constant") for role in _AFFINE}
    node = sample_node("group_norm", operands, (2, 16, 8, 8), groups=4, epsilon=1e-5)
    yield Sample("", node)
    yield Sample("silu", replace(node, epilogue=(Step("silu"),)))


GROUP_NORM = Operator(
    "group_norm",
    roles=("input", *_AFFINE),
    attributes={"groups": "of channels, which are axis 1", "epsilon": "a number"},
    about="(input - mean) / sqrt(variance + epsilon) * gamma + beta, over each group of channels",
    layout=Layout.KEEP_GAPS,
    epilogue=("activation",),
    channel_axis=1,
    facts=Facts(
        names=("batch", "channels", "inner", "groups", "epsilon"),
        numbers=_numbers,
        told_by={"groups": ("groups",), "epsilon": ("epsilon",)},
    ),
    kernels=Kernels(lower, only_single, supports, narrow=lambda node: narrow("input")),
    samples=_samples,
)

OPERATORS = (GROUP_NORM,)
