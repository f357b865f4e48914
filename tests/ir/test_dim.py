"""Dimensions: what can be said of expressions for all values of their symbols, and as C."""

from __future__ import annotations

import itertools
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
import sympy
import tvm

from codegen_cc.dim import (
    Dim,
    at_most,
    at_one_window,
    backward_bounds,
    c_text,
    ceil_div,
    larger,
    normal,
    parse_dim,
    quotient,
    slice_bounds,
    smaller,
    symbol,
)
from codegen_cc.link.toolchain import compiler
from codegen_cc.region.relax_dims import dim_text, relax_dims, relax_extent, variable_symbols

ENTRY = Path(__file__).parents[2] / "runtime/include/ext_extents.h"
H, W = symbol("h"), symbol("w")


def test_extremes_lose_common_factors() -> None:
    frames = sympy.floor((H - 400) / 160) + 1
    assert quotient(larger(0, 160 * frames), 160) == larger(0, frames)


@pytest.mark.parametrize(
    ("dim", "expected"),
    [
        (sympy.floor((H - 1) / 2) + 1, sympy.floor((H + 1) / 2)),
        (sympy.floor(sympy.floor(H / 20) / 2), sympy.floor(H / 40)),
        (sympy.floor((sympy.floor((H - 10) / 5) - 2) / 2) + 1, sympy.floor((H - 10) / 10)),
        (W * sympy.floor((H - 7) / 4), W * sympy.floor((H + 1) / 4) - 2 * W),
        (sympy.floor(2 * sympy.floor(H / 3) / 5), sympy.floor(2 * sympy.floor(H / 3) / 5)),
        (sympy.floor((8 * H + 15) / 16), sympy.floor((H + 1) / 2)),
        (
            sympy.floor((3 * sympy.floor(H / 32) + 5) / 6),
            sympy.floor(H / 64 + sympy.Rational(1, 2)),
        ),
        (-sympy.floor(-H / 8), sympy.floor((H + 7) / 8)),
        (sympy.floor((4 * H + 3 * W + 5) / 12), sympy.floor(H / 3 + W / 4 + sympy.Rational(5, 12))),
        (sympy.floor(-sympy.floor(H / 3) / 2), sympy.floor(-sympy.floor(H / 3) / 2)),
    ],
)
def test_roundings_have_one_form(dim: Dim, expected: Dim) -> None:
    assert normal(dim) == normal(expected)
    assert all(at(normal(dim), h, 3) == at(dim, h, 3) for h in range(45))


def test_one_window_is_what_an_axis_is_divided_by() -> None:
    assert at_one_window(sympy.floor(H / 160) + 1) == 2
    # As a decoder's mask reshaped to the rows of its tokens: nothing is divided into windows.
    assert at_one_window(sympy.floor(H * W / (larger(0, W - 1) + 1))) == 1


@cache
def at(dim: Dim, h: int, w: int = 1) -> int:
    return int(sympy.sympify(dim).subs({H: h, W: w}))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1, 2, True),
        (2, 1, False),
        (0, H, True),
        (1, H, None),
        (H, 1, None),
        (H, H, True),
        (H + 1, H, False),
        (17, 32 * H, None),
        (0, 32 * H + 17, True),
        (2 * H, H * W, None),
        (0, sympy.floor((H + 1) / 2), True),
        (0, H - sympy.Max(0, H - 3), True),
        (H - sympy.Max(0, H - 3), 3, True),
        (sympy.Max(0, H - 3), H, True),
        (sympy.floor((640 * H + 440) / 441), 640 * sympy.floor(H / 441) + 640, True),
        (640 * sympy.floor(H / 441), sympy.floor((640 * H + 440) / 441) - 1, None),
        (160 * sympy.floor((H - 400) / 160) + 400, H, True),
        (H, 160 * sympy.floor((H - 400) / 160) + 400, None),
        (0, sympy.floor(H / 2) ** 2 - sympy.floor(H / 2), None),
        (H * W, H * W + (sympy.floor((H - 1) / 2) + 1) * (sympy.floor((W - 1) / 4) + 1), True),
        (1, (sympy.floor((H - 1) / 2) + 2) * (sympy.floor((W - 1) / 2) + 2), True),
        (0, sympy.floor((H - 1) / 2) * sympy.floor((W - 1) / 2), None),
        (0, (sympy.floor((H - 3) / 2) + 1) * (sympy.floor((W - 1) / 2) + 1), None),
        (0, (sympy.floor((H - W) / 2) + 1) * (sympy.floor((H - 1) / 2) + 1), None),
        (sympy.Max(0, H - 4), sympy.Max(0, H - 1), True),
        (0, sympy.Mod(2, H), True),
        (sympy.Mod(2, H), H, True),
        (sympy.Mod(2, H), H - 1, None),
        (sympy.Mod(-2, -4 * sympy.floor(-H / 4)), -4 * sympy.floor(-H / 4), True),
        (0, -4 * sympy.floor(-H / 4) + 2 * sympy.Max(0, 2 * sympy.floor(-H / 4) + 1) - 2, True),
    ],
)
def test_order(a: Dim, b: Dim, expected: bool | None) -> None:
    assert at_most(a, b) is expected


@pytest.mark.slow
@pytest.mark.parametrize("extent", [7, H, 8 * H, 2 * H + 1])
def test_bounds_of_slices_are_those_of_python(extent: Dim) -> None:
    ends = (-(2**63), -3, -1, 0, 1, 5, 2**62, H - 1, H - 2)
    for begin, end, step in itertools.product(ends, ends, (1, 3)):
        first, last = slice_bounds(begin, end, extent, step)
        for h in (0, 1, 2, 9):
            want = range(at(extent, h))[at(begin, h) : at(end, h) : step]
            assert at(ceil_div(last - first, step), h) == len(want), (begin, end, step, h)
            assert not want or at(first, h) == want.start, (begin, end, step, h)


