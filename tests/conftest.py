"""Fixtures: each model is built and compiled once per session."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
import pytest

from byoc.frontends.onnx.measured_model import draw_inputs
from models.zoo import ZOO
from tests.reference import onnxruntime_outputs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run test_tiny.py first: when the whole way is broken, say so within seconds."""
    items.sort(key=lambda item: item.path.name != "test_tiny.py")


@pytest.fixture(scope="session", autouse=True)
def _pool_with_room() -> None:
    """TVM builds a pool of half the cores at its first use and cannot enlarge it.

    Tests of two threads need room in it, whichever test of their process runs first.
    """
    from byoc.deploy import tvm_runtime

    tvm_runtime.configure_pool(max(2, os.cpu_count() or 1))


#: Weights of a network that is kept on disk no longer than it is used.
LARGE_BYTES = 150_000_000


@dataclass
class CompiledCase:
    """One model, compiled, with inputs and ONNX Runtime's answer."""

    name: str
    source: Path
    library: Path
    inputs: dict[str, np.ndarray]
    weight_bytes: int

    def __post_init__(self) -> None:
        from byoc.compiler.compile import compile

        # The executable is not kept: it would hold every network's weights in memory.
        self.report = compile(self.source, self.library).report

    @cached_property
    def expected(self) -> dict[str, np.ndarray]:
        """ONNX Runtime's outputs for ``inputs``."""
        return onnxruntime_outputs(self.source, self.inputs)


@pytest.fixture(scope="session")
def compiled_case(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., CompiledCase]:
    """``compiled_case(name)`` for the zoo's model, ``compiled_case(name, model)`` for another.

    Of the large ones only the last is kept: together they would fill a small disk.
    """
    cases: dict[str, CompiledCase] = {}

    def get(name: str, model: onnx.ModelProto | None = None) -> CompiledCase:
        if name not in cases:
            for other in [case for case in cases.values() if case.weight_bytes > LARGE_BYTES]:
                shutil.rmtree(cases.pop(other.name).library.parent)
            model = ZOO[name].build() if model is None else model
            folder = tmp_path_factory.mktemp(name)
            source = folder / "model.onnx"
            onnx.save(model, source)
            cases[name] = CompiledCase(
                name,
                source,
                folder / "model.so",
                draw_inputs(model),
                sum(len(tensor.raw_data) for tensor in model.graph.initializer),
            )
        return cases[name]

    return get
