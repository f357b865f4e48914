"""Wrong inputs at run time give one clear error; odd but right ones the right numbers."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import byoc
from tests.conftest import CompiledCase
from tests.reference import assert_agrees, onnxruntime_outputs
from tests.test_tiny import tiny_input, tiny_model


@pytest.fixture(scope="module")
def tiny(compiled_case: Callable[..., CompiledCase]) -> CompiledCase:
    return compiled_case("tiny", tiny_model())


@pytest.fixture(scope="module")
def model(tiny: CompiledCase) -> byoc.Model:
    return byoc.load(tiny.library)


class OnAnotherDevice:
    """Speaks DLPack from CUDA memory."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input 'x' is missing; it is x: float32[1, 3, 12, 10]"),
        ({"x": tiny_input(), "z": tiny_input()}, "unknown input 'z'"),
        ({"X": tiny_input()}, "unknown input 'X'"),
        ({"x": tiny_input()[0]}, "has 3 axes, shape [3, 12, 10]; need 4"),
        ({"x": tiny_input()[:, :2]}, "has shape [1, 2, 12, 10]; need [1, 3, 12, 10]"),
        ({"x": tiny_input()[:0]}, "has shape [0, 3, 12, 10]; need [1, 3, 12, 10]"),
        ({"x": tiny_input().repeat(2, 0)}, "has shape [2, 3, 12, 10]"),
        ({"x": tiny_input().astype("float64")}, "has dtype float64; need float32"),
        ({"x": tiny_input().astype("int32")}, "has dtype int32; need float32"),
        ({"x": tiny_input().astype(">f4")}, "has dtype >f4; need float32"),
        ({"x": tiny_input().tolist()}, "is a list; need a NumPy array"),
        ({"x": None}, "is a NoneType; need a NumPy array"),
        ({"x": np.ma.masked_array(tiny_input())}, "is a masked array, whose mask no model reads"),
        ({"x": OnAnotherDevice()}, "is on device (2, 0); need CPU memory"),
    ],
)
def test_wrong_input_is_one_clear_error(
    model: byoc.Model, inputs: dict[str, Any], message: str
) -> None:
    with pytest.raises(byoc.ByocError) as caught:
        model.run(inputs)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_many_and_doubled_arguments(model: byoc.Model) -> None:
    with pytest.raises(byoc.ByocError, match="2 inputs given"):
        model(tiny_input(), tiny_input())
    with pytest.raises(byoc.ByocError, match="given twice"):
        model(tiny_input(), x=tiny_input())


def test_strided_misaligned_and_read_only_arrays_are_copied(
    tiny: CompiledCase, model: byoc.Model
) -> None:
    x = tiny_input()
    expected = onnxruntime_outputs(tiny.source, {"x": x})
    strided = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert not strided.flags.c_contiguous
    misaligned = np.empty(x.nbytes + 4, np.uint8)[4:].view(np.float32).reshape(x.shape)
    misaligned[...] = x
    frozen = x.copy()
    frozen.flags.writeable = False
    reversed_twice = np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1]
    for array in (strided, misaligned, frozen, reversed_twice):
        assert_agrees(model.run({"x": array}), expected)


def test_results_belong_to_the_caller(model: byoc.Model) -> None:
    first = model(tiny_input())
    kept = first.copy()
    model(-tiny_input())
    np.testing.assert_array_equal(first, kept)
    assert first.flags.writeable


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, 1e-40, -0.0])
@pytest.mark.parametrize("place", ["corner", "everywhere"])
@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_special_values_go_where_onnx_puts_them(
    model: byoc.Model, value: float, place: str
) -> None:
    # The reference evaluator, as ONNX Runtime's ReLU turns NaN into 0.
    x = tiny_input()
    x[(0, 0, 0, 0) if place == "corner" else ...] = value
    expected = ReferenceEvaluator(tiny_model()).run(None, {"x": x})[0]
    assert_agrees(model.run({"x": x}), {"y": expected})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.so", None, "no such file"),
        ("text.so", b"not a library", "cannot load"),
        ("empty.so", b"", "cannot load"),
        ("model.onnx", b"onnx", "ends in .so, as byoc compile makes of a model"),
    ],
)
def test_files_that_are_no_library(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(byoc.ByocError) as caught:
        byoc.load(tmp_path / name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_truncated_library(tiny: CompiledCase, tmp_path: Path) -> None:
    short = tmp_path / "short.so"
    short.write_bytes(tiny.library.read_bytes()[:5000])
    with pytest.raises(byoc.ByocError, match="cannot load"):
        byoc.load(short)


def test_pool_grows_and_shrinks(tiny: CompiledCase) -> None:
    check = """
import sys
import byoc, tvm_ffi
for threads in (1, 2, 1, None):
    byoc.load(sys.argv[1], threads)
    print(tvm_ffi.get_global_func("runtime.NumThreads")())
"""
    root = Path(byoc.__file__).parents[1]
    command = [sys.executable, "-c", check, str(tiny.library)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1", "2", "1", "1"], done.stderr


def test_threads_must_be_positive(tiny: CompiledCase) -> None:
    with pytest.raises(byoc.ByocError, match="threads is 0; need a whole number"):
        byoc.load(tiny.library, threads=0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"exact": "no"}, "exact is 'no'; need True or False"),
        ({"require_full": 1}, "require_full is 1; need True or False"),
        ({"timers": None}, "timers is None; need True or False"),
        ({"verify": "never"}, "verify is 'never'; need True or False"),
        ({"allow_wrong": 3}, "allow_wrong is 3; need a list of texts"),
        ({"skip_ops": np.array(2)}, "skip_ops is of type ndarray; need a list of texts"),
        ({"libraries": np.array(2)}, "libraries are of type ndarray; need names"),
        ({"target": ["x86-64"]}, "unknown target ['x86-64']; known: x86-64"),
    ],
)
def test_keywords_of_another_kind(given: dict[str, object], message: str) -> None:
    with pytest.raises(byoc.ByocError, match=re.escape(message)):
        byoc.compile(tiny_model(), **given)
