"""The table of dtypes, against NumPy, ONNX, DLPack and the C headers."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm_ffi.libinfo

from benchmarks.c_header import kernel_header
from byoc.ir.dataflow import constant
from codegen_cc import dtypes
from codegen_cc.dtypes import DTYPES, KERNEL_DTYPES
from codegen_cc.errors import CodegenError
from codegen_cc.libraries import registry
from codegen_cc.libraries.measured_choice import signature
from codegen_cc.link.toolchain import compiler
from codegen_cc.node import Node, Operand
from codegen_cc.operators.packing import PanelFormat
from codegen_cc.runtime_files import runtime_file

#: ONNX's names where they are not those of NumPy.
ONNX_NAMES = {"FLOAT": "float32", "DOUBLE": "float64"}
#: What values of a region never are.
NOT_OURS = {"UNDEFINED", "STRING", "COMPLEX64", "COMPLEX128", "UINT2", "INT2"}


def test_the_c_headers_agree(tmp_path: Path) -> None:
    header = runtime_file("include/ext_kernels.h")
    names = kernel_header().enumerations["ext_dtype"]
    assert list(names) == [DTYPES[name].enumerator for name in KERNEL_DTYPES]
    lines = ['#include "ext_kernels.h"', '#include "byoc_model.h"', "#include <dlpack/dlpack.h>"]
    for value, name in enumerate(KERNEL_DTYPES):
        lines.append(f'_Static_assert(EXT_{name.upper()} == {value}, "{name}");')
        lines.append(f'_Static_assert(BYOC_{name.upper()} == {value}, "{name}");')
    for name, dtype in DTYPES.items():
        lines.append(f'_Static_assert(sizeof({dtype.ctype}) == {dtype.bytes}, "{name}");')
        lines.append(f'_Static_assert({dtype.dl_code} >= 0, "{name}");')
    source = tmp_path / "dtypes.c"
    source.write_text("\n".join([*lines, ""]))
    folders = [header.parent, tvm_ffi.libinfo.find_dlpack_include_path()]
    command = [*compiler(), "-std=gnu11", "-fsyntax-only", *(f"-I{folder}" for folder in folders)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", DTYPES)
def test_arrays_have_the_dtype(name: str) -> None:
    dtype = dtypes.of(name)
    array = np.zeros(3, dtype.numpy)
    assert str(array.dtype) == name and array.itemsize == dtype.bytes


def test_every_dtype_of_onnx_is_known() -> None:
    known = set(onnx.TensorProto.DataType.keys()) - NOT_OURS
    for name in known:
        mine = ONNX_NAMES.get(name)
        if mine is None:
            mine = str(onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(name)))
        assert mine in DTYPES, name


def test_an_unknown_dtype_is_named() -> None:
    with pytest.raises(CodegenError, match="dtype 'float33' is not known; known: float32, int32"):
        dtypes.of("float33")


def test_bytes_are_counted_by_dtype() -> None:
    node = Node("cast", (Operand("input", (10,), "float16"),), (10,), "bool")
    assert node.bytes_moved == 30


def test_weights_of_four_bits_share_bytes() -> None:
    rhs = Operand("rhs", (1, 5, 7), "uint4", constant=True)
    scale = Operand("scale", (1, 7), "float32", constant=True)
    node = Node("matmul", (Operand("lhs", (2, 5), "float32"), rhs, scale), (2, 7), "float32")
    assert node.bytes_moved == 4 * 2 * 5 + 18 + 4 * 7 + 4 * 2 * 7


def test_a_constant_keeps_the_dtype_that_it_is_given() -> None:
    assert str(constant(0.5, "float16").ty.dtype) == "float16"
    with pytest.raises(TypeError):
        constant(np.zeros(3))


def test_what_a_node_computes_in_is_part_of_what_is_timed() -> None:
    operands = (Operand("lhs", (4, 8), "float32"), Operand("rhs", (8, 16), "float32", True))
    plain = Node("matmul", operands, (4, 16), "float32")
    narrow = replace(plain, compute="bfloat16")
    assert Node.from_json(narrow.to_json()) == narrow
    assert signature(narrow) != signature(plain)
    reason = registry.library("builtin").supports(replace(plain, compute="float16"))
    assert reason == "to be computed in float16; need float32, bfloat16 or bfloat16x3"
    computed = replace(narrow, operands=(operands[0], replace(operands[1], constant=False)))
    assert registry.library("builtin").supports(computed).startswith("rhs is computed")
    assert registry.library("builtin").supports(narrow) is None
    assert registry.library("builtin").supports(plain) is None


@pytest.mark.parametrize(("dtype", "group"), [("float32", 1), ("bfloat16", 2), ("int8", 4)])
@pytest.mark.parametrize("shape", [(2, 8, 32), (1, 5, 17), (3, 1, 1), (1, 7, 40)])
def test_panels(dtype: str, group: int, shape: tuple[int, int, int]) -> None:
    count, k, n = shape
    matrices = np.random.default_rng(0).integers(-100, 100, shape).astype("float32")
    panels = PanelFormat(dtype, group).pack(matrices)
    assert str(panels.dtype) == dtype
    panels = panels.reshape(count, -(-n // 16), -(-k // group), 16, group).astype("float32")
    for i, j, row, column, part in np.ndindex(*panels.shape):
        at = (i, row * group + part, j * 16 + column)
        inside = at[1] < k and at[2] < n
        assert panels[i, j, row, column, part] == (matrices[at] if inside else 0)
