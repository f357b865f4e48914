"""torchvision's operators of detectors, which are defined here as torchvision defines them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import byoc

AUTO = torch.export.Dim.AUTO

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
)


def _nms(boxes: torch.Tensor, scores: torch.Tensor, most: float) -> torch.Tensor:
    kept: list[int] = []
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    for place in scores.argsort(descending=True, stable=True).tolist():
        low = torch.maximum(boxes[place, :2], boxes[kept, :2])
        high = torch.minimum(boxes[place, 2:], boxes[kept, 2:])
        both = (high - low).clamp(min=0).prod(1)
        if not (both / (areas[place] + areas[kept] - both) > most).any():
            kept.append(place)
    return torch.tensor(kept, dtype=torch.int64)


def _sample(image: torch.Tensor, y: float, x: float) -> torch.Tensor:
    """A bilinear sample of [C, H, W]."""
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros(image.shape[0])
    y, x = max(y, 0.0), max(x, 0.0)
    top, left = min(int(y), height - 1), min(int(x), width - 1)
    low, right = min(top + 1, height - 1), min(left + 1, width - 1)
    b = 0.0 if top == height - 1 else y - top
    a = 0.0 if left == width - 1 else x - left
    above = (1 - a) * image[:, top, left] + a * image[:, top, right]
    return (1 - b) * above + b * ((1 - a) * image[:, low, left] + a * image[:, low, right])


def _roi_align(
    images: torch.Tensor,
    regions: torch.Tensor,
    scale: float,
    rows: int,
    columns: int,
    ratio: int,
    aligned: bool,
) -> torch.Tensor:
    made = torch.zeros(len(regions), images.shape[1], rows, columns)
    for at, (number, *corners) in enumerate(regions.tolist()):
        left, top, right, low = (corner * scale - 0.5 * aligned for corner in corners)
        height, width = low - top, right - left
        if not aligned:
            height, width = max(height, 1.0), max(width, 1.0)
        step_y, step_x = height / rows, width / columns
        down = ratio if ratio > 0 else -int(-step_y // 1)
        along = ratio if ratio > 0 else -int(-step_x // 1)
        for r in range(rows):
            for c in range(columns):
                samples = [
                    _sample(
                        images[int(number)],
                        top + (r + (i + 0.5) / down) * step_y,
                        left + (c + (j + 0.5) / along) * step_x,
                    )
                    for i in range(down)
                    for j in range(along)
                ]
                made[at, :, r, c] = torch.stack(samples).mean(0)
    return made


@pytest.fixture
def torchvision() -> Iterator[None]:
    """The operators, unless torchvision itself has defined them."""
    if hasattr(torch.ops.torchvision, "nms"):
        yield
        return
    with torch.library._scoped_library("torchvision", "FRAGMENT") as library:
        for schema in _SCHEMAS:
            library.define(schema)
        library.impl("nms", _nms, "CPU")
        library.impl("roi_align", _roi_align, "CPU")
        torch.library.register_fake(
            "torchvision::nms",
            lambda boxes, *_: boxes.new_empty(
                torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64
            ),
            lib=library,
        )
        torch.library.register_fake(
            "torchvision::roi_align",
            lambda x, regions, _, rows, columns, *__: x.new_empty(
                regions.shape[0], x.shape[1], rows, columns
            ),
            lib=library,
        )
        yield


class Align(nn.Module):
    def __init__(self, scale: float, ratio: int, aligned: bool) -> None:
        super().__init__()
        self.told = (scale, 3, 2, ratio, aligned)

    def forward(self, x: torch.Tensor, regions: torch.Tensor) -> torch.Tensor:
        return torch.ops.torchvision.roi_align(x.relu(), regions, *self.told)


class Suppress(nn.Module):
    def forward(self, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        kept = torch.ops.torchvision.nms(boxes, scores, 0.4)
        return boxes[kept] * 2


def _boxes(count: int) -> torch.Tensor:
    first = torch.rand(count, 2) * 12
    return torch.cat([first, first + torch.rand(count, 2) * 9 + 0.1], 1)


@pytest.mark.usefixtures("torchvision")
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [2, -1])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_regions_of_images(tmp_path: Path, scale: float, ratio: int, aligned: bool) -> None:
    module = Align(scale, ratio, aligned).eval()

    def inputs(count: int, height: int) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = torch.randint(0, 2, (count, 1)).float()
        return torch.randn(2, 3, height, 12), torch.cat([numbers, _boxes(count)], 1)

    shapes = ({2: AUTO, 3: AUTO}, {0: AUTO})
    done = byoc.compile(
        module,
        tmp_path / "net.so",
        example_inputs=inputs(4, 10),
        dynamic_shapes=shapes,
        min_bytes=0,
    )
    assert done.report.left == ()
    assert len(done.report.regions) == 1
    model = byoc.load(tmp_path / "net.so")
    for count, height in ((4, 10), (1, 17)):
        x, regions = inputs(count, height)
        (found,) = model.run({"x": x.numpy(), "regions": regions.numpy()}).values()
        wanted = _roi_align(x.relu(), regions, *module.told)
        torch.testing.assert_close(torch.from_numpy(found), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("torchvision")
def test_boxes_that_stay(tmp_path: Path) -> None:
    """Scores of either sign, equal ones among them."""
    module = Suppress().eval()
    done = byoc.compile(
        module,
        tmp_path / "net.so",
        example_inputs=(_boxes(9), torch.randn(9)),
        dynamic_shapes=({0: AUTO}, {0: AUTO}),
    )
    assert done is not None
    model = byoc.load(tmp_path / "net.so")
    for count in (9, 2, 40):
        boxes, scores = _boxes(count), torch.randn(count).round(decimals=1)
        (found,) = model.run({"boxes": boxes.numpy(), "scores": scores.numpy()}).values()
        wanted = boxes[_nms(boxes, scores, 0.4)] * 2
        torch.testing.assert_close(torch.from_numpy(found), wanted)
