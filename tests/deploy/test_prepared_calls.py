"""Calls after the first one, of shapes that are known by then."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import byoc
from byoc.deploy.prepared_calls import _MOST, MachineCalls
from byoc.errors import InputError, RunError
from tests.ir.graphs import onnx_model, random
from tests.reference import assert_agrees, onnxruntime_outputs


def network(rows: int | str) -> onnx.ModelProto:
    """Two inputs that the region takes, two results; the wide one is aligned, the other is not."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["wide"]),
        helper.make_node("Sub", ["z", "wide"], ["less"]),
        helper.make_node("MatMul", ["less", "v"], ["few"]),
    ]
    inputs = {"x": [rows, 8], "z": [rows, 1200]}
    weights = {"w": random(8, 1200), "v": random(1200, 3)}
    return onnx_model(nodes, inputs, ["wide", "few"], weights)


def feeds(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.normal(size=(rows, 8)).astype(np.float32),
        "z": rng.normal(size=(rows, 1200)).astype(np.float32),
    }


@pytest.fixture
def loaded(tmp_path: Path) -> byoc.Model:
    model = network("rows")
    onnx.save(model, tmp_path / "m.onnx")
    compiled = byoc.compile(model, tmp_path / "m.so")
    assert compiled.metadata.entry is not None
    return byoc.load(tmp_path / "m.so")


def test_all_calls_agree(loaded: byoc.Model) -> None:
    model = onnx.load(loaded.path.with_suffix(".onnx"))
    kept = []
    for rows in (3, 3, 1, 3, 5, 1, 5):
        x = feeds(rows, len(kept))
        kept.append((x, loaded.run(x)))
    for x, found in kept:  # no result lies where another one does
        assert list(found) == ["wide", "few"]
        assert_agrees(found, onnxruntime_outputs(model, x))


def test_many_shapes(loaded: byoc.Model) -> None:
    x = feeds(2 * _MOST)
    whole = loaded.run(x)
    for rows in (*range(1, _MOST + 9), 1, 2):
        found = loaded.run({name: array[:rows] for name, array in x.items()})
        np.testing.assert_allclose(found["few"], whole["few"][:rows], atol=1e-3)


def test_arrays_that_are_not_plain(loaded: byoc.Model) -> None:
    x = feeds(4)
    want = loaded.run(x)
    read_only = {name: array.copy() for name, array in x.items()}
    for array in read_only.values():
        array.flags.writeable = False
    turned = {name: np.asfortranarray(array) for name, array in x.items()}
    odd = np.zeros(4 * 8 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(4, 8)
    odd[...] = x["x"]
    swapped = {"z": x["z"], "x": x["x"]}
    for given in (x, read_only, turned, {**x, "x": odd}, swapped, x):
        found = loaded.run(given)
        for name, array in want.items():
            np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x": np.zeros((3, 8))}, "has dtype float64"),
        ({"x": np.zeros((3, 8), ">f4")}, "has dtype >f4"),
        ({"x": np.zeros((3, 9), np.float32)}, "need"),
        ({"x": np.zeros((2, 8), np.float32)}, "where rows is"),
        ({"x": np.zeros((3, 8, 1), np.float32)}, "has 3 axes"),
        ({"x": [[1.0] * 8] * 3}, "is a list"),
        ({"other": np.zeros(3)}, "unknown input 'other'"),
    ],
)
def test_what_the_first_call_refuses_later_ones_do(
    loaded: byoc.Model, change: dict[str, np.ndarray], says: str
) -> None:
    x = feeds(3)
    loaded.run(x)
    loaded.run(x)
    with pytest.raises(InputError, match=says):
        loaded.run({**x, **change})
    with pytest.raises(InputError, match="is missing"):
        loaded.run({"x": x["x"]})


def test_a_closed_model_says_so(loaded: byoc.Model) -> None:
    loaded.run(feeds(3))
    loaded.run(feeds(3))
    loaded.close()
    with pytest.raises(RunError, match="is closed"):
        loaded.run(feeds(3))


