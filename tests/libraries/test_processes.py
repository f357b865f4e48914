"""Kernels of every kind of library are found wherever a model goes, with nothing set or preloaded.

Static ones (``builtin``, and the example's own) travel inside the model; a shared one (``cblas``)
is opened when it is first called. The classical failure is a process that ends with "symbol lookup
error" because the library was loaded only in the process that compiled.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import byoc
from codegen_cc.errors import LibraryError
from codegen_cc.libraries import registry
from tests.libraries.sample import two_products

ROOT = Path(byoc.__file__).parents[1]
EXAMPLE = ROOT / "examples" / "my_library"
#: Packed functions of a model that tell that a library's kernels are in it, or were called.
EVIDENCE = {"my_library": "my_library_calls", "cblas": "byoc_threads_cblas", "builtin": None}


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A built copy of the example; its library is forgotten afterwards."""
    before, files = dict(registry._loaded), dict(registry._files)
    folder = tmp_path_factory.mktemp("example") / "my_library"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("build", "__pycache__"))
    command = ["make", "-C", str(folder), f"PYTHON={sys.executable}"]
    subprocess.run(command, check=True, capture_output=True)
    yield folder / "my_library.py"
    for known, kept in ((registry._loaded, before), (registry._files, files)):
        known.clear()
        known.update(kept)


@dataclass(frozen=True)
class Case:
    """A model whose products one library computes, compiled in this process."""

    name: str
    libraries: str
    path: Path

    @property
    def evidence(self) -> str | None:
        return EVIDENCE[self.name]


