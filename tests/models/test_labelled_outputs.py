"""Classifiers whose outputs are maps, or labels that are texts, beside ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import byoc
from byoc.cli import cli
from byoc.verification import verify

RNG = np.random.default_rng(2)
ROWS = RNG.standard_normal((7, 4)).astype("float32")


def _model(labels: list[str] | list[int], copies: int = 1) -> onnx.ModelProto:
    """A linear classifier as scikit-learn's converter writes it."""
    numbers, texts = not isinstance(labels[0], str), isinstance(labels[0], str)
    kind = TensorProto.STRING if texts else TensorProto.INT64
    of_map = {"classlabels_strings" if texts else "classlabels_int64s": labels}
    own = {"classlabels_ints" if numbers else "classlabels_strings": labels}
    nodes = [
        helper.make_node(
            "LinearClassifier", ["x"], ["l0", "p"], domain="ai.onnx.ml", post_transform="SOFTMAX",
            coefficients=RNG.standard_normal(4 * len(labels)).tolist(),
            intercepts=RNG.standard_normal(len(labels)).tolist(), **own,
        ),
        *(helper.make_node("Identity", [f"l{i}"], [f"l{i + 1}"]) for i in range(copies)),
        helper.make_node("ZipMap", ["p"], ["maps"], domain="ai.onnx.ml", **of_map),
    ]  # fmt: skip
    number = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    each = helper.make_sequence_type_proto(helper.make_map_type_proto(kind, number))
    outputs = [
        helper.make_tensor_value_info(f"l{copies}", kind, ["n"]),
        helper.make_value_info("maps", each),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("labels", [[5, -1, 9], ["dog", "cat", "emu"]], ids=str)
def test_scores_by_column_and_labels_by_place(labels: list[Any], tmp_path: Path) -> None:
    """The columns are in the order of the labels, which the library tells."""
    model = _model(labels)
    shown = ", ".join(map(str, labels))
    with pytest.warns(byoc.LabelsNote, match=f"column for each label of {shown}"):
        report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    library = byoc.load(tmp_path / "m.so")
    found = library.run({"x": ROWS})
    session = onnxruntime.InferenceSession(model.SerializeToString())
    want, maps = session.run(None, {"x": ROWS})
    told = {output.output: output for output in library.metadata.labelled}
    assert told["maps"].labels == tuple(labels) and told["maps"].columns
    np.testing.assert_allclose(found["maps"], [[m[k] for k in labels] for m in maps], atol=1e-6)
    if isinstance(labels[0], int):
        np.testing.assert_array_equal(found["l1"], want)
        assert list(told) == ["maps"]
    else:
        assert not told["l1"].columns and found["l1"].dtype == np.int64
        assert [told["l1"].labels[place] for place in found["l1"]] == list(want)


def test_verified_and_shown(tmp_path: Path) -> None:
    """``verify`` compares with what ONNX Runtime's maps and texts mean; ``inspect`` tells it."""
    path, library = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(_model(["dog", "cat", "emu"], 0), path)
    result = CliRunner().invoke(cli, ["compile", str(path), "-o", str(library)])
    assert result.exit_code == 0
    assert verify(path, library).holds
    shown = CliRunner().invoke(cli, ["inspect", str(library)]).output
    assert "output 'l0' is a place among the labels dog, cat, emu" in shown


def test_texts_that_something_else_reads_are_refused() -> None:
    model = _model(["dog", "cat", "emu"])
    model.graph.output.append(helper.make_tensor_value_info("l0", TensorProto.STRING, ["n"]))
    with pytest.raises(byoc.ByocError, match=r"output '.*' is of strings; export .* as labels"):
        byoc.compile(model)
