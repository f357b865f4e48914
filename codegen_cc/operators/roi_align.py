"""roi_align on ``ext_roi_align``: regions of images [N, C, H, W], pooled to [R, C, oh, ow].

A region is [5]: its image, and left, top, right and bottom, in units of which a pixel has
``1 / scale``. Results are means of bilinear samples; 0 samples are as many as a bin has pixels.
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
    x = builder.dense(builder.tensor(node.role("input")), CHANNELS_LAST)
    regions = builder.dense(builder.tensor(node.role("regions")))
    y = builder.space(node.node.shape, node.node.dtype, CHANNELS_LAST)
    fields: dict[str, object] = {
        **dense_images(x, y),
        "regions": y.shape[0],
        "samples": attrs["samples"],
        "scale": attrs["scale"],
        "aligned": int(attrs["aligned"]),
    }
    comment = f"{node.node.composite}: {list(x.shape)} -> {list(y.shape)}"
    arguments = [Struct("ext_roi_align_params", fields), x, regions, y]
    builder.call("ext_roi_align", arguments, y, comment)
    builder.place(node.output, y)


# ---------------------------------------------------------------- the record

_ATTRIBUTES = {
    "samples": "along each side of a bin; 0: as many as it has pixels",
    "scale": "pixels in a region's unit",
    "aligned": "whether a region may be smaller than a pixel",
}


def _samples() -> Iterator[Sample]:
    operands = {"input": ((1, 16, 8, 8), REAL), "regions": ((4, _NUMBERS), REAL)}
    attrs = {"samples": 2, "scale": 1.0, "aligned": True}
    yield Sample("", sample_node("roi_align", operands, (4, 16, 7, 7), **attrs))


ROI_ALIGN = Operator(
    "roi_align",
    roles=("input", "regions"),
    attributes=_ATTRIBUTES,
    about="means of bilinear samples in the bins of regions: image, left, top, right, bottom",
    layout=Layout.IMAGE,
    filled=lambda node: (2, 3),
    facts=Facts(ranks={"input": 4, "regions": 2}, told_by=dict.fromkeys(_ATTRIBUTES, ())),
    kernels=Kernels(lower, only_single, supports),
    samples=_samples,
)

OPERATORS = (ROI_ALIGN,)
