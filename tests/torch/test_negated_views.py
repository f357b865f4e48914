"""Tensors that PyTorch negates as it reads them, of which DLPack tells nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import byoc
from byoc.errors import InputError
from byoc.torch_compile.backend import backend

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
OPTIONS = {"cache": False}


def _negated(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    view = torch.randn(3, 8, dtype=torch.complex64).conj().imag
    view = view if dtype == torch.float32 else torch._neg_view(torch.randn(3, 8).to(dtype))
    assert view.is_neg()
    return view


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inputs(dtype: torch.dtype, tmp_path: Path) -> None:
    module, library = nn.Linear(8, 8).eval().to(dtype), tmp_path / "linear.so"
    compiled = byoc.compile(module, library, example_inputs=(_negated(dtype),), min_bytes=0)
    assert len(compiled.report.regions) == 1
    with byoc.load(library) as model:
        for x in (_negated(dtype), _negated(dtype).contiguous()):
            found = torch.from_dlpack(model.run({"input": x})["output"].astype("float32"))
            close = CLOSE if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
            torch.testing.assert_close(found, module(x).float(), **close)
        room = torch._neg_view(torch.empty(3, 8, dtype=dtype))
        with pytest.raises(InputError, match="room is a negated view"):
            model.run({"input": _negated(dtype)}, {"output": room})


@pytest.mark.slow
@torch.no_grad()
def test_torch_compile() -> None:
    """Inputs, and one that the graph writes."""
    module = nn.Linear(8, 8).eval()

    def write(x: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
        into.add_(module(x))
        return into * 2

    (graph,) = byoc.explain(write, (_negated(), torch.zeros(3, 8)), OPTIONS).graphs
    (part,) = graph.parts
    assert len(part.metadata.report["regions"]) == 1 and part.metadata.report["left"] == []
    torch.compiler.reset()
    compiled = torch.compile(write, backend=backend, options=OPTIONS)
    plain, x = torch.randn(3, 8), _negated()
    mine, theirs = (torch._neg_view(plain.clone()) for _ in range(2))
    torch.testing.assert_close(compiled(x, mine), write(x, theirs), **CLOSE)
    torch.testing.assert_close(mine, theirs, **CLOSE)