def test_many_threads(loaded: byoc.Model) -> None:
    wanted = {rows: loaded.run(feeds(rows)) for rows in (1, 2, 3)}
    wrong: list[int] = []

    def run(rows: int) -> None:
        for _ in range(200):
            found = loaded.run(feeds(rows))
            if any((found[name] != array).any() for name, array in wanted[rows].items()):
                wrong.append(rows)

    threads = [threading.Thread(target=run, args=(rows,)) for rows in (1, 2, 3, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("operator", ["Conv", "Slice"])
def test_sizes_that_main_has_to_compute(operator: str, tmp_path: Path) -> None:
    """The first call of a shape goes through ``main``, which may refuse it; later ones do not."""
    conv = helper.make_node("Conv", ["a", "w"], ["y"], pads=[1, 0, 1, 0])
    cut = helper.make_node("Slice", ["a", "start", "end", "axis"], ["y"])
    bounds = {"start": [3], "end": [-1], "axis": [2]}
    weights = {name: np.array(value) for name, value in bounds.items()}
    node, weights = (conv, {"w": random(4, 3, 3, 5)}) if operator == "Conv" else (cut, weights)
    model = onnx_model(
        [helper.make_node("Relu", ["x"], ["a"]), node], {"x": ["n", 3, "h", 20]}, ["y"], weights
    )
    if operator == "Conv":
        model.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "w_"
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert made.report.left == () and len(made.report.regions) == 1
    with byoc.load(made.path) as loaded:
        calls = loaded._prepared
        assert calls is not None
        for rows, high, wide in ((2, 9, 20), (2, 9, 20), (1, 8, 20), (2, 9, 20), (1, 8, 20)):
            x = {"x": random(rows, 3, high, wide)}
            assert_agrees(loaded.run(x), onnxruntime_outputs(model, x))
        assert len(calls._calls) == 2
        small = {"x": random(2, 3, 9, 3) if operator == "Conv" else random(2, 3, 4, 20)}
        for _ in range(2):
            if operator == "Conv":
                with pytest.raises(RunError, match="pass larger inputs"):
                    loaded.run(small)
            else:
                assert loaded.run(small)["y"].shape == (2, 3, 0, 20)


def test_calls_of_the_virtual_machine(tmp_path: Path) -> None:
    """Of several regions, with inputs anywhere in memory, and results that nobody else has."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("NonZero", ["a"], ["places"]),
        helper.make_node("Reshape", ["x", "flat"], ["same"]),
    ]
    model = onnx_model(
        nodes, {"x": ["n", 40]}, ["places", "same"], {"flat": np.array([-1], np.int64)}
    )
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    made = byoc.compile(model, tmp_path / "m.so")
    assert made.metadata.entry is None and made.metadata.repeats is None
    memory = np.zeros(4 * 40 + 16, np.float32)
    with byoc.load(made.path) as loaded:
        assert isinstance(loaded._prepared, MachineCalls)
        kept = []
        for place, rows in enumerate((3, 3, 1, 4, 3, 1)):
            x = memory[place : place + rows * 40].reshape(rows, 40)
            x[...] = random(rows, 40) + place
            kept.append((onnxruntime_outputs(model, {"x": x}), loaded.run({"x": x})))
        assert loaded._prepared._known == {((3, 40),), ((1, 40),), ((4, 40),)}
        for want, found in kept:
            assert_agrees(found, want)
        with pytest.raises(InputError, match="need"):
            loaded.run({"x": memory[:42].reshape(1, 42)})


def test_a_model_that_nobody_has_is_gone(tmp_path: Path) -> None:
    node = helper.make_node("NonZero", ["x"], ["y"])
    model = onnx_model([node], {"x": [4, 5]}, ["y"], {})
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    loaded = byoc.load(byoc.compile(model, tmp_path / "m.so").path)
    gone = weakref.ref(loaded)
    del loaded
    assert gone() is None
