"""Extents of symbolic axes that a network computes with: numbers inside of regions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import byoc
from byoc.frontends.onnx import import_onnx, prepare
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import onnx_model, random
from .test_unroll import node


def test_numbers_of_rows_and_of_all_elements(tmp_path: Path) -> None:
    """A mean by hand; the extents are computed with as numbers, and one region has all of it."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape one", "columns"),
        helper.make_node("Cast", ["columns"], ["divisor"], to=1),
        node("Relu", "x", "r"),
        node("ReduceSum", "r", "sum", keepdims=0),
        node("Div", "r divisor", "y"),
        node("Size", "x", "size"),
        helper.make_node("Cast", ["size"], ["elements"], to=1),
        node("Div", "sum elements", "mean"),
    ]
    model = onnx_model(nodes, {"x": ["n", "m"]}, ["y", "mean"], {"one": np.array(1)})
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert report.left == ()
    assert len(report.regions) == 1
    loaded = byoc.load(tmp_path / "m.so")
    for shape in ((1, 1), (3, 7), (20, 64)):
        feed = {"x": random(*shape)}
        assert_agrees(loaded.run(feed), onnxruntime_outputs(model, feed))


def test_an_extent_that_no_tensor_of_the_region_has(tmp_path: Path) -> None:
    """``n`` is passed: rows of ``x`` are counted where only ``z`` is read."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "rows"),
        helper.make_node("Cast", ["rows"], ["number"], to=1),
        node("Exp", "z", "e"),
        node("Mul", "e number", "y"),
    ]
    model = onnx_model(nodes, {"x": ["n", 4], "z": [64]}, ["y"], {"zero": np.array(0)})
    report = byoc.compile(model, tmp_path / "m.so").report
    assert report.left == ()
    loaded = byoc.load(tmp_path / "m.so")
    for rows in (1, 5, 1000):
        feed = {"x": random(rows, 4), "z": random(64, scale=0.1)}
        assert_agrees(loaded.run(feed), onnxruntime_outputs(model, feed))


def test_tensors_full_of_one_number(tmp_path: Path) -> None:
    nodes = [
        node("Shape", "x", "shape"),
        helper.make_node(
            *("ConstantOfShape", ["shape"], ["full"]),
            value=helper.make_tensor("value", 1, [1], [2.5]),
        ),
        node("Concat", "full x", "both", axis=0),
        node("Tanh", "both", "y"),
    ]
    model = onnx_model(nodes, {"x": ["n", 32]}, ["y", "full"], {})
    report = byoc.compile(model, tmp_path / "m.so").report
    assert report.left == ()
    loaded = byoc.load(tmp_path / "m.so")
    for rows in (1, 6):
        feed = {"x": random(rows, 32)}
        assert_agrees(loaded.run(feed), onnxruntime_outputs(model, feed))


@pytest.mark.parametrize("places", [[0], [1], [-1]])
def test_places_in_a_shape(places: list[int]) -> None:
    """A known place of a shape is its extent, without the others."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape at", "found"),
        node("Add", "found found", "y"),
    ]
    model = onnx_model(nodes, {"x": ["n", "m"]}, ["y"], {"at": np.array(places)})
    module = byoc.partition_for_ext(import_onnx(prepare(model)), min_bytes=0)
    assert "take" not in module.script(show_meta=False)


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        (["n", 1], [((2, 1), [1, 4]), ((2, 1), [2, 4]), ((1, 1), [3, 4])]),
        (["n", "m"], [((2, 3), [5, 1, 1]), ((1, 3), [2, 4, 3]), ((3, 1), [1, 1, 2])]),
        ([1, "m"], [((1, 4), [4]), ((1, 1), [1])]),
    ],
    ids=str,
)
def test_expand_to_sizes_of_the_call(
    shape: list[int | str], given: list[tuple[tuple[int, ...], list[int]]], tmp_path: Path
) -> None:
    """Extents of the tensor count as well; an axis that is 1 at the call is repeated."""
    nodes = [node("Expand", "x sizes", "wide"), node("Exp", "wide", "y")]
    model = onnx_model(nodes, {"x": shape}, ["y"], {})
    sizes = helper.make_tensor_value_info("sizes", 7, [len(given[0][1])])
    model.graph.input.append(sizes)
    byoc.compile(model, tmp_path / "m.so")
    loaded = byoc.load(tmp_path / "m.so")
    for extents, numbers in given:
        feed = {"x": random(*extents), "sizes": np.array(numbers)}
        assert_agrees(loaded.run(feed), onnxruntime_outputs(model, feed))
