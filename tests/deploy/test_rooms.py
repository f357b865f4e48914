"""Results of networks with symbolic axes, which one region writes where the caller has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import byoc
from byoc.deploy.loader import Model
from byoc.errors import InputError, RunError
from models.builder import GraphBuilder
from tests.models.test_states import DECODERS, Reference, drawn
from tests.reference import assert_agrees


@pytest.fixture
def region_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody starts TVM's virtual machine."""

    def refuse(*_: object) -> None:
        raise AssertionError("the virtual machine was started")

    monkeypatch.setattr(Model, "invoke", refuse)


def _layers(rows: int | str = "n") -> onnx.ModelProto:
    graph = GraphBuilder("layers", 0)
    x = graph.input("x", (rows, 8))
    y = graph.op("Relu", graph.op("MatMul", x, graph.normal((8, 24), 0.5)))
    graph.output(graph.op("MatMul", y, graph.normal((24, 5), 0.5)), "z", (rows, 5))
    graph.output(y, "y", (rows, 24))
    return graph.build()


def test_results_are_written_where_they_shall_be(tmp_path: Path, region_alone: None) -> None:
    model, session = _layers(), onnxruntime.InferenceSession(_layers().SerializeToString())
    made = byoc.compile(model, tmp_path / "model.so")
    assert made.metadata.entry is not None and made.report.offloaded == made.report.operators
    with byoc.load(made.path) as loaded:
        for rows in (1, 3, 40):
            x = np.random.default_rng(rows).standard_normal((rows, 8), np.float32)
            z = np.full((rows, 5), np.nan, np.float32)
            found = loaded.run({"x": x}, {"z": z})
            assert found["z"] is z and list(found) == ["z", "y"]
            assert_agrees(found, dict(zip(("z", "y"), session.run(None, {"x": x}), strict=True)))
        with pytest.raises(InputError, match=r"room for output 'z' is float32\[40, 5\]; need \[2,"):
            loaded.run({"x": x[:2]}, {"z": z})


def test_nothing_of_no_rows(tmp_path: Path) -> None:
    made = byoc.compile(_layers(), tmp_path / "model.so")
    with byoc.load(made.path) as loaded:
        found = loaded.run({"x": np.zeros((0, 8), np.float32)})
    assert [array.shape for array in found.values()] == [(0, 5), (0, 24)]


@pytest.mark.slow
def test_a_decoder_tells_its_region_how_much_it_keeps(tmp_path: Path, region_alone: None) -> None:
    model = DECODERS["llama"]()
    made = byoc.compile(model, tmp_path / "model.so", states=True)
    assert made.metadata.entry is not None and made.metadata.entry.sizes == ("past",)
    reference, past = Reference(model, 2), 0
    with byoc.load(made.path) as loaded:
        for length in (6, 1, 3):
            given = drawn(2, length, past, past)
            assert_agrees(loaded.run(given), {"logits": reference.step(given)})
            past += length


def test_extents_that_may_be_below_zero_are_left_to_main(tmp_path: Path) -> None:
    graph = GraphBuilder("window", 0)
    x = graph.input("x", (1, 4, "h", 16))
    y = graph.op("Conv", x, graph.normal((8, 4, 3, 3), 0.2), kernel_shape=[3, 3])
    graph.output(y, "y", (1, 8, "out", 14))
    model = graph.build()
    made = byoc.compile(model, tmp_path / "model.so", input_shapes={"x": (1, 4, "h", 16)})
    assert made.metadata.entry is None and made.report.offloaded == made.report.operators
    image = np.random.default_rng(1).standard_normal((1, 4, 7, 16), np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    with byoc.load(made.path) as loaded:
        assert_agrees(loaded.run({"x": image}), {"y": session.run(None, {"x": image})[0]})
        with pytest.raises(RunError, match="would be -1; pass larger inputs"):
            loaded(image[:, :, :1])
