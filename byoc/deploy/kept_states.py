"""The states that a loaded model keeps from one call to the next.

Memory of a state that grows has the growing axis first, and room for ``capacity`` rows from the
beginning: the system gives pages only as rows are written, and nothing ever moves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from byoc.arguments import as_mapping
from byoc.deploy.exchange import array_of, bounds_of, meets, numpy_dtype
from byoc.deploy.host_memory import HostMemory
from byoc.deploy.metadata import StateInfo, extent_of
from byoc.errors import InputError, RunError

if TYPE_CHECKING:
    import tvm_ffi

#: Rows of a state that grows, where nobody says.
CAPACITY = 4096


class Memory(Protocol):
    """Where states lie: what this machine, or another one, has room in.

    A room has a ``shape``, and is given by ``room`` with nothing in it that is known.
    """

    def room(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Room for an array."""

    def rows_worth_enlarging(self, room: Any) -> int:
        """From how many rows on it pays to ``enlarge`` a room; more than it has where never."""

    def enlarge(self, room: Any) -> None:
        """Ready a room for many rows. It stays where it is, with what is in it."""

    def first(self, room: Any, count: int) -> Any:
        """The first rows of a room, which are part of it."""

    def first_of(self, rooms: Sequence[Any]) -> Callable[[int], list[tvm_ffi.Tensor]]:
        """What gives the network the first rows of these rooms, so many in each call.

        The tensors of one call may be those of the next.
        """

    def write(self, room: Any, array: np.ndarray | int) -> None:
        """Fill a room with an array of its shape, or with a number."""

    def read(self, room: Any) -> np.ndarray:
        """What is in a room: a view of it where it lies here."""

    def tensor(self, room: Any) -> tvm_ffi.Tensor:
        """What the network takes."""


class _KnownRoom(NamedTuple):
    """What all states have room for."""

    shape: tuple[int, ...]  # of a row
    rows: int
    first_of_all: Callable[[int], list[tvm_ffi.Tensor]]


def require_states(names: Collection[str], given: Mapping[str, Any]) -> None:
    """Raise ``InputError`` unless something is given for each of the states, and for no other."""
    there = ", ".join(names) or "none, as the model keeps no states"
    as_mapping(given, "states", InputError, f"a dictionary of arrays by name: {there}")
    if wrong := sorted(set(names) ^ given.keys()):
        what = "unknown" if wrong[0] in given else "missing"
        raise InputError(f"state {wrong[0]!r} is {what}; need {there}")


