"""What moves elements, or makes them from nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import relax, tirx

from byoc.frontends.padded_from_inside import padded_from_inside
from byoc.frontends.torch.converters.beginnings import begin_of, from_start, is_inside
from byoc.frontends.torch.converters.indexing import from_start as places_from_start
from byoc.frontends.torch.converters.indexing import is_element, slice_places
from byoc.frontends.torch.sizes import size_tensor
from byoc.frontends.torch.values import Graph, Value
from byoc.ir.dataflow import is_kernel_float
from codegen_cc.dim import is_static
from codegen_cc.region.relax_dims import relax_dims

op = relax.op


def reshaped(g: Graph, x: Value, **_: object) -> relax.Expr:
    """The same elements in the result's shape, which says all."""
    return op.reshape(g.tensor(x), g.shape)


def permute(g: Graph, x: Value, dims: Sequence[int]) -> relax.Expr:
    """The axes in another order."""
    tensor = g.tensor(x)
    return op.permute_dims(tensor, [axis % tensor.ty.ndim for axis in dims])


def transpose(g: Graph, x: Value, dim0: int = -1, dim1: int = -2) -> relax.Expr:
    """Two axes in each other's place, the last ones unless others are named."""
    tensor = g.tensor(x)
    order = list(range(tensor.ty.ndim))
    if len(order) < 2:
        return tensor
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return op.permute_dims(tensor, order)


def expand(g: Graph, x: Value, **_: object) -> relax.Expr:
    """Repeated along axes of extent 1, up to the result's shape."""
    return op.broadcast_to(g.tensor(x), g.shape)


def concatenate(g: Graph, tensors: Sequence[Value], dim: int = 0) -> relax.Expr:
    """Tensors one behind the other; those of shape [0] do not count."""
    parts = [g.tensor(value, g.dtype) for value in tensors]
    rank = len(g.shape)
    parts = [part for part in parts if part.ty.ndim == rank]
    if len(parts) == 1:
        return parts[0]
    return op.concat([g.beside(part, dim % rank) for part in parts], dim % rank)


def stack(g: Graph, tensors: Sequence[Value], dim: int = 0) -> relax.Expr:
    """Tensors along a new axis."""
    axis = dim % len(g.shape)
    parts = [g.emit(op.expand_dims(g.tensor(value, g.dtype), axis)) for value in tensors]
    return parts[0] if len(parts) == 1 else op.concat(parts, axis)


def split(g: Graph, x: Value, dim: int = 0, **_: object) -> list[relax.Expr]:
    """Parts along an axis, of the extents that the results have."""
    tensor, begin, parts = g.tensor(x), 0, []
    axis = dim % tensor.ty.ndim
    for result in g.results:
        extent = g.extents(result.shape)[axis]
        parts.append(g.emit(part_of(tensor, axis, begin, begin + extent)))
        begin = begin + extent
    return parts


def unbind(g: Graph, x: Value, dim: int = 0) -> list[relax.Expr]:
    """All slices of extent 1 along an axis, without that."""
    tensor = g.tensor(x)
    return [_selected(g, tensor, dim % tensor.ty.ndim, i) for i in range(len(g.results))]


def part_of(tensor: relax.Expr, axis: int, begin: Value, end: Value, step: int = 1) -> relax.Expr:
    """A slice within the axis, so that its extent needs no minimum."""
    return op.strided_slice(tensor, [axis], [begin], [end], [step], assume_inbound=True)


def slice_(
    g: Graph, x: Value, dim: int = 0, start: Value = None, end: Value = None, step: int = 1
) -> relax.Expr:
    """Every ``step``-th element of an axis from ``start`` on; the result's extent says how many."""
    tensor = g.tensor(x)
    axis = dim % tensor.ty.ndim
    extent, taken = tensor.ty.shape.values[axis], g.shape[axis]
    if taken is extent or relax_dims([taken]) == relax_dims([extent]):
        return tensor
    begin = begin_of(start, end, step, extent, taken)
    if step == 1 and isinstance(start, int) and start < 0 and end is not None:
        # One that starts before the beginning is as long as what lies before its end.
        is_open = not is_static(relax_dims([extent]))
        if is_open and relax_dims([from_start(end, extent)]) == relax_dims([taken]):
            begin = 0
    if is_element(begin) or (isinstance(taken, int) and step == 1 and not is_inside(begin)):
        return op.take(tensor, slice_places(g, begin, extent, taken, step), axis)
    return part_of(tensor, axis, begin, begin + (taken - 1) * step + 1, step)


