"""A module that is partitioned and compiled in several steps, with libraries of their own."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from byoc.compiler.partition import partition_for_ext
from tests.ir.graphs import constant, random
from tests.report.modules import floats, typed_module

WEIGHT = random(24, 8)


def two_steps(*libraries: object) -> tvm.IRModule:
    """``softmax(relu(x x) w)``: the first product alone, the rest in a second step."""
    mod = typed_module(
        lambda x: op.nn.softmax(op.matmul(op.nn.relu(op.matmul(x, x)), constant(WEIGHT))),
        floats(24, 24),
    )
    first = partition_for_ext(
        mod,
        only=["matmul"],
        predicate=lambda node, call: node.shape[-1] == 24,
        libraries=libraries,
        min_bytes=0,
    )
    once = relax.transform.RunCodegen()(first)
    second = partition_for_ext(once, libraries=libraries, min_bytes=0)
    return relax.transform.RunCodegen()(second)


def expected(x: np.ndarray) -> np.ndarray:
    """The same in double precision."""
    x = x.astype("float64")
    scores = np.maximum(x @ x, 0) @ WEIGHT
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def symbols(library: Path) -> list[str]:
    """The regions that a library defines."""
    shown = subprocess.run(
        ["nm", "--dynamic", "--defined-only", library], check=True, capture_output=True, text=True
    )
    names = [line.split()[-1] for line in shown.stdout.splitlines()]
    return sorted(name for name in names if name.startswith("__tvm_ffi_ext_"))


@pytest.mark.parametrize("libraries", [("builtin",), ("cblas", "builtin")])
def test_regions_of_two_steps_meet_in_one_library(libraries: tuple[str, ...], tmp_path: Path):
    if "cblas" in libraries and importlib.util.find_spec("scipy_openblas32") is None:
        pytest.skip("needs the extra 'cblas'")
    executable = tvm.compile(two_steps(*libraries), target="llvm")
    output = tmp_path / "model.so"
    executable.export_library(str(output))
    assert len(symbols(output)) == len(set(symbols(output))) >= 2
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(output)), tvm.cpu())
    x = np.random.default_rng(0).standard_normal((24, 24)).astype("float32")
    found = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(found, expected(x), rtol=1e-4, atol=1e-4)
