"""Scales, zero points and dtypes that mean nothing: one line that names operator and node."""

from __future__ import annotations

import numpy as np
import pytest

from byoc.errors import ImportFailure
from byoc.frontends.onnx import import_onnx, prepare
from tests.quantised.nodes import One, model_of

f32, u8, s8 = np.float32, np.uint8, np.int8
MICROSOFT = "com.microsoft"

SUMS = np.zeros((2, 3, 5), np.int32)
BYTES = np.zeros((2, 3, 4), u8)
IMAGE = np.zeros((1, 2, 5, 5), u8)
WEIGHT = np.zeros((3, 2, 3, 3), s8)
ONE = np.float32(0.5)


def conv(**other) -> One:
    given = {
        "x_scale": ONE,
        "x_zero": u8(0),
        "w": WEIGHT,
        "w_scale": ONE,
        "w_zero": s8(0),
        "y_scale": ONE,
        "y_zero": u8(0),
        "bias": np.zeros(3, np.int32),
        **other,
    }
    return One("QLinearConv", IMAGE, list(given.values()), [BYTES])


def add(b=BYTES, **other) -> One:
    given = {
        "a_scale": ONE,
        "a_zero": u8(0),
        "b": b,
        "b_scale": ONE,
        "b_zero": u8(0),
        "y_scale": ONE,
        "y_zero": u8(0),
        **other,
    }
    return One("QLinearAdd", BYTES, list(given.values()), [BYTES], domain=MICROSOFT)


CASES = {
    "QLinearConv, 0": (conv(y_scale=f32(0)), "scale 'c0_5' is 0; need finite ones above 0"),
    "QLinearConv, below 0 in one of several": (
        conv(w_scale=f32([1, -1, 1])),
        "scale 'c0_3' is -1; need finite ones of 0 or more",
    ),
    "QLinearConv, NaN of the image": (conv(x_scale=f32(np.nan)), "scale 'c0_0' is nan; need"),
    "QLinearConv, NaN of the result": (conv(y_scale=f32(np.nan)), "scale 'c0_5' is nan"),
    "QLinearConv, length": (
        conv(w_scale=f32([1, 1])),
        "scale 'c0_3' is of shape [2]; need one element, or 3, those of axis 0",
    ),
    "QLinearConv, length of the zero point": (
        conv(w_zero=s8([0] * 2)),
        "zero point 'c0_4' is of shape [2]; need one element, or 3, those of axis 0",
    ),
    "QLinearConv, several scales of the image": (
        conv(x_scale=f32([1, 1])),
        "scale 'c0_0' has 2 elements; need one",
    ),
    "QLinearConv, dtype of the zero point": (
        conv(w_zero=u8(0)),
        "zero point 'c0_4' is uint8 and 'c0_2' int8; need one dtype",
    ),
    "QLinearConv, integers as a scale": (
        conv(w_scale=np.int32(1)),
        "scale 'c0_3' is int32; need floating-point numbers",
    ),
    "QLinearConv, floats": (
        conv(w=WEIGHT.astype(f32), w_zero=f32(0)),
        "w is float32; need integers",
    ),
    "QLinearConv, a float bias": (
        conv(bias=np.zeros(3, f32)),
        "B is float32; need integers",
    ),
    "QLinearConv, length of the bias": (
        conv(bias=np.zeros(2, np.int32)),
        "bias 'c0_7' is of shape [2]; need [3]",
    ),
    "QLinearConv, 16 bits": (conv(y_zero=np.int16(0)), "zero point 'c0_6' is int16; need int8 or"),
    "QLinearAdd, dtypes": (
        add(b=BYTES.astype(s8), b_zero=s8(0)),
        "'x0' is uint8 and 'c0_2' int8; need one dtype",
    ),
    "QLinearAdd, dtype of the result": (
        add(y_zero=s8(0)),
        "'x0' is uint8 and 'c0_6' int8; need one dtype",
    ),
    "QLinearAdd, several scales": (add(a_scale=f32([1] * 4)), "scale 'c0_0' has 4 elements"),
    "QLinearAdd, no scale": (add(b_scale=None), "the scale of 'c0_2' is missing"),
    "QLinearAdd of ONNX": (
        One("QLinearAdd", BYTES, add().constants, [BYTES]),
        "the converter is for com.microsoft's operator of that name",
    ),
    "MatMulInteger, zero point": (
        One("MatMulInteger", BYTES, [np.zeros((4, 5), s8), s8(0)], [SUMS]),
        "zero point 'c0_1' is int8 and 'x0' uint8; need one dtype",
    ),
    "MatMulInteger, length": (
        One("MatMulInteger", BYTES, [np.zeros((4, 5), s8), u8(0), s8([0] * 4)], [SUMS]),
        "zero point 'c0_2' is of shape [4]; need one element, or 5, those of axis 1",
    ),
    "ConvInteger, length": (
        One("ConvInteger", IMAGE, [WEIGHT, u8(0), s8([0] * 2)], [SUMS]),
        "zero point 'c0_2' is of shape [2]; need one element, or 3, those of axis 0",
    ),
}


@pytest.mark.parametrize(("one", "message"), CASES.values(), ids=CASES.keys())
def test_one_line(one: One, message: str) -> None:
    with pytest.raises(ImportFailure) as caught:
        import_onnx(prepare(model_of([one])))
    text = str(caught.value)
    assert f"operator {one.operator} (node 'node0'): " in text
    assert message in text and "\n" not in text
