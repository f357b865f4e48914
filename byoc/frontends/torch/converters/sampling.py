"""Images read at places that a grid names."""

from __future__ import annotations

from tvm import relax

from byoc.frontends.torch.values import Graph, Value

op = relax.op

BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)


def grid_sample(
    g: Graph,
    input: Value,
    grid: Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> relax.Expr:
    """An image [N, C, H, W] at places that a grid [N, H', W', 2] of x and y from -1 to 1 names, or
    a volume [N, C, D, H, W] by a grid [N, D', H', W', 3] of x, y, z."""
    image, grid = g.tensor(input), g.tensor(grid)
    spatial = image.ty.ndim - 2
    if spatial != 2 and interpolation_mode == BICUBIC:
        raise ValueError("bicubic sampling of a volume; need bilinear or nearest")
    return op.image.grid_sample(
        image,
        op.permute_dims(grid, [0, spatial + 1, *range(1, spatial + 1)]),
        ("bilinear", "nearest", "bicubic")[interpolation_mode],
        "NCHW" if spatial == 2 else "NCDHW",
        ("zeros", "border", "reflection")[padding_mode],
        align_corners,
    )


SAMPLING = dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d"), grid_sample)
