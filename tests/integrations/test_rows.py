"""Rows, queues and tensors of the protocol, without an engine."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from byoc.deploy.metadata import Metadata, StateInfo, SymbolRange, TensorInfo
from byoc.errors import InputError, IntegrationError, RunError
from byoc.integrations.inference_protocol import array_of_input, datatype_of
from byoc.integrations.row_queue import QueueFull, Request, RowQueue
from byoc.integrations.rows import chunks, rows_of_a_call
from byoc.integrations.served import Limits

_SECONDS = 20


def _metadata(x: tuple, y: tuple, **more: Any) -> Metadata:
    return Metadata((TensorInfo("x", x, "float32"),), (TensorInfo("y", y, "float32"),), **more)


@pytest.mark.parametrize(
    ("metadata", "most"),
    [
        (_metadata(("b", 3), ("b",)), None),
        (_metadata((1, 3), (1, "n")), 1),
        (_metadata(("b", "n"), ("b", "n+1")), None),
        (_metadata(("b", 3), ("b",), ranges=(SymbolRange("b", 1, 16),)), 16),
    ],
)
def test_rows_of_a_call(metadata: Metadata, most: int | None) -> None:
    assert rows_of_a_call(metadata, "m.so") == most


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (_metadata((4, 3), (4,)), "does not take any number of rows"),
        (_metadata(("b", 3), (1,)), "does not take any number of rows"),
        (_metadata(("b", "b"), ("b",)), "does not take any number of rows"),
        (_metadata(("b", 3), ("b", "2*b")), "does not take any number of rows"),
        (_metadata(("2*b", 3), ("2*b",)), "does not take any number of rows"),
        (_metadata((), ()), "does not take any number of rows"),
        (_metadata(("b", 3), ("b",), ranges=(SymbolRange("b", 2),)), "takes 2 rows or more"),
        (Metadata((TensorInfo("x", ("b",), "float32"),), ()), "does not say what its outputs are"),
        (
            _metadata(
                ("b", 3),
                ("b",),
                states=(StateInfo(TensorInfo("s", ("b", 3), "float32"), "t", None, 0),),
            ),
            "keeps states from call to call",
        ),
    ],
)
def test_networks_without_rows_are_refused(metadata: Metadata, said: str) -> None:
    with pytest.raises(InputError, match=said):
        rows_of_a_call(metadata, "m.so")


def test_chunks_end_with_a_short_one() -> None:
    assert [(part.start, part.stop) for part in chunks(7, 3)] == [(0, 3), (3, 6), (6, 7)]
    assert list(chunks(0, 3)) == [] and list(chunks(5, None)) == [slice(0, 5)]


class _Network:
    """Doubles its input once ``go`` is set; a row of -1 fails. Keeps the rows of its calls."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.busy, self.go = threading.Event(), threading.Event()

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.busy.set()
        assert self.go.wait(_SECONDS)
        self.calls.append(len(inputs["x"]))
        if (inputs["x"] == -1).any():
            raise RunError("a row of -1")
        return {"y": 2 * inputs["x"]}


def _ask(queue: RowQueue, model: Any, *rows: float, width: int = 1) -> Request:
    array = np.repeat(np.array(rows, "f4")[:, None], width, 1)
    queue.put(request := Request(model, {"x": array}, len(rows)))
    return request


def _queue(most_rows: int = 8, most_waiting: int = 100) -> tuple[RowQueue, Any]:
    """A queue whose only caller is busy with a row of 9 until ``go``."""
    queue, model = RowQueue(most_rows, 0.0, most_waiting, 1, lambda rows, seconds: None), _Network()
    _ask(queue, model, 9)
    assert model.busy.wait(_SECONDS)
    return queue, model


def test_what_waits_is_joined_by_shape_up_to_the_most_rows() -> None:
    queue, model = _queue(most_rows=4)
    asked = [
        _ask(queue, model, 1, 2),
        _ask(queue, model, 3, width=2),
        _ask(queue, model, 4, 5, 6),
        _ask(queue, model, 7),
    ]
    model.go.set()
    found = [request.outputs.result(_SECONDS)["y"][:, 0].tolist() for request in asked]
    assert found == [[2, 4], [6], [8, 10, 12], [14]]
    queue.close()
    assert model.calls == [1, 3, 1, 3]  # the last row was joined with the first two


