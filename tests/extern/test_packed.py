"""The packed function as TVM calls it: what it refuses, and how a kernel's failure comes out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi

from byoc.extern.loading import load_packed
from tests.extern.folders import built

pytest.importorskip("pycparser", reason="the extra 'extern' is not installed")

HEADER = """\
#include <stdbool.h>
#include <stdint.h>
// byoc: x=input[*outer,n,*inner] y=output[*outer,n//step,*inner] n=size axis=axis
// byoc: step=attr factor=attr negate=attr reference="np.repeat(x, 1, axis)"
int packed_thin(const float* x, float* y, int32_t n, int axis, int8_t step, double factor,
                bool negate);
// byoc: x=input[n] y=output[n] n=size reference="x"
int packed_fail(const int16_t* x, int16_t* y, uint8_t n);
// byoc: x=input[*outer] y=output[*outer,2] n=outer reference="np.stack([x, x], -1)"
void packed_pair(const float* x, float* y, int64_t n);
// byoc: x=input[*outer,2] z=input[*outer,2,2] y=output[*outer] n=outer
// byoc: reference="x.sum(-1)"
void packed_wide(const float* x, const float* z, float* y, int64_t n);
"""
CODE = """\
int packed_thin(const float* x, float* y, int32_t n, int axis, int8_t step, double factor,
                bool negate) {
  y[0] = (float)(x[0] * factor * (negate ? -1 : 1) + n + 10 * axis + 100 * step);
  return 0;
}
int packed_fail(const int16_t* x, int16_t* y, uint8_t n) {
  y[0] = x[0];
  return n == 3 ? -7 : 0;
}
void packed_pair(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < 2 * n; i++) y[i] = x[i / 2];
}
void packed_wide(const float* x, const float* z, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = x[2 * i] + x[2 * i + 1] + 0 * z[4 * i];
}
"""
Packed = Callable[..., None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed")
    built(path, HEADER, CODE)
    return path / "out"


@pytest.fixture(scope="module")
def thin(folder: Path) -> Packed:
    load_packed(folder / "packed_thin_tvm.so", "packed_thin")
    return tvm.get_global_func("packed_thin")


@pytest.fixture(scope="module")
def fail(folder: Path) -> Packed:
    load_packed(folder / "packed_fail_tvm.so", "packed_fail")
    return tvm.get_global_func("packed_fail")


def tensor(*shape: int, dtype: str = "float32") -> tvm.runtime.Tensor:
    return tvm.runtime.tensor(np.ones(shape, dtype))


def test_every_number_arrives(thin: Packed) -> None:
    y = tensor(2, 1, 5)
    thin(tensor(2, 4, 5), 1, 4, 0.5, True, y)
    assert y.numpy().flat[0] == -0.5 + 4 + 10 + 400


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((), TypeError, "got 0 arguments; expected 6: x, axis, step, factor, negate, y"),
        ((3, 0, 1, 1.0, 0, tensor(2)), TypeError, "x is not a tensor (FFI type 1); pass a tensor"),
        (
            (tensor(), 0, 1, 1.0, 0, tensor(2)),
            ValueError,
            "x has rank 0; expected 1 to 8",
        ),
        (
            (tensor(*[1] * 9), 0, 1, 1.0, 0, tensor(2)),
            ValueError,
            "x has rank 9; expected 1 to 8",
        ),
        ((tensor(2, 3), 2, 1, 1.0, 0, tensor(2)), ValueError, "axis is 2; expected 0 to 1"),
        ((tensor(2, 3), -1, 1, 1.0, 0, tensor(2)), ValueError, "axis is -1; expected 0 to 1"),
        (
            (tensor(2), "zero", 1, 1.0, 0, tensor(2)),
            TypeError,
            "axis has FFI type 11; pass an integer",
        ),
        ((tensor(2), 0, 0, 1.0, 0, tensor(2)), ValueError, "step is 0; expected 1 to 127"),
        ((tensor(2), 0, 128, 1.0, 0, tensor(2)), ValueError, "step is 128; expected 1 to 127"),
        ((tensor(2), 0, 1, None, 0, tensor(2)), TypeError, "factor has FFI type 0; pass a number"),
        ((tensor(2), 0, 1, 1.0, 2, tensor(2)), ValueError, "negate is 2; expected 0 to 1"),
        (
            (tensor(2, dtype="int32"), 0, 1, 1.0, 0, tensor(2)),
            TypeError,
            "x has dtype code 0 with 32 bits x 1; expected float32",
        ),
        (
            (tensor(2, 6), 1, 2, 1.0, 0, tensor(2, 6)),
            ValueError,
            "y has shape [2, 6]; expected [2, 3]",
        ),
    ],
)
def test_refused(
    thin: Packed, arguments: tuple[object, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"packed_thin: {re.escape(message)}"):
        thin(*arguments)


@pytest.mark.parametrize(
    ("name", "shapes", "what"),
    [
        ("packed_pair", [(2,) * 8, (2,) * 8], "y would have rank 9"),
        ("packed_pair", [(2,) * 8, (2,) * 9], "y would have rank 9 for these inputs; at most 8 is"),
        ("packed_wide", [(2,) * 8, (2,) * 8, (2,) * 7], "z would have rank 9"),
        ("packed_wide", [(2,) * 8, (2,) * 9, (2,) * 7], "z has rank 9; expected 2 to 8"),
    ],
)
def test_no_shape_has_more_axes_than_there_is_room_for(
    folder: Path, name: str, shapes: list[tuple[int, ...]], what: str
) -> None:
    load_packed(folder / f"{name}_tvm.so", name)
    with pytest.raises(ValueError, match=f"{name}: {what}"):
        tvm.get_global_func(name)(*(tensor(*shape) for shape in shapes))


def test_the_greatest_rank_is_computed(folder: Path) -> None:
    load_packed(folder / "packed_pair_tvm.so", "packed_pair")
    x, y = (tensor(*(2,) * rank) for rank in (7, 8))
    y.copyfrom(np.zeros((2,) * 8, "float32"))
    tvm.get_global_func("packed_pair")(x, y)
    assert (y.numpy() == 1).all()


def test_strides_and_alignment(fail: Packed) -> None:
    apart = np.arange(32, dtype="int16")[::2]
    strided = tvm_ffi.from_dlpack(apart)
    with pytest.raises(ValueError, match="packed_fail: x is not contiguous; pass a contiguous"):
        fail(strided, tensor(16, dtype="int16"))
    octets = np.zeros(65, "int8")
    odd = octets[1 - octets.ctypes.data % 2 :][:8].view("int16")
    assert odd.ctypes.data % 2 == 1
    with pytest.raises(ValueError, match="packed_fail: x is not aligned to 2 bytes"):
        fail(tvm_ffi.from_dlpack(odd), tensor(4, dtype="int16"))


def test_a_size_that_its_type_cannot_hold(fail: Packed) -> None:
    x = tensor(256, dtype="int16")
    with pytest.raises(ValueError, match="packed_fail: n is 256; expected 0 to 255"):
        fail(x, x)


def test_a_status_becomes_an_error(fail: Packed) -> None:
    x, y = (tensor(3, dtype="int16") for _ in range(2))
    with pytest.raises(RuntimeError, match="packed_fail: the kernel failed with status -7"):
        fail(x, y)


def test_a_library_that_is_not_built(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not built; run make -C"):
        load_packed(tmp_path / "f_tvm.so", "f")
