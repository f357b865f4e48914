"""ONNX's own backend tests: operators, small graphs, and nine networks with weights of ours.

The tests of single operators give everything as inputs, weights, shapes and axes too, which no
exported network does. So each of them runs a second time ("node-constant") with all inputs but
the first as constants: kernels with packed weights, and much of TVM's importer, need that.

The networks ("light models") come without weights: every one is ``ConstantOfShape`` of 0.02. Equal
weights hide swapped channels and misread layouts, so they get random ones here, and ONNX Runtime
says what the results are.
"""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from sys import version_info
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test import loader
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.runner import Runner

from models.carried import reseeded
from tests.reference import assert_agrees, onnxruntime_outputs

ROOT = Path(__file__).parents[2]

#: Kinds of tests in the order of the table.
KINDS = ("node", "node-constant", "simple", "pytorch-converted", "pytorch-operator", "light")

#: Operators of which no two engines draw the same numbers; dtypes and shapes are compared.
RANDOM = frozenset(("Bernoulli", "RandomUniformLike"))

#: Cases of each first operator that the quick subset has.
SUBSET_PER_OPERATOR = 1

DataSets = list[tuple[list[Any], list[Any]]]


@dataclass(frozen=True)
class Case:
    """One test: a model, inputs with expected outputs, and how to compare."""

    kind: str
    name: str
    model: Callable[[], onnx.ModelProto]
    data: Callable[[], DataSets]
    rtol: float
    atol: float

    def compare(self, actual: list[Any], expected: list[Any]) -> None:
        """Raise ``AssertionError`` where outputs differ by more than the test allows."""
        if self.kind == "light":  # error as a share of the range, as for every network here
            names = [str(index) for index in range(len(expected))]
            assert_agrees(
                dict(zip(names, actual, strict=True)), dict(zip(names, expected, strict=True))
            )
            return
        if any(node.op_type in RANDOM for node in self.model().graph.node):
            kinds = [[(x.dtype, x.shape) for x in side] for side in (actual, expected)]
            assert kinds[0] == kinds[1], "Items are not equal"
            return
        rtol, atol = self.rtol, self.atol
        if any(getattr(want, "dtype", None) == np.float16 for want in expected):
            # The tests' own 1e-3 is less than the last place of some results of several operators.
            rtol, atol = max(rtol, 2**-9), max(atol, 2**-10)
        assert _lengths(expected) == _lengths(actual), "Items are not equal"
        Runner.assert_similar_outputs(_tensors(expected), _tensors(actual), rtol, atol)


def _tensors(values: list[Any]) -> list[Any]:
    """Those of sequences one by one: they may be of several shapes."""
    return [
        tensor
        for value in values
        for tensor in (_tensors(value) if isinstance(value, list) else [value])
    ]


