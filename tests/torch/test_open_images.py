"""Images and volumes of open sizes, enlarged and reduced, beside PyTorch at several sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import byoc
from byoc.errors import UnsupportedForm

AUTO = torch.export.Dim.AUTO
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


class Scaled(nn.Module):
    """By scales that are no whole numbers, of which the ratio of the sizes tells little."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            "nearest": F.interpolate(x, scale_factor=(1.5, 0.8)),
            "exact": F.interpolate(x, scale_factor=(1.5, 0.8), mode="nearest-exact"),
            "bilinear": F.interpolate(x, scale_factor=(1.5, 0.8), mode="bilinear"),
            "bicubic": F.interpolate(x, scale_factor=(1.5, 1), mode="bicubic"),
        }


class Sized(nn.Module):
    """To the size of another image, or to a fixed one."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        size = y.shape[2:]
        return {
            "nearest": F.interpolate(x, size=size),
            "exact": F.interpolate(x, size=size, mode="nearest-exact"),
            "fixed": F.interpolate(x, size=(82, 123)),
            "often": F.interpolate(x, scale_factor=(41, 2)),
        }


class RoundedOtherwise(nn.Module):
    """Halved twice and doubled beside what was halved once: as large where conditions hold."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, 2, 1)
        self.second = nn.Conv2d(8, 8, 3, 2, 1)
        self.last = nn.Conv2d(16, 4, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        once = self.first(x).relu()
        doubled = F.interpolate(self.second(once), scale_factor=2)
        return {"beside": self.last(torch.cat([once, doubled], 1)), "sum": once + doubled}


class Smoothed(nn.Module):
    """Images that are reduced with as many taps as that needs, and a table of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 3, 7, 7))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        size, smoothed = y.shape[2:], {"antialias": True}
        return {
            "table": F.interpolate(self.table, size=size, mode="bicubic", **smoothed),
            "bilinear": F.interpolate(x, size=size, mode="bilinear", **smoothed),
            "corners": F.interpolate(x, size, mode="bicubic", align_corners=True, **smoothed),
            "scaled": F.interpolate(x, scale_factor=0.5, mode="bilinear", **smoothed),
            "row": F.interpolate(x, size=(1, 5), mode="bicubic", **smoothed),
        }


class Volumes(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            "linear": F.interpolate(x, scale_factor=(1, 1.5, 1), mode="trilinear"),
            "exact": F.interpolate(x, scale_factor=1.5, mode="nearest-exact"),
            "nearest": F.interpolate(x, scale_factor=2),
        }


def _compare(module: nn.Module, library: Path, inputs: tuple[torch.Tensor, ...]) -> None:
    with byoc.load(library) as model:
        names = [info.name for info in model.inputs]
        found = model.run({n: x.numpy() for n, x in zip(names, inputs, strict=True)})
    for name, wanted in module(*inputs).items():
        torch.testing.assert_close(torch.from_numpy(found[name]), wanted, **CLOSE)


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("name", ["scaled", "sized", "smoothed", "volumes"])
def test_open_sizes(name: str, tmp_path: Path) -> None:
    torch.manual_seed(4)
    module, sizes = {
        "scaled": (Scaled().eval(), [((2, 3, 8, 10),), ((1, 3, 13, 7),)]),
        "sized": (Sized().eval(), [((2, 3, 4, 5), (1, 1, 7, 9)), ((1, 3, 2, 3), (1, 1, 82, 123))]),
        "smoothed": (
            Smoothed().eval(),
            [((2, 3, 14, 9), (1, 1, 5, 11)), ((1, 3, 31, 4), (1, 1, 9, 7))],
        ),
        "volumes": (Volumes().eval(), [((2, 2, 4, 5, 6),), ((3, 2, 7, 3, 9),)]),
    }[name]
    given = [tuple(map(torch.randn, shapes)) for shapes in sizes]
    axes = tuple({i: AUTO for i in (0, *range(2, x.dim())) if x.shape[i] > 1} for x in given[0])
    library = tmp_path / "open.so"
    compiled = byoc.compile(
        module, library, example_inputs=given[0], dynamic_shapes=axes, min_bytes=0
    )
    assert compiled.report.left == ()
    assert len(compiled.report.regions) == 1
    for inputs in given:
        _compare(module, library, inputs)


class OfBytes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=(4, 5), mode="bilinear", antialias=True).float()


def test_images_of_bytes_are_refused(tmp_path: Path) -> None:
    """Their weights are not those of floats, and were cut to 0 and 1 here."""
    image = torch.randint(0, 255, (1, 3, 8, 9), dtype=torch.uint8)
    with pytest.raises(UnsupportedForm, match=r"image of uint8, .* need floats"):
        byoc.compile(OfBytes().eval(), tmp_path / "bytes.so", example_inputs=(image,))


class Reduced(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=0.7)


@torch.no_grad()
def test_sizes_that_a_float_rounds_otherwise(tmp_path: Path) -> None:
    """0.7 times 170 is 118.99999999999999, of which PyTorch keeps 118; 7 / 10 of it are 119."""
    library = tmp_path / "reduced.so"
    compiled = byoc.compile(
        Reduced().eval(),
        library,
        example_inputs=(torch.randn(1, 1, 10, 20),),
        dynamic_shapes=({2: AUTO, 3: AUTO},),
        min_bytes=0,
    )
    assert compiled.report.left == ()
    with byoc.load(library) as model:
        x = torch.randn(1, 1, 160, 9)
        torch.testing.assert_close(torch.from_numpy(model(x.numpy())), Reduced()(x))
        with pytest.raises(byoc.ByocError, match=r"where s\d+ = 170"):
            model(torch.zeros(1, 1, 170, 9).numpy())


class Areas(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        means = F.interpolate(x.exp() + 1, size=y.shape[2:], mode="area")
        return {"means": means * 2 + 1}


@pytest.mark.slow
@torch.no_grad()
def test_areas_of_open_sizes(tmp_path: Path) -> None:
    """Windows whose borders a call decides are TVM's loops, between regions."""
    module, library = Areas().eval(), tmp_path / "areas.so"
    given = torch.randn(2, 3, 9, 8), torch.randn(1, 1, 4, 5)
    axes = ({0: AUTO, 2: AUTO, 3: AUTO}, {2: AUTO, 3: AUTO})
    compiled = byoc.compile(module, library, example_inputs=given, dynamic_shapes=axes, min_bytes=0)
    assert len(compiled.report.regions) == 2
    for inputs in (given, (torch.randn(1, 3, 5, 7), torch.randn(1, 1, 11, 3))):
        _compare(module, library, inputs)


@pytest.mark.slow
@torch.no_grad()
def test_sizes_that_were_rounded_otherwise(tmp_path: Path) -> None:
    module = RoundedOtherwise().eval()
    images = [torch.randn(1, 3, *size) for size in ((64, 64), (32, 48), (15, 31), (63, 16))]
    compiled = byoc.compile(
        module,
        tmp_path / "m.so",
        example_inputs=(images[0],),
        dynamic_shapes={"x": {2: AUTO, 3: AUTO}},
    )
    assert len(compiled.report.regions) == 1 and not compiled.report.left
    loaded = byoc.load(tmp_path / "m.so")
    for image in images:
        for name, expected in module(image).items():
            found = torch.from_numpy(loaded.run({"x": image.numpy()})[name])
            torch.testing.assert_close(found, expected, **CLOSE)
    with pytest.raises(byoc.ByocError, match="it needs"):
        loaded.run({"x": torch.randn(1, 3, 61, 64).numpy()})


class ToWindows(nn.Module):
    """An image that is padded to whole windows by what is next to its borders."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[-2:]
        return F.pad(x, (0, 8 - width % 8, 4 - height % 4, 1), self.mode) * 2


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_by_open_widths(mode: str, tmp_path: Path) -> None:
    module, path = ToWindows(mode).eval(), tmp_path / "net.so"
    axes = dict.fromkeys((0, 2, 3), torch.export.Dim.AUTO)
    given = (torch.randn(2, 3, 9, 12),)
    compiled = byoc.compile(module, path, example_inputs=given, dynamic_shapes=(axes,))
    assert len(compiled.report.regions) == 1 and not compiled.report.left
    with byoc.load(path) as library:
        for shape in ((2, 3, 9, 12), (3, 3, 14, 10)):
            x = torch.randn(shape)
            (found,) = library.run({"x": x.numpy()}).values()
            torch.testing.assert_close(torch.from_numpy(found), module(x))
