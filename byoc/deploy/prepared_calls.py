"""Calls of a network whose inputs have shapes that were called before.

What such a call needs beside the arrays is known then: of one region the sizes that it is told, and
the shapes of its results; of the virtual machine, that all is well.  Arrays are only looked at, as
``input_tensors`` checks them; where one is not plain, or a shape is new, the long way is taken,
which says what is wrong.  For a small network that is most of a call's time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

import numpy as np

from byoc.deploy.exchange import is_numpys, numpy_dtype
from byoc.deploy.input_tensors import ALIGNMENT, aligned_copy
from byoc.deploy.metadata import Metadata
from byoc.deploy.result_memory import ResultMemory, Wanted, wanted
from byoc.deploy.tvm_runtime import size_own_pool

if TYPE_CHECKING:
    import tvm_ffi

#: Shapes that are kept; another one forgets all of them.
_MOST = 64

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class _Call:
    """What a call needs for inputs of certain shapes: its sizes, if it takes any, and results."""

    sizes: tuple[Any, ...]
    results: tuple[Wanted, ...]  # in the network's order


class _PlainArrays:
    """The inputs of a network as plain arrays."""

    def __init__(self, metadata: Metadata) -> None:
        self._inputs = [(info.name, numpy_dtype(info.dtype)) for info in metadata.inputs]

    def of(self, inputs: Mapping[str, Any]) -> list[np.ndarray] | None:
        """The inputs, if all are dense arrays of their dtypes that may be written to.

        NumPy hands out no others by DLPack.
        """
        if type(inputs) is not dict or len(inputs) != len(self._inputs):
            return None
        arrays = []
        for name, dtype in self._inputs:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype:
                return None
            flags = array.flags
            if not (flags.c_contiguous and flags.writeable and flags.aligned):
                return None
            arrays.append(array)
        return arrays


class MachineCalls:
    """The calls that TVM's virtual machine computes; ``invoke`` runs it on tensors.

    Only weakly: a model that nobody has any more is closed at once.
    """

    def __init__(self, metadata: Metadata, invoke: Callable[[list[Any]], list[Any]]) -> None:
        import tvm_ffi

        self._invoke = WeakMethod(invoke)
        self._plain = _PlainArrays(metadata).of
        self._outputs = [info.name for info in metadata.outputs]
        self._known: set[Shapes] = set()
        self._tensor_of = tvm_ffi.from_dlpack

    def learn(
        self, inputs: Mapping[str, Any], symbols: Mapping[str, int], results: Mapping[str, Any]
    ) -> None:
        """Keep the shapes of a call that went the long way, unless an array was not plain."""
        del symbols, results
        arrays = self._plain(inputs)
        if arrays is not None and all(array.size for array in arrays):
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known.add(tuple([array.shape for array in arrays]))

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray] | None:
        """The results by name; None where the call has to go the long way."""
        arrays, invoke = self._plain(inputs), self._invoke()
        if arrays is None or invoke is None:
            return None
        if tuple([array.shape for array in arrays]) not in self._known:
            return None
        tensors = []
        for array in arrays:
            tensor = self._tensor_of(array)
            if tensor.data_ptr() % ALIGNMENT:
                tensor = self._tensor_of(aligned_copy(array))
            tensors.append(tensor)
        values = invoke(tensors)
        found = zip(self._outputs, values, strict=True)
        return {name: np.array(np.from_dlpack(value)) for name, value in found}


class PreparedCalls:
    """The calls of one region; ``region`` is its packed function, ``memory`` for its results."""

    def __init__(self, metadata: Metadata, region: tvm_ffi.Function, memory: ResultMemory) -> None:
        import tvm_ffi

        entry = metadata.entry or metadata.repeats
        assert entry is not None
        self._region = region
        self._memory = memory
        self._sizes = entry.sizes
        self._plain = _PlainArrays(metadata).of
        self._outputs = [(info.name, numpy_dtype(info.dtype)) for info in metadata.outputs]
        self._names = [name for name, _ in self._outputs]
        #: By the places of the region's arguments: numbers of the network's inputs and outputs.
        self._reads = entry.inputs
        self._writes = sorted(range(len(entry.outputs)), key=entry.outputs.__getitem__)
        self._calls: dict[Shapes, _Call] = {}
        self._tensor_of = tvm_ffi.from_dlpack
        self._shape = tvm_ffi.Shape

    def learn(
        self, inputs: Mapping[str, Any], symbols: Mapping[str, int], results: Mapping[str, Any]
    ) -> None:
        """Keep what a call needed that went the long way, unless an array was not plain."""
        arrays = self._plain(inputs)
        if arrays is None or not symbols.keys() >= {*self._sizes}:
            return
        if not all(array.size for array in (*arrays, *results.values())):
            return
        rooms = tuple(wanted(results[name].shape, dtype) for name, dtype in self._outputs)
        sizes = tuple(symbols[size] for size in self._sizes)
        if len(self._calls) >= _MOST:
            self._calls.clear()
        key = tuple([array.shape for array in arrays])
        self._calls[key] = _Call((self._shape(sizes),) if sizes else (), rooms)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray] | None:
        """The results by name; None where the call has to go the long way.

        Raises what the region raises.
        """
        arrays = self._plain(inputs)
        if arrays is None:
            return None
        call = self._calls.get(tuple([array.shape for array in arrays]))
        if call is None:
            return None
        size_own_pool()
        tensor_of = self._tensor_of
        rooms = self._memory.rooms(call.results)
        self._region(
            *call.sizes,
            *[tensor_of(arrays[number]) for number in self._reads],
            *[tensor_of(rooms[number]) for number in self._writes],
        )
        return dict(zip(self._names, rooms, strict=True))


def prepared_calls(
    metadata: Metadata,
    function: Callable[[str], tvm_ffi.Function],
    memory: ResultMemory,
    invoke: Callable[[list[Any]], list[Any]],
) -> PreparedCalls | MachineCalls | None:
    """For a network that keeps no states and has NumPy's own dtypes; else None."""
    entry = metadata.entry or metadata.repeats
    infos = (*metadata.inputs, *metadata.outputs)
    if metadata.states or not metadata.outputs or not all(is_numpys(i.dtype) for i in infos):
        return None
    if entry is None:
        return MachineCalls(metadata, invoke)
    return PreparedCalls(metadata, function(entry.symbol), memory)
