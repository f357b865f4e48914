"""A session on one RPC server, and the models there: uploaded, called and timed."""

from __future__ import annotations

import ctypes
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc.arguments import as_path, as_seconds, as_text, as_threads, as_whole
from byoc.deploy.compiled_file import read_compiled
from byoc.deploy.exchange import array_of, numpy_dtype
from byoc.deploy.kept_states import CAPACITY, KeptStates
from byoc.deploy.loader import Model
from byoc.deploy.metadata import Described
from byoc.deploy.tvm_runtime import start_machine
from byoc.errors import ByocError, InputError, LoadError, RpcError, RpcLost, RpcTimeout
from byoc.rpc.address import Address
from byoc.rpc.connection import Connection

if TYPE_CHECKING:
    import tvm_ffi

#: Seconds for a device to come free and answer, and then for the session on it.
TIMEOUT = 300.0

_MOST_RUNS = (1 << 31) - 1  # TVM counts them in an int
_CPU, _SESSION_MASK = 1, 128  # TVM's device type of CPUs; that of session i is (i + 1) * 128 more
_SHARE_ALL_CORES = -3  # runtime.config_threadpool's affinity mode


def connect(
    address: str | Address,
    key: str = "",
    timeout: float | None = TIMEOUT,
    wait: float | None = None,
    name: str = "",
) -> Session:
    """Open a session on the RPC server at ``host:port``.

    ``key`` is the one that the server was started with.  ``timeout`` is how many seconds the server
    may take to answer, as it serves one client at a time, and how long the session may then last:
    after that the server ends it, whatever it does, and is free for others.  None means no limit.
    ``wait`` is the first of the two where they differ, ``name`` what messages call the server.
    Raises ``RpcRefused``, ``RpcTimeout``, ``RpcError``.
    """
    from byoc.deploy.tvm_runtime import load_runtime

    place = Address.of(address)
    key = as_text(key, "key", RpcError)
    timeout = as_seconds(timeout, "timeout", RpcError)
    patience = timeout if wait is None else as_seconds(wait, "wait", RpcError)
    load_runtime()
    return Session(Connection(name or f"RPC server {place}", place, key, patience, timeout), place)


