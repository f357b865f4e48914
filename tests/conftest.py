"""Fixtures: each model is built and compiled once per session."""

from __future__ import annotations

import gc
import inspect
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from byoc.frontends.onnx.measured_model import draw_inputs
from byoc.patterns import registry as builders
from codegen_cc import operator
from codegen_cc.libraries import registry
from models.bert import bert
from models.convnext import convnext
from models.gpt2 import gpt2
from models.swin import swin
from models.vgg import vgg19
from models.vit import vit
from models.zoo import ZOO
from tests.kernels import every
from tests.reference import onnxruntime_outputs

#: Frames of no file, and the module that each is of. TVMScript asks ``inspect`` for the whole stack
#: at each function, which looks through thousands of modules at every frame that it does not know.
FRAMES = {
    "<frozen importlib._bootstrap>": "importlib._bootstrap",
    "<frozen importlib._bootstrap_external>": "importlib._bootstrap_external",
    "<frozen runpy>": "runpy",
    "<string>": "__main__",
}
inspect.modulesbyfile.update(FRAMES)


@pytest.fixture
def forget_libraries() -> Iterator[None]:
    """Libraries of one test are unknown to the next."""
    before = dict(registry._loaded)
    yield
    registry._loaded.clear()
    registry._loaded.update(before)


@pytest.fixture
def forget_operators() -> Iterator[None]:
    """Libraries of one test, their operators and builders are unknown to the next."""
    operator.known_operators()
    stores = (registry._loaded, operator._known, operator._owners, builders._ENTRIES)
    copies = [dict(store) for store in stores]
    yield
    for store, copy in zip(stores, copies, strict=True):
        store.clear()
        store.update(copy)


# Whoever is started in the background of a script is told to ignore interrupts, and would tell so
# what it starts: tests that interrupt processes would wait for these in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--case",
        metavar="TEXT",
        help="of tests of many cases, run those with TEXT in their names; -s shows the names",
    )


def pytest_configure(config: pytest.Config) -> None:
    every.only = config.getoption("--case")
    # By default Python looks for circles after 700 new objects, and among all million objects of
    # TVM, PyTorch and the tests after some ten thousand: a tenth of the time of PyTorch's tests.
    gc.set_threshold(10_000, 10, 10)


#: Files of tests of the same networks, which one process compiles once (``compiled_case``).
SAME_NETWORKS = ("test_instruction_sets.py", "test_one_region.py", "test_zoo.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where files are shared among processes, give one process all of ``SAME_NETWORKS``."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            same = file in {f"tests/models/{name}" for name in SAME_NETWORKS}
            return "tests/models: same networks" if same else file

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run test_tiny.py first: when the whole way is broken, say so within seconds."""
    items.sort(key=lambda item: item.path.name != "test_tiny.py")
    _draw_no_constants_of_sources()


def _draw_no_constants_of_sources() -> None:
    """Hypothesis parses every module of the project, in seconds, for numbers to try.

    Numbers of other modules mean nothing to the few tests that use it.
    """
    if "hypothesis" in sys.modules:
        from hypothesis.internal.conjecture import providers

        providers._get_local_constants = lambda: providers._local_constants


@pytest.fixture(scope="session", autouse=True)
def _pool_with_room() -> None:
    """TVM builds a pool of half the cores at its first use and cannot enlarge it.

    Tests of two threads need room in it, whichever test of their process runs first.
    """
    from byoc.deploy import tvm_runtime

    tvm_runtime.configure_pool(max(2, os.cpu_count() or 1))


#: Networks of the zoo as the tests compile them: layers of the true width, but fewer of them, a
#: shorter vocabulary or a smaller image. What is left out are repetitions of what is there.
SHORTENED: dict[str, Callable[[], onnx.ModelProto]] = {
    "vgg19": partial(vgg19, size=64),
    "bert": partial(bert, layers=2, vocabulary=2000),
    "gpt2": partial(gpt2, layers=2, vocabulary=2000),
    "vit_b_16": partial(vit, layers=2),
    "convnext_t": partial(convnext, depths=(1, 1, 2, 1)),
    "swin_t": partial(swin, depths=(2, 2, 2, 2)),
}

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
    """``compiled_case(name)`` for the zoo's model, ``SHORTENED`` where it is large;
    ``compiled_case(name, model)`` for another.

    Of the large ones only the last is kept: together they would fill a small disk.
    """
    cases: dict[str, CompiledCase] = {}

    def get(name: str, model: onnx.ModelProto | None = None) -> CompiledCase:
        if name not in cases:
            for other in [case for case in cases.values() if case.weight_bytes > LARGE_BYTES]:
                shutil.rmtree(cases.pop(other.name).library.parent)
            if model is None:
                model = (SHORTENED.get(name) or ZOO[name].build)()
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
