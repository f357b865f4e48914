"""Places that GatherND takes, which are known not to count from the end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser
from tvm import relax

import byoc
from byoc.frontends.onnx import import_model
from byoc.ir.dataflow import op_name
from tests.reference import onnxruntime_outputs

#: A mask by numbers of rows and columns, as PyTorch's exporter writes that of a transformer.
NUMBERED = """<ir_version: 8, opset_import: ["": 17]>
    g (float[b, s] x, float[1, 8] weight) => (float[b, s, 8] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] front = {0}, int64[1] second = {1},
     int64[1] third = {2}> {
        shape = Shape(x)
        height = Gather(shape, zero)
        width = Gather(shape, one)
        down = Range(zero, height, one)
        across = Range(zero, width, one)
        column = Unsqueeze(down, second)
        line = Unsqueeze(across, front)
        rows = Expand(column, shape)
        columns = Expand(line, shape)
        first = Unsqueeze(rows, third)
        then = Unsqueeze(columns, third)
        at = Concat<axis = -1>(first, then)
        taken = GatherND(x, at)
        apart = Unsqueeze(taken, third)
        y = MatMul(apart, weight)
    }"""


def test_a_mask_by_numbers_is_one_region(tmp_path: Path) -> None:
    """TVM adds extents, which it reads while the model runs, to indices that count from the end."""
    model, found = parser.parse_model(NUMBERED), set()
    with pytest.warns(byoc.AxesNote):
        imported = import_model(model)
    relax.analysis.post_order_visit(imported.module["main"].body, lambda e: found.add(op_name(e)))
    assert "relax.gather_nd" in found and "relax.shape_to_tensor" not in found
    with pytest.warns(byoc.AxesNote):
        done = byoc.compile(model, tmp_path / "model.so")
    assert len(done.report.regions) == 1 and done.report.offloaded_macs == done.report.macs > 0
    net, draw = byoc.load(tmp_path / "model.so"), np.random.default_rng(0)
    weight = draw.standard_normal((1, 8)).astype("f4")
    for shape in ((1, 2), (3, 7)):
        given = {"x": draw.standard_normal(shape).astype("f4"), "weight": weight}
        (want,) = onnxruntime_outputs(model, given).values()
        np.testing.assert_allclose(net.run(given)["y"], want, rtol=1e-6)