class Session:
    """What one server does for this process; it serves nobody else until ``close``.

    A context manager.  What fails raises ``RpcError``, or where the connection is gone ``RpcLost``
    or ``RpcTimeout``; nothing works any more after these.
    """

    def __init__(self, connection: Connection, address: Address) -> None:
        import tvm_ffi

        self.name, self.address = connection.name, address
        self._stopped = False
        self._connection = connection
        self._module = connection.module
        index = tvm_ffi.get_global_func("rpc.SessTableIndex")(self._module)
        self._device_type = _CPU + (index + 1) * _SESSION_MASK

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session; the server removes what was uploaded."""
        self._connection.close()

    def stop(self) -> None:
        """Let whatever another thread does here next fail, after the answer that it waits for.

        A server of TVM's that finds its client gone when it answers serves nobody any more.
        """
        self._stopped = True

    def abandon(self) -> None:
        """Cut the connection: what another thread waits for here fails at once."""
        self._connection.abandon()

    def load(
        self,
        path: str | os.PathLike[str],
        threads: int | None = None,
        capacity: int = CAPACITY,
    ) -> RemoteModel:
        """Upload and load a library that ``byoc.compile`` wrote.

        ``threads`` sets the size of the thread pool there; without it the one does that was
        compiled in, else what the server's environment says (TVM_NUM_THREADS).  ``capacity`` is how
        many rows each state can hold that grows, as in ``byoc.load``; states lie there.  Raises
        ``LoadError``, ``RpcError``.
        """
        path = as_path(path, "the library", LoadError)
        return RemoteModel(self, path, as_threads(threads, LoadError), capacity)

    def upload(self, path: Path) -> tvm_ffi.Module:
        """Load a library there, whose file is not kept there.

        Raises ``RpcError``, also where the library is for another architecture.
        """
        import tvm_ffi

        # The dynamic linker there would take a second library of one name for the first.
        name = f"byoc_{uuid.uuid4().hex}.so"
        with self.doing(f"take an upload of {path.name}"):
            self.function("tvm.rpc.server.upload")(name, path.read_bytes())
        try:
            with self.doing(f"load {path.name}"):
                module = tvm_ffi.get_global_func("rpc.LoadRemoteModule")(self._module, name)
        except (RpcLost, RpcTimeout):
            raise
        except RpcError as error:
            reason, machine = str(error).rpartition(f"{name}: ")[2], read_compiled(path).machine
            raise RpcError(
                f"{self.name} cannot load {path.name}: {reason}; it is for {machine}, "
                "is the device one?"
            ) from error
        finally:
            with suppress(RpcError), self.doing(f"remove {path.name}"):
                self.function("tvm.rpc.server.remove")(name)
        return module

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Turn what fails inside into an ``RpcError`` that says so; ``what`` is like ``run x``."""
        if self._stopped:
            raise RpcLost(f"{self.name} was to {what}, but was stopped")
        try:
            yield
        except ByocError:
            raise
        except Exception as error:
            raise self._connection.failure(what, error) from error
        except BaseException:  # interrupted in the midst of an answer
            self._connection.abandon()
            raise

    def function(self, name: str) -> Callable[..., Any]:
        """A global packed function of the server."""
        return self._module.get_function(name)

    def set_threads(self, count: int) -> None:
        """Let the thread pool there use so many threads, on as many cores.

        The first number in a session is the greatest that it can have.  Raises ``RpcError``.
        """
        with self.doing(f"use {count} threads"):
            cores = self.function("ffi.Array")(*map(str, range(count)))
            self.function("runtime.config_threadpool")(_SHARE_ALL_CORES, count, cores)
            available = self.function("runtime.NumThreads")()
        if available < count:
            raise RpcError(
                f"{self.name} cannot use {count} threads: its pool has {available}; "
                "see TVM_NUM_THREADS in the server's environment"
            )

    def send(self, array: np.ndarray) -> tvm_ffi.Tensor:
        """Copy an array there."""
        tensor = self.room(array.shape, str(array.dtype))
        self.write(tensor, array)
        return tensor

    def room(self, shape: tuple[int, ...], dtype: str) -> tvm_ffi.Tensor:
        """Memory there, with nothing in it that is known."""
        import tvm_ffi

        device = tvm_ffi.device(self._device_type, 0)
        make = tvm_ffi.get_global_func("runtime.TVMTensorAllocWithScope")
        return make(tvm_ffi.Shape(shape), tvm_ffi.dtype(dtype), device, None)

    def write(self, tensor: tvm_ffi.Tensor, array: np.ndarray) -> None:
        """Copy an array of its shape into a tensor of there."""
        import tvm_ffi

        array = np.asarray(array, order="C")
        if array.nbytes:
            copy = tvm_ffi.get_global_func("runtime.TVMTensorCopyFromBytes")
            copy(tensor, ctypes.c_void_p(array.ctypes.data), array.nbytes)

    def fetch(self, tensor: tvm_ffi.Tensor) -> np.ndarray:
        """Copy a tensor of there."""
        import tvm_ffi

        array = np.empty(tuple(tensor.shape), numpy_dtype(str(tensor.dtype)))
        if array.nbytes:
            copy = tvm_ffi.get_global_func("runtime.TVMTensorCopyToBytes")
            copy(tensor, ctypes.c_void_p(array.ctypes.data), array.nbytes)
        return array

    def items(self, results: Any) -> list[tvm_ffi.Tensor]:
        """What a function returned: the tensors of a tuple, or one tensor."""
        import tvm_ffi

        if isinstance(results, tvm_ffi.Tensor):
            return [results]
        item = self.function("ffi.ArrayGetItem")
        return [item(results, i) for i in range(self.function("ffi.ArraySize")(results))]

    def time(
        self,
        module: tvm_ffi.Module,
        name: str,
        arguments: list[tvm_ffi.Tensor],
        runs: int,
        between: str = "",
    ) -> list[float]:
        """Milliseconds of each of some runs of a packed function, by the clock there.

        A first run is not counted.  ``between`` names a global function there that gets the same
        arguments before each run that is.
        """
        import tvm_ffi

        evaluator = tvm_ffi.get_global_func("runtime.RPCTimeEvaluator")(
            *(module, name, self._device_type, 0),
            *(1, runs, 0, 1),  # one call each; no least duration
            *(0, 1, 0, between),  # no pause, no flush of the caches
        )
        return (np.frombuffer(evaluator(*arguments), "<f8") * 1e3).tolist()


class RemoteMemory:
    """Memory of the server that states of a model lie in."""

    def __init__(self, session: Session, what: str) -> None:
        self._session, self._what = session, what

    def room(self, shape: tuple[int, ...], dtype: str) -> tvm_ffi.Tensor:
        """Room for an array there."""
        with self._session.doing(f"make room for {self._what}"):
            return self._session.room(shape, dtype)

    def rows_worth_enlarging(self, room: tvm_ffi.Tensor) -> int:
        """More than there are: pages are the server's own affair."""
        return int(room.shape[0]) + 1

    def enlarge(self, room: tvm_ffi.Tensor) -> None:
        """Nothing."""

    def first(self, room: tvm_ffi.Tensor, count: int) -> tvm_ffi.Tensor:
        """A tensor in the same memory."""
        import tvm_ffi

        shape = tvm_ffi.Shape((count, *tuple(room.shape)[1:]))
        view = tvm_ffi.get_global_func("runtime.TVMTensorCreateView")
        return view(room, shape, room.dtype, 0)

    def first_of(self, rooms: Sequence[tvm_ffi.Tensor]) -> Callable[[int], list[tvm_ffi.Tensor]]:
        """New tensors each time."""
        return lambda count: [self.first(room, count) for room in rooms]

    def write(self, room: tvm_ffi.Tensor, array: np.ndarray | int) -> None:
        """Send an array, or one that is full of a number."""
        dtype = numpy_dtype(str(room.dtype))
        whole = np.broadcast_to(np.asarray(array, dtype), tuple(room.shape))
        with self._session.doing(f"take {self._what}"):
            self._session.write(room, whole)

    def read(self, room: tvm_ffi.Tensor) -> np.ndarray:
        """A copy of what is there."""
        with self._session.doing(f"give {self._what}"):
            return self._session.fetch(room)

    def tensor(self, room: tvm_ffi.Tensor) -> tvm_ffi.Tensor:
        """The room itself."""
        return room


