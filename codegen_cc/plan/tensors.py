"""Strided tensors over buffers: how a value lies in memory.

Every value of a region is a view: a buffer, an offset, and one stride per logical axis, all counted
in elements.  Permuting, slicing, broadcasting and most reshapes only change the view, so that they
cost nothing; a kernel states which views it accepts, and the planner copies only where it must.

An *order* is a permutation of the logical axes from outermost to innermost in memory:
``(0, 1, 2, 3)`` is plain NCHW, ``(0, 2, 3, 1)`` is channels-last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from codegen_cc import dtypes
from codegen_cc.dim import Dim, estimate, is_static, normal, product, same

CHANNELS_LAST = (0, 2, 3, 1)
#: Axes of the kernels' loops (``EXT_MAX_DIMS``).
MAX_AXES = 8


@dataclass(eq=False)
class Buffer:
    """A piece of memory: an ``input``, an ``output``, ``arena`` space or read-only ``weights``.

    ``size`` counts elements of ``dtype``; ``name`` is its C identifier; the memory planner fills
    ``arena_offset`` (bytes).
    """

    kind: str
    name: str
    size: Dim
    dtype: str
    arena_offset: Dim = 0

    @property
    def nbytes(self) -> Dim:
        """Size in bytes."""
        return self.size * dtypes.of(self.dtype).bytes


@dataclass(frozen=True)
class Tensor:
    """A strided view of a buffer; axes of size 1 may have any stride."""

    buffer: Buffer
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim = 0

    @property
    def dtype(self) -> str:
        """Dtype of the elements."""
        return self.buffer.dtype

    @property
    def size(self) -> Dim:
        """Number of elements of the view."""
        return product(self.shape)

    def order(self) -> tuple[int, ...] | None:
        """The order in which this view is dense (no gaps, no repeats), or None."""
        if self.size == 0:
            return tuple(range(len(self.shape)))
        left = [axis for axis, extent in enumerate(self.shape) if extent != 1]
        wide: list[int] = []
        expected: Dim = 1
        while left:
            inner = next((axis for axis in left if same(self.strides[axis], expected)), None)
            if inner is None:
                return None
            left.remove(inner)
            wide.insert(0, inner)
            expected = normal(expected * self.shape[inner])
        narrow = [axis for axis, extent in enumerate(self.shape) if extent == 1]
        return tuple(narrow + wide)

    def walk(self) -> tuple[int, ...]:
        """All axes from the widest stride to the narrowest: as ``order``, but gaps do not matter.

        An axis of one element, or one that repeats the others, stays behind the axis before it.
        """
        steps: list[int] = []
        for extent, stride in zip(self.shape, self.strides, strict=True):
            step = 0 if extent == 1 else estimate(stride)
            steps.append(step or (steps[-1] if steps else 0))
        leading = max(steps, default=0)
        steps = [step or leading for step in steps]
        return tuple(sorted(range(len(steps)), key=lambda axis: -steps[axis]))

    def innermost_stride(self, order: tuple[int, ...]) -> Dim:
        """The stride of the innermost axis, in that order, that has more than one element."""
        wide = [axis for axis in order if self.shape[axis] != 1]
        return self.strides[wide[-1]] if wide else 1

    def is_dense(self, order: tuple[int, ...] | None = None) -> bool:
        """Whether the view is dense in that order (default: plain), size-1 axes aside."""
        found = self.order()
        if found is None:
            return False
        wanted = range(len(self.shape)) if order is None else order
        return [a for a in found if self.shape[a] != 1] == [a for a in wanted if self.shape[a] != 1]

    def pixel_stride(self) -> Dim | None:
        """Distance of neighbouring pixels if this NCHW view is channels-last, else None.

        Channels must be adjacent, and rows and images must follow one another without a gap other
        than the one between pixels, which may be wider than the channel count.
        """
        batch, channels, height, width = self.shape
        if self.size == 0:
            return channels
        strides = self.strides
        if channels != 1 and strides[1] != 1:
            return None
        pixel = channels
        if width != 1:
            pixel = strides[3]
        elif height != 1:
            pixel = strides[2]
        elif batch != 1:
            pixel = strides[0]
        if estimate(pixel) < estimate(channels):
            return None
        if height != 1 and not same(strides[2], width * pixel):
            return None
        if batch != 1 and not same(strides[0], height * width * pixel):
            return None
        return pixel

    def permute(self, axes: tuple[int, ...]) -> Tensor:
        """The view with its axes in that order."""
        return replace(
            self,
            shape=tuple(self.shape[axis] for axis in axes),
            strides=tuple(self.strides[axis] for axis in axes),
        )

    def slice(
        self, begin: tuple[Dim, ...], shape: tuple[Dim, ...], steps: tuple[int, ...]
    ) -> Tensor:
        """The view of ``shape`` that starts at ``begin`` and takes every ``steps``-th element."""
        offset = sum(b * stride for b, stride in zip(begin, self.strides, strict=True))
        strides = tuple(normal(s * step) for s, step in zip(self.strides, steps, strict=True))
        return replace(self, shape=shape, strides=strides, offset=normal(self.offset + offset))

    def broadcast_to(self, shape: tuple[Dim, ...]) -> Tensor:
        """The view repeated to ``shape`` by NumPy's rules; repeated axes get stride 0."""
        missing = len(shape) - len(self.shape)
        own_shape = (1,) * missing + self.shape
        own_strides = (0,) * missing + self.strides
        strides = tuple(
            0 if have == 1 and want != 1 else stride
            for have, want, stride in zip(own_shape, shape, own_strides, strict=True)
        )
        return replace(self, shape=shape, strides=strides)

    def reshape(self, shape: tuple[Dim, ...]) -> Tensor | None:
        """The view in another shape, or None where that needs a copy."""
        strides = _reshaped_strides(self.shape, self.strides, shape)
        return None if strides is None else replace(self, shape=shape, strides=strides)


