"""Operators of com.microsoft that move, pick and pool numbers, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import byoc
from byoc.errors import ImportFailure
from byoc.frontends.onnx import import_onnx, prepare
from tests.reference import assert_agrees, onnxruntime_outputs

RNG = np.random.default_rng(5)

#: Inputs for a number of rows, constants, attributes, outputs.
Made = tuple[Callable[[int], dict[str, np.ndarray]], dict[str, np.ndarray], dict[str, Any], int]


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def _crops(mode: str, size: tuple[int, int]) -> Made:
    """Boxes inside of the image, beyond it, and turned round."""
    boxes = np.array([[0, 0, 1, 1], [0.1, 0.2, 0.6, 0.9], [-0.2, 0.1, 1.3, 0.5]], np.float32)
    boxes = np.concatenate([boxes, [[0.5, 0.5, 0.2, 0.1]] * 2]).astype("float32")

    def inputs(n: int) -> dict[str, np.ndarray]:
        return {"x": _floats(2, 3, 8, 9), "rois": boxes[:n], "at": (np.arange(n) % 2).astype("i4")}

    return inputs, {"size": np.array(size, "i4")}, {"mode": mode, "extrapolation_value": 2.5}, 1


def _words(n: int) -> dict[str, np.ndarray]:
    """Words of characters, the shortest of one."""
    letters = RNG.integers(1, 9, (n, 7))
    return {"x": np.where(np.arange(7) <= np.arange(n)[:, None], letters, 0).astype("i4")}


def _quantised_embedding(segments: bool) -> tuple[list[str], Made]:
    bytes_of = {"w": (20, 8), "p": (12, 8), "s": (2, 8), "g": (8,), "b": (8,)}
    constants = {n: RNG.integers(0, 256, shape).astype("u1") for n, shape in bytes_of.items()}
    constants |= {f"{name}s": np.array(RNG.random() / 10, "f4") for name in bytes_of}
    constants |= {f"{name}z": np.array(RNG.integers(0, 256), "u1") for name in bytes_of}
    names = ["ids", "seg", *bytes_of, "mask", *(f"{n}s" for n in bytes_of)]
    names += [f"{name}z" for name in bytes_of]
    if not segments:
        dropped = ("seg", "s", "ss", "sz", "mask")
        names = ["" if name in dropped else name for name in names]
        constants = {name: array for name, array in constants.items() if name not in dropped}

    def inputs(n: int) -> dict[str, np.ndarray]:
        given = {"ids": RNG.integers(0, 20, (2, n)).astype("i4")}
        if segments:
            given |= {"seg": RNG.integers(0, 2, (2, n)).astype("i4")}
            given |= {"mask": (np.arange(n) < [[2], [n]]).astype("i4")}
        return given

    return names, (inputs, constants, {"epsilon": 1e-5}, 2)


def _of_four_bits(kind: int, block: int) -> Made:
    n, k = 24, 40
    constants = {
        "w": RNG.integers(0, 256, n * k // 2).astype("u1"),
        "scale": RNG.random(-(-n * k // block)).astype("f4"),
    }
    attributes = {"N": n, "K": k, "block_size": block, "quant_type": kind}
    return lambda rows: {"x": _floats(rows, k)}, constants, attributes, 1


CASES: dict[str, tuple[str, Made]] = {
    "gather": (
        "GatherND",
        (
            lambda n: {"x": _floats(4, 5, 6), "i": RNG.integers(0, 4, (n, 2)).astype("i4")},
            {},
            {},
            1,
        ),
    ),
    "pad": (
        "Pad",
        (
            lambda n: {"x": _floats(n, 5)},
            {"pads": np.array([[0, 1, 2, 0]]), "value": np.array([2.0], "f4")},
            {},
            1,
        ),
    ),
    "grid": (
        "GridSample",
        (
            lambda n: {"x": _floats(n, 3, 5, 6), "grid": _floats(n, 4, 3, 2)},
            {},
            {"mode": "bicubic", "padding_mode": "border"},
            1,
        ),
    ),
    "parts": ("UnfoldTensor", (lambda n: {"x": _floats(3, n, 4)}, {}, {"dim": 1, "size": 2}, 1)),
    "parts_by_steps": (
        "UnfoldTensor",
        (lambda n: {"x": _floats(n, 10, 4)}, {}, {"dim": 1, "size": 3, "step": 2}, 1),
    ),
    "runs_of_three": (
        "NGramRepeatBlock",
        (
            lambda n: {"ids": RNG.integers(0, 2, (3, 3 * n)), "scores": _floats(3, 6)},
            {},
            {"ngram_size": 3},
            1,
        ),
    ),
    "runs_of_one": (
        "NGramRepeatBlock",
        (
            lambda n: {"ids": RNG.integers(0, 6, (n, 2)), "scores": _floats(n, 6)},
            {},
            {"ngram_size": 1},
            1,
        ),
    ),
    "transposed": (
        "ConvTransposeWithDynamicPads",
        (
            lambda n: {"x": _floats(n, 3, 5, 5)},
            {"w": _floats(3, 4, 3, 3), "pads": np.array([1, 1, 0, 0]), "bias": _floats(4)},
            {"strides": [2, 2]},
            1,
        ),
    ),
    "crops": ("CropAndResize", _crops("bilinear", (4, 5))),
    "crops_of_a_row": ("CropAndResize", _crops("bilinear", (1, 3))),
    "crops_nearest": ("CropAndResize", _crops("nearest", (4, 5))),
    "words": (
        "WordConvEmbedding",
        (
            _words,
            {"w": _floats(5, 1, 2, 4), "bias": _floats(5), "c": _floats(9, 4)},
            {},
            1,
        ),
    ),
    "floats_of_4_bits": ("MatMulBnb4", _of_four_bits(0, 16)),
    "normal_floats_of_4_bits": ("MatMulBnb4", _of_four_bits(1, 64)),
}


def _model(operator: str, made: Made, names: list[str] | None = None) -> onnx.ModelProto:
    inputs, constants, attributes, outputs = made
    small, large = inputs(3), inputs(5)
    given = []
    for name, array in small.items():
        dims = [
            a if a == b else f"n{a}" for a, b in zip(array.shape, large[name].shape, strict=True)
        ]
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        given.append(helper.make_tensor_value_info(name, kind, dims))
    results = [f"r{number}" for number in range(outputs)]
    names = names or [*small, *constants]
    node = helper.make_node(operator, names, results, "node", domain="com.microsoft", **attributes)
    empty = [helper.make_empty_tensor_value_info(name) for name in results]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "one", given, empty, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _check(model: onnx.ModelProto, made: Made, path: Path) -> None:
    report = byoc.compile(model, path, min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    library = byoc.load(path)
    for n in (2, 3, 5):
        given = made[0](n)
        assert_agrees(library.run(given), onnxruntime_outputs(model, given), rounding=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_as_onnxruntime_with_any_number_of_rows(case: str, tmp_path: Path) -> None:
    operator, made = CASES[case]
    if operator == "WordConvEmbedding":
        order = ["x", "w", "bias", "c"]
        _check(_model(operator, made, order), made, tmp_path / "m.so")
    else:
        _check(_model(operator, made), made, tmp_path / "m.so")


@pytest.mark.parametrize("segments", [False, True])
def test_embeddings_of_integers(segments: bool, tmp_path: Path) -> None:
    """Tables stay integers in the library."""
    names, made = _quantised_embedding(segments)
    _check(_model("QEmbedLayerNormalization", made, names), made, tmp_path / "m.so")


def test_a_word_of_no_characters_is_zero(tmp_path: Path) -> None:
    """ONNX Runtime leaves it as it finds the memory."""
    operator, made = CASES["words"]
    byoc.compile(_model(operator, made, ["x", "w", "bias", "c"]), tmp_path / "m.so", min_bytes=0)
    (result,) = byoc.load(tmp_path / "m.so").run({"x": np.zeros((2, 7), "i4")}).values()
    assert not result.any()


@pytest.mark.parametrize("numbers", [([1.0], 5.0), ([1], 15, [3]), (9, 1, -2)])
def test_range_of_vectors_of_one(numbers: tuple, tmp_path: Path) -> None:
    dtype = "f4" if isinstance(numbers[0], list) and isinstance(numbers[0][0], float) else "i8"
    given = {name: np.array(x, dtype) for name, x in zip("abc", numbers, strict=False)}
    made: Made = (lambda n: given, {}, {}, 1)
    model = _model("Range", made)
    byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert_agrees(byoc.load(tmp_path / "m.so").run(given), onnxruntime_outputs(model, given))


def test_unique_numbers_as_they_first_occur(tmp_path: Path) -> None:
    given = {"x": RNG.integers(0, 5, 12).astype("f4")}
    model = _model("Unique", (lambda n: given, {}, {}, 3))
    byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert_agrees(byoc.load(tmp_path / "m.so").run(given), onnxruntime_outputs(model, given))


def test_forms_for_training_are_refused() -> None:
    inputs, constants, attributes, outputs = _of_four_bits(1, 16)
    model = _model("MatMulBnb4", (inputs, constants, {**attributes, "transB": 0}, outputs))
    with pytest.raises(ImportFailure, match="a form for training"):
        import_onnx(prepare(model))