class KeptStates:
    """States by the names of the model's inputs, each empty, or all zeros, at first.

    ``memory`` is where they lie: here, where nobody says.
    """

    def __init__(
        self, infos: tuple[StateInfo, ...], capacity: int, memory: Memory | None = None
    ) -> None:
        self._infos = {info.input.name: info for info in infos}
        growing = [info for info in infos if info.axis is not None]
        self._symbols = {  # of each axis that grows, and a state that tells by how much
            str(info.input.shape[info.axis]): info for info in growing if info.axis is not None
        }
        self._fixed = {  # extents of the axes that do not grow
            info.input.name: tuple(
                extent for axis, extent in enumerate(info.input.shape) if axis != info.axis
            )
            for info in infos
        }
        self.capacity = capacity
        self._place: Memory = HostMemory() if memory is None else memory
        self._memory: dict[str, Any] = {}
        self._lengths: dict[str, int] = {}  # by symbols
        self._enlarge_at: dict[str, int] = {}  # rows, of states that grow
        # States that are all alike, as a decoder's are: up to so many rows of these sizes nothing
        # has to be asked of each, and all are given at once.
        alike = len(growing) == len(infos) and len({*self._fixed.values()}) == len(self._symbols)
        self._alike = growing[0] if alike and len(self._symbols) == 1 else None
        self._known_room: _KnownRoom | None = None

    def reset(self) -> None:
        """Forget everything."""
        self._memory.clear()
        self._lengths.clear()
        self._known_room = None

    def hold(self, given: Mapping[str, np.ndarray]) -> None:
        """Let the states lie in the caller's memory: arrays by name, of states that do not grow."""
        self._memory = {name: given[name] for name in self._infos}

    def copy(self) -> KeptStates:
        """The same states in memory of their own."""
        other = KeptStates(tuple(self._infos.values()), self.capacity, self._place)
        other._lengths = dict(self._lengths)
        for name, memory in self._memory.items():
            other._take_room(self._infos[name], tuple(memory.shape))
            self._place.write(other._filled(name), self._place.read(self._filled(name)))
        return other

    def restore(self, given: Mapping[str, np.ndarray]) -> None:
        """Take over arrays, of all states by name, in the model's axes.

        Raises ``InputError`` for names, shapes and dtypes that the states do not have, ``RunError``
        for more rows than there is room for; then nothing has changed.
        """
        require_states(self._infos, given)
        symbols: dict[str, int] = {}
        for name, info in self._infos.items():
            _require(name, info, given[name], symbols)
            if info.axis is not None and given[name].shape[info.axis] > self.capacity:
                raise RunError(
                    f"state {name!r} is given {given[name].shape[info.axis]} rows; it has room for"
                    f" {self.capacity}; load the model with a greater capacity"
                )
        self.reset()
        for name, info in self._infos.items():
            array = given[name] if info.axis is None else np.moveaxis(given[name], info.axis, 0)
            shape = array.shape if info.axis is None else (self.capacity, *array.shape[1:])
            self._take_room(info, shape)
            if info.axis is not None:
                self._lengths[str(info.input.shape[info.axis])] = len(array)
            self._place.write(self._filled(name), array)

    def lengths(self) -> dict[str, int]:
        """The symbols that the states tell: how long those are that grow."""
        return {symbol: self._lengths.get(symbol, 0) for symbol in self._symbols}

    def tensors(self, symbols: Mapping[str, int]) -> list[tvm_ffi.Tensor]:
        """What the network takes behind its inputs, for a call with these symbols.

        Raises ``InputError`` for a shape that the states do not have, ``RunError`` for one that is
        full.
        """
        sizes, shape, whole = _Sizes(symbols), (), 0
        if self._alike is not None:
            shape = sizes.of(self._alike, self._fixed[self._alike.input.name])
            whole = self._length(self._alike) + sizes.step(self._alike)
            known = self._known_room
            if known is not None and known.shape == shape and whole <= known.rows:
                return known.first_of_all(whole)
        rooms = [
            self._replaced(info, sizes) if info.axis is None else self._rows(info, sizes)
            for info in self._infos.values()
        ]
        if self._alike is not None:
            most = min(limit - 1 for limit in self._enlarge_at.values())
            first_of_all = self._place.first_of([*self._memory.values()])
            self._known_room = _KnownRoom(shape, min(most, self.capacity), first_of_all)
        return [self._place.tensor(room) for room in rooms]

    def places(self) -> list[Any]:
        """The memory of the states that a call may write in place, from ``tensors`` on."""
        return [self._memory[name] for name, info in self._infos.items() if info.in_place]

    def require_outside(self, given: Sequence[tuple[str, Any]]) -> None:
        """Raise ``InputError`` for what lies in a state that a call writes in place, here.

        ``given`` are names with NumPy's arrays or tensors of the caller's.
        """
        taken = [*map(bounds_of, self.places())]
        for name, value in given:
            if meets(bounds_of(array_of(value)), taken):
                raise InputError(
                    f"{name!r} lies in a state, which the call writes in place; give it a copy"
                )

    def advance(self, symbols: Mapping[str, int], replaced: Sequence[Any]) -> None:
        """Take over what a call left: rows at the end, and the new values of those it replaces."""
        values, sizes = iter(replaced), _Sizes(symbols)
        for symbol, info in self._symbols.items():
            self._lengths[symbol] = self._lengths.get(symbol, 0) + sizes.step(info)
        for name, info in self._infos.items() if self._alike is None else ():
            if info.axis is None:
                self._memory[name] = next(values)

    def views(self) -> dict[str, np.ndarray]:
        """The states as the model has them, none of those that no call has filled yet."""
        found = {}
        for name in self._memory:
            axis, filled = self._infos[name].axis, self._place.read(self._filled(name))
            found[name] = filled if axis is None else np.moveaxis(filled, 0, axis)
        return found

    def _filled(self, name: str) -> Any:
        """The memory of a state, of one that grows the rows that are there."""
        memory, info = self._memory[name], self._infos[name]
        return memory if info.axis is None else self._place.first(memory, self._length(info))

    def _length(self, info: StateInfo) -> int:
        """The rows of a state that grows."""
        assert info.axis is not None
        return self._lengths.get(str(info.input.shape[info.axis]), 0)

    def _take_room(self, info: StateInfo, shape: tuple[int, ...]) -> Any:
        """New memory for a state."""
        try:
            memory = self._place.room(shape, info.input.dtype)
        except (MemoryError, OSError, OverflowError) as error:
            grows = "" if info.axis is None else "; load the model with a smaller capacity"
            raise RunError(
                f"no memory for state {info.input.name!r}, {info.input.dtype}{[*shape]}{grows}"
            ) from error
        self._memory[info.input.name] = memory
        if info.axis is not None:
            self._enlarge_at[info.input.name] = self._place.rows_worth_enlarging(memory)
        return memory

    def _rows(self, info: StateInfo, sizes: _Sizes) -> Any:
        name, length = info.input.name, self._length(info)
        whole = length + sizes.step(info)
        if whole > self.capacity:
            raise RunError(
                f"state {name!r} is full: it has {length} of {self.capacity} rows, and this call"
                f" adds {whole - length}; load the model with a greater capacity, or reset it"
            )
        shape = (self.capacity, *sizes.of(info, self._fixed[name]))
        memory = self._memory.get(name)
        if memory is None or (tuple(memory.shape) != shape and length == 0):
            memory = self._take_room(info, shape)
        if tuple(memory.shape) != shape:
            raise InputError(
                f"state {name!r} has rows of {list(memory.shape[1:])}; this call needs"
                f" {list(shape[1:])}; reset the model before other sizes"
            )
        if whole >= self._enlarge_at[name]:
            self._place.enlarge(memory)
            self._enlarge_at[name] = self.capacity + 1
        return self._place.first(memory, whole)

    def _replaced(self, info: StateInfo, sizes: _Sizes) -> Any:
        name = info.input.name
        shape = sizes.of(info, self._fixed[name])
        memory = self._memory.get(name)
        if memory is None:
            memory = self._take_room(info, shape)
            self._place.write(memory, 0)
        if tuple(memory.shape) != shape:
            raise InputError(
                f"state {name!r} has shape {list(memory.shape)}; this call needs {list(shape)};"
                " reset the model before other sizes"
            )
        return memory


