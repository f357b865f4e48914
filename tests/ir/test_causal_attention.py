"""Causal attention with more queries than keys: rows that see no key are 0, at every level."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks import abi
from byoc.compiler.partition import partition_with_report
from tests.models.in_process import ROOT, cpu_has

from .graphs import random, relax_module

QUERIES, KEYS = 7, 4
Q, K, V = random(2, QUERIES, 3, 8), random(2, KEYS, 3, 8, seed=1), random(2, KEYS, 3, 6, seed=2)
ROWS, ONE_ROW = random(2, 3, QUERIES, KEYS, seed=3), random(2, 3, 1, KEYS, seed=4)
#: Corner and mask of each attention; all are in one module, which is compiled once.
CASES = [(corner, bias) for corner in ("TopLeft", "BottomRight") for bias in (None, ROWS, ONE_ROW)]

RUN = """
import sys
import numpy as np
import tvm
from tvm import relax
library, given, results = sys.argv[1:]
machine = relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())
with np.load(given) as file:
    inputs = [tvm.runtime.tensor(file[name]) for name in file.files]
np.savez(results, *(item.numpy() for item in machine["main"](*inputs)))
"""


def reference(corner: str, bias: np.ndarray | None) -> np.ndarray:
    """By NumPy in double precision; the mean of no value is 0, as in PyTorch."""
    q, k, v = (x.transpose(0, 2, 1, 3).astype(np.float64) for x in (Q, K, V))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(8)
    scores = scores if bias is None else scores + bias
    seen = np.tri(QUERIES, KEYS, 0 if corner == "TopLeft" else KEYS - QUERIES, dtype=bool)
    weights = np.where(seen, np.exp(scores), 0)
    total = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return (weights @ v).transpose(0, 2, 1, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library, beside its inputs."""
    inputs = [Q, K, V, ROWS, ONE_ROW]

    def build(emit, q, k, v, rows, one_row):
        masks = {id(None): (), id(ROWS): (rows,), id(ONE_ROW): (one_row,)}
        calls = [
            emit(op.nn.attention(q, k, v, *masks[id(bias)], causal_mask=corner))
            for corner, bias in CASES
        ]
        return emit(relax.Tuple(calls))

    module = relax_module(build, *(array.shape for array in inputs))
    module, report = partition_with_report(module, min_bytes=0)
    assert not report.left and len(report.regions) == 1
    uses = {use.algorithm: use.nodes for use in report.kernels}
    assert uses["attention"] == len(CASES)
    folder = tmp_path_factory.mktemp("causal")
    executable = tvm.compile(relax.transform.RunCodegen()(module), "llvm")
    executable.export_library(str(folder / "model.so"))
    np.savez(folder / "in.npz", *inputs)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("isa", abi.LEVELS)
def test_rows_without_a_key_are_zero(folder: Path, isa: str) -> None:
    if not cpu_has(isa):
        pytest.skip(f"this CPU has no {isa}")
    files = [folder / name for name in ("model.so", "in.npz", "out.npz")]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *files],
        env=os.environ | {"BYOC_ISA": isa},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with np.load(files[-1]) as found:
        for (corner, bias), name in zip(CASES, found.files, strict=True):
            want = reference(corner, bias)
            np.testing.assert_allclose(found[name], want, rtol=1e-5, atol=1e-6)
            assert (found[name][want == 0] == 0).all()
            assert (want == 0).any() == (corner == "BottomRight")
