"""The plan of a region while it grows: what a kernel library sees when it lowers a node.

A library asks the builder for operands in a layout that its kernel reads, for space, and for packed
constants, and records its calls. The finished plan is all that the C emitter sees.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import sympy

from codegen_cc import dtypes
from codegen_cc.dim import Dim, estimate, is_static, product, same, symbol, symbols
from codegen_cc.errors import CodegenError
from codegen_cc.link.weights import WeightBlob
from codegen_cc.plan.borders import Border
from codegen_cc.plan.call import Argument, Call, Loop, Struct
from codegen_cc.plan.concat_in_place import concat_of, continuation
from codegen_cc.plan.in_place import write_in_place
from codegen_cc.plan.layout_cost import LayoutCost
from codegen_cc.plan.memory import Lifetime, Slot, plan_memory
from codegen_cc.plan.narrow_storage import narrow_storage
from codegen_cc.plan.prologue import Prologue
from codegen_cc.plan.rows_in_place import RowsInPlace, rows_in_place
from codegen_cc.plan.tensors import CHANNELS_LAST, Buffer, Pending, Tensor, strides_for
from codegen_cc.region.graph import Region, RegionNode, Value

#: Name of the library whose kernels the planner itself calls.
RUNTIME = "builtin"


@dataclass
class Plan:
    """The calls of one region and the memory that they use.

    Behind ``arena_bytes``, where buffers have an ``arena_offset``, come the ``slots``: buffers in
    them have sizes of which only the call tells which is greater. ``in_place`` are states whose
    output may have the memory of their input, in the order of their calls.
    """

    region: Region
    inputs: list[Buffer]
    outputs: list[Buffer]
    calls: list[Call] = field(default_factory=list)
    arena: list[Buffer] = field(default_factory=list)
    arena_bytes: Dim = 0
    slots: list[Slot] = field(default_factory=list)
    reorders: int = 0
    weight_bytes: int = 0
    #: C types of the static objects ``state0``, ``state1``, ... that calls own.
    states: list[str] = field(default_factory=list)
    in_place: list[RowsInPlace] = field(default_factory=list)

    @property
    def libraries(self) -> list[str]:
        """Names of the kernel libraries that are called, in the order of their first calls."""
        return list(dict.fromkeys(call.library for call in self.calls))

    def symbols(self) -> list[sympy.Symbol]:
        """The symbolic dimensions of the region's values, and those that are passed, by name."""
        results = (value for node in self.region.nodes for value in node.outputs)
        values = [*self.region.inputs, *results]
        dims = [dim for value in values for dim in value.shape]
        return symbols([*dims, *self.region.sizes])


