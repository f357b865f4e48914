"""What preparation evaluates gives what ONNX Runtime gives, for each operator that it evaluates."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from byoc.frontends.onnx.fold_onnx import FOLDED, fold_constants
from tests.conformance.cases import Case, all_cases
from tests.reference import onnxruntime_outputs

#: The latest operator set that every ONNX Runtime of the range has.
NEWEST = 21


def constant(case: Case) -> onnx.ModelProto | None:
    """ONNX's test of one such operator with all of its inputs as constants."""
    model = case.model()
    (inputs, _), *_ = case.data()
    if len(model.graph.node) > 1 or model.graph.node[0].op_type not in FOLDED:
        return None
    if not all(isinstance(value, np.ndarray | np.generic) for value in inputs):
        return None
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for value, array in zip(copy.graph.input, inputs, strict=True):
        copy.graph.initializer.append(numpy_helper.from_array(np.asarray(array), value.name))
    del copy.graph.input[:]
    # The newest versions are in ONNX before they are in ONNX Runtime.
    copy.ir_version = min(copy.ir_version, 10)
    copy.opset_import[0].version = min(copy.opset_import[0].version, NEWEST)
    # Outputs stay computed; what another node reads becomes a constant.
    for name in copy.graph.node[0].output:
        copy.graph.node.add(op_type="Identity", input=[f"inner {name}"], output=[name])
    names = [f"inner {name}" for name in copy.graph.node[0].output]
    copy.graph.node[0].output[:] = names
    return copy


@pytest.mark.slow
def test_every_operator_is_evaluated_as_onnxruntime_does() -> None:
    done: Counter[str] = Counter()
    for case in all_cases():
        model = constant(case) if case.kind == "node" else None
        if model is None:
            continue
        (node, *_) = model.graph.node
        kind, outputs = node.op_type, list(node.output)
        try:
            expected = onnxruntime_outputs(model, {})
        except Exception:  # a dtype or an opset that ONNX Runtime has no kernel for
            continue
        fold_constants(model)
        if kind in [node.op_type for node in model.graph.node]:
            continue
        stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        for name, want in zip(outputs, expected.values(), strict=True):
            assert stored[name].dtype == want.dtype, case.name
            np.testing.assert_allclose(stored[name], want, rtol=1e-6, err_msg=case.name)
        done[kind] += 1
    assert set(done) == FOLDED
