"""roi_align and roi_max: regions of images [N, C, H, W], pooled to [R, C, oh, ow].

A region is [5]: its image, and left, top, right and bottom, in units of which a pixel has
``1 / scale``. Results are means of bilinear samples, where 0 samples are as many as a bin has
pixels, or the greatest pixels.
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen_cc.dim import same
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Layout, Operator
from codegen_cc.operators.dtype_rules import only_single
from codegen_cc.operators.image_facts import dense_images
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import CHANNELS_LAST
from codegen_cc.region.graph import RegionNode

#: Numbers of a region.
_NUMBERS = 5


def supports(node: Node) -> str | None:
    """None if the kernel can compute the node, else the reason."""
    image, regions = (node.operand(role).shape for role in ("input", "regions"))
    if len(image) != 4:
        return f"input rank {len(image)}; need 4"
    if len(regions) != 2 or not same(regions[1], _NUMBERS):
        return f"regions {list(regions)}; need [regions, {_NUMBERS}]"
    return None


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_roi_align``."""
    attrs = node.node.attrs
    told = {"samples": attrs["samples"], "aligned": int(attrs["aligned"])}
    _pooled(node, builder, "ext_roi_align", told)


def lower_max(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_roi_max``."""
    _pooled(node, builder, "ext_roi_max", {})


def _pooled(node: RegionNode, builder: PlanBuilder, function: str, told: dict[str, object]) -> None:
    x = builder.dense(builder.tensor(node.role("input")), CHANNELS_LAST)
    regions = builder.dense(builder.tensor(node.role("regions")))
    y = builder.space(node.node.shape, node.node.dtype, CHANNELS_LAST)
    fields: dict[str, object] = {
        **dense_images(x, y),
        "regions": y.shape[0],
        "scale": node.node.attrs["scale"],
        **told,
    }
    comment = f"{node.node.composite}: {list(x.shape)} -> {list(y.shape)}"
    builder.call(function, [Struct(f"{function}_params", fields), x, regions, y], y, comment)
    builder.place(node.output, y)


# ---------------------------------------------------------------- the record

_ATTRIBUTES = {
    "samples": "along each side of a bin; 0: as many as it has pixels",
    "scale": "pixels in a region's unit",
    "aligned": "whether a region may be smaller than a pixel",
}


def _sample(name: str, **attrs: object) -> Iterator[Sample]:
    operands = {"input": ((1, 16, 8, 8), REAL), "regions": ((4, _NUMBERS), REAL)}
    yield Sample("", sample_node(name, operands, (4, 16, 7, 7), **attrs))


ROI_ALIGN = Operator(
    "roi_align",
    roles=("input", "regions"),
    attributes=_ATTRIBUTES,
    about="means of bilinear samples in the bins of regions: image, left, top, right, bottom",
    layout=Layout.IMAGE,
    filled=lambda node: (2, 3),
    facts=Facts(ranks={"input": 4, "regions": 2}, told_by=dict.fromkeys(_ATTRIBUTES, ())),
    kernels=Kernels(lower, only_single, supports),
    samples=lambda: _sample("roi_align", samples=2, scale=1.0, aligned=True),
)

ROI_MAX = Operator(
    "roi_max",
    roles=("input", "regions"),
    attributes={"scale": _ATTRIBUTES["scale"]},
    about="greatest pixels in the bins of regions: image, left, top, right, bottom",
    layout=Layout.IMAGE,
    facts=Facts(ranks={"input": 4, "regions": 2}, told_by={"scale": ()}),
    kernels=Kernels(lower_max, only_single, supports),
    samples=lambda: _sample("roi_max", scale=1.0),
)

OPERATORS = (ROI_ALIGN, ROI_MAX)
