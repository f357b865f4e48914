"""max_pool2d and avg_pool2d over channels-last images."""

from __future__ import annotations

from codegen_cc.libraries.builtin.conv2d import pixels
from codegen_cc.libraries.placement import Placement
from codegen_cc.node import Node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.region.graph import RegionNode


def supports(node: Node) -> str | None:
    """None if the kernels can compute the pooling, else the reason."""
    rank = len(node.operand("input").shape)
    if rank != 4:
        return f"input rank {rank}; need 4"
    if min(node.attrs["padding"]) < 0:
        return f"padding {node.attrs['padding']}; need no negative padding"
    return None


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_max_pool2d`` or ``ext_avg_pool2d``."""
    placed = place_pool2d(node, builder)
    arguments = [placed.params, placed.inputs["input"], placed.output]
    placed.call(node, builder, f"ext_{node.node.op}", arguments)


def place_pool2d(node: RegionNode, builder: PlanBuilder, gaps: bool = True) -> Placement:
    """Images channels-last and the ``ext_pool2d_params``; without ``gaps``, dense images."""
    attrs = node.node.attrs
    x = pixels(builder, builder.tensor(node.role("input")), gaps)
    y = builder.image_space(node.output, gaps)
    top, left, bottom, right = attrs["padding"]
    fields: dict[str, object] = {
        "batch": x.shape[0],
        "in_h": x.shape[2],
        "in_w": x.shape[3],
        "channels": x.shape[1],
        "out_h": y.shape[2],
        "out_w": y.shape[3],
        "kernel_h": attrs["pool_size"][0],
        "kernel_w": attrs["pool_size"][1],
        "stride_h": attrs["strides"][0],
        "stride_w": attrs["strides"][1],
        "pad_top": top,
        "pad_left": left,
        "pad_bottom": bottom,
        "pad_right": right,
        "dilation_h": attrs["dilation"][0],
        "dilation_w": attrs["dilation"][1],
        "x_stride": x.pixel_stride(),
        "y_stride": y.pixel_stride(),
        "count_include_pad": int(attrs["count_include_pad"]),
    }
    comment = f"{node.node.composite} {attrs['pool_size']}: {list(x.shape)} -> {list(y.shape)}"
    return Placement(Struct("ext_pool2d_params", fields), {"input": x}, None, y, comment)
