"""The C interface of standalone models, with every option, for tests (byoc_model.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path

import numpy as np

OK, ARGUMENT, ALIGNMENT, MEMORY, THREADS, CPU, BUSY, INDEX, KERNEL, LIBRARY, FULL = range(11)
DTYPES = (np.float32, np.int32, np.int64, np.bool_, np.int8, np.uint8, np.uint16, np.uint16)

Task = CFUNCTYPE(None, c_void_p, c_int32)
ParallelFor = CFUNCTYPE(c_int, c_void_p, c_int32, c_void_p, c_void_p)
Allocate = CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)
Release = CFUNCTYPE(None, c_void_p, c_void_p)


class Options(ctypes.Structure):
    """``byoc_options``; as ``BYOC_OPTIONS`` where nothing is given."""

    _fields_ = (
        ("size", c_size_t),
        ("threads", c_int32),
        ("parallel_for", ParallelFor),
        ("pool", c_void_p),
        ("allocate", Allocate),
        ("release", Release),
        ("heap", c_void_p),
        ("message", c_void_p),
        ("message_size", c_size_t),
        ("capacity", c_int64),
    )

    def __init__(self, **given: object) -> None:
        self.text = ctypes.create_string_buffer(256)
        where = {"message": ctypes.addressof(self.text), "message_size": len(self.text)}
        super().__init__(**({"size": ctypes.sizeof(Options)} | where | given))

    @property
    def said(self) -> str:
        """What ``NAME_create`` wrote."""
        return self.text.value.decode()


class Tensor(ctypes.Structure):
    """``byoc_tensor``."""

    _fields_ = (
        ("name", c_char_p),
        ("dtype", c_int),
        ("ndim", c_int32),
        ("shape", POINTER(c_int64)),
        ("bytes", c_size_t),
        ("alignment", c_size_t),
    )

    def zeros(self) -> np.ndarray:
        """An array that fits."""
        return np.zeros(self.shape[: self.ndim], DTYPES[self.dtype])


class Axis(ctypes.Structure):
    """``byoc_axis``."""

    _fields_ = (("name", c_char_p), ("least", c_int64), ("most", c_int64))


class Instance:
    """One instance of a model, and its status where it could not be created."""

    def __init__(self, path: Path, options: Options | None = None, **given: object) -> None:
        self.name = path.stem.removeprefix("lib")
        self.library = ctypes.CDLL(str(path))
        self.inputs, self.outputs = self._tensors("inputs"), self._tensors("outputs")
        has_axes = hasattr(self.library, f"{self.name}_axes")
        self.axes: list[Axis] = self._listed("axes", Axis) if has_axes else []
        self.options = options or Options(**given)
        self.handle = c_void_p()
        self.status = self.function("create", c_int, c_void_p, c_void_p)(
            ctypes.byref(self.options), ctypes.byref(self.handle)
        )

    def __enter__(self) -> Instance:
        assert self.status == OK, self.options.said
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def function(self, what: str, result: type | None, *arguments: type) -> ctypes._CFuncPtr:
        """``NAME_<what>``."""
        found = getattr(self.library, f"{self.name}_{what}")
        found.restype, found.argtypes = result, arguments
        return found

    def run_raw(self, inputs: c_void_p | None, outputs: c_void_p | None) -> int:
        """The status of a run on arrays of addresses."""
        run = self.function("run", c_int, c_void_p, c_void_p, c_void_p)
        return run(self.handle, inputs, outputs)

    def run_at(self, inputs: Sequence[int], outputs: Sequence[int]) -> int:
        """The status of a run on addresses."""
        return self.run_raw(_pointers(inputs), _pointers(outputs))

    def run(self, inputs: dict[str, np.ndarray]) -> tuple[int, dict[str, np.ndarray]]:
        """The status of a run with the sizes that axes have, and the outputs by name."""
        given = [np.ascontiguousarray(inputs[t.name.decode()]) for t in self.inputs]
        outputs = self.sized("outputs") if self.axes else self.outputs
        results = {t.name.decode(): np.full_like(t.zeros(), 77) for t in outputs}
        status = self.run_at(
            [array.ctypes.data for array in given],
            [array.ctypes.data for array in results.values()],
        )
        return status, results

    def answers(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of a run that must succeed."""
        status, results = self.run(inputs)
        assert status == OK, self.error()
        return results

    def resize(self, **sizes: int) -> int:
        """The status of giving the axes sizes, by name."""
        given = (c_int64 * len(self.axes))(*(sizes[axis.name.decode()] for axis in self.axes))
        return self.function("resize", c_int, c_void_p, c_void_p)(self.handle, given)

    def sized(self, what: str) -> list[Tensor]:
        """Inputs, outputs or states as the next run has them."""
        count = c_int32(-1)
        told = self.function(f"{what}_of", POINTER(Tensor), c_void_p, c_void_p)
        return told(self.handle, ctypes.byref(count))[: count.value]

    def error(self) -> str:
        """What was wrong with the last run."""
        return self.function("error", c_char_p, c_void_p)(self.handle).decode()

    def status_text(self, status: int) -> str:
        """The line for a code."""
        return self.function("status_text", c_char_p, c_int)(status).decode()

    def destroy(self) -> None:
        """Destroy the instance."""
        self.function("destroy", None, c_void_p)(self.handle)
        self.handle = c_void_p()

    def _tensors(self, what: str) -> list[Tensor]:
        return self._listed(what, Tensor)

    def _listed(self, what: str, kind: type[ctypes.Structure]) -> list:
        count = c_int32(-1)
        found = self.function(what, POINTER(kind), c_void_p)(ctypes.byref(count))
        return found[: count.value]


def _pointers(addresses: Sequence[int]) -> ctypes.Array[c_void_p]:
    return (c_void_p * max(1, len(addresses)))(*addresses)
