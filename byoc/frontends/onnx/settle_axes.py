"""The extents of dynamic axes that nobody gave: symbols, multiples of symbols, or sizes.

A model is imported with a name for each such axis. Where sizes inside of it cannot be told then,
less general extents are tried, until they can be, or until fixed sizes would be no better:

    past+sequence for a total         a decoder's mask is as long as its cache and its input
    a name for each axis              as the file has them, or after what the axis usually is
    another's length and more         what is cut to another axis, and may be longer (longer_axes)
    what operators ask for            extents that are equal, axes that are not shorter (learned)
    sizes at which reshapes fit       a batch that is 1 in the file, multiples for -1 (learned, too)
    one name for all of one meaning   inputs that the file has no names for are added or joined;
                                      first with those that are called after an encoder apart
    no empty axes, as in n+1          the first element is taken apart, or all but the last one
    no short axes, as in n+240        the first 240 are taken apart, as of sound in frames
    multiples, such as 32*height      images are halved, and joined with their doubled form; all
                                      images, or the first alone, whose states are smaller
    a batch of 1                      the batch is mixed with other axes
    a height, such as 48              lines of text are joined with their mean over the height
    sizes alone                       also those of pieces of sound, and of larger pictures

What came of it is said in one line, which goes into the library as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import onnx
import tvm
from onnx import numpy_helper

from byoc.extent import Extent
from byoc.frontends.onnx.dynamic_axes import (
    DynamicAxis,
    joined,
    multiplied,
    not_empty,
    one_input_sized,
    shapes_with,
    sized,
    tied,
)
from byoc.frontends.onnx.input_shapes import InputShapes
from byoc.frontends.onnx.learned_axes import (
    LONGEST,
    SIDES,
    Dividend,
    Elements,
    Steps,
    Unequal,
    learned,
    of_numbers,
)
from byoc.frontends.onnx.longer_axes import longer
from byoc.frontends.onnx.named_import import assumed_in, ranges_of
from byoc.frontends.onnx.other_extents import (
    halved_often,
    with_batches_of_one,
    with_lengths,
    with_pictures,
)
from byoc.frontends.onnx.suggest_multiples import MULTIPLES
from byoc.frontends.onnx.unknown_sizes import has_cuts, has_fewer_axes, values_without_shape
from byoc.frontends.onnx.weights_apart import ApartModel

#: The multiple that tells whether any helps: most networks halve an image five times at most.
_USUAL = 32

#: Heights of lines of text, for networks that fit one height alone.
_HEIGHTS = (48, 32, 64)

#: How often axes are learned from what the import before them ran into.
_LESSONS = 4

#: Imports a model, and notes extents that operators want to be equal.
Convert = Callable[[ApartModel, Unequal], tvm.IRModule]


@dataclass(frozen=True)
class Settled:
    """A prepared model with extents for all axes, and its module; none where no extents help."""

    prepared: ApartModel
    module: tvm.IRModule | None
    #: Values in the module that have no known shape, and extents that it takes for equal.
    unknown: int = 0


def settle_axes(
    first: ApartModel,
    prepare: Callable[[InputShapes], ApartModel],
    convert: Convert,
    failed: Collection[tuple[DynamicAxis, ...]] = (),
) -> Settled:
    """Import ``first``, which has names for its dynamic axes, or the model with other extents.

    Extents that ``failed`` are not taken again. ``prepare`` takes the shapes of inputs; what
    ``convert`` raises means that these extents do not help, and an operator without a converter
    that none will. A batch that may not be 1 is taken where nothing else is left.
    """
    noted: dict[tuple[DynamicAxis, ...], Unequal] = {}
    narrow: list[Settled] = []
    attempt = partial(_attempt, first, prepare, convert, {*failed}, noted, narrow)
    found = _best(first, prepare, attempt, noted)
    if narrow and not _is_whole(found):
        return narrow[0]
    return _uncut(_reshaped(found, attempt, noted), attempt)


def _is_whole(found: Settled) -> bool:
    """Whether all sizes are known, and no output lacks an axis that the file says it has."""
    outputs = [output.name for output in found.prepared.model.graph.output]
    return bool(
        found.module is not None
        and not found.unknown
        and not has_fewer_axes(found.module, outputs, found.prepared.ranks)
    )


def _reshaped(
    found: Settled,
    attempt: Callable[..., Settled | None],
    noted: Mapping[tuple[DynamicAxis, ...], Unequal],
) -> Settled:
    """An import whose reshapes fit, and whose ranges have steps, where sizes can be told at which
    they do; others are checked by the run, and split the network."""
    for _ in range(_LESSONS):
        axes = found.prepared.axes
        counts = [pair for pair in noted.get(axes, ()) if isinstance(pair, Elements | Steps)]
        fitting = learned(axes, counts)
        if fitting == axes or found.module is None:
            break
        tried = attempt(fitting)
        if tried is None or tried.unknown > found.unknown:
            break
        found = tried
    return found


def _best(
    first: ApartModel,
    prepare: Callable[[InputShapes], ApartModel],
    attempt: Callable[..., Settled | None],
    noted: dict[tuple[DynamicAxis, ...], Unequal],
) -> Settled:
    """The most general import; one without a module where none helps."""
    try:
        # Nothing may ask for a total: GroupQueryAttention clamps what a wrong one would tell.
        total = tied(first.axes)
        if total != first.axes and (found := attempt(total)) is not None and not found.unknown:
            return found
        best = attempt(first.axes, first)
        if best is not None and not best.unknown:
            return best
        learn = partial(_learn, attempt=attempt, noted=noted)
        if (taught := learn(first.axes)) is not None:
            return taught
        axes = _with_numbers(first.axes, attempt, noted)
        return _settle(first, axes, prepare, attempt, learn, noted, best)
    except tvm.error.OpNotImplemented:
        return with_sizes(first, prepare)


def _learn(
    axes: tuple[DynamicAxis, ...],
    attempt: Callable[..., Settled | None],
    noted: Mapping[tuple[DynamicAxis, ...], Unequal],
) -> Settled | None:
    """An import that knows all sizes, where each before it tells how the axes have to be.

    That a dividend be not below 0 is asked for last: the network may do without the quotient.
    """
    more = longer(axes, noted.get(axes, []))
    if more != axes and (found := attempt(more)) is not None and not found.unknown:
        return found
    found = _taught(axes, attempt, noted, dividends=False)
    if found is None and any(isinstance(p, Dividend) for known in noted.values() for p in known):
        found = _taught(axes, attempt, noted, dividends=True)
    return found


def _taught(
    named: tuple[DynamicAxis, ...],
    attempt: Callable[..., Settled | None],
    noted: Mapping[tuple[DynamicAxis, ...], Unequal],
    dividends: bool,
) -> Settled | None:
    """Such an import, without or with what dividends tell."""
    axes = named
    for _ in range(_LESSONS):
        pairs = [p for p in noted.get(axes, []) if dividends or not isinstance(p, Dividend)]
        better = learned(axes, pairs)
        if better == axes:
            return None
        axes, found = better, attempt(better)
        if found is not None and not found.unknown:
            tries = (attempt(less) for less in one_input_sized(named, axes))
            known = (t for t in tries if t is not None and not t.unknown)
            return next((t for t in known if not noted[t.prepared.axes]), found)
    return None


def _with_numbers(
    axes: tuple[DynamicAxis, ...],
    attempt: Callable[..., Settled | None],
    noted: Mapping[tuple[DynamicAxis, ...], Unequal],
) -> tuple[DynamicAxis, ...]:
    """The axes with the sizes that have to be a number, whatever the others are."""
    for _ in range(_LESSONS):
        if axes not in noted:
            attempt(axes)
        better = of_numbers(axes, noted.get(axes, []))
        if better == axes:
            break
        axes = better
    return axes


def _settle(
    first: ApartModel,
    open_axes: tuple[DynamicAxis, ...],
    prepare: Callable[[InputShapes], ApartModel],
    attempt: Callable[..., Settled | None],
    learn: Callable[..., Settled | None],
    noted: Mapping[tuple[DynamicAxis, ...], Unequal],
    best: Settled | None,
) -> Settled:
    """The same by other extents; ``best`` is the import with a name for each axis.

    ``open_axes`` have names where there is a choice."""
    fixed = sized(open_axes)
    at_sizes = attempt(fixed) if best is None else None
    if best is None and at_sizes is None:
        if (taught := _from_first(open_axes, attempt, learn)) is not None:
            return taught
        # Usual sizes may be too large, such as of a sentence for a table of positions.
        for axes in with_batches_of_one(open_axes):
            taught = _first_known([attempt(axes)]) or learn(axes)
            if taught is not None and not noted.get(taught.prepared.axes):
                return taught
        less = (
            *with_lengths(open_axes),
            *halved_often(open_axes),
            *with_pictures(open_axes),
        )
        at_sizes = _first_known(map(attempt, less))
        if at_sizes is None:
            return with_sizes(first, prepare, open_axes)
    apart, one = joined(open_axes, apart=True), joined(open_axes)
    choices = list(dict.fromkeys([tied(apart), apart, tied(one), one, open_axes]))
    longest = _longest_cut(first.model)
    least = [not_empty(axes, size) for size in dict.fromkeys((1, longest)) for axes in choices]
    often = [multiplied(axes, _USUAL) for axes in choices]
    for axes in (*choices[:-1], *least, *often, *halved_often(open_axes)):
        best = _better(best, attempt(axes))
        if best is not None and not best.unknown:
            return _with_least_multiple(best, attempt)
        if (taught := learn(axes)) is not None:
            return taught
        if axes == often[-1] and (taught := _from_first(open_axes, attempt, learn)) is not None:
            return taught
    if at_sizes is None:
        at_sizes = attempt(fixed)
    for axes in choices:
        for less in (axes, not_empty(axes), multiplied(axes, _USUAL)):
            if _better(best, at_sizes) is at_sizes:
                best = _better(best, attempt(sized(less, "batch")))
    best = _better(best, at_sizes)
    if best is None or best.unknown:
        tall = (sized(open_axes, "height", height) for height in _HEIGHTS)
        best = _first_known(map(attempt, (*tall, *with_lengths(open_axes)))) or best
    return best


def _longest_cut(model: onnx.ModelProto) -> int:
    """How long an axis has to be for constant slices, of those places that may be asked for.

    1 where there are none.
    """
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    longest = 1
    for node in model.graph.node:
        if node.op_type != "Slice" or len(node.input) < 3:
            continue
        lists = [numpy_helper.to_array(known[n]).ravel() for n in node.input[1:] if n in known]
        backward = len(lists) == 4 and lists[3].min() < 0  # from an element that has to be there
        cuts = [int(cut) + (place == 0 and backward) for place, cut in _each(lists[:2])]
        longest = max([longest, *(cut for cut in cuts if cut <= LONGEST)])
    return longest


def _each(lists: Iterable[Iterable[int]]) -> Iterator[tuple[int, int]]:
    return ((place, one) for place, some in enumerate(lists) for one in some)


def _from_first(
    axes: tuple[DynamicAxis, ...],
    attempt: Callable[..., Settled | None],
    learn: Callable[..., Settled | None],
) -> Settled | None:
    """An import with the least multiple for the first image alone, from which the others learn.

    They may be as small as it becomes inside, as states of a network for videos are.
    """
    images = list(dict.fromkeys(axis.input for axis in axes if axis.meaning in SIDES))
    if len(images) < 2:
        return None

    def halved(factor: int) -> Settled | None:
        some = multiplied(axes, factor, images[:1])
        return _first_known([attempt(some)]) or learn(some)

    found = halved(_USUAL)
    if found is None:
        return None
    less = (halved(factor) for factor in MULTIPLES if factor < _USUAL)
    return next((one for one in less if one is not None), found)


def _first_known(found: Iterable[Settled | None]) -> Settled | None:
    """The first import that knows all sizes."""
    return next((one for one in found if one is not None and not one.unknown), None)


def _better(one: Settled | None, other: Settled | None) -> Settled | None:
    """Of two imports the one that knows more; the first where both know as much."""
    if one is None or other is None:
        return one or other
    return other if other.unknown < one.unknown else one


def with_sizes(
    first: ApartModel,
    prepare: Callable[[InputShapes], ApartModel],
    open_axes: tuple[DynamicAxis, ...] | None = None,
) -> Settled:
    """The model with sizes for its dynamic axes, or what is left of them, not yet imported."""
    axes = sized(first.axes if open_axes is None else open_axes)
    prepared = prepare(shapes_with(first.model, axes))
    prepared.axes = axes
    return Settled(prepared, None)


def _attempt(
    first: ApartModel,
    prepare: Callable[[InputShapes], ApartModel],
    convert: Convert,
    failed: set[tuple[DynamicAxis, ...]],
    noted: dict[tuple[DynamicAxis, ...], Unequal],
    narrow: list[Settled],
    axes: tuple[DynamicAxis, ...],
    prepared: ApartModel | None = None,
) -> Settled | None:
    """The model with these extents; None where the import fails, or something after it did.

    Extents that operators want to be equal are ``noted``, those that ``failed`` not tried again.
    Imports whose batch may not be 1 go into ``narrow``, and count as not knowing a value.
    """
    if axes in failed:
        return None
    try:
        if prepared is None:
            prepared = prepare(shapes_with(first.model, axes))
            prepared.axes = axes
        module = convert(prepared, noted.setdefault(axes, []))
    except (MemoryError, tvm.error.OpNotImplemented):
        raise
    except Exception:  # converters raise whatever their code runs into
        failed.add(axes)
        return None
    found = Settled(prepared, module, values_without_shape(module) + assumed_in(module))
    longer = {declared.name for declared in ranges_of(module) if declared.least > 1}
    if not any(_is_batch(axis) and longer & _names(axis) for axis in axes):
        return found
    if not found.unknown:
        narrow.append(found)
    return replace(found, unknown=found.unknown + 1)


def _is_batch(axis: DynamicAxis) -> bool:
    """Whether an axis is a batch, beyond that it is the first one of a matrix."""
    return axis.meaning == "batch" and (axis.named or not axis.matrix)


def _names(axis: DynamicAxis) -> set[str]:
    return {*axis.extent.names} if isinstance(axis.extent, Extent) else set()


def _with_least_multiple(found: Settled, attempt: Callable[..., Settled | None]) -> Settled:
    """The import with the least multiple of which it knows all sizes."""
    factors = [factor for factor in MULTIPLES if factor < _USUAL]
    axes = found.prepared.axes
    if _USUAL not in map(_factor, axes):
        return found
    if any(axis.meaning in SIDES for axis in axes):  # texts beside images are not halved
        some = tuple(
            replace(axis, extent=replace(axis.extent, factor=1))
            if axis.meaning not in SIDES and _factor(axis) == _USUAL
            else axis
            for axis in axes
        )
        less = attempt(some)
        if less is not None and not less.unknown:
            found, axes = less, some
    while factors:
        middle = len(factors) // 2
        less = attempt(_by(axes, factors[middle]))
        if less is not None and not less.unknown:
            found, factors = less, factors[:middle]
        else:
            factors = factors[middle + 1 :]
    return found


def _uncut(found: Settled, attempt: Callable[..., Settled | None]) -> Settled:
    """The import with 32*h+32 for 32*h, if then no extent depends on whether h is 0.

    Windows of an image that are moved by a half are such slices.
    """
    if found.module is None or not has_cuts(found.module):
        return found
    some = tuple(
        replace(axis, extent=replace(axis.extent, offset=axis.extent.factor))
        if _factor(axis) > 1 and not axis.extent.offset
        else axis
        for axis in found.prepared.axes
    )
    if some == found.prepared.axes:
        return found
    whole = attempt(some)
    fits = whole is not None and not whole.unknown and not has_cuts(whole.module)
    return whole if fits else found


def _factor(axis: DynamicAxis) -> int:
    return axis.extent.factor if isinstance(axis.extent, Extent) else 1


def _by(axes: tuple[DynamicAxis, ...], factor: int) -> tuple[DynamicAxis, ...]:
    """The axes with another factor for those that are multiplied."""
    return tuple(
        replace(axis, extent=replace(axis.extent, factor=factor)) if _factor(axis) > 1 else axis
        for axis in axes
    )
