"""Dimensions: what can be said of expressions for all values of their symbols, and as C."""

from __future__ import annotations

import itertools

import pytest
import sympy
import tvm

from codegen_cc.dim import Dim, at_most, normal, parse_dim, slice_bounds, symbol
from codegen_cc.relax_dims import dim_text, relax_dims, relax_extent, variable_symbols

H, W = symbol("h"), symbol("w")


def at(dim: Dim, h: int, w: int = 1) -> int:
    return int(sympy.sympify(dim).subs({H: h, W: w}))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1, 2, True),
        (2, 1, False),
        (1, H, True),
        (H, 1, None),
        (H, H, True),
        (H + 1, H, False),
        (17, 32 * H, True),
        (33, 32 * H, None),
        (0, 32 * H - 17, True),
        (2 * H, H * W, None),
        (H, H * W, True),
        (0, sympy.floor((H + 1) / 2), True),
    ],
)
def test_order(a: Dim, b: Dim, expected: bool | None) -> None:
    assert at_most(a, b) is expected


@pytest.mark.parametrize("extent", [7, 8 * H, 2 * H + 1])
def test_bounds_of_slices_are_those_of_python(extent: Dim) -> None:
    ends = (-(2**63), -3, -1, 0, 1, 2, 5, 2**31 - 1, 2**62)
    known = 0
    for begin, end in itertools.product(ends, ends):
        bounds = slice_bounds(begin, end, extent)
        if bounds is None:
            continue
        known += 1
        for h in (1, 2, 9):
            size = at(extent, h)
            want = slice(begin, end).indices(size)[:2]
            assert (at(bounds[0], h), at(bounds[1], h)) == (want[0], max(want)), (begin, end, h)
    assert known > 40


def test_bounds_that_depend_on_the_size_are_not_known() -> None:
    assert slice_bounds(0, 5, H) is None
    assert slice_bounds(1, -1, H) is None
    assert slice_bounds(1, -1, 2 * H) == (1, 2 * H - 1)


@pytest.mark.parametrize(
    "dim", [3, H, 32 * H, H * W * 21, H - 1, sympy.floor((H + 1) / 2), sympy.Mod(H, 4), H**2 + W]
)
def test_relax_gives_back_what_it_was_given(dim: Dim) -> None:
    variables = variable_symbols([tvm.tirx.Var("h", "int64"), tvm.tirx.Var("w", "int64")])
    extent = relax_extent(dim, variables)
    extent = tvm.tirx.IntImm("int64", extent) if isinstance(extent, int) else extent
    assert relax_dims([extent]) == (normal(dim),)
    assert parse_dim(dim_text(extent)) == normal(dim) or isinstance(dim, int)


def test_minima_are_read_where_their_order_is_fixed() -> None:
    h = tvm.tirx.Var("h", "int64")
    assert relax_dims([tvm.tirx.Min(h, 2 * h), tvm.tirx.Max(h, 2 * h)]) == (H, 2 * H)
    with pytest.raises(ValueError, match="which of h and 5 is greater"):
        relax_dims([tvm.tirx.Min(h, tvm.tirx.IntImm("int64", 5))])
