"""The C interface of ``ext_kernels.h`` for Python: structures, enumerations, loading.

Generated code never comes through here; kernel tests and benchmarks do.  All is read from
the header:

- ``abi.Conv2dParams`` is the ``ctypes.Structure`` of ``ext_conv2d_params``, and so on;
- ``abi.ALIGN`` is the constant ``EXT_ALIGN``, and so on;
- ``abi.REDUCE_KIND`` are the names in ``ext_reduce_kind``, in order, so that ``index`` gives the
  value: ``("sum", "mean", ...)``.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
from functools import cache
from itertools import takewhile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.c_header import CType, kernel_header
from byoc.errors import BenchmarkError
from codegen_cc.runtime_files import runtime_file
from codegen_cc.target import HOST

#: The levels that the kernels have on this architecture, the least one first.
LEVELS = HOST.kernel_levels
#: Columns in one panel of packed weights.
PANEL = kernel_header().constants["EXT_PANEL"]

#: What the kernels compute in, and arrays of it.
FLOAT = np.single
FloatArray = npt.NDArray[FLOAT]

_SCALARS = {
    "int": ctypes.c_int,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "size_t": ctypes.c_size_t,
    "int8_t": ctypes.c_int8,
    "uint8_t": ctypes.c_uint8,
    "uint16_t": ctypes.c_uint16,
    "uint32_t": ctypes.c_uint32,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
}
#: What the shared library has besides the functions of the header.
_BENCH: dict[str, tuple[list[type], type | None]] = {
    "ext_bench_fma_peak": ([], ctypes.c_double),
    "ext_bench_bf16_peak": ([], ctypes.c_double),
    "ext_bench_int8_peak": ([], ctypes.c_double),
    "ext_bench_read": ([ctypes.c_int64, ctypes.c_void_p], ctypes.c_int),
}


@cache
def structure(name: str) -> type[ctypes.Structure]:
    """The structure of that name in C. Raises ``KeyError``."""
    fields = [(field, _field(ctype)) for field, ctype in kernel_header().structures[name].items()]
    return type(_python_name(name), (ctypes.Structure,), {"_fields_": fields})


@cache
def names(enumeration: str) -> tuple[str, ...]:
    """The enumerators of that enumeration in C, in lower case and without what all begin with.

    Raises ``KeyError``, or ``ValueError`` where the values do not count from 0.
    """
    values = kernel_header().enumerations[enumeration]
    if list(values.values()) != list(range(len(values))):
        raise ValueError(f"{enumeration} does not count from 0: {values}")
    words = zip(*(name.split("_") for name in values), strict=False)
    common = sum(1 for _ in takewhile(lambda found: len(set(found)) == 1, words))
    return tuple("_".join(name.split("_")[common:]).lower() for name in values)


@cache
def signatures() -> dict[str, tuple[list[type], type | None]]:
    """Arguments and result of every function that the shared library has."""
    found = {}
    for name, function in kernel_header().functions.items():
        arguments = [_argument(ctype) for ctype in function.parameters.values()]
        found[name] = (arguments, _result(function.result))
    return found | _BENCH


def _python_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.removeprefix("ext_").split("_"))


def __getattr__(name: str) -> type[ctypes.Structure] | tuple[str, ...] | int:
    """A structure, an enumeration or a constant of the header, see above."""
    header = kernel_header()
    if f"EXT_{name}" in header.constants:
        return header.constants[f"EXT_{name}"]
    if name.isupper() and (enumeration := f"ext_{name.lower()}") in header.enumerations:
        return names(enumeration)
    for found in header.structures:
        if _python_name(found) == name:
            return structure(found)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _field(ctype: CType) -> type:
    one = ctypes.c_void_p if ctype.pointers else _value(ctype.name)
    return one if ctype.length is None else one * ctype.length


def _argument(ctype: CType) -> type:
    if ctype.pointers == 1 and ctype.name in kernel_header().structures:
        return ctypes.POINTER(structure(ctype.name))
    return _field(ctype)


def _result(ctype: CType) -> type | None:
    known = {("void", 0): None, ("char", 1): ctypes.c_char_p}
    key = (ctype.name, ctype.pointers)
    return known[key] if key in known else _argument(ctype)


def _value(name: str) -> type:
    header = kernel_header()
    if name in header.structures:
        return structure(name)
    if name in header.enumerations:
        return ctypes.c_int
    return ctypes.c_void_p if name in header.callbacks else _SCALARS[name]


def join_pool(threads: int) -> None:
    """Load TVM's runtime, whose thread pool the kernels then use."""
    spec = importlib.util.find_spec("tvm")
    ffi = importlib.util.find_spec("tvm_ffi")
    if spec is None or not spec.submodule_search_locations or ffi is None or not ffi.origin:
        raise BenchmarkError("several threads need TVM's runtime: install apache-tvm")
    os.environ["TVM_NUM_THREADS"] = str(threads)
    ctypes.CDLL(str(Path(ffi.origin).parent / "lib" / "libtvm_ffi.so"), ctypes.RTLD_GLOBAL)
    runtime = Path(spec.submodule_search_locations[0]) / "lib" / "libtvm_runtime.so"
    ctypes.CDLL(str(runtime), ctypes.RTLD_GLOBAL)