def _lengths(values: list[Any]) -> list[int | None]:
    return [len(value) if isinstance(value, list) else None for value in values]


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case, sorted by kind and name."""
    found = [
        _case(kind, test)
        for kind in KINDS
        if kind not in ("node-constant", "light")
        for test in (_node_tests() if kind == "node" else loader.load_model_tests(kind=kind))
    ]
    nodes = _node_tests()
    found += [_constant_case(test) for test in nodes if _several(test)]
    found += [_light_case(test) for test in loader.load_model_tests(kind="real")]
    return tuple(sorted(found, key=lambda case: (KINDS.index(case.kind), case.name)))


@cache
def _node_tests() -> list[TestCase]:
    """Those of single operators. ONNX computes what they expect for ten seconds, and here one
    process does so for all that come later."""
    name = f"onnx-{version('onnx')}-numpy-{version('numpy')}-python-{version_info[1]}.pickle"
    file = ROOT / "build" / "conformance" / name
    if file.is_file():
        return pickle.loads(file.read_bytes())
    tests = loader.load_model_tests(kind="node")
    file.parent.mkdir(parents=True, exist_ok=True)
    own = file.with_suffix(f".{os.getpid()}")
    own.write_bytes(pickle.dumps(tests, pickle.HIGHEST_PROTOCOL))
    own.replace(file)  # at once, as others may read it
    return tests


@cache
def named() -> dict[str, Case]:
    """Every case by its name."""
    return {case.name: case for case in all_cases()}


def subset() -> list[Case]:
    """One case for each operator that a node test begins with, with its inputs given or constant,
    and some small graphs.

    Which one depends on a hash of the names alone, so that it is the same on every machine.
    """
    groups: dict[str, list[Case]] = {}
    for case in all_cases():
        if case.kind.startswith("node"):
            groups.setdefault(case.model().graph.node[0].op_type, []).append(case)
        elif case.kind != "light":
            groups.setdefault(f"{case.kind} {_hash(case) % 10}", []).append(case)
    chosen = {
        case.name
        for group in groups.values()
        for case in sorted(group, key=_hash)[:SUBSET_PER_OPERATOR]
    }
    return [case for case in all_cases() if case.name in chosen]


def _hash(case: Case) -> int:
    return zlib.crc32(case.name.encode())


def _case(kind: str, test: TestCase) -> Case:
    if test.model is not None:
        return Case(
            kind,
            test.name,
            lambda: test.model,
            lambda: [(_plain(inputs), _plain(outputs)) for inputs, outputs in test.data_sets],
            test.rtol,
            test.atol,
        )
    folder = Path(test.model_dir)
    return Case(
        kind,
        test.name,
        lambda: onnx.load(folder / "model.onnx"),
        lambda: list(_stored_data(folder)),
        test.rtol,
        test.atol,
    )


def _several(test: TestCase) -> bool:
    """Whether a test has inputs after the first, and all of them are tensors."""
    inputs = test.model.graph.input[1:]
    return len(inputs) > 0 and all(value.type.HasField("tensor_type") for value in inputs)


def _constant_case(test: TestCase) -> Case:
    """The test with all inputs but the first as constants, of the first data set."""

    def model() -> onnx.ModelProto:
        values = _plain(test.data_sets[0][0])
        frozen = onnx.ModelProto.FromString(test.model.SerializeToString())
        graph = frozen.graph
        for value, array in list(zip(graph.input, values, strict=True))[1:]:
            graph.initializer.append(numpy_helper.from_array(np.asarray(array), value.name))
        del graph.input[1:]
        return frozen

    def data() -> DataSets:
        inputs, outputs = test.data_sets[0]
        return [(_plain(inputs)[:1], _plain(outputs))]

    return Case("node-constant", f"{test.name}_constant", model, data, test.rtol, test.atol)


def _plain(values: list[Any]) -> list[Any]:
    return [
        numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
        for value in values
    ]


def _stored_data(folder: Path) -> Iterator[tuple[list[Any], list[Any]]]:
    graph = onnx.load(folder / "model.onnx").graph
    for data in sorted(folder.glob("test_data_set*")):
        # Old files list weights among the inputs; the data sets stop before them.
        given = len(list(data.glob("input_*.pb")))
        yield (
            [_read(data / f"input_{i}.pb", value) for i, value in enumerate(graph.input[:given])],
            [_read(data / f"output_{i}.pb", value) for i, value in enumerate(graph.output)],
        )


def _read(file: Path, value: onnx.ValueInfoProto) -> Any:
    if value.type.HasField("sequence_type"):
        sequence = onnx.SequenceProto.FromString(file.read_bytes())
        return numpy_helper.to_list(sequence)
    return numpy_helper.to_array(onnx.TensorProto.FromString(file.read_bytes()))


# ---------------------------------------------------------------------- light models


def _light_case(test: TestCase) -> Case:
    file = Path(loader.DATA_DIR, "light", Path(test.url).name)

    def data() -> DataSets:
        model = reseeded(onnx.load(file))
        stored = {tensor.name for tensor in model.graph.initializer}
        (image,) = (value for value in model.graph.input if value.name not in stored)
        shape = [dim.dim_value for dim in image.type.tensor_type.shape.dim]
        x = np.random.default_rng(1).standard_normal(shape, dtype="float32")
        return [([x], list(onnxruntime_outputs(model, {image.name: x}).values()))]

    return Case("light", f"light_{test.model_name}", lambda: reseeded(onnx.load(file)), data, 0, 0)
