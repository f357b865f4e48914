"""What users write for a precision, and which nodes get it."""

from __future__ import annotations

import pytest

from byoc.errors import ByocError, ControlError
from byoc.partition.precision import Precision
from codegen_cc.node import Node, Operand

REAL = "float32"


def matmul(rows: int = 8, constant: bool = True, op: str = "matmul") -> Node:
    lhs = Operand("lhs", (rows, 16), REAL)
    return Node(op, (lhs, Operand("rhs", (16, 32), REAL, constant)), (rows, 32), REAL)


def conv2d(kernel: int = 1, groups: int = 1, stride: int = 1, channels: int = 64) -> Node:
    image = (1, channels, 56, 56)
    weight = (channels, channels // groups, kernel, kernel)
    size = 56 // stride
    attrs = {
        "strides": [stride, stride],
        "padding": [kernel // 2] * 4,
        "dilation": [1, 1],
        "groups": groups,
    }
    operands = (Operand("input", image, REAL), Operand("weight", weight, REAL, True))
    return Node("conv2d", operands, (1, channels, size, size), REAL, attrs, library="builtin")


def test_the_first_name_that_fits_goes_before_the_operator_and_this_before_the_rest() -> None:
    precision = Precision.of(["bf16, matmul=fp32", "head/*=bf16", "head/x=fp32"])
    assert precision.wanted(conv2d(), ("a",)) == "bf16"
    assert precision.wanted(matmul(), ("a",)) == "fp32"
    assert precision.wanted(matmul(), ("a", "head/x")) == "bf16"


def test_nothing_asked_for_is_float32() -> None:
    assert Precision.of().apply(conv2d(), ("a",)) == conv2d()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("bf17", "cannot read precision 'bf17'; need one of fp32, bf16"),
        ("=bf16", "cannot read precision '=bf16'"),
        ("conv2d=", "cannot read precision 'conv2d='"),
        ("bf16,fp32", "precisions bf16 and fp32 for the whole network; need one"),
        (["bf16", 3], "precision has the item 3; need texts"),
    ],
)
def test_bad_texts(spec: object, message: str) -> None:
    with pytest.raises(ControlError, match=message) as raised:
        Precision.of(spec)
    assert "\n" not in str(raised.value)


def test_names_of_no_node_are_refused() -> None:
    with pytest.raises(ControlError, match="no node is called 'heads'; did you mean 'head'"):
        Precision.of("heads=bf16").check_names(["head", "body"])


@pytest.mark.parametrize("node", [matmul(), conv2d(), conv2d(3, stride=2), conv2d(7)])
def test_products_with_constants_are_computed_in_bfloat16(node: Node) -> None:
    found = Precision.of("bf16").apply(node, ("a",))
    assert found.compute == "bfloat16"
    assert found.multiplied_in == "bfloat16"
    assert found.kept == ""


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (matmul(constant=False), "rhs is computed; need a constant"),
        (conv2d(3, groups=64), "depthwise"),
        (conv2d(1, groups=16), "4 outputs in a group; need 16"),
        (conv2d(3, channels=3), "3 outputs in a group; need 4"),
    ],
)
def test_what_gains_nothing_stays_in_float32_and_says_why(node: Node, reason: str) -> None:
    found = Precision.of("bf16").apply(node, ("a",))
    assert found.compute == ""
    assert reason in found.kept


@pytest.mark.parametrize("node", [matmul(), conv2d(), conv2d(3, stride=2), conv2d(7)])
def test_three_products_of_parts_pay_with_tiles_alone(
    monkeypatch: pytest.MonkeyPatch, node: Node
) -> None:
    monkeypatch.setenv("BYOC_COMPILE_ISA", "amx_bf16")
    assert Precision.of("bf16x3").apply(node, ("a",)).compute == "bfloat16x3"
    monkeypatch.setenv("BYOC_COMPILE_ISA", "avx512_bf16")
    found = Precision.of("bf16x3").apply(node, ("a",))
    assert found.compute == ""
    assert "this CPU does 2 in the time of one in float32; need 4, as AMX has" in found.kept


def test_a_cpu_that_no_table_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_COMPILE_ISA", "amx")
    with pytest.raises(ByocError, match="BYOC_COMPILE_ISA=amx: unknown instruction set; need one"):
        Precision.of("bf16x3").apply(matmul(), ("a",))


def test_groups_that_fill_a_vector_multiply_in_float32_but_on_tiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = conv2d(3, groups=4)
    monkeypatch.setenv("BYOC_COMPILE_ISA", "avx512_bf16")
    found = Precision.of("bf16").apply(node, ("a",))
    assert found.compute == "" and "16 outputs in a group; float32" in found.kept
    monkeypatch.setenv("BYOC_COMPILE_ISA", "amx_bf16")
    assert Precision.of("bf16").apply(node, ("a",)).compute == "bfloat16"


def test_winograd_in_float32_wins_where_the_unit_is_not_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = conv2d(3)
    monkeypatch.setattr("codegen_cc.operators.conv2d_ways.product_rate", lambda node: 2.0)
    assert "Winograd" in Precision.of("bf16").apply(node, ("a",)).kept
    monkeypatch.setattr("codegen_cc.operators.conv2d_ways.product_rate", lambda node: 8.0)
    assert Precision.of("bf16").apply(node, ("a",)).compute == "bfloat16"
