"""grid_sample on ``ext_grid_sample``: an image [N, C, H, W] read where a grid [N, 2, H', W'] says.

The grid's first number is a column and its second a row, from -1 to 1, as in PyTorch, ONNX and
``relax.image.grid_sample``. Of a volume [N, C, D, H, W] its third is a plane.
It is read where it lies: exporters have its numbers last.
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen_cc.dim import same
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Layout, Operator
from codegen_cc.operators.conv3d_images import VOLUMES_LAST
from codegen_cc.operators.dtype_rules import only_single
from codegen_cc.operators.image_facts import dense_images
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import CHANNELS_LAST
from codegen_cc.region.graph import RegionNode

METHODS = ("nearest", "bilinear", "bicubic")
PADDINGS = ("zeros", "border", "reflection")


def supports(node: Node) -> str | None:
    """None if the kernel can compute the node, else the reason."""
    shapes = [node.operand(role).shape for role in ("input", "grid")]
    if [len(shape) for shape in shapes] not in ([4, 4], [5, 5]):
        return f"ranks {len(shapes[0])} and {len(shapes[1])}; need 4 or 5"
    image, grid = shapes
    if not same(image[0], grid[0]):
        return f"{image[0]} images and {grid[0]} grids; need as many"
    for name, known in (("method", METHODS), ("padding", PADDINGS)):
        if node.attrs[name] not in known:
            return f"{name} {node.attrs[name]!r}; need one of {', '.join(known)}"
    if len(image) > 4 and node.attrs["method"] == "bicubic":
        return "method 'bicubic' of volumes; need one of nearest, bilinear"
    return None


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_grid_sample``."""
    attrs = node.node.attrs
    is_volume = len(node.node.shape) > 4
    order = VOLUMES_LAST if is_volume else CHANNELS_LAST
    x = builder.dense(builder.tensor(node.role("input")), order)
    grid = builder.tensor(node.role("grid"))
    y = builder.space(node.node.shape, node.node.dtype, order)
    names = ["grid_n", "grid_xy", *["grid_d"] * is_volume, "grid_h", "grid_w"]
    fields: dict[str, object] = {
        **dense_images(x, y),
        **dict(zip(names, grid.strides, strict=True)),
        "volumes": int(is_volume),
        "method": f"EXT_GRID_{attrs['method'].upper()}",
        "padding": f"EXT_GRID_{attrs['padding'].upper()}",
        "align_corners": int(attrs["align_corners"]),
    }
    if is_volume:
        fields |= {"in_d": x.shape[2], "out_d": y.shape[2]}
    comment = f"{node.node.composite} {attrs['method']}: {list(x.shape)} -> {list(y.shape)}"
    builder.call(
        "ext_grid_sample", [Struct("ext_grid_sample_params", fields), x, grid, y], y, comment
    )
    builder.place(node.output, y)


# ---------------------------------------------------------------- the record

_ATTRIBUTES = {
    "method": ", ".join(METHODS),
    "padding": f"{', '.join(PADDINGS)}: what is outside",
    "align_corners": "whether -1 and 1 are the centres of the outermost pixels, not their borders",
}


def _samples() -> Iterator[Sample]:
    operands = {"input": ((1, 16, 8, 8), REAL), "grid": ((1, 2, 8, 8), REAL)}
    for method in METHODS:
        attrs = {"method": method, "padding": "zeros", "align_corners": False}
        yield Sample(method, sample_node("grid_sample", operands, (1, 16, 8, 8), **attrs))
    operands = {"input": ((1, 16, 8, 8, 8), REAL), "grid": ((1, 3, 8, 8, 8), REAL)}
    attrs = {"method": "bilinear", "padding": "zeros", "align_corners": False}
    yield Sample("volume", sample_node("grid_sample", operands, (1, 16, 8, 8, 8), **attrs))


GRID_SAMPLE = Operator(
    "grid_sample",
    roles=("input", "grid"),
    attributes=_ATTRIBUTES,
    about="the image or volume at the places that the grid names",
    layout=Layout.IMAGE,
    facts=Facts(told_by=dict.fromkeys(_ATTRIBUTES, ())),
    kernels=Kernels(lower, only_single, supports),
    samples=_samples,
)

OPERATORS = (GRID_SAMPLE,)
