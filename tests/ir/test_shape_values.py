"""Arithmetic on shapes: what is evaluated agrees with ONNX for every size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from byoc.frontends.onnx.shape_elements import ShapeValue, constant_value
from byoc.frontends.onnx.shape_values import evaluate, results_of
from codegen_cc.dim import symbol

H = symbol("h")
SHAPE = ShapeValue.of([1, 8, 32 * H, 2 * H + 1])
SCALAR = ShapeValue.of(4 * H)
FLOAT = ShapeValue.of(3 * H, "float32")


def integers(*values: int) -> ShapeValue:
    return ShapeValue.of(values)


def floats(*values: float) -> ShapeValue:
    return constant_value(np.array(values, np.float32))


def numbers(value: ShapeValue, h: int) -> np.ndarray:
    flat = [e.subs({H: h}) for e in value.elements.ravel()]
    return np.array(flat, float).reshape(value.elements.shape).astype(value.dtype)


KNOWN = [
    ("Gather", [SHAPE, ShapeValue.of(2)], {}),
    ("Gather", [SHAPE, integers(-1, 1)], {}),
    ("Slice", [SHAPE, integers(2), integers(2**62), integers(0), integers(1)], {}),
    ("Slice", [SHAPE, integers(-1), integers(-9), integers(0), integers(-2)], {}),
    ("Slice", [SHAPE, integers(1), integers(3)], {}),
    ("Concat", [SHAPE, integers(5), integers(6, 7)], {"axis": 0}),
    ("Unsqueeze", [SCALAR, integers(0)], {}),
    ("Squeeze", [ShapeValue.of([H]), integers(0)], {}),
    ("Squeeze", [ShapeValue.of([H])], {}),
    ("Reshape", [SHAPE, integers(2, -1)], {}),
    ("Reshape", [SHAPE, integers(0, 1)], {}),
    ("Add", [SHAPE, integers(1)], {}),
    ("Sub", [SCALAR, ShapeValue.of(1)], {}),
    ("Mul", [SHAPE, integers(1, 1, 2, 2)], {}),
    ("Div", [SHAPE, integers(1, 3, 2, 2)], {}),
    ("Div", [FLOAT, floats(2.0)], {}),
    ("Mod", [SHAPE, integers(5)], {}),
    ("Mod", [ShapeValue.of([H - 9]), integers(5)], {}),
    ("Pow", [SHAPE, integers(2)], {}),
    ("Pow", [SHAPE, floats(1, 2, 3, 0)], {}),
    ("Div", [SHAPE, integers(441)], {}),
    ("Div", [ShapeValue.of([5 - H, 9 - 2 * H]), integers(2)], {}),
    ("Pow", [ShapeValue.of([H**2 + 2 * H + 1, 9], "float32"), floats(0.5)], {}),
    ("Sqrt", [ShapeValue.of([H**2 * 4], "float32")], {}),
    ("Clip", [SCALAR, ShapeValue.of(12), ShapeValue.of(100)], {}),
    ("Clip", [SHAPE, ShapeValue.of(7)], {}),
    ("Neg", [SCALAR], {}),
    ("Cast", [SCALAR], {"to": TensorProto.FLOAT}),
    ("Cast", [FLOAT], {"to": TensorProto.INT64}),
    ("Floor", [ShapeValue.of(H / 2, "float32")], {}),
    ("Ceil", [ShapeValue.of(5 * H / 8, "float32")], {}),
    ("Equal", [SHAPE, integers(-1)], {}),
    ("Where", [ShapeValue.of([1, 0, 0, 1], "bool"), SHAPE, integers(7)], {}),
    ("ReduceProd", [SHAPE], {"keepdims": 0}),
    ("ReduceProd", [SHAPE], {}),
    ("ConstantOfShape", [integers(3)], {}),
    ("Identity", [SHAPE], {}),
    ("Pad", [SHAPE, integers(1, 2)], {}),
    ("ScatterElements", [SHAPE, integers(2, -4), ShapeValue.of([H, 9])], {}),
    ("Pad", [ShapeValue.of([[H], [2]]), integers(0, 1, 2, 0), ShapeValue.of(7)], {}),
]


def node_of(op: str, operands: Sequence[ShapeValue], attributes: dict) -> onnx.NodeProto:
    return helper.make_node(op, [f"x{i}" for i in range(len(operands))], ["y"], **attributes)


@pytest.mark.parametrize(
    ("op", "operands", "attributes"), KNOWN, ids=[f"{i}_{k[0]}" for i, k in enumerate(KNOWN)]
)
def test_values_are_those_of_onnx(op: str, operands: list[ShapeValue], attributes: dict) -> None:
    node = node_of(op, operands, attributes)
    value = evaluate(node, operands, 17)
    assert value is not None
    for h in (1, 2, 3, 7, 40):
        arrays = [numbers(operand, h) for operand in operands]
        inputs = [
            helper.make_tensor_value_info(
                f"x{i}", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for i, array in enumerate(arrays)
        ]
        outputs = [onnx.helper.make_empty_tensor_value_info("y")]
        graph = helper.make_graph([node], "graph", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        feeds = {f"x{i}": array for i, array in enumerate(arrays)}
        want = np.asarray(ReferenceEvaluator(model).run(None, feeds)[0])
        got = numbers(value, h)
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("op", "operands", "attributes"),
    [
        # What fp32 makes of a product may lie on the other side of a whole number.
        ("Floor", [ShapeValue.of(H * floats(0.7).elements[0], "float32")], {}),
        # Integers divide towards 0, and the sign is not known.
        ("Div", [ShapeValue.of([H - 2]), integers(2)], {}),
        ("Cast", [ShapeValue.of((H - 5) / 2, "float32")], {"to": TensorProto.INT64}),
        # Depends on h.
        ("Equal", [SHAPE, integers(64)], {}),
        ("ConstantOfShape", [SHAPE], {}),
        ("Gather", [SHAPE, ShapeValue.of([H])], {}),
        ("Reshape", [SHAPE, ShapeValue.of([H, 2])], {}),
        # No operator on shapes.
        ("Sqrt", [FLOAT], {}),
        ("Div", [SHAPE, integers(0)], {}),
        ("Pow", [SHAPE, floats(0.5)], {}),
        ("Pow", [SHAPE, integers(-1)], {}),
        ("Pow", [FLOAT, integers(2)], {}),
        ("ScatterElements", [SHAPE, ShapeValue.of([H]), integers(1)], {}),
        ("ScatterElements", [SHAPE, integers(9), integers(1)], {}),
        ("ScatterElements", [SHAPE, integers(1), integers(1)], {"reduction": "add"}),
        ("Pad", [SHAPE, ShapeValue.of([H, 2])], {}),
        ("Pad", [SHAPE, integers(1, -1)], {}),
        ("Pad", [SHAPE, integers(1, 1)], {"mode": "edge"}),
    ],
)  # fmt: skip
def test_what_is_not_known_exactly_is_left(
    op: str, operands: list[ShapeValue], attributes: dict
) -> None:
    assert evaluate(node_of(op, operands, attributes), operands, 17) is None


def parts_of(operands: list[ShapeValue | None], outputs: int, **attributes) -> list | None:
    names = ["x", "sizes"][: len(operands)]
    node = helper.make_node("Split", names, [f"y{i}" for i in range(outputs)], **attributes)
    found = results_of(node, operands, 18)
    return None if None in found else [part.elements.tolist() for part in found]


def test_vectors_are_split() -> None:
    assert parts_of([SHAPE], 4) == [[1], [8], [32 * H], [2 * H + 1]]
    assert parts_of([SHAPE], 2, num_outputs=2) == [[1, 8], [32 * H, 2 * H + 1]]
    assert parts_of([integers(1, 2, 3, 4, 5)], 3) == [[1, 2], [3, 4], [5]]
    assert parts_of([SHAPE, integers(0, 3, 1)], 3) == [[], [1, 8, 32 * H], [2 * H + 1]]
    assert parts_of([SHAPE], 2, split=[1, 3]) == [[1], [8, 32 * H, 2 * H + 1]]
    assert parts_of([SHAPE, ShapeValue.of([H, 4 - H])], 2) is None
    assert parts_of([SHAPE, integers(1, 2)], 2) is None
    assert parts_of([integers(1, 2, 3, 4, 5)], 4) is None
    assert parts_of([SCALAR], 2) is None


def test_inputs_were_attributes_once() -> None:
    node = helper.make_node("Unsqueeze", ["x"], ["y"], axes=[0])
    assert evaluate(node, [SCALAR], 11).elements.tolist() == [4 * H]
    for axes in ({}, {"axes": [0]}):
        node = helper.make_node("Slice", ["x"], ["y"], starts=[-2], ends=[99], **axes)
        assert evaluate(node, [SHAPE], 9).elements.tolist() == [32 * H, 2 * H + 1]


def test_large_and_odd_constants_have_no_value() -> None:
    assert constant_value(np.zeros(65, np.int64)) is None
    assert constant_value(np.array([np.nan], np.float32)) is None
    assert constant_value(np.array([1], np.float16)) is None
