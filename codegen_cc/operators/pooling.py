"""max_pool2d and avg_pool2d over channels-last images."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import inf

from codegen_cc.dim import Dim
from codegen_cc.dtypes import KERNEL_BYTES, SINGLE
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Layout, Number, Operator
from codegen_cc.operators.bfloat16 import BFLOAT16, all_alike
from codegen_cc.operators.conv2d import pixels
from codegen_cc.operators.dtype_rules import c_dtype, only, only_single
from codegen_cc.operators.image_facts import IMAGE_NEUTRAL, IMAGE_TOLD, padding, sizes_of_images
from codegen_cc.operators.placement import Placement
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.operators.told import unless
from codegen_cc.plan.borders import without_border
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.region.graph import RegionNode


def check_dtypes(node: Node) -> str | None:
    """float32; the maximum of 8-bit integers too."""
    if node.op == "max_pool2d":
        return only(node, (SINGLE, *KERNEL_BYTES)) or only(node, (node.dtype,))
    return only_single(node)


def supports(node: Node) -> str | None:
    """None if the kernels can compute the pooling, else the reason."""
    rank = len(node.operand("input").shape)
    if rank != 4:
        return f"input rank {rank}; need 4"
    if min(node.attrs["padding"]) < 0:
        return f"padding {node.attrs['padding']}; need no negative padding"
    return None


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_max_pool2d``, ``ext_avg_pool2d`` or a form of them for what is stored."""
    placed = place_pool2d(node, builder)
    tensors = [placed.inputs["input"], placed.output]
    if node.node.dtype in KERNEL_BYTES:
        arguments = [placed.params, c_dtype(node.node.dtype), *tensors]
        placed.call(node, builder, "ext_max_pool2d_bytes", arguments)
        return
    form = "_bf16" if placed.output.dtype == BFLOAT16 else ""
    placed.call(node, builder, f"ext_{node.node.op}{form}", [placed.params, *tensors])


def place_pool2d(node: RegionNode, builder: PlanBuilder, gaps: bool = True) -> Placement:
    """Images channels-last and the ``ext_pool2d_params``; without ``gaps``, dense images."""
    attrs = node.node.attrs
    border, pads = builder.borders.get(node), attrs["padding"][:2]
    source, (top, left) = without_border(border, node.role("input"), pads)
    x = pixels(builder, builder.tensor(source), gaps)
    y = builder.image_space(node.output, gaps)
    numbers = _sizes(node.node, x.shape, y.shape) | {"pad_top": top, "pad_left": left}
    numbers |= {"x_stride": x.pixel_stride(), "y_stride": y.pixel_stride()}
    fields: dict[str, object] = {name: numbers[name] for name in _NAMES}
    comment = f"{node.node.composite} {attrs['pool_size']}: {list(x.shape)} -> {list(y.shape)}"
    return Placement(Struct("ext_pool2d_params", fields), {"input": x}, None, y, comment)


# ---------------------------------------------------------------- the records

#: The fields of ``ext_pool2d_params``.
_NAMES = (
    *("batch", "in_h", "in_w", "channels", "out_h", "out_w", "kernel_h", "kernel_w"),
    *("stride_h", "stride_w", "pad_top", "pad_left", "pad_bottom", "pad_right"),
    *("dilation_h", "dilation_w", "x_stride", "y_stride", "count_include_pad"),
)


def _numbers(node: Node) -> dict[str, Number]:
    return _sizes(node, node.operand("input").shape, node.shape)


def _sizes(node: Node, x: tuple[Dim, ...], y: tuple[Dim, ...]) -> dict[str, Number]:
    kernel_h, kernel_w = node.attrs["pool_size"]
    return sizes_of_images(node.attrs, x, y) | {
        "channels": x[1],
        "kernel_h": kernel_h,
        "kernel_w": kernel_w,
        "count_include_pad": int(node.attrs["count_include_pad"]),
    }


def _uncounted(node: Node, told: Collection[str]) -> bool:
    """Padding is never the greatest element, and divides a mean only where it is counted."""
    counted = unless("count_include_pad", 0)
    return node.op == "max_pool2d" or padding(node, ()) or counted(node, told)


_FACTS = Facts(
    ranks={"input": 4},
    names=_NAMES,
    numbers=_numbers,
    params="ext_pool2d_params",
    place=place_pool2d,
    told_by={
        **IMAGE_TOLD,
        "pool_size": ("kernel_h kernel_w",),
        "count_include_pad": ("count_include_pad",),
    },
    neutral={**IMAGE_NEUTRAL, "count_include_pad": _uncounted},
)


def _samples(op: str) -> Iterator[Sample]:
    image = {"input": ((1, 16, 8, 8), REAL)}
    plain = {"pool_size": [2, 2], "strides": [2, 2], "padding": [0] * 4, "dilation": [1, 1]}
    plain |= {"ceil_mode": False, "count_include_pad": False}
    padded = plain | {"pool_size": [3, 3], "padding": [1] * 4}
    yield Sample("", sample_node(op, image, (1, 16, 4, 4), **plain))
    yield Sample("padded", sample_node(op, image, (1, 16, 4, 4), **padded))
    if op == "avg_pool2d":
        counted = padded | {"count_include_pad": True}
        yield Sample("padding counted", sample_node(op, image, (1, 16, 4, 4), **counted))
    if op == "max_pool2d":
        for dtype in KERNEL_BYTES:
            octets = {"input": ((1, 16, 8, 8), dtype)}
            yield Sample(dtype, sample_node(op, octets, (1, 16, 4, 4), dtype, **plain))
    dilated = plain | {"dilation": [2, 2], "strides": [1, 1]}
    yield Sample("dilated", sample_node(op, image, (1, 16, 6, 6), **dilated))


def _pooling(op: str, border: float | None) -> Operator:
    return Operator(
        op,
        roles=("input",),
        attributes={
            "pool_size": "height and width",
            "strides": "one per axis of the image",
            "padding": "top, left, bottom, right",
            "dilation": "one per axis of the image",
            "ceil_mode": "whether sizes are rounded up",
            "count_include_pad": "whether padding counts in a mean",
        },
        layout=Layout.IMAGE,
        facts=_FACTS,
        kernels=Kernels(lower, check_dtypes, supports, narrow=all_alike, border=border),
        samples=lambda: _samples(op),
    )


OPERATORS = (_pooling("max_pool2d", -inf), _pooling("avg_pool2d", None))
