"""The C library from Python, with ctypes and NumPy alone: run.py LIBRARY.so [INPUT.npy ...].

Writes the outputs beside the library, as NAME.npy. Inputs that are not given are zeros. Axes whose
sizes are chosen at run time get them by name: run.py LIBRARY.so batch=2 sequence=16 [INPUT.npy].
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np

DTYPES = {0: np.float32, 1: np.int32, 2: np.int64, 3: np.bool_}  # byoc_dtype


class Tensor(ctypes.Structure):  # byoc_tensor
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("bytes", ctypes.c_size_t),
        ("alignment", ctypes.c_size_t),
    )


class Axis(ctypes.Structure):  # byoc_axis
    _fields_ = (("name", ctypes.c_char_p), ("least", ctypes.c_int64), ("most", ctypes.c_int64))


class Model:
    """One instance, with its default options: all cores."""

    def __init__(self, path: Path, sizes: dict[str, int]) -> None:
        self.name = path.stem.removeprefix("lib")
        self.library = ctypes.CDLL(str(path.resolve()))
        self.instance = ctypes.c_void_p()
        self._check(self._function("create")(None, ctypes.byref(self.instance)))
        if hasattr(self.library, f"{self.name}_axes"):
            self._resize(sizes)
        self.inputs, self.outputs = self._tensors("inputs"), self._tensors("outputs")

    def __call__(self, *arrays: np.ndarray) -> dict[str, np.ndarray]:
        pairs = zip(self.inputs.values(), arrays, strict=True)
        inputs = [np.ascontiguousarray(array, zeros.dtype) for zeros, array in pairs]
        shapes = [zeros.shape for zeros in self.inputs.values()]
        if [array.shape for array in inputs] != shapes:
            raise ValueError(f"{self.name} takes arrays of shapes {shapes}")
        results = {name: np.empty_like(zeros) for name, zeros in self.outputs.items()}
        buffers = (_addresses(inputs), _addresses(results.values()))
        self._check(self._function("run")(self.instance, *buffers))
        return results

    def close(self) -> None:
        """Give memory and threads back."""
        self._function("destroy", None)(self.instance)
        self.instance = ctypes.c_void_p()

    def _function(self, what: str, result: object = ctypes.c_int) -> ctypes._CFuncPtr:
        function = self.library[f"{self.name}_{what}"]
        function.restype = result
        return function

    def _resize(self, sizes: dict[str, int]) -> None:
        count = ctypes.c_int32()
        axes = self._function("axes", ctypes.POINTER(Axis))(ctypes.byref(count))[: count.value]
        names = [axis.name.decode() for axis in axes]
        if missing := [name for name in names if name not in sizes]:
            raise ValueError(f"{self.name} needs {missing[0]}=SIZE; its axes are {names}")
        array = (ctypes.c_int64 * len(names))(*(sizes[name] for name in names))
        self._check(self._function("resize")(self.instance, array))

    def _tensors(self, what: str) -> dict[str, np.ndarray]:
        """Zeros of the shape and dtype of each input or output, by name."""
        count = ctypes.c_int32()
        if hasattr(self.library, f"{self.name}_axes"):
            told = self._function(f"{what}_of", ctypes.POINTER(Tensor))
            found = told(self.instance, ctypes.byref(count))
        else:
            found = self._function(what, ctypes.POINTER(Tensor))(ctypes.byref(count))
        return {
            tensor.name.decode(): np.zeros(tensor.shape[: tensor.ndim], DTYPES[tensor.dtype])
            for tensor in found[: count.value]
        }

    def _check(self, status: int) -> None:
        if status != 0:
            text = self._function("status_text", ctypes.c_char_p)(status).decode()
            more = self._function("error", ctypes.c_char_p)(self.instance).decode()
            raise RuntimeError(f"{self.name}: {text} {more}".rstrip())


def _addresses(arrays: object) -> ctypes.Array[ctypes.c_void_p]:
    addresses = [array.ctypes.data for array in arrays]
    return (ctypes.c_void_p * len(addresses))(*addresses)


def main() -> None:
    """Run a library on files."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    sizes = dict(word.split("=") for word in sys.argv[2:] if "=" in word)
    model = Model(path, {name: int(size) for name, size in sizes.items()})
    given = [np.load(word) for word in sys.argv[2:] if "=" not in word]
    results = model(*given, *list(model.inputs.values())[len(given) :])
    for name, array in results.items():
        file = path.with_name(f"{''.join(c if c.isalnum() else '_' for c in name)}.npy")
        np.save(file, array)
        print(f"{file}: {name} {array.dtype} {list(array.shape)}, largest {array.max():.6f}")
    model.close()


if __name__ == "__main__":
    main()
