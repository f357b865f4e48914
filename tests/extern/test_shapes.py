"""Extents by name: what matches, what does not, and what is left to the call."""

from __future__ import annotations

import pytest
import tvm

from byoc.extern.expression import BadExpression, Expression
from byoc.extern.shapes import Sizes, axis_in, immediates, integers


@pytest.mark.parametrize(
    ("axes", "shape", "split", "found"),
    [
        (("m", "k"), (2, 3), 0, {"m": 2, "k": 3}),
        (("*s",), (2, 3, 4), 0, {"s": [2, 3, 4]}),
        (("*s",), (), 0, {"s": []}),
        (("*batch", "m", "k"), (5, 2, 3), 0, {"batch": [5], "m": 2, "k": 3}),
        (("n", "*s"), (5, 2, 3), 0, {"n": 5, "s": [2, 3]}),
        (("*o", "p", "*i"), (5, 2, 3), 0, {"o": [], "p": 5, "i": [2, 3]}),
        (("*o", "p", "*i"), (5, 2, 3), 2, {"o": [5, 2], "p": 3, "i": []}),
        (("m", 3, None), (2, 3, 9), 0, {"m": 2}),
    ],
)
def test_bind(
    axes: tuple[object, ...], shape: tuple[int, ...], split: int, found: dict[str, object]
) -> None:
    sizes = Sizes("f")
    sizes.bind("a", shape, *axes, split=split)
    assert {name: sizes[name] for name in found} == found


@pytest.mark.parametrize(
    ("axes", "shape", "message"),
    [
        (("m",), (2, 3), "f: b has shape [2, 3]; expected [m]"),
        (("n", "n"), (2, 3), "f: b has shape [2, 3]; expected [n, n] with n = 2, n = 2"),
        (("k", 4), (2, 3), "f: b has shape [2, 3]; expected [k, 4] with k = 2"),
        (("*s", "a", "b"), (2,), "f: b has shape [2]; expected [*s, a, b]"),
        (("known",), (6,), "f: b has shape [6]; expected [known] with known = 5"),
        (("*run",), (1, 2, 3), "f: b has shape [1, 2, 3]; expected [*run] with *run = [1, 2]"),
    ],
)
def test_mismatch(axes: tuple[object, ...], shape: tuple[int, ...], message: str) -> None:
    sizes = Sizes("f")
    sizes.bind("a", (5, 1, 2), "known", "*run")
    with pytest.raises(ValueError) as caught:
        sizes.bind("b", shape, *axes)
    assert str(caught.value) == message


def test_more_axes_than_a_tensor_may_have() -> None:
    sizes = Sizes("f")
    with pytest.raises(ValueError, match=r"f: a has rank 9, shape .*; at most 8 is possible"):
        sizes.bind("a", (1,) * 9, "*s")
    with pytest.raises(ValueError, match=r"f: y would have rank 9, shape .*; at most 8 is"):
        sizes.result("y", [1] * 9)
    assert sizes.result("y", [1] * 8) == [1] * 8


def test_symbols_differ_only_if_that_is_certain() -> None:
    n, m = (tvm.tirx.Var(name, "int64") for name in "nm")
    sizes = Sizes("f")
    sizes.bind("a", (n, n + 1), "x", "y")
    sizes.bind("b", (m, 1 + n), "x", "y")
    with pytest.raises(ValueError, match="expected"):
        sizes.bind("c", (n + 2, n + 1), "x", "y")
    with pytest.raises(ValueError, match=r"f: y has an axis of 3; expected n \* 2 = 4"):
        sizes.need("y", 3, 4, "n * 2")
    with pytest.raises(ValueError, match=r"f: y would have shape \[3, -1\]"):
        sizes.result("y", [3, -1])


def test_attributes() -> None:
    assert integers("f", "strides", [1, tvm.tirx.IntImm("int64", 2)], 2, 1) == [1, 2]
    assert [axis_in("f", axis, 3, 1) for axis in (0, 2, -1, -3)] == [0, 2, 2, 0]
    with pytest.raises(ValueError, match="f: axis is 3; expected -3 to 2"):
        axis_in("f", 3, 3, 1)
    with pytest.raises(ValueError, match="f: strides is 0; need 1 or more"):
        integers("f", "strides", [1, 0], 2, 1)
    with pytest.raises(ValueError, match=r"f: strides is \[1\]; need 2 numbers"):
        integers("f", "strides", [1], 2, 1)
    with pytest.raises(TypeError, match=r"f: strides is 1\.5; need a whole number"):
        integers("f", "strides", [1, 1.5], 2, 1)
    kinds = [type(item).__name__ for item in immediates([1, True, 0.5])]
    assert kinds == ["IntImm", "IntImm", "FloatImm"]


@pytest.mark.parametrize(
    ("text", "c"),
    [
        ("(h + 2*p - k)//s + 1", "ext_floor_div(v_h + 2 * v_p - v_k, v_s) + 1"),
        ("-(-n//4)", "-ext_floor_div(-v_n, 4)"),
        ("a-(b-c)*2", "v_a - (v_b - v_c) * 2"),
        ("(a//2)//3", "ext_floor_div(ext_floor_div(v_a, 2), 3)"),
    ],
)
def test_expressions_in_c(text: str, c: str) -> None:
    assert Expression.parse(text).c(lambda name: f"v_{name}") == c


@pytest.mark.parametrize(
    "text", ["a.b", "a[0]", "a if b else c", "'x'", "a and b", "é", "2**31", "9" * 12, ""]
)
def test_no_expressions(text: str) -> None:
    with pytest.raises(BadExpression):
        Expression.parse(text)