class RemoteModel(Described):
    """A compiled model that was uploaded to a device.

    ``run`` takes and gives the same arrays as that of a local model; ``time`` tells how long a run
    takes there, without the network. States lie on the device: ``run`` sends none of them, and
    ``states``, ``restore`` and ``clone`` copy them by way of this machine.
    """

    def __init__(
        self,
        session: Session,
        path: Path,
        threads: int | None = None,
        capacity: int = CAPACITY,
    ) -> None:
        """Upload a library; see ``Session.load``."""
        metadata = read_compiled(path).metadata()
        if metadata.form == "plain":
            raise LoadError(
                f"cannot upload {path}: it does not say what its outputs are; attach names with "
                "byoc.describe before tvm.compile"
            )
        if metadata.form != "tvm" or path.suffix != ".so":
            raise LoadError(
                f"cannot upload {path}: need a library for TVM's runtime whose name ends in .so, "
                "as 'byoc compile MODEL -o m.so' writes it"
            )
        capacity = as_whole(capacity, "capacity", LoadError, 1, 1 << 31)
        self.session, self.path, self.metadata = session, path, metadata
        self._module = module = session.upload(path)
        if count := threads or metadata.threads:
            session.set_threads(count)
        memory = RemoteMemory(session, f"states of {path.name}")
        self._kept = KeptStates(metadata.states, capacity, memory)
        self._checker = Model(path, module, metadata, self._kept)
        with session.doing(f"start {path.name}"):
            self._machine = start_machine(module)

    def __repr__(self) -> str:
        inputs, outputs = ("; ".join(map(str, infos)) for infos in (self.inputs, self.outputs))
        return f"<byoc.rpc.RemoteModel {self.path.name}: ({inputs}) -> ({outputs})>"

    def run(self, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        """Run the model on named arrays; returns the outputs by name.

        Raises ``InputError`` for what does not fit the model, ``RpcError``.
        """
        symbols = self._kept.lengths()
        tensors = self._send(inputs, symbols)
        with self.session.doing(f"run {self.path.name}"):
            results = self.session.items(self._machine["main"](*tensors))
            arrays = [self.session.fetch(tensor) for tensor in results[: len(self.outputs)]]
        self._kept.advance(symbols, results[len(self.outputs) :])
        return {info.name: array for info, array in zip(self.outputs, arrays, strict=True)}

    def time(self, inputs: dict[str, Any], runs: int = 10) -> list[float]:
        """Milliseconds of each of some runs on the device, after one that is not counted.

        Raises as ``run`` does.
        """
        runs = as_whole(runs, "runs", InputError, 1, _MOST_RUNS)
        tensors = self._send(inputs, self._kept.lengths())
        with self.session.doing(f"time {self.path.name}"):
            return self.session.time(self._machine, "main", tensors, runs)

    @property
    def states(self) -> dict[str, np.ndarray]:
        """Copies of the states by the names of the model's inputs; none before the first call."""
        return self._kept.views()

    def reset(self) -> None:
        """Forget all states: the next call is the first one."""
        self._kept.reset()

    def restore(self, states: Mapping[str, np.ndarray]) -> None:
        """Let the states be what ``states`` told before, of this model or a local one.

        Raises as ``Model.restore`` does, and ``RpcError``.
        """
        self._kept.restore(states)

    def clone(self) -> RemoteModel:
        """The same library in the same session, with states of its own, which are as these are."""
        other = copy(self)
        other._kept = self._kept.copy()
        other._checker = Model(self.path, self._module, self.metadata, other._kept)
        return other

    def _send(self, inputs: dict[str, Any], symbols: dict[str, int]) -> list[tvm_ffi.Tensor]:
        """What ``main`` takes, there: inputs are sent, states are there already."""
        tensors = self._checker.tensors(inputs, symbols=symbols)
        count = len(self.inputs)
        arrays = [array_of(tensor) for tensor in tensors[:count]]
        with self.session.doing(f"take the inputs of {self.path.name}"):
            return [*map(self.session.send, arrays), *tensors[count:]]