@pytest.mark.slow
@pytest.mark.parametrize("extent", [7, H, 8 * H, 2 * H + 1])
def test_bounds_of_backward_slices_are_those_of_onnx(extent: Dim) -> None:
    ends = (-(2**31), -3, -1, 0, 5, 2**62, H - 2)
    for begin, end, step in itertools.product(ends, ends, (-1, -3)):
        first, last = backward_bounds(begin, end, extent, step)
        for h in (0, 1, 2, 9):
            size, start = at(extent, h), at(begin, h)
            start = 0 if start + size < 0 else start  # where Python has nothing left
            want = range(size)[start : at(end, h) : step]
            assert at(ceil_div(last - first, -step), h) == len(want), (begin, end, step, h)
            assert not want or range(size)[::-1][at(first, h)] == want.start, (begin, end, step, h)


def test_parts_of_a_slice_are_short_expressions() -> None:
    begin = H - sympy.Max(0, H - 3)  # TVM takes a clamped end for inside, behind a begin of 3
    assert slice_bounds(3, -1, H) == (begin, begin + sympy.Max(0, H - 4))
    assert slice_bounds(3, 5, H) == (begin, H - sympy.Max(0, H - 5))
    assert slice_bounds(0, H - 1, H) == (0, sympy.Max(0, H - 1))
    assert ceil_div(normal(2 * H - slice_bounds(1, 2**62, 2 * H, 2)[0]), 2) == H
    (_, middle), (start, end) = slice_bounds(0, 3, H), slice_bounds(3, 2**62, H)
    assert normal(middle + end - start) == H


@pytest.mark.parametrize(("a", "b"), [(H, 5), (5, H), (H, W), (H - 3, 2 * W), (H, 2**31)])
def test_extremes(a: Dim, b: Dim) -> None:
    for h, w in itertools.product(range(7), range(3)):
        numbers = at(a, h, w), at(b, h, w)
        assert at(larger(a, b), h, w) == max(numbers)
        assert at(smaller(a, b), h, w) == min(numbers)
    assert normal(larger(a, b) + smaller(a, b) - a - b) == 0


@pytest.mark.parametrize(
    "dim",
    [
        sympy.floor((H - 5) / 2) + 1,
        sympy.Mod(H - 4, 3),
        sympy.Max(0, H - 3) * W,
        sympy.floor((H + 1) / 2),
        H - sympy.floor((2 * W - 7) / 4),
    ],
)
def test_c_rounds_down_as_relax_does(dim: Dim, tmp_path: Path) -> None:
    """With the functions of the header that generated code includes."""
    sizes = list(itertools.product(range(9), range(5)))
    header = re.sub(r"#include \"ext_common.h\"", "", ENTRY.read_text())
    functions = re.findall(r"^static inline int64_t ext_\w+\(int64_t a.*?^}", header, re.M | re.S)
    calls = [f"  f({', '.join(map(str, size))});" for size in sizes]
    lines = [
        "#include <stdint.h>",
        "#include <stdio.h>",
        *functions,
        f"static void f(int64_t dim_h, int64_t dim_w) {{ (void)dim_w; long long y = {c_text(dim)};",
        '  printf("%lld\\n", y); }',
        "int main(void) {",
        *calls,
        "}",
    ]
    source, program = tmp_path / "dims.c", tmp_path / "dims"
    source.write_text("\n".join(lines))
    subprocess.run([*compiler(), source, "-o", program], check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert [int(line) for line in printed.split()] == [at(dim, *size) for size in sizes]


@pytest.mark.parametrize(
    "dim", [3, H, 32 * H, H * W * 21, H - 1, sympy.floor((H + 1) / 2), sympy.Mod(H, W), H**2 + W,
            sympy.Max(0, H - 3) * W, H - sympy.Max(0, H - 3), W + sympy.Max(0, H - W),
            sympy.floor((H - 3) / 2) + 1]
)  # fmt: skip
def test_relax_gives_back_what_it_was_given(dim: Dim) -> None:
    variables = variable_symbols([tvm.tirx.Var("h", "int64"), tvm.tirx.Var("w", "int64")])
    extent = relax_extent(dim, variables)
    extent = tvm.tirx.IntImm("int64", extent) if isinstance(extent, int) else extent
    assert relax_dims([extent]) == (normal(dim),)
    assert parse_dim(dim_text(extent)) == normal(dim) or isinstance(dim, int)


def test_minima_are_read() -> None:
    h = tvm.tirx.Var("h", "int64")
    assert relax_dims([tvm.tirx.Min(h, 2 * h), tvm.tirx.Max(h, 2 * h)]) == (H, 2 * H)
    (least,) = relax_dims([tvm.tirx.Min(h, tvm.tirx.IntImm("int64", 5))])
    assert least == H - sympy.Max(0, H - 5)


def test_what_is_cut_is_written_as_tvm_simplifies_it() -> None:
    """It finds both forms of an extent equal from one side only: rows of a concatenation."""
    h, most = tvm.tirx.Var("h", "int64"), tvm.tirx.IntImm("int64", 5)
    extent = relax_extent(smaller(H, 5), variable_symbols([h]))
    tvm.ir.assert_structural_equal(extent, tvm.sym.Analyzer().simplify(tvm.tirx.min(h, most)))