@dataclass(frozen=True)
class Pending:
    """A reshape that needs a copy which nobody has asked for yet: ``source`` read as ``shape``."""

    source: Tensor
    shape: tuple[Dim, ...]

    def onto(self, target: Tensor) -> tuple[Tensor, Tensor] | None:
        """The source and a target of ``shape`` as views of one shape; None if there are none."""
        shape = self.source.shape
        view = target.reshape(shape)
        if view is not None:
            return self.source, view
        parts = _common_parts(shape, self.shape)
        if parts is None or len(parts) > MAX_AXES:
            return None
        views = self.source.reshape(parts), target.reshape(parts)
        return None if None in views else views


def _common_parts(one: tuple[Dim, ...], other: tuple[Dim, ...]) -> tuple[int, ...] | None:
    """The shape with the fewest axes that both shapes are made of by joining neighbours."""
    if not is_static([*one, *other]) or 0 in one:
        return None
    parts: list[int] = []
    left, right = list(one), list(other)
    while left and right:
        a, b = left.pop(), right.pop()
        small, large = min(a, b), max(a, b)
        if large % small:
            return None
        if small != 1:
            parts.insert(0, small)
        rest = large // small
        if rest != 1 or small == 1:
            (left if a > b else right).append(rest)
    return tuple(parts)


def strides_for(shape: tuple[Dim, ...], order: tuple[int, ...]) -> tuple[Dim, ...]:
    """Strides of a dense tensor of ``shape`` whose axes lie in memory in ``order``."""
    strides: list[Dim] = [0] * len(shape)
    step: Dim = 1
    for axis in reversed(order):
        strides[axis] = step
        if shape[axis] != 0:
            step = normal(step * shape[axis])
    return tuple(strides)


def _reshaped_strides(
    shape: tuple[Dim, ...], strides: tuple[Dim, ...], new_shape: tuple[Dim, ...]
) -> tuple[Dim, ...] | None:
    """Strides that give ``new_shape`` without moving data, or None.

    Both shapes are cut into the shortest groups of equal element count; inside a group the old
    axes must be evenly spaced.  The method is that of NumPy's no-copy reshape.
    """
    if product(shape) == 0:
        return strides_for(new_shape, tuple(range(len(new_shape))))
    old = [(extent, stride) for extent, stride in zip(shape, strides, strict=True) if extent != 1]
    result: list[Dim] = []
    position = 0
    new_axis = 0
    while new_axis < len(new_shape):
        if new_shape[new_axis] == 1:
            result.append(0)
            new_axis += 1
            continue
        if position == len(old):
            return None
        group_new = [new_shape[new_axis]]
        new_axis += 1
        group_old = [old[position]]
        position += 1
        while not same(product(group_new), old_size := product(e for e, _ in group_old)):
            # With symbols either side may be the greater one; a wrong guess ends in a copy.
            take_new = estimate(product(group_new)) < estimate(old_size)
            if take_new and new_axis < len(new_shape):
                group_new.append(new_shape[new_axis])
                new_axis += 1
            elif position < len(old):
                group_old.append(old[position])
                position += 1
            else:
                return None
        for (_, outer), (extent, inner) in pairwise(group_old):
            if not same(outer, extent * inner):
                return None
        step = group_old[-1][1]
        group_strides = []
        for extent in reversed(group_new):
            group_strides.append(step)
            step = normal(step * extent)
        result.extend(reversed(group_strides))
    return tuple(result)
