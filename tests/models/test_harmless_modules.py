"""Operands that TVM's code is not to see, in the forms that Relax modules have beside ONNX's.

Branches, indices for each axis, axes without elements. Each library runs in a process of its own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import byoc
from byoc.compiler.compile import compile
from byoc.compiler.partition import partition_with_report
from tests.models.in_process import run_in_process
from tests.models.test_harmless_operands import Joined, graph_of, run

FAR = 1 << 40


def run_module(
    module: tvm.IRModule, inputs: dict[str, np.ndarray], outputs: int, folder: Path
) -> list[np.ndarray]:
    """What a module gives in a process of its own, partitioned."""
    partitioned, report = partition_with_report(module)
    executable = tvm.compile(relax.transform.RunCodegen()(partitioned), target="llvm")
    library = folder / "module.so"
    executable.export_library(str(library))
    names = {f"output{i}": np.empty(0) for i in range(outputs)}
    found = run_in_process(Joined(library, inputs, names, report), folder, {})["outputs"]
    return [found[name] for name in names]


@I.ir_module
class Branches:
    @R.function
    def main(
        flag: R.Tensor((), "bool"),
        a: R.Tensor((5,), "int32"),
        b: R.Tensor((5,), "int32"),
        i: R.Tensor((5,), "int64"),
    ):
        if flag:
            quotient = R.divide(a, b)
            if flag:
                rest = R.mod(quotient, b)
                inner = rest
            else:
                product = R.multiply(a, b)
                inner = product
            taken = R.gather_elements(inner, i, axis=0)
            result = taken
        else:
            total = R.add(a, b)
            result = total
        return result


@I.ir_module
class OnePerAxis:
    @R.function
    def main(
        x: R.Tensor((4, 3), "float32"),
        i: R.Tensor((5, 1), "int64"),
        j: R.Tensor((2,), "int8"),
        v: R.Tensor((), "float32"),
    ):
        with R.dataflow():
            read = R.index_tensor(x, (i, j))
            stored = R.index_put(x, (i, j), v, accumulate=False)
            R.output(read, stored)
        return read, stored


@I.ir_module
class FromNothing:
    @R.function
    def main(
        x: R.Tensor((0, 3), "float32"),
        i: R.Tensor((2, 3), "int64"),
        u: R.Tensor((2, 3), "float32"),
        v: R.Tensor((2,), "float32"),
    ):
        with R.dataflow():
            taken = R.take(x, R.const([0, 1 << 30], "int64"), axis=0)
            elements = R.gather_elements(x, i, axis=0)
            point = R.gather_nd(x, R.const([[0, 0], [5, 5]], "int64"))
            read = R.index_tensor(x, (R.const([0, 5]), R.const([0, 5])))
            scattered = R.scatter_elements(x, i, u, axis=0)
            put = R.index_put(x, (R.const([0, 5]), R.const([0, 5])), v)
            R.output(taken, elements, point, read, scattered, put)
        return taken, elements, point, read, scattered, put


@pytest.mark.slow
def test_branches(tmp_path: Path) -> None:
    least = np.iinfo(np.int32).min
    inputs = {
        "flag": np.array(True),
        "a": np.array([7, least, 5, 0, -7], np.int32),
        "b": np.array([0, -1, 2, 0, -2], np.int32),
        "i": np.array([4, FAR, -FAR, 1, 2], np.int64),
    }
    (found,) = run_module(Branches, inputs, 1, tmp_path)
    # quotients 0, least, 2, 0, 3; remainders 0, 0, 0, 0, 1
    assert found.tolist() == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("operator", ["Div", "GatherElements"])
def test_branches_of_onnx(tmp_path: Path, operator: str) -> None:
    """The importer computes all but the last operator of a branch outside of it."""
    info = helper.make_tensor_value_info("t", TensorProto.INT64, [4])
    last = helper.make_graph([helper.make_node(operator, ["a", "b"], ["t"])], "then", [], [info])
    info = helper.make_tensor_value_info("e", TensorProto.INT64, [4])
    other = helper.make_graph([helper.make_node("Add", ["a", "b"], ["e"])], "else", [], [info])
    node = helper.make_node("If", ["flag"], ["y"], then_branch=last, else_branch=other)
    inputs = {
        "flag": np.array(True),
        "a": np.array([7, 1, 5, 3], np.int64),
        "b": np.array([0, -1, FAR, 2], np.int64),
    }
    expected = {"Div": [0, -1, 0, 1], "GatherElements": [7, 3, 3, 5]}
    found = run(graph_of([node], inputs), inputs, tmp_path)
    assert found["y"].tolist() == expected[operator]


@pytest.mark.slow
def test_indices_for_each_axis(tmp_path: Path) -> None:
    """Negative ones count from the end; one value is stored everywhere."""
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    inputs = {
        "x": x,
        "i": np.array([[0], [-1], [-4], [FAR], [-FAR]], np.int64),
        "j": np.array([-1, -100], np.int8),
        "v": np.array(-5, np.float32),
    }
    read, stored = run_module(OnePerAxis, inputs, 2, tmp_path)
    rows, columns = np.array([0, 3, 0, 3, 0])[:, None], np.array([2, 0])
    assert np.array_equal(read, x[rows, columns])
    wanted = x.copy()
    wanted[rows, columns] = -5
    assert np.array_equal(stored, wanted)


def test_axes_without_elements(tmp_path: Path) -> None:
    inputs = {
        "x": np.empty((0, 3), np.float32),
        "i": np.array([[0, 1, FAR], [-FAR, 2, 1]], np.int64),
        "u": np.ones((2, 3), np.float32),
        "v": np.ones(2, np.float32),
    }
    found = run_module(FromNothing, inputs, 6, tmp_path)
    assert [array.shape for array in found] == [(2, 3), (2, 3), (2,), (2,), (0, 3), (0, 3)]
    assert not any(array.any() for array in found)


REFUSED = {
    "Gather": ([0, 4], {}, "index 4 lies outside of axis 0 of extent 4"),
    "GatherElements": ([[0, -3]], {"axis": 1}, "index -3 lies outside of axis 1 of extent 2"),
    "GatherND": ([[3, 2]], {}, "index 2 lies outside of axis 1 of extent 2"),
    "ScatterElements": ([[-5, 0]], {}, "index -5 lies outside of axis 0 of extent 4"),
    "ScatterND": ([[4, 0]], {}, "index 4 lies outside of axis 0 of extent 4"),
}


def indexing(operator: str, extents: tuple[int, int] = (4, 2)) -> tuple:
    """A node, the inputs of its model and its indices."""
    indices, attributes, _ = REFUSED[operator]
    of = np.array(indices, np.int64)
    inputs = {"x": np.zeros(extents, np.float32)}
    if operator.startswith("Scatter"):
        shape = of.shape[:-1] if operator == "ScatterND" else of.shape
        inputs["u"] = np.ones(shape, np.float32)
    names = ["x", "i", *list(inputs)[1:]]
    return helper.make_node(operator, names, ["y"], name="far", **attributes), inputs, of


@pytest.mark.parametrize("operator", REFUSED)
def test_constant_indices_outside_are_refused(operator: str) -> None:
    node, inputs, indices = indexing(operator)
    with pytest.raises(byoc.ByocError, match=f"{operator} .node 'far'.: {REFUSED[operator][2]}"):
        compile(graph_of([node], inputs, {"i": indices}))


@pytest.mark.parametrize("operator", REFUSED)
def test_indices_into_nothing_are_refused(operator: str) -> None:
    node, inputs, indices = indexing(operator, (4, 0) if operator == "GatherElements" else (0, 2))
    shapes = {name: list(array.shape) for name, array in inputs.items()}
    inputs["i"] = indices
    with pytest.raises(byoc.ByocError, match=f"{operator} .node 'far'.: .* has no elements"):
        compile(graph_of([node], inputs), input_shapes=shapes)


def test_no_indices_into_nothing(tmp_path: Path) -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"])
    inputs = {"x": np.empty((0, 3), np.int64), "i": np.empty(0, np.int64)}
    shapes = {name: list(array.shape) for name, array in inputs.items()}
    found = run(graph_of([node], inputs), inputs, tmp_path, shapes)
    assert found["y"].shape == (0, 3)


def test_take_of_a_symbolic_axis_needs_an_element() -> None:
    def least(shape: list[str | int], axis: int) -> int:
        node = helper.make_node("Gather", ["x", "i"], ["y"], axis=axis)
        inputs = {"x": np.empty((1, 3), np.int64), "i": np.zeros(2, np.int64)}
        model = graph_of([node], inputs, shapes={"x": shape})
        return compile(model, None, {"x": shape}, skip_ops=["relax.take"]).metadata.least_size

    assert (least(["n", 3], 0), least(["n", 3], 1)) == (1, 0)
