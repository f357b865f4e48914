"""Volumes that are resized: their planes as images, then the volumes as tall images of planes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from codegen_cc.dim import same
from codegen_cc.region.relax_dims import relax_dims


def resized_volume(
    image: relax.Expr, target: Sequence[int | tvm.ir.Expr], options: Mapping[str, Any]
) -> relax.Expr:
    """[N, C, D, H, W] resized to three sizes, by ``options`` of ``relax.image.resize2d``.

    Their coordinates have to leave an axis that keeps its size as it is.
    """
    resize2d, across = relax.op.image.resize2d, [0, 2, 1, 3, 4]
    batch, channels, depth, *sides = image.ty.shape.values
    deep, *plane = target
    kept = [same(*relax_dims(pair)) for pair in zip((depth, *sides), target, strict=True)]
    if not all(kept[1:]):
        shape = [batch * depth, channels, *sides]
        planes = relax.op.reshape(relax.op.permute_dims(image, across), shape)
        planes = resize2d(planes, size=relax.ShapeExpr(plane), **options)
        parts = relax.op.reshape(planes, [batch, depth, channels, *plane])
        image = relax.op.permute_dims(parts, across)
    if kept[0]:
        return image
    area = plane[0] * plane[1]
    tall = relax.op.reshape(image, [batch, channels, depth, area])
    tall = resize2d(tall, size=relax.ShapeExpr([deep, area]), **options)
    return relax.op.reshape(tall, [batch, channels, deep, *plane])
