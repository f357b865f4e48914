"""Load a compiled library and run it, with TVM's runtime alone."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc.arguments import as_mapping, as_path, as_threads, as_whole
from byoc.deploy.conditions import Demands
from byoc.deploy.cores import cores
from byoc.deploy.exchange import array_of, tensor_of
from byoc.deploy.input_tensors import (
    ALIGNMENT,
    as_array,
    as_room,
    as_tensor,
    require_apart,
    solve_sums,
    sums_in,
)
from byoc.deploy.kept_states import CAPACITY, KeptStates, require_states
from byoc.deploy.large_pages import enlarge
from byoc.deploy.metadata import Described, LibraryInfo, Metadata, TensorInfo
from byoc.deploy.misfits import in_words
from byoc.deploy.open_compiled import first_line, open_compiled
from byoc.deploy.prepared_calls import prepared_calls
from byoc.deploy.result_memory import ResultMemory
from byoc.deploy.rooms import require_shape, rooms_for
from byoc.deploy.tvm_runtime import pools_are_sized, size_own_pool, size_pools, start_machine
from byoc.deploy.unnamed_results import flat, numbered
from byoc.errors import InputError, LoadError, RunError

if TYPE_CHECKING:
    import tvm_ffi

_SHOWN = 3  # inputs, and outputs, in ``repr`` of a model


class Model(Described):
    """A compiled model.

    Call it with arrays in the order of ``inputs`` or by name, or use ``run`` with a dictionary.
    Inputs are NumPy arrays, or tensors in CPU memory that speak DLPack, such as TVM's.  They must
    have exactly the model's shape and dtype: nothing is cast or broadcast.  They are read where
    they are, also from read-only memory; only arrays that are not contiguous are copied first, and,
    where TVM computes a part of the network, those that are not aligned to 64 bytes.  Results are
    NumPy arrays that the caller owns, or are written into arrays that the caller gives.

    One model may be used from many threads at once, unless it keeps states: then each call goes on
    from where the one before ended. ``reset`` begins anew, ``clone`` gives a model that goes its
    own way from here, with the same library.
    """

    def __init__(
        self,
        path: Path,
        module: tvm_ffi.Module,
        metadata: Metadata,
        kept: KeptStates | None = None,
    ) -> None:
        self.path = path
        self._file = path.absolute()  # for another process, which may work in another folder
        self.metadata = metadata
        self._module: tvm_ffi.Module | None = module
        self._machines = threading.local()
        self._threads_checked = not metadata.libraries
        entry = metadata.entry
        self._region = self.function(entry.symbol) if entry else None
        self._memory = ResultMemory()
        self._demands = Demands(metadata.ranges, metadata.conditions)
        self._sums = sums_in(metadata.inputs)
        self._prepared = prepared_calls(metadata, self.function, self._memory, self.invoke)
        self._kept = KeptStates(metadata.states, CAPACITY) if kept is None else kept
        self._replaced = [state for state in metadata.states if state.axis is None]

    @property
    def libraries(self) -> tuple[LibraryInfo, ...]:
        """The kernel libraries that it uses."""
        return self.metadata.libraries

    def __repr__(self) -> str:
        inputs, outputs = map(_briefly, (self.inputs, self.outputs))
        closed = " (closed)" if self._module is None else ""
        return f"<byoc.Model {self.path.name}{closed}: {inputs} -> {outputs}>"

    def __call__(self, *args: Any, **kwargs: Any) -> np.ndarray | tuple[np.ndarray, ...]:
        """Run the model; returns its output, or a tuple when it has several."""
        if len(args) > len(self.inputs):
            raise InputError(
                f"{len(args)} inputs given; {self.path.name} takes {self._names(self.inputs)}"
            )
        given = {info.name: value for info, value in zip(self.inputs, args, strict=False)}
        if twice := sorted(given.keys() & kwargs.keys()):
            raise InputError(f"input {twice[0]!r} given twice, by position and by name")
        results = tuple(self.run(given | kwargs).values())
        return results[0] if len(results) == 1 else results

    def run(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None = None
    ) -> dict[str, np.ndarray]:
        """Run the model on named arrays; returns the outputs by name.

        ``outputs`` are arrays, of exactly the shape and dtype of the outputs that they are named
        after, that the results are written into and that are returned; a server gives the same
        ones again and again.  A network of one region writes its results where they shall be;
        else they are copied there.  They overlap neither each other nor an input.

        Raises ``InputError`` for a missing or unknown name, a wrong rank, shape, dtype or device.
        """
        if outputs is None and (known := self._run_prepared(inputs)) is not None:
            return known
        return self._run(inputs, outputs, self._kept.lengths())

    def run_on(
        self, states: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Run the model on states that lie with the caller, arrays by the names of its inputs.

        Returns outputs, and what becomes of the states: of one that is written in place the memory
        that was given, if it is dense. Raises ``RunError`` for states that grow.
        """
        infos = [state.input for state in self._replaced]
        if len(infos) != len(self.metadata.states):
            raise RunError(f"{self.path.name} keeps states that grow; use run")
        require_states([info.name for info in infos], states)
        symbols: dict[str, int] = {}
        least = ALIGNMENT if self._region is None else 1
        memory = {i.name: as_tensor(i, states[i.name], symbols, least) for i in infos}
        self._kept.hold({name: array_of(tensor) for name, tensor in memory.items()})
        try:
            return self._run(inputs, None, symbols), self._kept.views()
        finally:
            self._kept.reset()

    def _run(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None, symbols: dict[str, int]
    ) -> dict[str, np.ndarray]:
        region = self._region
        rooms = self._rooms(outputs)
        if rooms:
            self._require_inputs(inputs)
            inputs = {info.name: as_array(info, inputs[info.name]) for info in self.inputs}
        tensors = self.tensors(inputs, ALIGNMENT if region is None else 1, symbols)
        if rooms:
            require_apart(inputs, rooms)
        places = self._places(rooms, symbols)
        if region is not None and places is not None:
            if self._kept.places():
                given = zip((info.name for info in self.inputs), tensors, strict=False)
                self._kept.require_outside([*given, *rooms.items()])
            states = places[len(self.outputs) :]
            self._call_region(region, tensors, places, symbols)
            rooms = {info.name: room for info, room in zip(self.outputs, places, strict=False)}
            self._kept.advance(symbols, states)
            if (prepared := self._prepared) is not None:
                prepared.learn(inputs, symbols, rooms)
            return rooms
        values = self.invoke(tensors)
        given = len(values) - len(self._replaced)
        values, states = values[:given], values[given:]
        self._kept.advance(symbols, [array_of(value) for value in states])
        names = [info.name for info in self.outputs or numbered(values)]
        found = dict(zip(names, values, strict=True))
        results = {name: array_of(value) for name, value in found.items()}
        for name, room in rooms.items():
            require_shape(name, room, results[name].shape)
        if self._prepared is not None and not rooms:
            self._prepared.learn(inputs, symbols, results)
        for name, room in rooms.items():
            np.copyto(room, results[name])
        return {
            name: rooms[name] if name in rooms else np.array(result)
            for name, result in results.items()
        }

    def _run_prepared(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray] | None:
        """The results of a call like one before; None where there was none."""
        prepared = self._prepared  # another thread may close the model
        try:
            return None if prepared is None else prepared.run(inputs)
        except RunError:
            raise
        except (RuntimeError, TypeError, ValueError) as error:
            raise self._failure(error) from error

    def tensors(
        self,
        inputs: Mapping[str, Any],
        alignment: int = ALIGNMENT,
        symbols: dict[str, int] | None = None,
    ) -> list[tvm_ffi.Tensor]:
        """Check named arrays and turn them, and the states, into the tensors of ``invoke``.

        What the shapes' symbols are is added to ``symbols``.
        """
        self._require_inputs(inputs)
        symbols = self._kept.lengths() if symbols is None else symbols
        least = self.metadata.least_size
        tensors = [
            as_tensor(info, inputs[info.name], symbols, alignment, least) for info in self.inputs
        ]
        solve_sums(self._sums, self.inputs, tensors, symbols)
        if problem := self._demands.problem(symbols):
            raise InputError(f"{self.path.name} was not made for these sizes{problem}")
        return [*tensors, *self._kept.tensors(symbols)]

    def invoke(self, tensors: list[tvm_ffi.Tensor]) -> list[tvm_ffi.Tensor]:
        """Run on checked tensors without copying anything: what a benchmark should time."""
        machine = getattr(self._machines, "main", None)
        size_own_pool()
        try:
            if machine is None:
                machine = self._machines.main = start_machine(self._loaded())["main"]
            result = machine(*tensors)
        except RunError:
            raise
        except (RuntimeError, TypeError, ValueError) as error:
            raise self._failure(error) from error
        self._check_threads()
        if self.outputs:
            alone = len(self.outputs) + len(self._replaced) == 1
            return [result] if alone else list(result)
        return flat(result)

    def function(self, name: str) -> tvm_ffi.Function:
        """A packed function of the compiled library, such as one that a kernel library exports.

        Raises ``LoadError`` where there is none of that name.
        """
        try:
            return self._loaded().get_function(name, query_imports=True)
        except (AttributeError, TypeError):
            raise LoadError(f"{self.path} has no packed function {name!r}") from None

    @property
    def states(self) -> dict[str, np.ndarray]:
        """The states by the names of the model's inputs, as views; none before the first call."""
        return self._kept.views()

    def reset(self) -> None:
        """Forget all states: the next call is the first one."""
        self._kept.reset()

    def restore(self, states: Mapping[str, np.ndarray]) -> None:
        """Let the states be what ``states`` told before, of this model or another: a copy of it.

        Raises ``InputError`` for other names, shapes or dtypes, ``RunError`` for too many rows.
        """
        self._kept.restore(states)

    def clone(self) -> Model:
        """A model of the same library, with states of its own that are as these are now."""
        return Model(self.path, self._loaded(), self.metadata, self._kept.copy())

    def enlarge_weights(self) -> int:
        """Move weights that calls have read so far to large pages of this process; returns bytes.

        What the system maps in large pages already stays, as does all that no call read. Each step
        of a decoder reads them faster so. Raises ``RunError`` where there are no such pages.
        """
        self._loaded()
        return enlarge(self._file)

    def close(self) -> None:
        """Let go of the library, which leaves memory once no run is under way.

        Closing twice is harmless; to run a closed model is a ``RunError``.
        """
        self._module = self._region = self._prepared = None
        self._machines = threading.local()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled model is the path of its library: whoever unpickles it loads that file."""
        return load, (str(self._file), None, self._kept.capacity)

    def _loaded(self) -> tvm_ffi.Module:
        """The library. Raises ``RunError`` where the model was closed."""
        module = self._module
        if module is None:
            raise RunError(f"{self.path.name} is closed; load it again")
        return module

    def thread_mismatches(self) -> list[str]:
        """One line for each library with threads of its own that will not use the pool's size.

        The libraries are opened for this, which raises where one is missing.
        """
        import tvm_ffi

        wanted = tvm_ffi.get_global_func("runtime.NumThreads")()
        problems = []
        for library in self.libraries:
            try:
                count = self._loaded().get_function(f"byoc_threads_{library.name}", True)
            except AttributeError:  # it has no threads of its own, or cannot tell their number
                continue
            if (found := count()) != wanted:
                problems.append(
                    f"library {library.name} uses {found} threads where {wanted} are asked for;"
                    " see its own limits and environment variables"
                )
        return problems

    def _places(
        self, rooms: Mapping[str, np.ndarray], symbols: Mapping[str, int]
    ) -> list[np.ndarray] | None:
        """Room for outputs and replaced states, if the region can be called without more ado.

        States that are written in place stay where they are.
        """
        entry = self.metadata.entry
        if entry is None or not symbols.keys() >= {*entry.sizes}:
            return None
        given = iter(self._kept.places())
        new = [
            replace(s.input, name=f"{s.output} of a state")
            for s in self._replaced
            if not s.in_place
        ]
        made = rooms_for([*self.outputs, *new], rooms, symbols, self._memory)
        if made is None:
            return None
        count = len(self.outputs)
        states = iter(made[count:])
        return made[:count] + [next(given if s.in_place else states) for s in self._replaced]

    def _call_region(
        self,
        region: tvm_ffi.Function,
        tensors: list[tvm_ffi.Tensor],
        rooms: list[np.ndarray],
        symbols: Mapping[str, int],
    ) -> None:
        """Let the region that is the whole network read and write the caller's memory."""
        import tvm_ffi

        entry = self.metadata.entry
        assert entry is not None
        size_own_pool()
        places: dict[int, tvm_ffi.Tensor] = {}
        for room, number in zip(rooms, entry.outputs, strict=True):
            places[number] = tensor_of(room)
        arguments = [tensors[number] for number in entry.inputs]
        if entry.sizes:
            arguments.insert(0, tvm_ffi.Shape(tuple(symbols[size] for size in entry.sizes)))
        try:
            region(*arguments, *(places[number] for number in sorted(places)))
        except (RuntimeError, TypeError, ValueError) as error:
            raise self._failure(error) from error
        self._check_threads()

    def _failure(self, error: Exception) -> RunError:
        return RunError(f"{self.path.name}: {in_words(first_line(error))}")

    def _check_threads(self) -> None:
        if not self._threads_checked:
            self._threads_checked = True
            for problem in self.thread_mismatches():
                warnings.warn(problem, RuntimeWarning, stacklevel=4)

    def _rooms(self, outputs: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
        if outputs is None:
            return {}
        self._require_known("output", outputs, self.outputs)
        known = {info.name: info for info in self.outputs}
        return {name: as_room(known[name], value) for name, value in outputs.items()}

    def _require_inputs(self, inputs: Mapping[str, Any]) -> None:
        self._require_known("input", inputs, self.inputs)
        if missing := [info for info in self.inputs if info.name not in inputs]:
            raise InputError(f"input {missing[0].name!r} is missing; it is {missing[0]}")

    def _require_known(
        self, what: str, given: Mapping[str, Any], infos: tuple[TensorInfo, ...]
    ) -> None:
        known = {info.name for info in infos}
        if isinstance(given, dict) and given.keys() <= known:
            return
        need = f"a dictionary of arrays by name: {self._names(infos)}"
        as_mapping(given, f"{what}s", InputError, need)
        verb = "takes" if what == "input" else "gives"
        if unknown := [name for name in given if name not in known]:
            raise InputError(
                f"unknown {what} {unknown[0]!r}; {self.path.name} {verb} {self._names(infos)}"
            )

    @staticmethod
    def _names(infos: tuple[TensorInfo, ...]) -> str:
        return "; ".join(map(str, infos))


def _briefly(infos: tuple[TensorInfo, ...]) -> str:
    """The first of some inputs or outputs, and how many more there are."""
    more = f"; {len(infos) - _SHOWN} more" if len(infos) > _SHOWN else ""
    return f"({'; '.join(map(str, infos[:_SHOWN]))}{more})"


def load(
    path: str | os.PathLike[str], threads: int | None = None, capacity: int = CAPACITY
) -> Model:
    """Load a library that ``byoc.compile`` wrote, or TVM's ``export_library``.

    Of the latter's results only the order is known, unless ``describe`` gave them names; they are
    called ``output0`` and so on.

    ``threads`` is how many threads kernels and TVM's own loops use, in all models of the process.
    Without it the environment variable TVM_NUM_THREADS decides; without that the first loaded model
    does, by what it was compiled with, else by the number of cores (hyper-threads not counted) that
    the process may use and its container gives it time for.
    ``capacity`` is how many rows each state can hold that grows, such as a decoder's keys and
    values; memory is taken only as they are filled.
    Raises ``LoadError``.
    """
    path = as_path(path, "the library", LoadError)
    threads = as_threads(threads, LoadError)
    capacity = as_whole(capacity, "capacity", LoadError, 1, 1 << 31)
    if path.is_file() and path.suffix != ".so":
        need = "need a library whose name ends in .so, as byoc compile makes of a model"
        raise LoadError(f"cannot load {path}: {need}")
    module, metadata = open_compiled(path)
    if threads is not None:
        size_pools(threads)
    elif not pools_are_sized():
        size_pools(metadata.threads or cores())
    return Model(path, module, metadata, KeptStates(metadata.states, capacity))


__all__ = [
    "InputError",
    "LibraryInfo",
    "LoadError",
    "Metadata",
    "Model",
    "RunError",
    "TensorInfo",
    "load",
]
