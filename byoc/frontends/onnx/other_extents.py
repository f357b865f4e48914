"""Extents for dynamic axes that are tried where the usual ones do not do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from byoc.frontends.onnx.dynamic_axes import DynamicAxis, multiplied, sized
from byoc.frontends.onnx.learned_axes import SIDES

#: Multiples of sides of images that are halved six or seven times.
_DEEP = (64, 128)

#: Samples of a piece of a stream, for networks that fit such pieces alone: of detectors of voices
#: at 16 kHz, with what they keep of the piece before, and others.
_PIECES = (576, 512, 1536, 1280, 400)

#: Sides of pictures, for networks that were traced with one: windows of a hierarchy that were not
#: padded there are not padded at other sizes either, and fit some alone.
_PICTURES = (256, 384, 512)


def with_batches_of_one(axes: tuple[DynamicAxis, ...]) -> Iterator[tuple[DynamicAxis, ...]]:
    """A batch of 1 for the inputs with one name of it, such as images beside sentences; for all."""
    batches = list(dict.fromkeys(axis.extent for axis in axes if axis.meaning == "batch"))
    for own in reversed(batches if len(batches) > 1 else ()):
        yield tuple(replace(a, extent=1) if a.extent == own else a for a in axes)
    yield sized(axes, "batch")


def with_lengths(axes: tuple[DynamicAxis, ...]) -> Iterator[tuple[DynamicAxis, ...]]:
    """Sizes for all axes, with those of pieces of a stream of sound."""
    sound = {axis.meaning for axis in axes} & {"samples", "sequence", "length"}
    for length in _PIECES if sound else ():
        some = axes
        for meaning in sorted(sound):
            some = sized(some, meaning, length)
        yield sized(some)


def halved_often(axes: tuple[DynamicAxis, ...]) -> tuple[tuple[DynamicAxis, ...], ...]:
    """Multiples for images that are halved more often than most."""
    if not any(axis.meaning in SIDES for axis in axes):
        return ()
    return tuple(multiplied(axes, factor) for factor in _DEEP)


def with_pictures(axes: tuple[DynamicAxis, ...]) -> Iterator[tuple[DynamicAxis, ...]]:
    """The sides of larger pictures than usual ones, beside names for other axes, and sizes."""
    for side in _PICTURES if any(axis.meaning in SIDES for axis in axes) else ():
        picture = sized(sized(axes, "height", side), "width", side)
        yield picture
        yield sized(picture)
