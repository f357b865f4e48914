"""Axes whose sizes must be multiples of a number: what is halved and doubled is as large again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import byoc
from byoc.errors import InputError

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


class Unet(nn.Module):
    """Two halves deep, enlarged by the nearest pixel and by a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1)
        self.smaller = nn.Conv2d(8, 8, 3, 2, 1)
        self.larger = nn.ConvTranspose2d(8, 8, 4, 2, 1)
        self.head = nn.Conv2d(16, 4, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = self.stem(x).relu()
        half = self.smaller(whole)
        quarter = self.smaller(half)
        half = half * self.larger(quarter).sigmoid()
        made = torch.cat([F.interpolate(half, scale_factor=2.0), whole], 1)
        return self.head(made) + whole.mean(1, keepdim=True)


@pytest.mark.slow
@torch.no_grad()
def test_an_image_is_as_large_as_before(tmp_path: Path) -> None:
    """PyTorch's tracer writes both sizes otherwise, and notes that they are equal."""
    torch.manual_seed(3)
    module, path = Unet().eval(), tmp_path / "unet.so"
    axes = ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},)
    given = (torch.randn(2, 3, 8, 12),)
    report = byoc.compile(module, path, example_inputs=given, dynamic_shapes=axes).report
    assert report.left == () and len(report.regions) == 1
    with byoc.load(path) as model:
        assert model.metadata.conditions == ("x_2 % 4 == 0", "x_3 % 4 == 0")
        for shape in ((2, 3, 8, 12), (1, 3, 20, 4), (3, 3, 4, 32)):
            x = torch.randn(shape)
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), module(x), **CLOSE)
        with pytest.raises(InputError, match="it needs x_3 % 4 == 0, where x_3 = 6"):
            model(torch.randn(1, 3, 8, 6).numpy())


class Cut(nn.Module):
    """To no more than a size has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        part = x.exp()[:, :64, :64]
        return torch.cat([part, x + part.tanh()])


@torch.no_grad()
def test_two_axes_that_a_range_makes_equal(tmp_path: Path) -> None:
    path, given = tmp_path / "cut.so", (torch.randn(2, 6, 5),)
    axes = ({1: Dim("n", max=64), 2: Dim("m", max=64)},)
    report = byoc.compile(
        Cut().eval(), path, example_inputs=given, dynamic_shapes=axes, min_bytes=0
    ).report
    assert {left.op for left in report.left} <= {"relax.reshape"} and report.regions
    with byoc.load(path) as model:
        for shape in ((2, 6, 5), (2, 64, 3)):
            x = torch.randn(shape)
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), Cut()(x), **CLOSE)


class Shared(nn.Module):
    """Frames of films that look at the words of their film, whose number is told twice."""

    def forward(self, films: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        count, frames = words.shape[0], films.shape[1]
        words = words.repeat_interleave(frames, 0, output_size=count * frames)
        films = films.flatten(0, 1)
        seen = F.scaled_dot_product_attention(films[:, None], words[:, None], words[:, None])
        return seen.tanh() + (films @ words.mT).sum()


@pytest.mark.slow
@torch.no_grad()
def test_batches_that_are_told_twice(tmp_path: Path) -> None:
    path, axes = tmp_path / "shared.so", ({0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO, 1: Dim.AUTO})
    given = torch.randn(2, 3, 5, 8), torch.randn(2, 7, 8)
    report = byoc.compile(
        Shared().eval(), path, example_inputs=given, dynamic_shapes=axes, min_bytes=0
    ).report
    assert {left.op for left in report.left} <= {"relax.reshape"} and report.regions
    with byoc.load(path) as model:
        for films, words in (given, (torch.randn(1, 4, 5, 8), torch.randn(1, 2, 8))):
            found = model.run({"films": films.numpy(), "words": words.numpy()})["output"]
            wanted = Shared()(films, words)
            torch.testing.assert_close(torch.from_numpy(found), wanted, **CLOSE)


class Windows(nn.Module):
    """Each window of 4 x 4 by itself, as patches and windowed attention have it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, channels, height, width = x.shape
        parts = x.tanh().view(count, channels, height // 4, 4, width // 4, 4)
        parts = parts.permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, channels)
        made = F.scaled_dot_product_attention(parts, parts, parts)
        made = made.view(count, height // 4, width // 4, 4, 4, channels)
        return made.permute(0, 5, 1, 3, 2, 4).reshape(count, channels, height, width) + x


@pytest.mark.slow
@torch.no_grad()
def test_windows_of_an_open_image(tmp_path: Path) -> None:
    """Of which the tracer notes that the elements are as many."""
    path, axes = tmp_path / "windows.so", ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},)
    given = (torch.randn(2, 8, 12, 16),)
    report = byoc.compile(
        Windows().eval(), path, example_inputs=given, dynamic_shapes=axes, min_bytes=0
    ).report
    assert report.left == () and len(report.regions) == 1
    with byoc.load(path) as model:
        for shape in ((2, 8, 12, 16), (3, 8, 4, 20)):
            x = torch.randn(shape)
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), Windows()(x), **CLOSE)
        with pytest.raises(InputError, match="it needs x_2 % 4 == 0, where x_2 = 6"):
            model(torch.randn(1, 8, 6, 8).numpy())


@pytest.mark.slow
@torch.no_grad()
def test_multiples_that_users_declare(tmp_path: Path) -> None:
    """They are called as they were declared; the first half of 224 rows would be none."""
    module, path = Unet().eval(), tmp_path / "declared.so"
    height, width = 32 * Dim("h", max=10), 32 * Dim("w") + 16
    axes = ({0: Dim("n"), 2: height, 3: width},)
    example = (torch.randn(2, 3, 224, 112),)
    done = byoc.compile(module, path, example_inputs=example, dynamic_shapes=axes, verify=True)
    assert done.report.left == () and len(done.report.regions) == 1
    assert [i.shape for i in done.metadata.inputs] == [("n", 3, "32*h", "32*w+16")]
    with byoc.load(path) as model:
        for shape in ((1, 3, 96, 48), (3, 3, 64, 80)):
            x = torch.randn(shape)
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), module(x), **CLOSE)
        with pytest.raises(InputError, match=r"axis 2 is 112 and must be 32\*h, such as 96 or 128"):
            model(torch.randn(1, 3, 112, 48).numpy())
        with pytest.raises(InputError, match="h is 11 and must be 10 or less"):
            model(torch.randn(1, 3, 352, 48).numpy())
