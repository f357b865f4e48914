"""Operands that TVM's code is not to see: divisors of 0, quotients beyond the range, far indices.

Each library runs in a process of its own, which such operands would end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import relax

import byoc
from byoc.canonicalise import apply_rule
from byoc.canonicalise.index_out_of_bounds import ONE_TENSOR, no_index_out_of_bounds
from byoc.compiler.compile import compile
from byoc.ir.dataflow import Block, array_of
from byoc.report import Report
from tests.models.in_process import run_in_process

DTYPES = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]


@dataclass(frozen=True)
class Joined:
    """The fields that ``run_in_process`` reads of a compiled model."""

    library: Path
    inputs: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]
    report: Report


def tensor_type(name: str, array: np.ndarray, shape: Any = None) -> onnx.ValueInfoProto:
    code = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, code, array.shape if shape is None else shape)


def graph_of(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray] | None = None,
    shapes: Mapping[str, list[str | int]] | None = None,
) -> onnx.ModelProto:
    """A model that gives the results of all nodes whose name does not begin with ``_``."""
    names = [node.output[0] for node in nodes if not node.output[0].startswith("_")]
    graph = helper.make_graph(
        nodes,
        "operands",
        [tensor_type(name, array, (shapes or {}).get(name)) for name, array in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in names],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def run(
    model: onnx.ModelProto,
    inputs: Mapping[str, np.ndarray],
    folder: Path,
    shapes: Mapping[str, list[str | int]] | None = None,
    skip: Collection[str] = (),
) -> dict[str, np.ndarray]:
    """What a library gives in a process of its own; ``skip`` are operators for TVM."""
    library = folder / "model.so"
    report = compile(model, library, shapes, skip_ops=skip).report
    assert not skip or set(skip) <= {entry.op for entry in report.left}
    outputs = {output.name: np.empty(0) for output in model.graph.output}
    return run_in_process(Joined(library, dict(inputs), outputs, report), folder, {})["outputs"]


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of every kind with divisors of every kind."""
    limits = np.iinfo(dtype)
    values = [limits.min, limits.min + 1, 0, 1, 7, 100, limits.max]
    if limits.min < 0:
        values += [-1, -7]
    column, row = np.meshgrid(np.array(values, dtype), np.array(values, dtype), indexing="ij")
    return column.copy(), row.copy()


def quotients(a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    """Truncated, floored and truncated remainder, computed in Python's integers."""
    bits, results = np.iinfo(a.dtype).bits, {"div": [], "mod": [], "fmod": []}
    for x, y in zip(*(array.ravel().tolist() for array in np.broadcast_arrays(a, b)), strict=True):
        whole = 0 if y == 0 else abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1)
        results["div"].append(whole)
        results["mod"].append(0 if y == 0 else x % y)
        results["fmod"].append(0 if y == 0 else x - whole * y)
    shape = np.broadcast_shapes(a.shape, b.shape)
    return {
        name: np.array([n % 2**bits for n in numbers], f"uint{bits}").view(a.dtype).reshape(shape)
        for name, numbers in results.items()
    }


def divisions(of: str, by: str, tag: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Div", [of, by], [f"div_{tag}"]),
        helper.make_node("Mod", [of, by], [f"mod_{tag}"]),
        helper.make_node("Mod", [of, by], [f"fmod_{tag}"], fmod=1),
    ]


#: Left to TVM, which then fuses a quotient with what it is compared and chosen by.
AROUND = ("relax.equal", "relax.not_equal", "relax.where", "relax.astype", "relax.multiply")


@pytest.mark.slow
@pytest.mark.parametrize("skip", [(), AROUND], ids=["offloaded", "fused"])
def test_divisions_of_integers(tmp_path: Path, skip: Collection[str]) -> None:
    """By computed divisors, by constants with 0 and -1, by a scalar, of a constant, of constants;
    and as models guard them, by a Where around the quotient."""
    nodes, inputs, constants, expected = [], {}, {}, {}
    for dtype in DTYPES:
        a, b = pairs(dtype)
        inputs |= {f"a_{dtype}": a, f"b_{dtype}": b, f"zero_{dtype}": np.zeros((), dtype)}
        constants |= {f"ca_{dtype}": a, f"cb_{dtype}": b, f"none_{dtype}": np.zeros((), dtype)}
        forms = {"computed": (a, b, "a", "b"), "by": (a, b, "a", "cb"), "of": (a, b, "ca", "b")}
        forms["both"] = (a, b, "ca", "cb")
        nothing = np.zeros((), dtype)
        if dtype not in ("int8", "int32", "uint64"):
            forms = {"computed": forms["computed"]}
        else:
            forms |= {"zero": (a, nothing, "a", "zero"), "none": (a, nothing, "a", "none")}
        for form, (left, right, of, by) in forms.items():
            tag = f"{form}_{dtype}"
            nodes += divisions(f"{of}_{dtype}", f"{by}_{dtype}", tag)
            expected |= {f"{k}_{tag}": v for k, v in quotients(left, right).items()}
        guarded = f"guarded_{dtype}"
        nodes += [
            helper.make_node("Equal", [f"b_{dtype}", f"none_{dtype}"], [f"_{guarded}"]),
            helper.make_node(
                "Where", [f"_{guarded}", f"a_{dtype}", f"div_computed_{dtype}"], [guarded]
            ),
        ]
        expected[guarded] = np.where(b == 0, a, expected[f"div_computed_{dtype}"])
    found = run(graph_of(nodes, inputs, constants), inputs, tmp_path, skip=skip)
    wrong = {name for name in expected if not np.array_equal(found[name], expected[name])}
    assert not wrong
    assert all(found[name].dtype == expected[name].dtype for name in expected)


