"""Convolutions whose groups are the images of an open batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import byoc
from byoc.errors import ByocError


class Modulated(nn.Module):
    """Each image by a weight of its own, as generators of images have it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4, 3, 3))
        self.style = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        weight = self.weight[None] * self.style(style)[:, None, :, None, None]
        weight = weight * weight.square().sum((2, 3, 4), keepdim=True).add(1e-8).rsqrt()
        x = x.reshape(1, batch * channels, height, width)
        made = F.conv2d(x, weight.flatten(0, 1), stride=(2, 1), padding=1, groups=batch)
        return made.view(batch, 6, made.shape[2], made.shape[3]).relu()


class Own(Modulated):
    """Styles that images tell themselves."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x, x.flatten(2)[..., :5].mean(1))


class Slopes(nn.Module):
    """Each row by the same filter, as differences of features of sounds are made."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0] * x.shape[1]
        kernel = torch.arange(-2.0, 3.0).repeat(rows, 1, 1)
        padded = F.pad(x.reshape(1, rows, -1), (4, 4), mode="replicate")
        return F.conv1d(padded, kernel, groups=rows, dilation=2).view(x.shape)


#: A module, what it is called with for a batch and a size, and the axes that are open.
CASES = {
    "modulated": (
        Modulated(),
        lambda n, m: (torch.randn(n, 4, m + 5, m), torch.randn(n, 5)),
        ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO}, {0: Dim.AUTO}),
    ),
    "own": (
        Own(),
        lambda n, m: (torch.randn(n, 4, m + 5, m),),
        ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},),
    ),
    "slopes": (Slopes(), lambda n, m: (torch.randn(n, 3, m),), ({0: Dim.AUTO, 2: Dim.AUTO},)),
}


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_groups_of_an_open_batch(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    module, given, axes = CASES[name]
    module, path, example = module.eval(), tmp_path / "groups.so", given(3, 8)
    report = byoc.compile(
        module, path, example_inputs=example, dynamic_shapes=axes, min_bytes=0
    ).report
    told_twice = {"relax.reshape"} if name == "modulated" else set()
    assert {left.op for left in report.left} <= told_twice and report.regions
    assert report.offloaded_macs == report.macs
    with byoc.load(path) as model:
        for sizes in ((3, 8), (2, 11), (5, 6)):
            inputs = given(*sizes)
            names = (info.name for info in model.inputs)
            found = model.run({n: t.numpy() for n, t in zip(names, inputs, strict=True)})
            made = torch.from_numpy(found["output"])
            torch.testing.assert_close(made, module(*inputs), rtol=1e-4, atol=1e-5)


class Enlarged(nn.Module):
    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.conv_transpose1d(x.flatten(0, 1)[None], weight.flatten(0, 1), groups=x.shape[0])


def test_a_transposed_convolution_is_refused() -> None:
    given = torch.randn(3, 4, 9), torch.randn(3, 4, 2, 3)
    axes = ({0: Dim.AUTO}, {0: Dim.AUTO})
    with pytest.raises(ByocError, match="groups, of a transposed convolution; need a fixed number"):
        byoc.compile(Enlarged().eval(), "m.so", example_inputs=given, dynamic_shapes=axes)