def test_a_request_that_fails_fails_alone() -> None:
    queue, model = _queue()
    asked = [_ask(queue, model, 1), _ask(queue, model, -1), _ask(queue, model, 3)]
    model.go.set()
    with pytest.raises(RunError, match="a row of -1"):
        asked[1].outputs.result(_SECONDS)
    assert [asked[n].outputs.result(_SECONDS)["y"].tolist() for n in (0, 2)] == [[[2]], [[6]]]
    assert model.calls == [1, 3, 1, 1, 1]
    queue.close()


def test_more_rows_than_a_call_takes_are_computed_in_parts() -> None:
    queue, model = _queue(most_rows=4)
    request = _ask(queue, model, *range(10))
    model.go.set()
    assert request.outputs.result(_SECONDS)["y"][:, 0].tolist() == [2 * n for n in range(10)]
    assert model.calls == [1, 4, 4, 2]
    queue.close()


def test_a_full_queue_says_so_and_a_given_up_request_is_left_out() -> None:
    queue, model = _queue(most_waiting=2)
    given_up = _ask(queue, model, 1)
    _ask(queue, model, 2)
    with pytest.raises(QueueFull, match="2 rows wait for the network and 2 may; ask again later"):
        _ask(queue, model, 3)
    assert given_up.outputs.cancel()
    model.go.set()
    queue.close()  # answers what waits
    assert model.calls == [1, 1]
    with pytest.raises(QueueFull, match="being unloaded"):
        _ask(queue, model, 4)


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "expected"),
    [
        ("FP32", [2], [1, 2.5], np.array([1, 2.5], "f4")),
        ("FP64", [2, 1], [[None], [1e300]], np.array([[np.nan], [1e300]])),
        ("INT8", [2], [-128, 127], np.array([-128, 127], "i1")),
        ("UINT64", [1], [2**64 - 1], np.array([2**64 - 1], "u8")),
        ("BOOL", [2], [True, False], np.array([True, False])),
        ("FP16", [0, 3], [], np.zeros((0, 3), "f2")),
        ("INT64", [], [5], np.array(5, "i8")),
    ],
)
def test_elements_of_an_input(
    datatype: str, shape: list[int], data: list, expected: np.ndarray
) -> None:
    found = array_of_input("x", datatype, shape, data)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "said"),
    [
        ("INT64", [1], [1.5], "elements that are no INT64; nothing is cast"),
        ("INT8", [1], [128], r"elements from 128 to 128; INT8 holds -128 to 127"),
        ("UINT8", [2], [-1, 3], "elements from -1 to 3"),
        ("INT32", [1], [True], "no INT32"),
        ("INT32", [1], [None], "no INT32"),
        ("BOOL", [1], [1], "no BOOL"),
        ("FP32", [1], ["1"], "no FP32"),
        ("FP32", [2], ["1", None], "no FP32"),
        ("FP32", [1], [True], "no FP32"),
        ("FP32", [2], [1.0], "has 1 elements; shape .2. needs 2"),
        ("FP32", [-1, -1], [1.0], "need extents of 0 or more"),
        ("FP32", [1], [{"a": 1}], "no FP32"),
        ("BF16", [1], [1.0], "has datatype BF16; need a number's"),
        ("BYTES", [1], ["a"], "has datatype BYTES"),
        ("FP8", [1], [1.0], "has datatype FP8"),
    ],
)
def test_elements_that_are_refused(datatype: str, shape: list[int], data: list, said: str) -> None:
    with pytest.raises(InputError, match=said):
        array_of_input("x", datatype, shape, data)


def test_datatypes_of_networks() -> None:
    names = {"float32": "FP32", "uint8": "UINT8", "int64": "INT64", "bool": "BOOL"}
    assert {d: datatype_of(TensorInfo("x", (), d)) for d in names} == names
    with pytest.raises(InputError, match="no datatype"):
        datatype_of(TensorInfo("x", (), "bfloat16"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"batch": 3}, "unknown setting 'batch' in parameters.extra; there are callers, "),
        ({"max_batch_rows": 0}, "max_batch_rows is 0; need a whole number from 1"),
        ({"threads": True}, "threads is True"),
        ({"max_batch_time": -1}, "max_batch_time is -1; need seconds, from 0 to 60"),
        ({"reload_seconds": "1"}, "reload_seconds is '1'"),
    ],
)
def test_settings_are_checked(given: dict[str, Any], said: str) -> None:
    with pytest.raises(IntegrationError, match=said):
        Limits.read(given)
