"""Weights that calls have read, moved to large pages of the process."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx.helper as oh
import onnx.numpy_helper as onh
import pytest
from onnx import ModelProto, TensorProto

import byoc
from byoc.deploy import large_pages
from tests.reference import assert_agrees, onnxruntime_outputs

_ROWS, _COLUMNS, _LAYERS = 1024, 1024, 4
#: Bytes of the weights that a call reads, and of a table that it reads few rows of.
_READ, _TABLE = _ROWS * _COLUMNS * _LAYERS * 4, 8192 * _ROWS * 4


def _network() -> ModelProto:
    """Rows of a long table, chosen by the input, through four products."""
    rng = np.random.default_rng(3)
    table = rng.standard_normal((8192, _ROWS), np.float32)
    nodes = [oh.make_node("Gather", ["table", "places"], ["x0"])]
    weights = [onh.from_array(table, "table")]
    for layer in range(_LAYERS):
        values = rng.standard_normal((_ROWS, _COLUMNS), np.float32) / np.float32(32)
        weights.append(onh.from_array(values, f"w{layer}"))
        nodes.append(oh.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"x{layer + 1}"]))
    graph = oh.make_graph(
        nodes,
        "rows",
        [oh.make_tensor_value_info("places", TensorProto.INT64, [2])],
        [oh.make_tensor_value_info(f"x{_LAYERS}", TensorProto.FLOAT, [2, _COLUMNS])],
        weights,
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "m.so"
    compiled = byoc.compile(_network(), path)
    assert compiled.report.offloaded == compiled.report.operators
    return path


def _mapped(library: Path) -> int:
    """Bytes of the library's own file that are still mapped to be read alone."""
    return sum(end - begin for begin, end in large_pages._mappings(library))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells which pages are large")
def test_what_calls_read_is_moved_and_answers_stay(library: Path) -> None:
    try:
        large_pages.enlarge(library)
    except byoc.RunError as error:
        pytest.skip(str(error))
    inputs = {"places": np.array([5, 8191], np.int64)}
    expected = onnxruntime_outputs(_network(), inputs)
    with byoc.load(library) as model:
        assert_agrees(model.run(inputs), expected)
        before = _mapped(library)
        moved = model.enlarge_weights()
        # Whole large pages of what was read, and no table, unless the file was mapped in such.
        whole = range(_READ - 2 * large_pages.LARGE, _READ + _TABLE // 2)
        assert moved == 0 or moved in whole
        assert before - _mapped(library) == moved
        assert_agrees(model.run(inputs), expected)
        assert model.enlarge_weights() == 0  # what is moved is no part of the file any more
        other = {"places": np.array([0, 77], np.int64)}
        assert_agrees(model.run(other), onnxruntime_outputs(_network(), other))
    with byoc.load(library) as again:
        assert_agrees(again.run(inputs), expected)


def test_where_there_are_no_large_pages_it_is_said(
    library: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    never = tmp_path / "enabled"
    never.write_text("always madvise [never]\n")
    monkeypatch.setattr(large_pages, "_THP", never)
    model = byoc.load(library)
    with pytest.raises(byoc.RunError, match=r"large pages .* need Linux 6\.7"):
        model.enlarge_weights()
    monkeypatch.undo()
    if "[never]" not in large_pages._THP.read_text():
        model._file = tmp_path / "gone.so"
        with pytest.raises(byoc.RunError, match=r"gone\.so is not there any more: No such file"):
            model.enlarge_weights()
    model.close()
    with pytest.raises(byoc.RunError, match="closed"):
        model.enlarge_weights()