def load(path: Path | None = None) -> ctypes.CDLL:
    """Load the shared kernel library and declare its functions' types.

    Raises ``ToolchainError`` where it has not been built.
    """
    lib = ctypes.CDLL(str(path or runtime_file("lib/libext_kernels.so")))
    for name, (arguments, result) in signatures().items():
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, result
    return lib


def load_level(level: str, folder: Path) -> ctypes.CDLL:
    """Load a copy of the library with ``BYOC_ISA=level``.

    A process decides once per loaded library, so that each level gets a copy of its own in
    ``folder``.  The environment is restored.  ``ext_isa_error()`` of the result tells whether the
    level is there.
    """
    path = folder / f"libext_kernels_{level}.so"
    shutil.copyfile(runtime_file("lib/libext_kernels.so"), path)
    before = os.environ.get("BYOC_ISA")
    os.environ["BYOC_ISA"] = level
    try:
        lib = load(path)
        lib.ext_isa_level()
    finally:
        if before is None:
            del os.environ["BYOC_ISA"]
        else:
            os.environ["BYOC_ISA"] = before
    return lib


def aligned(shape: tuple[int, ...]) -> FloatArray:
    """Return a zeroed fp32 array whose data is 64-byte aligned."""
    size = int(np.prod(shape, dtype=np.int64))
    raw = np.zeros(size + PANEL, FLOAT)
    start = -(raw.ctypes.data // 4) % PANEL
    return raw[start : start + size].reshape(shape)


def pack_panels(b: npt.ArrayLike) -> FloatArray:
    """Pack B [K, N] as panels [ceil(N / 16), K, 16], columns past N as zero."""
    b = np.asarray(b, FLOAT)
    k, n = b.shape
    panels = aligned((-(-n // PANEL), k, PANEL))
    for j in range(panels.shape[0]):
        columns = b[:, j * PANEL : (j + 1) * PANEL]
        panels[j, :, : columns.shape[1]] = columns
    return panels


def pad_to_panel(values: npt.ArrayLike) -> FloatArray:
    """Pad the last axis with zeros to a multiple of 16: a bias, or depthwise weights."""
    values = np.asarray(values, FLOAT)
    out = aligned((*values.shape[:-1], -(-values.shape[-1] // PANEL) * PANEL))
    out[..., : values.shape[-1]] = values
    return out


def activation(name: str = "identity", alpha: float = 0.0, beta: float = 0.0) -> ctypes.Structure:
    """Return the ``ext_activation`` of an elementwise function by its name, such as ``relu``."""
    return structure("ext_activation")(names("ext_unary_kind").index(name), alpha, beta)


def pack_conv_weight(weight: npt.ArrayLike, groups: int = 1) -> FloatArray:
    """Pack OIHW weights [O, C / groups, KH, KW] as ``ext_conv2d`` wants them."""
    weight = np.asarray(weight, FLOAT)
    outputs, k = weight.shape[0] // groups, int(np.prod(weight.shape[1:]))
    matrices = weight.reshape(groups, outputs, *weight.shape[1:]).transpose(0, 3, 4, 2, 1)
    parts = [pack_panels(matrix) for matrix in matrices.reshape(groups, k, outputs)]
    packed = aligned((groups, *parts[0].shape))
    for g, part in enumerate(parts):
        packed[g] = part
    return packed