@pytest.fixture(scope="module", params=EVIDENCE)
def case(request, example: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    name = request.param
    try:
        registry.library(name if name != "my_library" else str(example))
    except LibraryError as error:
        pytest.skip(str(error))
    libraries = f"{example},builtin" if name == "my_library" else f"{name},builtin"
    path = tmp_path_factory.mktemp(name) / "m.so"
    compiled = byoc.compile(two_products(), path, libraries=libraries)
    assert name in [node["library"] for node in compiled.report.to_json()["nodes"]]
    return Case(name, libraries, path)


def numbers() -> np.ndarray:
    return np.random.default_rng(4).standard_normal((5, 32), dtype=np.float32)


def expected() -> np.ndarray:
    first, second = (
        np.frombuffer(tensor.raw_data, np.float32).reshape(tensor.dims)
        for tensor in two_products().graph.initializer
    )
    return np.maximum(numbers() @ first, 0) @ second


def assert_computed(case: Case, result: object, told: int | None) -> None:
    """The numbers are right, and the library's own function tells that it computed them."""
    np.testing.assert_allclose(np.asarray(result), expected(), rtol=1e-4, atol=1e-4)
    if case.name == "my_library":
        assert told is not None and told >= 2, "one call for each product at least"
    elif case.evidence is not None:
        assert told is not None and told >= 1


def clean_environment() -> dict[str, str]:
    """Of the parent's only what the interpreter needs: no preload, no library path."""
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": os.environ.get("HOME", "/")}


# ---------------------------------------------------------------- in this process


def test_in_process(case: Case) -> None:
    """Compiled and run without ever writing a library."""
    import tvm
    from tvm import relax

    compiled = byoc.compile(two_products(), libraries=case.libraries)
    machine = relax.VirtualMachine(compiled.executable, tvm.cpu())
    result = machine["main"](tvm.runtime.tensor(numbers())).numpy()
    told = None
    if case.evidence:
        told = compiled.executable.jit().get_function(case.evidence, query_imports=True)()
    assert_computed(case, result, told)


# ---------------------------------------------------------------- a fresh process

WITH_BYOC = """
import json, sys
import numpy as np, byoc
model = byoc.load(sys.argv[1])
result = model(np.load(sys.argv[2]))
told = model.function(sys.argv[3])() if sys.argv[3] else None
print(json.dumps([result.tolist(), told, "tvm" in sys.modules]))
"""

WITH_TVM = """
import json, sys
import numpy as np, tvm
from tvm.runtime.vm import VirtualMachine
module = tvm.runtime.load_module(sys.argv[1])
result = VirtualMachine(module, tvm.cpu())["main"](tvm.runtime.tensor(np.load(sys.argv[2])))
told = module.get_function(sys.argv[3], True)() if sys.argv[3] else None
print(json.dumps([result.numpy().tolist(), told, "byoc.compiler.compile" in sys.modules]))
"""


def run_script(script: str, library: Path, case: Case, folder: Path, **more: str) -> list:
    np.save(folder / "x.npy", numbers())
    command = [sys.executable, "-c", script, str(library), str(folder / "x.npy")]
    done = subprocess.run(
        [*command, case.evidence or ""],
        env=clean_environment() | more,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_fresh_process(case: Case, tmp_path: Path) -> None:
    result, told, compiler_was_loaded = run_script(WITH_BYOC, case.path, case, tmp_path)
    assert_computed(case, result, told)
    assert not compiler_was_loaded


def test_after_export_library_in_tvms_runtime(case: Case, tmp_path: Path) -> None:
    """What TVM's own exporter writes, moved elsewhere, in a process that has the runtime only."""
    (tmp_path / "built").mkdir()
    compiled = byoc.compile(two_products(), libraries=case.libraries)
    compiled.executable.export_library(str(tmp_path / "built" / "m.so"))
    moved = shutil.move(tmp_path / "built" / "m.so", tmp_path / "moved.so")
    result, told, compiler_was_loaded = run_script(
        WITH_TVM, Path(moved), case, tmp_path, TVM_USE_RUNTIME_LIB="1"
    )
    assert_computed(case, result, told)
    assert not compiler_was_loaded


# ---------------------------------------------------------------- an RPC server


@pytest.fixture(scope="module")
def remote() -> Iterator[object]:
    for package in ("cloudpickle", "psutil", "tornado"):
        pytest.importorskip(package, reason=f"TVM's RPC needs {package}")
    from tvm import rpc

    server = rpc.Server("127.0.0.1", port=9190, port_end=9390)  # a process of its own
    try:
        yield rpc.connect(server.host, server.port)
    finally:
        server.terminate()


def test_rpc_server(case: Case, remote) -> None:
    from tvm import relax

    name = f"{case.name}.so"
    remote.upload(str(case.path), name)
    module = remote.load_module(name)
    device = remote.cpu()
    machine = relax.VirtualMachine(module, device)
    import tvm

    result = machine["main"](tvm.runtime.tensor(numbers(), device))
    told = module.get_function(case.evidence, True)() if case.evidence else None
    assert_computed(case, result.numpy(), told)


# ---------------------------------------------------------------- builders and runners


def build(libraries: str, path: str) -> int:
    """What a builder process does; its process id."""
    import byoc

    byoc.compile(two_products(), path, libraries=libraries)
    return os.getpid()


def run(path: str, evidence: str | None) -> tuple[list, int | None, int]:
    """What a runner process does: the result, what the library tells, and its process id."""
    import byoc

    model = byoc.load(path)
    result = model(numbers()).tolist()
    return result, model.function(evidence)() if evidence else None, os.getpid()


@pytest.fixture(scope="module", params=["spawn", "popen"])
def pools(request) -> Iterator[list]:
    """A builder and a runner: Python's, or TVM's, in which its tuners build and run candidates."""
    if request.param == "spawn":
        with ExitStack() as stack:
            yield [
                stack.enter_context(ProcessPoolExecutor(1, mp_context=get_context("spawn")))
                for _ in range(2)
            ]
        return
    for package in ("cloudpickle", "psutil"):
        pytest.importorskip(package, reason=f"TVM's pool of processes needs {package}")
    from tvm.support.popen_pool import PopenPoolExecutor

    yield [PopenPoolExecutor(1, timeout=120) for _ in range(2)]


@pytest.mark.slow
def test_builders_and_runners(pools: list, case: Case, tmp_path: Path) -> None:
    builders, runners = pools
    path = str(tmp_path / "m.so")
    builder = builders.submit(build, case.libraries, path).result()
    result, told, runner = runners.submit(run, path, case.evidence).result()
    assert len({builder, runner, os.getpid()}) == 3
    assert_computed(case, result, told)


# ---------------------------------------------------------------- the example's README


@pytest.mark.slow
def test_the_readme_of_the_example(tmp_path: Path) -> None:
    """Its commands, in the order and the words in which they stand there."""
    import onnx

    text = (EXAMPLE / "README.md").read_text()
    commands = text.partition("```sh\n")[2].partition("```")[0]
    script = text.partition("```python\n")[2].partition("```")[0]
    assert commands.count("\n") == 3 and "import byoc" in script
    ignore = shutil.ignore_patterns("build", "__pycache__")
    shutil.copytree(EXAMPLE, tmp_path / "examples" / "my_library", ignore=ignore)
    onnx.save(two_products(), tmp_path / "model.onnx")
    environment = clean_environment()
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    shell = ["bash", "-euc", commands]
    subprocess.run(shell, cwd=tmp_path, env=environment, check=True, capture_output=True)
    script = script.replace("...", "__import__('numpy').ones(info.shape, info.dtype)")
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert int(done.stdout) == 2


def test_the_example_is_short() -> None:
    lines = sum(
        len((EXAMPLE / name).read_text().splitlines())
        for name in ("my_library.c", "my_library.h", "my_library.py", "Makefile")
    )
    assert lines < 120