def select(g: Graph, x: Value, dim: int, index: Value) -> relax.Expr:
    """The slice at one place of an axis, without the axis."""
    tensor = g.tensor(x)
    return _selected(g, tensor, dim % tensor.ty.ndim, index)


def _selected(g: Graph, tensor: relax.Expr, axis: int, index: Value) -> relax.Expr:
    if is_element(index):
        place = places_from_start(g, index, tensor.ty.shape.values[axis])
        return op.take(tensor, place, axis)
    begin = from_start(index, tensor.ty.shape.values[axis])
    if not is_inside(begin):
        return op.take(tensor, size_tensor(g.builder, begin, "int64"), axis)
    part = g.emit(part_of(tensor, axis, begin, begin + 1))
    return g.emit(op.squeeze(part, [axis]))


def copied(g: Graph, x: Value, src: Value, non_blocking: bool = False) -> relax.Expr:
    """``src`` in the shape and dtype of ``x``."""
    return op.broadcast_to(g.tensor(src, g.dtype), g.shape)


def diagonal(g: Graph, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> relax.Expr:
    """The elements whose places along two axes differ by ``offset``, as a last axis."""
    tensor = g.tensor(x)
    rank = tensor.ty.ndim
    pair = [dim1 % rank, dim2 % rank]
    kept = [axis for axis in range(rank) if axis not in pair]
    turned = g.emit(op.permute_dims(tensor, [*kept, *pair]))
    *others, rows, columns = turned.ty.shape.values
    flat = g.emit(op.reshape(turned, [*others, rows * columns]))
    begin = offset if offset >= 0 else -offset * columns
    if not isinstance(columns, int | tirx.IntImm):
        step = size_tensor(g.builder, columns + 1, "int64")
        places = g.emit(op.multiply(op.arange(0, g.shape[-1], 1, "int64"), step))
        places = g.emit(op.add(places, g.tensor(begin, "int64")))
        return op.take(flat, places, len(others))
    end = begin + (g.shape[-1] - 1) * (columns + 1) + 1
    return part_of(flat, len(others), begin, end, int(columns) + 1)


def unfold(g: Graph, x: Value, dimension: int, size: int, step: int) -> relax.Expr:
    """Windows along an axis, whose elements become a last axis."""
    tensor = g.tensor(x)
    axis = dimension % tensor.ty.ndim
    count = g.shape[axis]
    if isinstance(count, int):
        places = g.tensor(torch.arange(count)[:, None] * step + torch.arange(size))
    else:
        begins = g.emit(op.expand_dims(g.emit(op.arange(0, count, 1, "int64")), 1))
        begins = g.emit(op.multiply(begins, g.tensor(step, "int64")))
        places = g.emit(op.add(begins, g.tensor(torch.arange(size))))
    taken = g.emit(op.take(tensor, places, axis))
    order = [i for i in range(tensor.ty.ndim + 1) if i != axis + 1]
    return op.permute_dims(taken, [*order, axis + 1])


def flip(g: Graph, x: Value, dims: Sequence[int]) -> relax.Expr:
    """Axes backwards."""
    tensor = g.tensor(x)
    for axis in dims:
        tensor = g.emit(op.flip(tensor, axis % tensor.ty.ndim))
    return tensor


def roll(g: Graph, x: Value, shifts: Sequence[Value], dims: Sequence[int] = ()) -> relax.Expr:
    """Elements shifted along axes; what leaves at the end comes in at the beginning."""
    tensor, shape = g.tensor(x), g.shape
    if not dims:
        tensor, dims = g.emit(op.reshape(tensor, [-1])), [0]
    shifts = [shifts] if isinstance(shifts, int) else shifts
    for shift, dim in zip(shifts, dims, strict=True):
        axis = dim % tensor.ty.ndim
        extent = tensor.ty.shape.values[axis]
        known = getattr(extent, "value", None)
        if not isinstance(shift, int):
            border = extent - tirx.floormod(shift, tirx.max(extent, 1))
        else:
            if known is not None:
                shift %= known
            if shift == 0:
                continue
            border = extent - shift if shift > 0 else -shift
        last = part_of(tensor, axis, border, extent)
        first = part_of(tensor, axis, 0, border)
        tensor = g.emit(op.concat([g.emit(last), g.emit(first)], axis))
    return tensor if tensor.ty.ndim == len(shape) else op.reshape(tensor, shape)


def repeat(g: Graph, x: Value, repeats: Sequence[Value]) -> relax.Expr:
    """The whole tensor several times along each axis."""
    tensor = g.tensor(x)
    shape = [1] * (len(repeats) - tensor.ty.ndim) + list(tensor.ty.shape.values)
    apart: list[Any] = []
    wide: list[Any] = []
    for times, extent in zip(repeats, shape, strict=True):
        one = [1] if times != 1 and getattr(extent, "value", extent) != 1 else []
        apart += [*one, extent]
        wide += [times, extent] if one else [times if times != 1 else extent]
    return op.reshape(op.broadcast_to(op.reshape(tensor, apart), wide), g.shape)


def constant_pad(g: Graph, x: Value, pad: Sequence[Value], value: float = 0) -> relax.Expr:
    """A number around; widths below 0 cut off."""
    tensor = g.tensor(x)
    rank = tensor.ty.ndim
    for place in range(len(pad) // 2):
        axis = rank - 1 - place
        begin, end = pad[2 * place : 2 * place + 2]
        if any(isinstance(width, int) and width < 0 for width in (begin, end)):
            extent = tensor.ty.shape.values[axis]
            ends = [w if isinstance(w, int) else 0 for w in (begin, end)]
            part = part_of(tensor, axis, max(-ends[0], 0), extent + min(ends[1], 0))
            tensor = g.emit(part)
    widths = [max(w, 0) if isinstance(w, int) else w for w in pad]
    if not any(isinstance(w, int) is False or w for w in widths):
        return tensor
    is_float = str(tensor.ty.dtype).startswith(("float", "bfloat"))
    if not is_float or not all(isinstance(w, int) for w in widths):
        return _with_numbers(g, tensor, widths, value)
    return op.nn.pad(tensor, _from_first(widths, rank), "constant", value)


def _with_numbers(g: Graph, x: relax.Expr, pad: Sequence[Value], value: float) -> relax.Expr:
    """A number around: of integers, and by widths that calls decide, which no kernel pads by."""
    _require_sizes(pad)
    for place, pair in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        axis, ends = x.ty.ndim - 1 - place, []
        wide = [g.symbols.at_least_none(width) for width in pair]
        for width in wide:
            shape = [*x.ty.shape.values[:axis], width, *x.ty.shape.values[axis + 1 :]]
            number = g.tensor(value, str(x.ty.dtype))
            is_none = isinstance(width, int) and width == 0
            ends.append(None if is_none else g.emit(op.broadcast_to(number, shape)))
        parts = [part for part in (ends[0], x, ends[1]) if part is not None]
        x = g.emit(op.concat(parts, axis)) if len(parts) > 1 else x
        if relax_dims(wide) != relax_dims(pair):  # in some calls one is below 0, and cuts off
            (begin,) = relax_dims([wide[0] - pair[0]])
            begin = g.symbols.written(begin)
            x = g.emit(part_of(x, axis, begin, begin + g.shape[axis]))
    return x


def _require_sizes(pad: Sequence[Value]) -> None:
    if any(map(is_element, pad)):
        need = "int(width) that torch._check says to be 0 or more, or a number of sizes"
        raise ValueError(f"padding by a number that a tensor holds; need {need}")


def _from_first(pad: Sequence[Value], rank: int) -> list[Value]:
    """Widths of all axes from the first one on; PyTorch's begin with the last."""
    pairs = [list(pad[i : i + 2]) for i in range(0, len(pad), 2)]
    pairs += [[0, 0]] * (rank - len(pairs))
    return [width for pair in reversed(pairs) for width in pair]


def reflection_pad(g: Graph, x: Value, padding: Sequence[Value]) -> relax.Expr:
    """The tensor mirrored at its borders, which are not repeated."""
    tensor = g.tensor(x)
    if not all(isinstance(width, int) for width in padding):
        return _from_inside(g, tensor, padding, "reflect")
    return op.nn.pad(tensor, _from_first(padding, tensor.ty.ndim), "reflect")


def replication_pad(g: Graph, x: Value, padding: Sequence[Value]) -> relax.Expr:
    """The elements at the borders again and again."""
    tensor = g.tensor(x)
    if not all(isinstance(width, int) for width in padding):
        return _from_inside(g, tensor, padding, "replicate")
    return op.nn.pad(tensor, _from_first(padding, tensor.ty.ndim), "replicate")


def _from_inside(g: Graph, x: relax.Expr, pad: Sequence[Value], mode: str) -> relax.Expr:
    """Padding by widths that calls decide: each element's place in the tensor is computed."""
    _require_sizes(pad)
    for place, (begin, end) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        if isinstance(begin, int) and isinstance(end, int) and begin == end == 0:
            continue
        axis = x.ty.ndim - 1 - place
        sizes = (begin, x.ty.shape.values[axis])
        start, extent = (size_tensor(g.builder, size, "int64") for size in sizes)
        x = padded_from_inside(g.emit, x, axis, g.shape[axis], start, extent, mode)
    return x


def pad(
    g: Graph, x: Value, pad: Sequence[Value], mode: str = "constant", value: float | None = None
) -> relax.Expr:
    """Any of these, by name."""
    if mode == "constant":
        return constant_pad(g, x, pad, value or 0)
    if mode == "circular":
        return _wrapped(g, x, pad)
    return {"reflect": reflection_pad, "replicate": replication_pad}[mode](g, x, pad)


def _wrapped(g: Graph, x: Value, pad: Sequence[int]) -> relax.Expr:
    """What leaves at one end of an axis comes in at the other."""
    tensor = g.tensor(x)
    if not all(isinstance(width, int) for width in pad):
        return _from_inside(g, tensor, pad, "circular")
    for begin, end in zip(pad[::2], pad[1::2], strict=True):
        if begin < 0 or end < 0:
            raise ValueError(f"circular padding of {[begin, end]}; need widths of 0 or more")
    if is_kernel_float(tensor, stored=True):
        return op.nn.pad(tensor, _from_first(pad, tensor.ty.ndim), "circular")
    for place in range(len(pad) // 2):
        axis = tensor.ty.ndim - 1 - place
        begin, end = pad[2 * place : 2 * place + 2]
        extent = tensor.ty.shape.values[axis]
        first = part_of(tensor, axis, extent - begin, extent)
        last = part_of(tensor, axis, 0, end)
        parts = [first] * (begin > 0) + [tensor] + [last] * (end > 0)
        tensor = g.emit(op.concat([g.emit(part) for part in parts], axis))
    return tensor


def pixel_shuffle(g: Graph, x: Value, upscale_factor: int) -> relax.Expr:
    """Channels become pixels: [..., C r r, H, W] to [..., C, H r, W r]."""
    tensor, r = g.tensor(x), upscale_factor
    *batch, channels, height, width = tensor.ty.shape.values
    n = len(batch)
    apart = op.reshape(tensor, [*batch, int(channels) // (r * r), r, r, height, width])
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    return op.reshape(op.permute_dims(apart, order), g.shape)


def pixel_unshuffle(g: Graph, x: Value, downscale_factor: int) -> relax.Expr:
    """Pixels become channels: [..., C, H r, W r] to [..., C r r, H, W]."""
    tensor, r = g.tensor(x), downscale_factor
    *batch, channels, _, _ = tensor.ty.shape.values
    height, width = g.shape[-2:]
    n = len(batch)
    apart = op.reshape(tensor, [*batch, channels, height, r, width, r])
    return op.reshape(op.permute_dims(apart, [*range(n + 1), n + 2, n + 4, n + 1, n + 3]), g.shape)


def channel_shuffle(g: Graph, x: Value, groups: int) -> relax.Expr:
    """The first channel of every group, then the second of every group, and so on."""
    tensor = g.tensor(x)
    batch, channels, *rest = tensor.ty.shape.values
    apart = op.reshape(tensor, [batch, groups, int(channels) // groups, *rest])
    order = [0, 2, 1, *range(3, 3 + len(rest))]
    return op.reshape(op.permute_dims(apart, order), g.shape)


# ---------------------------------------------------------------------- from nothing


def _filled(number: float) -> object:
    return lambda g, **_: op.full(g.shape, g.tensor(number, g.dtype), g.dtype)


def full(g: Graph, fill_value: Value, **_: object) -> relax.Expr:
    """One number everywhere."""
    number = g.tensor(fill_value, g.dtype)
    if isinstance(fill_value, relax.Expr):  # an element of a tensor
        return op.broadcast_to(number, g.shape)
    return op.full(g.shape, number, g.dtype)


def arange(g: Graph, end: Value, start: Value = 0, step: Value = 1, **_: object) -> relax.Expr:
    """Numbers from ``start`` up to, and without, ``end``, which the result's shape tells; kernels
    count from 0 on alone."""
    if isinstance(start, int) and start == 0 and step == 1:
        return op.arange(0, g.shape[0], 1, g.dtype)
    made = g.emit(op.arange(0, g.shape[0], 1, g.dtype))
    if step != 1:
        made = g.emit(op.multiply(made, g.tensor(step, g.dtype)))
    return op.add(made, g.tensor(start, g.dtype))


_RESHAPES = (
    *("view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze"),
    *("view_as", "reshape_as", "_reshape_alias", "view_copy", "unsqueeze_copy", "squeeze_copy"),
)
_SPLITS = (
    "split",
    "split_with_sizes",
    "chunk",
    "unsafe_split",
    "unsafe_chunk",
    "tensor_split",
    "split_copy",
)

MOVEMENT = {
    **dict.fromkeys(_RESHAPES, reshaped),
    **dict.fromkeys(_SPLITS, split),
    **dict.fromkeys(("permute", "permute_copy"), permute),
    "transpose.int": transpose,
    **dict.fromkeys(("t", "mT", "numpy_T"), transpose),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), expand),
    "cat": concatenate,
    "concat": concatenate,
    "stack": stack,
    **dict.fromkeys(("unbind.int", "unbind_copy.int"), unbind),
    **dict.fromkeys(("select.int", "select_copy.int"), select),
    "copy": copied,
    "diagonal": diagonal,
    "unfold": unfold,
    "flip": flip,
    "roll": roll,
    "repeat": repeat,
    "constant_pad_nd": constant_pad,
    **{f"reflection_pad{n}d": reflection_pad for n in (1, 2, 3)},
    **{f"replication_pad{n}d": replication_pad for n in (1, 2, 3)},
    "pad": pad,
    "pixel_shuffle": pixel_shuffle,
    "pixel_unshuffle": pixel_unshuffle,
    "channel_shuffle": channel_shuffle,
    "native_channel_shuffle": channel_shuffle,
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), _filled(0)),
    # What memory holds that nobody wrote may be anything.
    **dict.fromkeys(("empty", "empty_like", "new_empty", "empty_permuted"), _filled(0)),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _filled(1)),
    **dict.fromkeys(("full", "full_like", "new_full"), full),
    "scalar_tensor": lambda g, s, **_: g.tensor(s, g.dtype),
    "arange": arange,
}
