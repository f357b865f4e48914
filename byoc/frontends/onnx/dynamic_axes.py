"""Names, and sizes, for dynamic axes that nobody gave.

The names are those of the file where they say something. Exporters also write ``?``, ``unk__12``
or nothing at all; such an axis is called after what it usually is: the first one of an input is
the batch, the last two of an image are its sides. What an axis is also tells a sensible size for
it, where there has to be one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import onnx

from byoc.extent import Extent, parse_extent
from byoc.frontends.onnx.input_shapes import (
    InputShapes,
    OpenAxis,
    fixed_extent,
    model_inputs,
    set_input_shapes,
    shared_name,
    write_extent,
)

#: Names that exporters number, of axes of which they know nothing else.
_NUMBERED = re.compile(
    r"(.*[._:])?_*((unk|unknown|DynamicDimension|dynamic_axes)[._]*\d*|(dim|axis)[._]*\d+)",
    re.IGNORECASE,
)

#: What an axis is, by its name; the first that fits.
_MEANINGS = {
    "batch": re.compile(r"batch|^(n|b|bs|bsz)$", re.IGNORECASE),
    "past": re.compile(r"past|cache|prefix", re.IGNORECASE),
    "height": re.compile(r"height|^h$", re.IGNORECASE),
    "width": re.compile(r"width|^w$", re.IGNORECASE),
    "samples": re.compile(r"sample|audio|wav|signal", re.IGNORECASE),
    "sequence": re.compile(r"seq|len|token|time|frame|text|word|^(t|s|l)$", re.IGNORECASE),
}

#: Sizes for what needs one: a photograph, a sentence, a second of speech.
_SIZES = {
    **{"batch": 1, "past": 16, "samples": 16000},
    **{"channels": 3, "depth": 16, "height": 224, "width": 224},
}
_OTHER_SIZE = 128

#: Sizes at which a library is tried, where few pixels or samples fit no window.
_TRIED = {
    "height": (64, 96, 128, 224),
    "width": (64, 160, 96, 224),
    "samples": (4096, 8000, 16000, 5000),
}

#: Axes that a network may halve, to join the halves again, so that it needs multiples.
_HALVED = ("depth", "height", "width", "samples", "length", "sequence")

#: Masks of all tokens, those of a cache as well.
_MASKS = ("attention_mask", "decoder_attention_mask")

#: Inputs that a line names before it says how many more there are.
MAX_LISTED = 3

#: Channels of pictures.
_CHANNELS = (1, 3, 4)
#: Inputs of one name that may have several lengths after all.
_FEW_INPUTS = 3

#: Token ids, lengths and masks, rather than measurements.
_DISCRETE = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL)


@dataclass(frozen=True)
class DynamicAxis:
    """An axis that nobody gave a size: the extent that it got, and what it is taken for.

    One that is ``named`` has a name in the file that says something.  An unnamed axis of a
    ``matrix`` may be steps of time as well as a batch.
    """

    input: str
    axis: int
    extent: Extent | int
    meaning: str
    named: bool
    matrix: bool = False


@dataclass
class _Names:
    """What axes are called, by what the file calls them."""

    taken: set[str]
    known: dict[str, tuple[Extent, str, bool]] = field(default_factory=dict)
    batch: str = ""

    def unused(self, name: str) -> str:
        """A name that nothing else has."""
        wanted, number = name, 1
        while name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self.taken.add(name)
        return name

    def keep(self, key: str) -> None:
        """Note a name of the file, if it says anything."""
        if not key or key in self.known or _NUMBERED.fullmatch(key):
            return
        try:
            form = parse_extent(key)
        except ValueError:
            form = Extent(_identifier(key))
        if form == Extent(form.name):
            name = self.unused(form.name)
        else:  # a multiple of a name, which may stand alone elsewhere
            for part in form.names:
                self.keep(part)
            name, *others = (
                self.known[part][0].name if part in self.known else part for part in form.names
            )
            form = replace(form, others=tuple(others))
        meaning = next((m for m, words in _MEANINGS.items() if words.search(name)), "")
        if meaning == "batch" and self.batch and len(key) == 1:
            meaning = ""  # in [batch_size, N] a number of something else
        if meaning == "batch":
            self.batch = self.batch or name
        self.known[key] = (replace(form, name=name), meaning, True)

    def invent(self, key: str, meaning: str) -> tuple[Extent, str, bool]:
        """A name for an axis without one; all inputs have one batch."""
        if meaning == "batch":
            self.batch = self.batch or self.unused(meaning)
        name = self.batch if meaning == "batch" else self.unused(meaning)
        return Extent(name), meaning, False


def set_shapes(model: onnx.ModelProto, shapes: InputShapes) -> tuple[DynamicAxis, ...]:
    """Write shapes into the inputs, and names into the dynamic axes that they leave open, in place.

    Returns these axes. Raises ``ShapeError``.
    """
    left = set_input_shapes(model, shapes)
    given = (extent for shape in shapes.values() for extent in shape if isinstance(extent, str))
    axes = name_axes(left, {parse_extent(text).name for text in given})
    write_axes(model, axes)
    return axes


def name_axes(axes: Sequence[OpenAxis], taken: Collection[str] = ()) -> tuple[DynamicAxis, ...]:
    """A name for each axis; ``taken`` are names that have a meaning.

    Axes of one name in the file have one name here, and all inputs have one batch.
    """
    names = _Names(set(taken))
    for axis in axes:
        names.keep(shared_name(axis.dim))
    found, begun = [], set()
    for axis in axes:
        key = shared_name(axis.dim)
        usual = _usual_meaning(axis, axis.value.name not in begun)
        begun.add(axis.value.name)
        extent, meaning, named = names.known.get(key) or names.invent(key, usual)
        if key:
            names.known[key] = extent, meaning or usual, named
        matrix = len(axis.value.type.tensor_type.shape.dim) == 2
        found.append(
            DynamicAxis(axis.value.name, axis.axis, extent, meaning or usual, named, matrix)
        )
    return tuple(found)


def sizes_to_try(name: str, factor: int, usual: Sequence[int]) -> list[int]:
    """Values of a symbol for several runs: ``usual`` ones, or such that an image has some pixels.

    ``factor`` is by what the axis is greater than the symbol.
    """
    meaning = next((m for m, words in _MEANINGS.items() if words.search(name)), "")
    return [max(1, size // factor) for size in _TRIED[meaning]] if meaning in _TRIED else [*usual]


def joined(axes: tuple[DynamicAxis, ...], apart: bool = False) -> tuple[DynamicAxis, ...]:
    """The axes with one name for all that have none in the file and are taken for the same.

    Of a decoder, those of inputs that are called after its encoder may stay ``apart``.
    """

    def key(axis: DynamicAxis) -> tuple[str, bool]:
        return axis.meaning, apart and axis.meaning != "batch" and "encoder" in axis.input

    names = {key(axis): axis.extent.name for axis in reversed(_open(axes))}
    names |= {key(axis): axis.extent.name for axis in reversed(_open(axes)) if axis.named}
    return tuple(
        axis
        if axis.named or isinstance(axis.extent, int)
        else replace(axis, extent=Extent(names[key(axis)]))
        for axis in axes
    )


def tied(axes: tuple[DynamicAxis, ...]) -> tuple[DynamicAxis, ...]:
    """The axes with ``past + sequence`` for what is called a total, of a decoder with a cache.

    So is a mask's whose axis is called as that of the tokens: a merged decoder has the names of its
    prompt, where nothing is past.
    """
    others = [axis for axis in reversed(_open(axes)) if not _is_total(axis)]
    names = {axis.meaning: axis.extent.name for axis in others}
    if not {"past", "sequence"} <= names.keys():
        return axes
    both = Extent(names["past"], others=(names["sequence"],))
    tokens = {axis.extent.name for axis in others if axis.input not in _MASKS}
    return tuple(
        replace(axis, extent=both)
        if _is_total(axis)
        or (axis.input in _MASKS and axis.meaning == "sequence" and _named(axis, tokens))
        else axis
        for axis in axes
    )


def _named(axis: DynamicAxis, names: Collection[str]) -> bool:
    form = axis.extent
    return isinstance(form, Extent) and not form.others and form.name in names


def _is_total(axis: DynamicAxis) -> bool:
    form = axis.extent
    return isinstance(form, Extent) and "total" in form.name and not form.others


def _open(axes: Iterable[DynamicAxis]) -> list[DynamicAxis]:
    """Those that have no size yet."""
    return [axis for axis in axes if isinstance(axis.extent, Extent)]


def not_empty(axes: tuple[DynamicAxis, ...], least: int = 1) -> tuple[DynamicAxis, ...]:
    """The axes with ``name+1`` for a name, or more: no axis but the batch is shorter then.

    Multiples that the file has stay multiples: ``32*name`` becomes ``32*name+32``.
    """
    related = _relations(axes)
    return tuple(
        replace(axis, extent=replace(axis.extent, offset=_offset(axis.extent, least)))
        if isinstance(axis.extent, Extent)
        and axis.meaning not in ("batch", "past")
        and related[axis.extent.name] == 1
        else axis
        for axis in axes
    )


def _offset(extent: Extent, least: int) -> int:
    """What makes an extent no shorter than that, and takes no other sizes."""
    steps = -(-(least - extent.offset) // extent.factor)
    return extent.offset + max(steps, 0) * extent.factor


def _relations(axes: Iterable[DynamicAxis]) -> Counter[str]:
    """In how many extents each name is."""
    return Counter(n for extent in {axis.extent for axis in _open(axes)} for n in extent.names)


def multiplied(
    axes: tuple[DynamicAxis, ...], factor: int, inputs: Collection[str] | None = None
) -> tuple[DynamicAxis, ...]:
    """The axes with multiples for those that networks halve; of some ``inputs``, or of all."""
    halved = {
        axis.extent.name
        for axis in _open(axes)
        if axis.meaning in _HALVED and (inputs is None or axis.input in inputs)
    }
    halved -= {name for name, extents in _relations(axes).items() if extents > 1}
    return tuple(
        replace(axis, extent=replace(axis.extent, factor=factor))
        if isinstance(axis.extent, Extent) and axis.extent.name in halved
        else axis
        for axis in axes
    )


def one_input_sized(
    named: tuple[DynamicAxis, ...], axes: tuple[DynamicAxis, ...]
) -> Iterator[tuple[DynamicAxis, ...]]:
    """Of ``axes``, where one name of several inputs became a size, those where it did for one.

    Some exporters give one name to axes of several lengths. The other inputs get names of their
    own.
    """
    became = dict.fromkeys(
        before.extent.name
        for before, after in zip(named, axes, strict=True)
        if isinstance(before.extent, Extent) and isinstance(after.extent, int)
    )
    taken = {name for axis in axes if isinstance(axis.extent, Extent) for name in axis.extent.names}
    for name in became:
        inputs = list(dict.fromkeys(a.input for a in named if a.extent == Extent(name)))
        if not 1 < len(inputs) <= _FEW_INPUTS:
            continue
        free = (new for n in count(1) if (new := f"{name}_{n}") not in taken)
        own = dict(zip(inputs, free, strict=False))
        for sized_one in inputs:
            yield tuple(
                replace(after, extent=Extent(own[before.input]))
                if before.extent == Extent(name) and before.input != sized_one
                else after
                for before, after in zip(named, axes, strict=True)
            )


def sized(
    axes: tuple[DynamicAxis, ...], meaning: str | None = None, size: int | None = None
) -> tuple[DynamicAxis, ...]:
    """The axes with ``size``, else usual ones, in place of names: all, or those of one meaning."""
    axes = tied(axes) if meaning is None else axes
    values: dict[str, int] = {}
    for axis in axes:
        form = axis.extent
        if isinstance(form, Extent) and not form.others and meaning in (None, axis.meaning):
            usual = size or _SIZES.get(axis.meaning, _OTHER_SIZE)
            left = usual - axis.extent.offset
            values.setdefault(axis.extent.name, max(1, left // axis.extent.factor))
    return tuple(
        replace(axis, extent=axis.extent.within(values))
        if isinstance(axis.extent, Extent) and values.keys() >= set(axis.extent.names)
        else axis
        for axis in axes
    )


def shapes_with(model: onnx.ModelProto, axes: Iterable[DynamicAxis]) -> dict[str, list[int | str]]:
    """Whole shapes of the inputs that have such axes."""
    values = {value.name: value for value in model_inputs(model)}
    shapes: dict[str, list[int | str]] = {}
    for axis in axes:
        dims = values[axis.input].type.tensor_type.shape.dim
        shape = shapes.setdefault(axis.input, [fixed_extent(d) or d.dim_param for d in dims])
        extent = axis.extent
        shape[axis.axis] = extent if isinstance(extent, int) else str(extent)
    return shapes


def write_axes(model: onnx.ModelProto, axes: Iterable[DynamicAxis]) -> None:
    """Give the inputs of a model these extents, in place."""
    values = {value.name: value for value in model_inputs(model)}
    for axis in axes:
        write_extent(values[axis.input].type.tensor_type.shape.dim[axis.axis], axis.extent)


def note(model: onnx.ModelProto, axes: tuple[DynamicAxis, ...]) -> str:
    """What was chosen for the axes, and how to choose otherwise, in one line."""
    told = _telling(axes)
    chosen, sizes = (
        " ".join(f"{name}:[{','.join(map(str, shapes[name]))}]" for name in told[:MAX_LISTED])
        for shapes in (shapes_with(model, axes), shapes_with(model, sized(axes)))
    )
    more = f" and {len(told) - MAX_LISTED} more inputs" if len(told) > MAX_LISTED else ""
    if all(isinstance(axis.extent, int) for axis in axes):
        return f'dynamic axes have sizes: --input-shapes "{chosen}"{more}; give others if need be'
    return f'dynamic axes: {chosen}{more}; sizes run faster, such as --input-shapes "{sizes}"'


def _telling(axes: Iterable[DynamicAxis]) -> list[str]:
    """The inputs that tell sizes, or names that no input before them tells."""
    seen: set[str] = set()
    told: list[str] = []
    for axis in axes:
        if isinstance(axis.extent, int) or not seen.issuperset(axis.extent.names):
            told.append(axis.input)
        if isinstance(axis.extent, Extent):
            seen.update(axis.extent.names)
    return list(dict.fromkeys(told))


def _usual_meaning(axis: OpenAxis, first: bool) -> str:
    """What an axis is by its place; ``first`` of those of its input that have no size."""
    tensor, place = axis.value.type.tensor_type, axis.axis
    sizes = [fixed_extent(dim) for dim in tensor.shape.dim]
    rank = len(sizes)
    # Of a state, as of an LSTM, the layers come before the batch.
    if place == 0 or (first and place == 1 and rank == 3 and (sizes[0] or 1) > 1):
        return "batch"
    if rank > 3 and _MEANINGS["past"].search(axis.value.name):
        return "past"
    if tensor.elem_type in _DISCRETE or (rank == 3 and place == 1):
        return "sequence"
    if rank < 4:
        return "samples" if rank == 2 else "length"
    channels_last = sizes[-1] in _CHANNELS and sizes[1] not in _CHANNELS
    sides = range(1, rank - 1) if channels_last else range(2, rank)
    if place not in sides:
        return "channels"
    return ("depth", "height", "width")[max(place - sides[-1] + 2, 0)]  # those before are depths


def _identifier(text: str) -> str:
    """A name of an axis as a symbol can have it."""
    clean = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "axis"
    return clean if not clean[0].isdigit() else f"_{clean}"