def _require(name: str, info: StateInfo, array: np.ndarray, symbols: dict[str, int]) -> None:
    """Raise ``InputError`` for an array that is no such state; notes what symbols are."""
    shape = info.input.shape
    fits = getattr(array, "dtype", None) == numpy_dtype(info.input.dtype)
    fits = fits and len(array.shape) == len(shape)
    for extent, found in zip(shape, array.shape, strict=True) if fits else ():
        wanted = extent if isinstance(extent, int) else symbols.setdefault(str(extent), found)
        fits = fits and wanted == found
    if not fits:
        told = f"{array.dtype}{list(array.shape)}" if hasattr(array, "dtype") else repr(array)[:60]
        raise InputError(
            f"state {name!r} is given {told}; need {info.input}, as the others have it"
        )


class _Sizes:
    """What extents of states are in one call. Many states share theirs: each is found once.

    Raises ``RunError`` where no input tells a symbol.
    """

    def __init__(self, symbols: Mapping[str, int]) -> None:
        self._symbols = symbols
        self._known: dict[tuple[int | str, ...], tuple[int, ...]] = {}

    def step(self, info: StateInfo) -> int:
        """The rows that the call adds."""
        return info.step if isinstance(info.step, int) else self.of(info, (info.step,))[0]

    def of(self, info: StateInfo, extents: tuple[int | str, ...]) -> tuple[int, ...]:
        """The numbers that extents of a state are."""
        known = self._known.get(extents)
        if known is None:
            try:
                known = tuple(
                    e if isinstance(e, int) else extent_of(e).within(self._symbols) for e in extents
                )
            except KeyError as error:
                raise RunError(
                    f"state {info.input.name!r}: no input tells {error.args[0]};"
                    " compile with another symbol"
                ) from None
            self._known[extents] = known
        return known
