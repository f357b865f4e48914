"""Entries of the table of wrong forms that none of ONNX's backend tests shows wrong."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import byoc.frontends.onnx.backend as backend
from byoc.errors import UnsupportedForm
from byoc.frontends.onnx import import_onnx, prepare


def model_of(node: onnx.NodeProto, dtypes: dict[str, int], opset: int) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info(name, dtype, [4]) for name, dtype in dtypes.items()]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    graph = helper.make_graph([node], "form", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def test_cast_like_float8_e8m0() -> None:
    """TVM rounds to the nearest power of two, ONNX's reference up."""
    node = helper.make_node("CastLike", ["x", "like"], ["y"])
    model = model_of(node, {"x": TensorProto.FLOAT, "like": TensorProto.FLOAT8E8M0}, 24)
    with pytest.raises(UnsupportedForm, match="rounds to float8_e8m0 differently"):
        backend.prepare(model)
    x, like = np.array([1.4, 1.6, 3, 0.3], "float32"), np.ones(4, ml_dtypes.float8_e8m0fnu)
    (want,) = ReferenceEvaluator(model).run(None, {"x": x, "like": like})
    with pytest.warns(UserWarning, match="all the same"):
        (got,) = backend.prepare(model, allow_wrong=["CastLike"]).run([x, like])
    assert got.dtype == want.dtype
    assert (got.astype("float32") != want.astype("float32")).any()


@pytest.mark.parametrize("extent", [4, "n"])
def test_floats_where_onnx_has_integers(extent: int | str) -> None:
    node = helper.make_node("Pad", ["x", "pads"], ["y"])
    model = model_of(node, {"x": TensorProto.FLOAT}, 18)
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, [extent]))
    pads = onnx.numpy_helper.from_array(np.array([0.5, 1], "float32"), "pads")
    model.graph.initializer.append(pads)
    with pytest.raises(UnsupportedForm, match=r"operator Pad .*: pads is float32; need integers"):
        import_onnx(prepare(model))