def test_expectations_are_those_of_the_reference_evaluator() -> None:
    a, b = pairs("int32")
    model = graph_of(divisions("a", "b", "r"), {"a": a, "b": b})
    with np.errstate(all="ignore"):
        found = ReferenceEvaluator(model).run(None, {"a": a, "b": b})
    kept = [quotients(a, b)[name] for name in ("div", "mod", "fmod")]
    exact = (b != 0) & ((a % np.where(b == 0, 1, b) == 0) | ((a < 0) == (b < 0)))
    # It rounds quotients down in some releases; ONNX says that they are truncated.
    assert np.array_equal(found[0][exact | (b == 0)], kept[0][exact | (b == 0)])
    assert np.array_equal(found[1], kept[1]) and np.array_equal(found[2], kept[2])


def indexing() -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """Each operator that TVM computes, with indices inside, at the ends and far away."""
    far = 1 << 40
    rows = np.array([[0, 1, 3, 2], [-1, -4, 2, 1], [far, -far, 5, -9]], np.int64)
    inputs = {
        "x": np.arange(16, dtype=np.int64).reshape(4, 4),
        "elements": rows,
        "points": rows[:, :2].copy(),
        "updates": np.arange(12, dtype=np.int64).reshape(3, 4) + 100,
        "some": np.arange(3, dtype=np.int64) + 100,
    }
    nodes = [
        helper.make_node("Gather", ["x", "elements"], ["gather"], axis=0),
        helper.make_node("GatherElements", ["x", "elements"], ["gather_elements"], axis=0),
        helper.make_node("GatherND", ["x", "points"], ["gather_nd"]),
        helper.make_node(
            "ScatterElements", ["x", "elements", "updates"], ["scatter_elements"], axis=0
        ),
        helper.make_node("ScatterND", ["x", "points", "some"], ["scatter_nd"], reduction="add"),
    ]
    return nodes, inputs


#: What of it is to stay with TVM.
INDEXING = ["relax.take", *ONE_TENSOR]


def clamped(indices: np.ndarray) -> np.ndarray:
    return np.clip(np.where(indices < 0, indices + 4, indices), 0, 3)


@pytest.mark.parametrize("symbolic", [False, True])
def test_indices_outside_mean_the_nearest_element(tmp_path: Path, symbolic: bool) -> None:
    nodes, inputs = indexing()
    shapes = {"x": ["n", 4]} if symbolic else None
    model = graph_of(nodes, inputs, shapes=shapes)
    all_shapes = {name: list(array.shape) for name, array in inputs.items()}
    inside = {
        **inputs,
        "elements": clamped(inputs["elements"]),
        "points": clamped(inputs["points"]),
    }
    expected = ReferenceEvaluator(model).run(None, inside)
    expected[0] = inputs["x"][inputs["elements"] % 4]  # of Gather alone TVM's code wraps around
    sizes = {**all_shapes, **shapes} if shapes else None
    found = run(model, inputs, tmp_path, sizes, INDEXING)
    for output, value in zip(model.graph.output, expected, strict=True):
        assert np.array_equal(found[output.name], value), output.name


@pytest.mark.parametrize("node", range(5))
@pytest.mark.parametrize("symbolic", [False, True])
def test_our_own_kernels_count_from_the_end_and_refuse(
    tmp_path: Path, node: int, symbolic: bool
) -> None:
    """From -n on, and not from -2n on as where negative indices were counted before, too."""
    nodes, inputs = indexing()
    chosen = nodes[node]
    inputs = {name: inputs[name] for name in chosen.input}
    shapes = {"x": ["n", 4]} if symbolic else None
    model = graph_of([chosen], inputs, shapes=shapes)
    compiled = compile(model, tmp_path / "m.so", exact=True)
    (region,) = compiled.report.regions
    assert region.plan.calls == 1 and not compiled.report.left
    loaded, places = byoc.load(tmp_path / "m.so"), chosen.input[1]
    inside = {**inputs, places: np.clip(inputs[places], -4, 3)}
    (expected,) = ReferenceEvaluator(model).run(None, inside)
    assert np.array_equal(loaded.run(inside)[model.graph.output[0].name], expected)
    for far in (-5, -8, 4):
        outside = inside[places].copy()
        outside[1, 0] = far
        with pytest.raises(byoc.ByocError, match="index lies outside of the axis"):
            loaded.run({**inside, places: outside})


@pytest.mark.parametrize(("dtype", "last"), [("int8", 127), ("int32", 299)])
def test_the_last_index_has_room_in_the_dtype(dtype: str, last: int) -> None:
    builder = relax.BlockBuilder()
    types = [((300,), "float32"), ((3,), dtype), ((3,), "float32")]
    operands = [relax.Var(f"x{i}", relax.TensorType(*t)) for i, t in enumerate(types)]
    with builder.function("main", operands):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(relax.op.scatter_elements(*operands)))
        builder.emit_func_output(result)
    module = apply_rule(builder.get(), no_index_out_of_bounds)
    (block,) = module["main"].body.blocks
    (clamp,) = (call for _, call in Block(block).calls("relax.minimum"))
    assert array_of(clamp.args[1]) == [last]
