"""Images that have the planes of a volume as channels: those that taps of the depth read."""

from __future__ import annotations

from collections.abc import Sequence

from codegen_cc.dim import Dim, normal, product
from codegen_cc.operators.conv3d_images import VOLUMES_LAST
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import CHANNELS_LAST, Tensor, strides_for


def stack_planes(
    builder: PlanBuilder,
    volumes: Tensor,
    count: Dim,
    read: tuple[Dim, int, int],
    taps: int,
    groups: int = 1,
) -> Tensor:
    """[N count, groups taps C/groups, H, W] of volumes [N, C, D, H, W].

    ``read`` are the plane that the first tap of the first image reads, how many planes further the
    next image begins, and the next tap.
    """
    first, stride, step = read
    batch, channels, _, height, width = volumes.shape
    n, c, d, h, w = volumes.strides
    inner = channels // groups
    extents = (batch, count, height, width, groups, taps, inner)
    strides = (n, normal(d * stride), h, w, normal(c * inner), normal(d * step), c)
    source = Tensor(volumes.buffer, extents, strides, normal(volumes.offset + d * first))
    target = builder.space(extents, volumes.dtype)
    builder.copy(source, target, f"{taps} planes of {list(volumes.shape)} for each of {count}")
    shape = (product([batch, count]), taps * channels, height, width)
    return Tensor(target.buffer, shape, strides_for(shape, CHANNELS_LAST))


def with_zeros(builder: PlanBuilder, x: Tensor, sides: Sequence[Dim]) -> Tensor:
    """Volumes with zeros around them: before depth, height and width, then behind."""
    if not any(sides):
        return x
    x = builder.dense(x, VOLUMES_LAST)
    around = zip(x.shape[2:], sides[:3], sides[3:], strict=True)
    shape = (*x.shape[:2], *(normal(extent + before + after) for extent, before, after in around))
    y = builder.space(shape, x.dtype, VOLUMES_LAST)
    fields: dict[str, object] = {
        "mode": "EXT_PAD_CONSTANT",
        "value": 0.0,
        "ndim": 4,
        "shape": [x.shape[0], *x.shape[2:]],
        "before": [0, *sides[:3]],
        "after": [0, *sides[3:]],
        "inner": x.shape[1],
    }
    comment = f"zeros around {list(x.shape)} -> {list(y.shape)}"
    builder.call("ext_pad", [Struct("ext_pad_params", fields), x, y], y, comment)
    return y
