"""Einsum, which becomes products of matrices, beside ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import byoc
from byoc.errors import ImportFailure
from tests.reference import assert_agrees, onnxruntime_outputs

#: Equation, and shapes of its operands.
EQUATIONS = [
    ("ij,jk->ik", [(4, 5), (5, 6)]),
    ("ij,jk", [(4, 5), (5, 6)]),
    ("bij,bjk->bik", [(3, 4, 5), (3, 5, 6)]),
    ("bct,bcs->bts", [(2, 8, 5), (2, 8, 7)]),
    ("bts,bcs->bct", [(2, 5, 7), (2, 8, 7)]),
    ("bhid,bhjd->bhij", [(2, 3, 4, 8), (2, 3, 5, 8)]),
    ("bihd,bjhd->bhij", [(2, 4, 3, 8), (2, 5, 3, 8)]),
    ("...ij,...jk->...ik", [(2, 3, 4, 5), (2, 3, 5, 6)]),
    ("...ij,jk->...ik", [(2, 3, 4, 5), (5, 6)]),
    ("abcd,cd->ab", [(2, 3, 4, 5), (4, 5)]),
    ("abc,dc->dab", [(2, 3, 4), (5, 4)]),
    ("nhwpqc->nchpwq", [(2, 3, 4, 2, 2, 5)]),
    ("bi,bi->b", [(3, 7), (3, 7)]),
    ("i,i->", [(1,), (1,)]),
    ("i,j->ij", [(3,), (4,)]),
    ("ij,j->ij", [(3, 4), (4,)]),
    ("ij->ji", [(3, 4)]),
    ("ij->i", [(3, 4)]),
    ("bij->b", [(2, 3, 4)]),
    ("ij, kj -> i", [(3, 4), (5, 4)]),
    ("ab,bc,cd->ad", [(3, 4), (4, 5), (5, 6)]),
    ("ab,ab,bc->c", [(3, 4), (3, 4), (4, 5)]),
    ("bnd,d->bn", [(2, 3, 4), (4,)]),
    ("bhwc,hkc->bhwk", [(1, 4, 5, 8), (4, 6, 8)]),
]


def model(equation: str, shapes: list[tuple], dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    names = [f"x{place}" for place in range(len(shapes))]
    nodes = [
        helper.make_node("Einsum", names, ["sums"], "einsum", equation=equation),
        helper.make_node("Abs", ["sums"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(n, dtype, s) for n, s in zip(names, shapes, strict=True)]
    outputs = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph(nodes, "einsum", infos, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def draw(shapes: list[tuple], dtype: type = np.float32) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        f"x{place}": rng.uniform(-4, 4, shape).astype(dtype) for place, shape in enumerate(shapes)
    }


@pytest.mark.parametrize("equation, shapes", EQUATIONS, ids=str)
def test_equations(equation: str, shapes: list[tuple], tmp_path: Path) -> None:
    network, inputs = model(equation, shapes), draw(shapes)
    done = byoc.compile(network, tmp_path / "m.so", min_bytes=0)
    assert done.report.left == () and len(done.report.regions) == 1
    with byoc.load(tmp_path / "m.so") as library:
        assert_agrees(library.run(inputs), onnxruntime_outputs(network, inputs))


def test_symbolic_extents(tmp_path: Path) -> None:
    network = model("bqhd,bkhd->bhqk", [("b", "q", 3, 8), ("b", "k", 3, 8)])
    done = byoc.compile(network, tmp_path / "m.so", min_bytes=0)
    assert done.report.left == () and len(done.report.regions) == 1
    with byoc.load(tmp_path / "m.so") as library:
        for b, q, k in ((1, 1, 1), (2, 5, 3), (3, 2, 9)):
            inputs = draw([(b, q, 3, 8), (b, k, 3, 8)])
            assert_agrees(library.run(inputs), onnxruntime_outputs(network, inputs))


@pytest.mark.parametrize(
    "equation, shapes, dtype, name",
    [
        ("ii->i", [(4, 4)], TensorProto.FLOAT, np.float32),
        ("ij,jk->ik", [(4, 5), (5, 6)], TensorProto.INT32, np.int32),
        ("ij,jk->ik", [(4, 5), (5, 6)], TensorProto.DOUBLE, np.float64),
    ],
    ids=str,
)
def test_what_tvm_computes(
    equation: str, shapes: list[tuple], dtype: int, name: type, tmp_path: Path
) -> None:
    network, inputs = model(equation, shapes, dtype), draw(shapes, name)
    byoc.compile(network, tmp_path / "m.so", min_bytes=0)
    with byoc.load(tmp_path / "m.so") as library:
        assert_agrees(library.run(inputs), onnxruntime_outputs(network, inputs))


@pytest.mark.parametrize(
    "equation, message",
    [
        ("ij,jk->ik", "Number of input tensors does not match the operands"),
        ("ijk->ik", "does not match the equation indices"),
        ("ij->ik", "a label missing from the inputs"),
    ],
)
def test_equations_that_do_not_fit(equation: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ImportFailure, match=message):
        byoc.compile(model(equation, [(4, 5)]), tmp_path / "m.so")
