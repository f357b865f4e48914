"""Numbers that are computed from sizes beside tensors, at several sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import byoc

_NAMES = ("row", "column")


class _Sized(torch.nn.Module):
    """Sums, quotients and roots of sizes as numbers of tensors' operators."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        rows, columns = x.shape
        return {
            "mean": x.sum(1) / columns,
            "scaled": x / torch.sym_sqrt(columns),
            "share": x * (rows / columns),
            "moved": x + (rows - columns),
            "places": torch.arange(columns) - columns + 1,
            "least": x.clamp(max=columns - 4),
            "whole": (x * 5).long() * rows,
            "added": torch.add(x, x, alpha=rows),
            "padded": F.pad(x, (1, -columns % 4), value=2.0),
            "padded_places": F.pad((x * 5).long(), (0, -columns % 4)),
            "padded_mask": F.pad(x > 0, (-rows % 3, 1, 1, 0), value=True),
            "filled": x.masked_fill(x > 0, columns),
        }


@pytest.mark.slow
def test_numbers_of_sizes(tmp_path: Path) -> None:
    axes = {axis: torch.export.Dim(name) for axis, name in enumerate(_NAMES)}
    module, example = _Sized().eval(), torch.randn(3, 6)
    path = tmp_path / "sized.so"
    compiled = byoc.compile(
        module, path, example_inputs=(example,), dynamic_shapes=(axes,), min_bytes=0
    )
    assert len(compiled.report.regions) == 1
    assert {entry.op for entry in compiled.report.left} <= {"relax.multiply"}  # of int64
    with byoc.load(path) as model:
        for shape in ((3, 6), (8, 2), (2, 2), (5, 9)):
            x = torch.randn(shape)
            for name, wanted in module(x).items():
                made = model.run({"x": x.numpy()})[name]
                np.testing.assert_allclose(made, wanted.numpy(), rtol=1e-5, atol=1e-6)


class _Counted(nn.Module):
    """``len`` gives one number to any tracer but Dynamo."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.first.expand(len(x), 1, -1), x], 1).exp()


def test_the_length_of_a_tensor(tmp_path: Path) -> None:
    module, path = _Counted().eval(), tmp_path / "counted.so"
    axes = ({0: torch.export.Dim("rows")},)
    example = (torch.randn(3, 5, 4),)
    compiled = byoc.compile(module, path, example_inputs=example, dynamic_shapes=axes, min_bytes=0)
    assert len(compiled.report.regions) == 1 and not compiled.report.left
    with byoc.load(path) as model:
        for rows in (3, 7):
            x = torch.randn(rows, 5, 4)
            made = model.run({"x": x.numpy()})["output"]
            np.testing.assert_allclose(made, module(x).detach().numpy(), rtol=1e-5)


class _Causal(torch.nn.Module):
    """Attention that is causal of more than one row, as Whisper's; a sparse buffer is unused."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("unused", torch.eye(3).to_sparse(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x, is_causal=x.shape[1] > 1)


@torch.no_grad()
def test_causal_by_a_size(tmp_path: Path) -> None:
    module, path, usual = _Causal().eval(), tmp_path / "causal.so", F.scaled_dot_product_attention
    axes = ({1: torch.export.Dim("rows")},)
    report = byoc.compile(
        module, path, example_inputs=(torch.randn(2, 5, 8),), dynamic_shapes=axes, min_bytes=0
    ).report
    assert report.left == () and len(report.regions) == 1
    assert F.scaled_dot_product_attention is usual
    with byoc.load(path) as model:
        x = torch.randn(2, 9, 8)
        torch.testing.assert_close(torch.from_numpy(model(x.numpy())), module(x))
