"""The C interface of ``ext_kernels.h`` for Python: structures, enumerations, loading.

Generated code never comes through here; kernel tests and the kernel benchmark do.  Field names and
order are those of the header; ``EXT_ABI_VERSION`` there and ``ABI_VERSION`` here change together.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_uint32, c_void_p
from pathlib import Path

import numpy as np
import numpy.typing as npt

from codegen_cc.target import HOST

ABI_VERSION = 1
PANEL = 16
MAX_DIMS = 8
ALIGN = 64
#: The levels that the kernels have on this architecture, the least one first.
LEVELS = HOST.kernel_levels
UNARY = (
    *("identity", "relu", "clip", "sigmoid", "silu", "hard_sigmoid", "hard_swish", "gelu"),
    *("gelu_tanh", "tanh", "leaky_relu", "exp", "log", "erf", "sqrt", "rsqrt", "abs", "neg"),
    *("elu", "selu", "mish", "softplus", "floor", "ceil", "round", "sin", "cos", "tan", "sign"),
    "reciprocal",
)
BINARY = ("add", "sub", "mul", "div", "max", "min", "pow", "prelu")
COMPARE = (
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "and", "or", "xor"),
)
REDUCE = ("sum", "mean", "max", "min", "prod")
PAD_MODES = ("constant", "reflect", "edge")
RESIZE_METHODS = ("nearest", "linear", "cubic")
RESIZE_COORDINATES = (
    *("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn"),
)
RESIZE_ROUNDINGS = ("round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")

#: What the kernels compute in, and arrays of it.
FLOAT = np.float32
FloatArray = npt.NDArray[FLOAT]
#: Where ``make -C runtime install`` puts headers and libraries.
RUNTIME_DIR = Path(__file__).resolve().parent / "_runtime"


class Activation(ctypes.Structure):
    _fields_ = [("kind", c_int), ("alpha", c_float), ("beta", c_float)]


class Epilogue(ctypes.Structure):
    _fields_ = [
        ("bias", c_void_p),
        ("before", Activation),
        ("residual", c_void_p),
        ("residual_stride", c_int64),
        ("after", Activation),
    ]


class Prologue(ctypes.Structure):
    _fields_ = [
        ("scale", c_void_p),
        ("shift", c_void_p),
        ("scale_stride", c_int64),
        ("activation", Activation),
    ]


class BinaryParams(ctypes.Structure):
    _fields_ = [
        ("kind", c_int),
        ("activation", Activation),
        ("ndim", c_int32),
        ("shape", c_int64 * MAX_DIMS),
        ("a_strides", c_int64 * MAX_DIMS),
        ("b_strides", c_int64 * MAX_DIMS),
        ("dtype", c_int),
    ]


class CompareParams(ctypes.Structure):
    _fields_ = [
        ("kind", c_int),
        ("dtype", c_int),
        ("ndim", c_int32),
        ("shape", c_int64 * MAX_DIMS),
        ("a_strides", c_int64 * MAX_DIMS),
        ("b_strides", c_int64 * MAX_DIMS),
    ]


class WhereParams(ctypes.Structure):
    _fields_ = [
        ("element_size", c_int32),
        ("ndim", c_int32),
        ("shape", c_int64 * MAX_DIMS),
        ("c_strides", c_int64 * MAX_DIMS),
        ("a_strides", c_int64 * MAX_DIMS),
        ("b_strides", c_int64 * MAX_DIMS),
    ]


class CopyParams(ctypes.Structure):
    _fields_ = [
        ("ndim", c_int32),
        ("shape", c_int64 * MAX_DIMS),
        ("x_strides", c_int64 * MAX_DIMS),
        ("y_strides", c_int64 * MAX_DIMS),
        ("element_size", c_int32),
    ]


class PadParams(ctypes.Structure):
    _fields_ = [
        ("mode", c_int),
        ("value", c_float),
        ("ndim", c_int32),
        ("shape", c_int64 * MAX_DIMS),
        ("before", c_int64 * MAX_DIMS),
        ("after", c_int64 * MAX_DIMS),
        ("inner", c_int64),
    ]


def _sizes(names: str) -> list[tuple[str, type]]:
    return [(name, c_int64) for name in names.split()]


class TakeParams(ctypes.Structure):
    _fields_ = [
        *_sizes("outer extent inner count"),
        ("element_size", c_int32),
        ("index_dtype", c_int),
    ]


class AttentionParams(ctypes.Structure):
    _fields_ = [
        *_sizes("batch heads queries keys depth width"),
        ("scale", c_float),
        ("q_strides", c_int64 * 3),
        ("k_strides", c_int64 * 3),
        ("v_strides", c_int64 * 3),
        ("y_strides", c_int64 * 3),
        ("mask_strides", c_int64 * 4),
    ]


class MatmulParams(ctypes.Structure):
    _fields_ = [
        *_sizes("m n k a_row a_col b_row b_col y_row"),
        ("batch_ndim", c_int32),
        ("batch", c_int64 * 4),
        ("a_batch", c_int64 * 4),
        ("b_batch", c_int64 * 4),
        ("y_batch", c_int64 * 4),
        ("residual_batch", c_int64 * 4),
    ]


class Conv2dParams(ctypes.Structure):
    _fields_ = _sizes(
        "batch in_h in_w in_c out_h out_w out_c kernel_h kernel_w stride_h stride_w "
        "pad_top pad_left dilation_h dilation_w groups x_stride y_stride in_place_rows"
    )


class Conv3dParams(ctypes.Structure):
    _fields_ = _sizes(
        "batch in_d in_h in_w in_c out_d out_h out_w out_c kernel_d kernel_h kernel_w "
        "stride_d stride_h stride_w pad_front pad_top pad_left dilation_d dilation_h dilation_w "
        "groups"
    )


class Resize2dParams(ctypes.Structure):
    _fields_ = _sizes("batch in_h in_w out_h out_w channels taps_h taps_w")


class ResizeTapsParams(ctypes.Structure):
    _fields_ = [
        *_sizes("extent count"),
        *((name, c_int) for name in ("method", "coordinates", "rounding")),
        ("cubic_alpha", c_float),
        ("cubic_exclude", c_int32),
    ]


class Pool2dParams(ctypes.Structure):
    _fields_ = [
        *_sizes(
            "batch in_h in_w channels out_h out_w kernel_h kernel_w stride_h stride_w "
            "pad_top pad_left pad_bottom pad_right dilation_h dilation_w x_stride y_stride"
        ),
        ("count_include_pad", c_int32),
    ]


_P = c_void_p
#: Arguments and result of every function that the shared library has.
SIGNATURES: dict[str, tuple[list[type], type]] = {
    "ext_status_string": ([c_int], c_char_p),
    "ext_isas": ([], c_uint32),
    "ext_isas_offered": ([], c_uint32),
    "ext_isa_level": ([], c_int),
    "ext_isa_name": ([], c_char_p),
    "ext_isa_error": ([], c_char_p),
    "ext_num_threads": ([], c_int),
    "ext_rows_in_place": ([c_int64], c_int64),
    "ext_parallel_for": ([c_int64, c_int64, _P, _P], c_int),
    "ext_workspace_alloc": ([ctypes.c_size_t], c_void_p),
    "ext_workspace_free": ([c_void_p], None),
    "ext_unary": ([POINTER(Activation), c_int64, _P, _P], c_int),
    "ext_binary": ([POINTER(BinaryParams), _P, _P, _P], c_int),
    "ext_copy": ([POINTER(CopyParams), _P, _P], c_int),
    "ext_compare": ([POINTER(CompareParams), _P, _P, _P], c_int),
    "ext_where": ([POINTER(WhereParams), _P, _P, _P, _P], c_int),
    "ext_cast": ([c_int, c_int, c_int64, _P, _P], c_int),
    "ext_take": ([POINTER(TakeParams), _P, _P, _P], c_int),
    "ext_pad": ([POINTER(PadParams), _P, _P], c_int),
    "ext_matmul": ([POINTER(MatmulParams), _P, _P, POINTER(Epilogue), _P], c_int),
    "ext_matmul_packed": ([POINTER(MatmulParams), _P, _P, POINTER(Epilogue), _P], c_int),
    "ext_conv2d_prologue": (
        [POINTER(Conv2dParams), POINTER(Prologue), _P, _P, POINTER(Epilogue), _P],
        c_int,
    ),
    "ext_conv2d": ([POINTER(Conv2dParams), _P, _P, POINTER(Epilogue), _P], c_int),
    "ext_conv2d_winograd": (
        [POINTER(Conv2dParams), c_int32, _P, _P, POINTER(Epilogue), _P],
        c_int,
    ),
    "ext_depthwise_conv2d": ([POINTER(Conv2dParams), _P, _P, POINTER(Epilogue), _P], c_int),
    "ext_conv2d_transpose": ([POINTER(Conv2dParams), _P, _P, POINTER(Epilogue), _P], c_int),
    "ext_conv3d": ([POINTER(Conv3dParams), _P, _P, POINTER(Epilogue), _P], c_int),
    "ext_attention": ([POINTER(AttentionParams), _P, _P, _P, _P, _P], c_int),
    "ext_arange": ([c_int, c_int64, _P], c_int),
    "ext_resize_taps": ([POINTER(ResizeTapsParams), _P, _P], c_int),
    "ext_resize2d": ([POINTER(Resize2dParams), _P, _P, _P, _P, _P, _P], c_int),
    "ext_max_pool2d": ([POINTER(Pool2dParams), _P, _P], c_int),
    "ext_avg_pool2d": ([POINTER(Pool2dParams), _P, _P], c_int),
    "ext_reduce": ([c_int, c_int64, c_int64, c_int64, _P, _P], c_int),
    "ext_softmax": ([c_int64, c_int64, c_int64, c_int32, _P, _P], c_int),
    "ext_layer_norm": ([c_int64, c_int64, c_float, _P, _P, _P, _P], c_int),
    "ext_rms_norm": ([c_int64, c_int64, c_float, _P, _P, _P], c_int),
    "ext_argreduce": ([c_int32, c_int64, c_int64, c_int64, _P, _P], c_int),
    "ext_cumsum": ([c_int32, c_int32, c_int64, c_int64, c_int64, _P, _P], c_int),
    "ext_bench_fma_peak": ([], c_double),
}


def library_path() -> Path:
    """Return the shared kernel library's path; FileNotFoundError when it has not been built."""
    path = RUNTIME_DIR / "lib" / "libext_kernels.so"
    if not path.exists():
        raise FileNotFoundError(
            f"kernel library {path} not found: build it with "
            f"'make -C runtime install DEST={RUNTIME_DIR}'"
        )
    return path


def load(path: Path | None = None) -> ctypes.CDLL:
    """Load the shared kernel library and declare its functions' types."""
    lib = ctypes.CDLL(str(path or library_path()))
    for name, (arguments, result) in SIGNATURES.items():
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
    shutil.copyfile(library_path(), path)
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


def activation(name: str = "identity", alpha: float = 0.0, beta: float = 0.0) -> Activation:
    """Return the C structure of an elementwise function by its name in ``UNARY``."""
    return Activation(UNARY.index(name), alpha, beta)


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
