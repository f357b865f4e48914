"""Networks of recurrent layers, and how they are compiled and compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import byoc

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
RESULTS = ("Y", "Y_h", "Y_c")


def tensor(name: str, shape: Sequence[int | str] | None, dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def layer(
    operator: str,
    shape: Sequence[int | str],
    units: int,
    *,
    given: Sequence[str] = ("B",),
    computed: Sequence[str] = (),
    outputs: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    batch: int = 1,
    seed: int = 0,
    **attributes: Any,
) -> onnx.ModelProto:
    """One layer whose inputs ``given`` are constants but for those ``computed``."""
    draw = np.random.default_rng(seed)
    count = 2 if attributes.get("direction") == "bidirectional" else 1
    rows, inputs = GATES[operator] * units, shape[2]
    state = (batch, count, units) if attributes.get("layout") else (count, batch, units)
    shapes = {
        "W": (count, rows, inputs),
        "R": (count, rows, units),
        "B": (count, 2 * rows),
        "sequence_lens": (batch,),
        "initial_h": state,
        "initial_c": state,
        "P": (count, 3 * units),
    }
    names, values, free = ["X"], {}, [tensor("X", shape)]
    for name in list(shapes)[: 7 if operator == "LSTM" else 5]:
        wanted = name in ("W", "R", *given) or (name == "sequence_lens" and lengths is not None)
        names.append(name if wanted else "")
        if name in computed:
            free.append(tensor(name, shapes[name]))
        elif name == "sequence_lens" and wanted:
            values[name] = np.array(lengths, np.int32)
        elif wanted:
            values[name] = (draw.standard_normal(shapes[name]) / np.sqrt(units)).astype(np.float32)
    results = RESULTS[: 3 if operator == "LSTM" else 2] if outputs is None else outputs
    node = helper.make_node(operator, names, results, "layer", hidden_size=units, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        free,
        [tensor(name, None) for name in results if name],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def drawn(model: onnx.ModelProto, seed: int = 1, **sizes: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    found = {}
    for value in model.graph.input:
        shape = [sizes.get(d.dim_param, d.dim_value) for d in value.type.tensor_type.shape.dim]
        found[value.name] = draw.standard_normal(shape).astype(np.float32)
    return found


def compiled(model: onnx.ModelProto, folder: Path, *layers: str, **options: Any) -> byoc.Model:
    """The model, all of it in one region with these layers."""
    report = byoc.compile(model, folder / "m.so", min_bytes=0, **options).report
    assert len(report.regions) == 1 and not report.left, report.left
    found = [node.operator for node in report.graph.nodes]
    for name in layers:
        assert f"ext.{name}" in found
    return byoc.load(folder / "m.so")


def compare(got: dict[str, np.ndarray], want: dict[str, np.ndarray], limit: float = 2e-6) -> None:
    assert got.keys() == want.keys()
    for name, expected in want.items():
        assert got[name].shape == expected.shape, name
        np.testing.assert_allclose(got[name], expected, rtol=0, atol=limit, err_msg=name)


def network(layers: int, units: int, batch: int, steps: int | str) -> onnx.ModelProto:
    """Layers of both directions as PyTorch writes them, whose directions are joined in between."""
    draw = np.random.default_rng(4)
    nodes, values, name, inputs = [], {}, "X", 12
    for i in range(layers):
        made = {
            f"W{i}": (2, 4 * units, inputs),
            f"R{i}": (2, 4 * units, units),
            f"B{i}": (2, 8 * units),
        }
        for key, shape in made.items():
            values[key] = (draw.standard_normal(shape) / np.sqrt(units)).astype(np.float32)
        nodes += [
            helper.make_node(
                "LSTM", [name, *made], [f"y{i}"], hidden_size=units, direction="bidirectional"
            ),
            helper.make_node("Transpose", [f"y{i}"], [f"t{i}"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [f"t{i}", "joined"], [f"z{i}"]),
        ]
        name, inputs = f"z{i}", 2 * units
    values["joined"] = np.array([0, 0, -1])
    graph = helper.make_graph(
        nodes,
        "g",
        [tensor("X", [steps, batch, 12])],
        [tensor(name, None)],
        [numpy_helper.from_array(value, key) for key, value in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