class PlanBuilder:
    """What a kernel library sees of the plan while it lowers a node."""

    def __init__(self, region: Region, weights: WeightBlob) -> None:
        self.region = region
        self.weights = weights
        self.plan = Plan(
            region,
            [_external("input", i, value) for i, value in enumerate(region.inputs)],
            [_external("output", i, value) for i, value in enumerate(region.outputs)],
        )
        self.consumers = region.consumers()
        self._narrow = narrow_storage(region, self.consumers)
        #: What convolutions do as they read their inputs.
        self.prologues: dict[RegionNode, Prologue] = {}
        #: Padding of images that they do by themselves.
        self.borders: dict[RegionNode, Border] = {}
        #: Products that additions compute by themselves.
        self.products: dict[RegionNode, RegionNode] = {}
        #: The library that lowers, and the composite: who recorded a call.
        self.library = ""
        self.composite = ""
        self._tensors: dict[Value, Tensor] = {}
        #: Where images are to lie that are not computed yet.
        self._laid: dict[Value, Tensor] = {}
        self._pending: dict[Value, Pending] = {}
        self.layout_cost = LayoutCost(region, self.consumers, self._tensors)
        self._copies: dict[tuple[Tensor, tuple[int, ...]], Tensor] = {}
        self._rounded: dict[tuple[Tensor, str], Tensor] = {}
        self._loop: Loop | None = None
        self._poured: set[tuple[Value, Tensor]] = set()
        self._joined: dict[RegionNode, Tensor] = {}
        self._weight_buffers: dict[str, Buffer] = {}
        #: What is in the buffers of constants in their logical layout.
        self._arrays: dict[Buffer, np.ndarray] = {}
        for value, buffer in zip(region.inputs, self.plan.inputs, strict=True):
            self._tensors[value] = Tensor(buffer, value.shape, _plain(value.shape))

    def tensor(self, value: Value) -> Tensor:
        """Where a value lies; a constant is stored in its logical layout."""
        if value in self._pending:
            self._lay_out(value)
        if value not in self._tensors:
            if value.data is None:
                raise CodegenError(
                    f"region {self.region.symbol}: {value.name} is read before it is computed"
                )
            tensor = self._tensors[value] = self.constant(value.data)
            # Not those that a library packed: nobody turns them, and keeping them takes memory.
            self._arrays[tensor.buffer] = value.data
        return self._tensors[value]

    def place(self, value: Value, tensor: Tensor) -> None:
        """Say where a node's result lies."""
        if tensor.shape != value.shape:
            raise CodegenError(
                f"region {self.region.symbol}: {value.name} has shape {list(value.shape)}, but its "
                f"kernel gives {list(tensor.shape)}"
            )
        self._tensors[value] = tensor

    def lay(self, value: Value, tensor: Tensor) -> None:
        """Say where an image is to lie, as a part of a result, before its node is lowered."""
        self._laid[value] = tensor

    def put_off(self, value: Value, source: Tensor) -> None:
        """Say that a node's result is ``source`` in another shape, which takes a copy.

        The copy is made for the first reader that asks for the tensor; others may read the source.
        """
        self._pending[value] = Pending(source, value.shape)

    def pending(self, value: Value) -> Pending | None:
        """The copy that has been put off, if a value still needs one."""
        return self._pending.get(value)

    def _lay_out(self, value: Value) -> None:
        """Make the copy that was put off, in the order that its readers like best."""
        pending = self._pending.pop(value)
        source, shape = pending.source, pending.shape
        views = {}
        for order in candidate_orders(shape):
            probe = Tensor(source.buffer, shape, strides_for(shape, order))
            if (pair := pending.onto(probe)) is not None:
                views[order] = pair
        if not views:  # of extents that nothing divides provably
            whole = self.dense(source)
            self._tensors[value] = replace(whole, shape=shape, strides=_plain(shape))
            return
        # A copy that moves runs is faster than one that turns the innermost axes around.
        turns = {
            order: read.innermost_stride(written.walk()) not in (0, 1)
            for order, (read, written) in views.items()
        }
        order = self.layout_cost.best(value, sorted(views, key=turns.__getitem__))
        image = order == CHANNELS_LAST and value.is_image
        stored = self.stored_dtype(value)
        target = self.image_space(value) if image else self.space(shape, stored, order)
        pair = pending.onto(target)
        if pair is None:  # in a concatenation there are gaps between pixels
            target = self.space(shape, stored, order)
            pair = pending.onto(target)
        change = f"{list(source.shape)} to {list(shape)}, axes {list(order)}"
        self.copy(*pair, f"reorder {change}")
        self.plan.reorders += 1
        self._tensors[value] = target

    def constant(self, array: np.ndarray) -> Tensor:
        """Store an array as it is (already packed, or plain) in read-only memory."""
        dtype = str(array.dtype)
        weight = self.weights.add(array)
        if weight.symbol not in self._weight_buffers:
            buffer = Buffer("weights", weight.symbol, array.size, dtype)
            self._weight_buffers[weight.symbol] = buffer
            self.plan.weight_bytes += weight.nbytes
        shape = tuple(array.shape)
        return Tensor(self._weight_buffers[weight.symbol], shape, _plain(shape))

    def space(
        self, shape: tuple[Dim, ...], dtype: str, order: tuple[int, ...] | None = None
    ) -> Tensor:
        """A new dense tensor in the arena, its axes in that order (default: plain)."""
        buffer = Buffer("arena", f"t{len(self.plan.arena)}", product(shape), dtype)
        self.plan.arena.append(buffer)
        return Tensor(buffer, shape, strides_for(shape, order or tuple(range(len(shape)))))

    def stored_dtype(self, value: Value) -> str:
        """The dtype in which a value is stored: its own, unless all who touch it take another."""
        return self._narrow.get(value, value.dtype)

    def image_space(self, value: Value, gaps: bool = True) -> Tensor:
        """Channels-last space for an image [N, C, H, W]; with ``gaps``, there may be some in it.

        It is then a slice of the concatenation that the image, or every part of it, goes into,
        where there is one: that copies nothing.
        """
        if value in self._laid:
            return self._laid[value]
        found = concat_of(value, self.consumers) if gaps else None
        if found is None:
            return self.space(value.shape, self.stored_dtype(value), CHANNELS_LAST)
        concat, first = found
        return self.joined(concat).slice((0, first, 0, 0), value.shape, (1, 1, 1, 1))

    def joined(self, concat: RegionNode) -> Tensor:
        """The space of a concatenation of images along their channels, which its parts share.

        It is the beginning of that of a longer concatenation that begins with the same parts.
        """
        if concat not in self._joined:
            longer = continuation(concat, self.consumers)
            if longer is None:
                space = self.image_space(concat.output)
            else:
                space = self.joined(longer).slice((0,) * 4, concat.output.shape, (1,) * 4)
            self._joined[concat] = space
        return self._joined[concat]

    def is_joined(self, concat: RegionNode) -> bool:
        """Whether some part of a concatenation has been placed in its space already."""
        return concat in self._joined

    def pour(self, value: Value, target: Tensor, comment: str) -> None:
        """Put a value where a concatenation wants it, unless it is there."""
        key = (value, target)
        if key in self._poured:
            return
        self._poured.add(key)
        pending = self.pending(value)
        if pending is not None and (pair := pending.onto(target)) is not None:
            self.copy(*pair, comment)
            if len(target.shape) == 4 and target.pixel_stride() is not None:
                del self._pending[value]
                self._tensors[value] = target
        elif (source := self.tensor(value)) != target:
            self.copy(source, target, comment)

    def dense(self, tensor: Tensor, order: tuple[int, ...] | None = None) -> Tensor:
        """The tensor itself if it is dense in that order (default: plain), else a copy that is."""
        order = order or tuple(range(len(tensor.shape)))
        if tensor.is_dense(order):
            return tensor
        key = (tensor, order)
        if key not in self._copies and tensor.buffer in self._arrays and not _repeats(tensor):
            self._copies[key] = self._turned(tensor, order)
        if key not in self._copies:
            target = self.space(tensor.shape, tensor.dtype, order)
            self.copy(tensor, target, f"reorder {list(tensor.shape)} to axes {list(order)}")
            self.plan.reorders += 1
            self._copies[key] = target
        return self._copies[key]

    def rounded(self, tensor: Tensor, dtype: str) -> Tensor:
        """A copy in another dtype of a tensor without gaps, made once; the same layout."""
        key = (tensor, dtype)
        if key not in self._rounded:
            target = self.space(tensor.shape, dtype, tensor.order())
            names = [str(dtypes.of(each).enumerator) for each in (tensor.dtype, dtype)]
            comment = f"{list(tensor.shape)} as {dtype}"
            arguments: list[Argument] = [*names, tensor.size, tensor, target]
            self._record(Call("ext_cast", arguments, (target,), comment, RUNTIME, "cast"))
            self._rounded[key] = target
        return self._rounded[key]

    def compact(self, tensor: Tensor) -> Tensor:
        """The tensor itself if it is dense in any order, else a copy in the order that it has."""
        return tensor if tensor.order() is not None else self.dense(tensor, tensor.walk())

    def _turned(self, tensor: Tensor, order: tuple[int, ...]) -> Tensor:
        """A view of a constant, stored dense in another order."""
        array = self._arrays[tensor.buffer]
        strides = [stride * array.itemsize for stride in tensor.strides]
        view = np.lib.stride_tricks.as_strided(
            np.ascontiguousarray(array).reshape(-1)[tensor.offset :], tensor.shape, strides
        )
        stored = self.constant(np.ascontiguousarray(view.transpose(order)))
        return stored.permute(tuple(order.index(axis) for axis in range(len(order))))

    def copy(self, source: Tensor, target: Tensor, comment: str) -> None:
        """Record ``target[...] = source[...]`` for views of one shape and dtype."""
        if source.dtype != target.dtype:
            raise CodegenError(
                f"region {self.region.symbol}: {comment}: a copy cannot turn {source.dtype} into "
                f"{target.dtype}; cast it"
            )
        order = sorted(range(len(target.shape)), key=lambda axis: -estimate(target.strides[axis]))
        axes = [axis for axis in order if target.shape[axis] != 1]
        fields: dict[str, object] = {
            "ndim": max(len(axes), 1),
            "shape": [target.shape[axis] for axis in axes] or [1],
            "x_strides": [source.strides[axis] for axis in axes] or [1],
            "y_strides": [target.strides[axis] for axis in axes] or [1],
        }
        element = dtypes.of(target.dtype).bytes
        if element != 4:
            fields["element_size"] = element
        arguments: list[Argument] = [Struct("ext_copy_params", fields), source, target]
        # A copy is the runtime's own, whichever library asks for it.
        self._record(Call("ext_copy", arguments, (target,), comment, RUNTIME, "copy"))

    def call(
        self,
        function: str,
        arguments: list[Argument],
        writes: Tensor | Sequence[Tensor],
        comment: str,
        returns: str = "status",
        over: Sequence[Tensor] = (),
    ) -> None:
        """Record a kernel call; ``returns`` is ``status`` (0 is success) or ``void``.

        ``writes`` is its result, or all of them; each is among the arguments. ``over`` are operands
        that the first result may overwrite, where nothing reads them later.
        """
        if returns not in ("status", "void"):
            raise CodegenError(f"{function} returns {returns!r}; need status or void")
        self._record(
            Call(
                function,
                arguments,
                (writes,) if isinstance(writes, Tensor) else tuple(writes),
                comment,
                self.library,
                self.composite,
                returns == "status",
                over=tuple(over),
            )
        )

    @contextmanager
    def repeated(self, count: Dim) -> Iterator[Dim]:
        """Record calls that are made ``count`` times; gives what counts them, from 0 on.

        What they read from outside, and what they write for others, has its place before.
        """
        if self._loop is not None:
            raise CodegenError(f"region {self.region.symbol}: a loop in a loop")
        if same(count, 1):
            yield 0
            return
        taken = {known.name for known in self.plan.symbols()}
        name = next(name for n in itertools.count() if (name := f"place{n}") not in taken)
        self._loop = Loop(symbol(name), count)
        try:
            yield self._loop.place
        finally:
            self._loop = None

    def _record(self, call: Call) -> None:
        call.loop = self._loop
        self.plan.calls.append(call)

    def state(self, ctype: str) -> str:
        """A static object of a C type for one call site, zeroed at start; its address, as C text.

        For what a kernel prepares at its first call.  Threads may make that call at once: the
        kernel locks.
        """
        if not re.fullmatch(r"[A-Za-z_]\w*( [A-Za-z_]\w*)*", ctype, re.ASCII):
            raise CodegenError(f"state of C type {ctype!r}; need a type's name")
        self.plan.states.append(ctype)
        return f"&{self.region.symbol}_state{len(self.plan.states) - 1}"

    def scratch(self, nbytes: Dim) -> Tensor:
        """Arena space of so many bytes (aligned to 64), for the call that takes it alone."""
        return self.space((nbytes,), "bool")

    def finish(self) -> Plan:
        """Bind the region's outputs, lay out the arena and return the plan."""
        bound: set[Buffer] = set()
        for value, buffer in zip(self.region.outputs, self.plan.outputs, strict=True):
            tensor = self.tensor(value)
            whole = tensor.offset == 0 and same(tensor.buffer.size, tensor.size)
            direct = tensor.buffer.kind == "arena" and whole and tensor.is_dense()
            if direct and tensor.buffer not in bound:
                # The value is computed in the caller's memory; readers inside the region follow.
                tensor.buffer.kind, tensor.buffer.name = buffer.kind, buffer.name
                bound.add(tensor.buffer)
                self.plan.arena.remove(tensor.buffer)
            else:
                target = Tensor(buffer, value.shape, _plain(value.shape))
                self.copy(tensor, target, f"result {value.name} to output {buffer.name}")
        self.plan.in_place = rows_in_place(self.plan.calls, self._replaced(), self._room_for)
        write_in_place([*self.plan.calls, *(rows.undo for rows in self.plan.in_place)])
        lifetimes = _lifetimes(self.plan)
        self.plan.arena_bytes, self.plan.slots = plan_memory(lifetimes)
        return self.plan

    def _room_for(self, rows: Tensor) -> Tensor:
        """Space for what rows of a state were; outputs have taken some names of the arena's."""
        room = self.space(rows.shape, rows.dtype)
        room.buffer.name = f"before{len(self.plan.arena)}"
        return room

    def _replaced(self) -> list[tuple[int, Buffer, Buffer]]:
        plan = self.plan
        return [(i, plan.inputs[i], plan.outputs[j]) for i, j in self.region.replaced]


def _lifetimes(plan: Plan) -> list[Lifetime]:
    """From the first to the last call that touches a buffer; a loop counts as one call."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    calls = [*plan.calls, *(rows.undo for rows in plan.in_place)]
    together = itertools.groupby(calls, lambda call: call.loop or id(call))
    for index, (_, members) in enumerate(together):
        for tensor in (t for call in members for t in (*call.reads(), *call.writes)):
            if tensor.buffer.kind == "arena":
                first.setdefault(tensor.buffer, index)
                last[tensor.buffer] = index
    plan.arena = [buffer for buffer in plan.arena if buffer in first]
    return [Lifetime(buffer, first[buffer], last[buffer]) for buffer in plan.arena]


def candidate_orders(shape: tuple[Dim, ...]) -> list[tuple[int, ...]]:
    """Orders that a copy may write: plain, and the second axis innermost, as in images."""
    plain = tuple(range(len(shape)))
    return [plain, (0, *plain[2:], 1)] if len(shape) > 2 else [plain]


def _repeats(tensor: Tensor) -> bool:
    """Whether a view has more elements than its buffer, or how many is not known."""
    known = is_static([*tensor.shape, *tensor.strides, tensor.offset])
    return not known or tensor.size > tensor.buffer.size


def _external(kind: str, index: int, value: Value) -> Buffer:
    return Buffer(kind, f"{kind}{index}", product(value.shape), value.dtype)


def _plain(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return strides_for(shape, tuple(range(len(shape))))
