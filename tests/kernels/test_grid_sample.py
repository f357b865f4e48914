"""Images at the places of a grid, against the definition in double precision."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np

from benchmarks import abi
from tests.kernels.every import every
from tests.kernels.guard import Rows, assert_close, at_page_end

METHODS, PADDINGS = ("nearest", "bilinear", "bicubic"), ("zeros", "border", "reflection")


def placed(at: float, size: int, padding: str, align: bool) -> float:
    """Where the padding has a place; reflected as often as it takes."""
    if padding == "zeros":
        return at
    if padding == "reflection":
        low, high = (0, size - 1) if align else (-0.5, size - 0.5)
        while low < high and not low <= at <= high:
            at = 2 * low - at if at < low else 2 * high - at
    return min(max(at, 0), size - 1)


def taps(
    place: float, size: int, method: str, padding: str, align: bool
) -> list[tuple[int, float]]:
    """Pixels inside of the image and their weights."""
    at = (place + 1) / 2 * (size - 1) if align else ((place + 1) * size - 1) / 2
    if method == "bicubic":
        first, a = np.floor(at), -0.75
        found = []
        for i in range(-1, 3):
            d = abs(at - first - i)
            inner = (a + 2) * d**3 - (a + 3) * d**2 + 1
            weight = inner if d <= 1 else a * (d**3 - 5 * d**2 + 8 * d - 4)
            found.append((placed(first + i, size, padding, align), weight))
    else:
        at = placed(at, size, padding, align)
        low = np.floor(at)
        found = [(np.rint(at), 1.0)]
        if method == "bilinear":
            found = [(low, low + 1 - at), (low + 1, at - low)]
    return [(int(pixel), weight) for pixel, weight in found if 0 <= pixel < size]


def sampled(x: np.ndarray, grid: np.ndarray, method: str, padding: str, align: bool) -> np.ndarray:
    """x [n, h, w, c] at grid [n, oh, ow, 2]."""
    _, height, width, channels = x.shape
    y = np.zeros((*grid.shape[:3], channels))
    for n, i, j in itertools.product(*map(range, grid.shape[:3])):
        column, row = grid[n, i, j]
        for r, u in taps(row, height, method, padding, align):
            for c, v in taps(column, width, method, padding, align):
                y[n, i, j] += u * v * x[n, r, c].astype(np.float64)
    return y


def params(x: np.ndarray, grid: np.ndarray, method: str, padding: str, align: bool):
    return abi.GridSampleParams(
        batch=x.shape[0],
        in_h=x.shape[1],
        in_w=x.shape[2],
        channels=x.shape[3],
        out_h=grid.shape[1],
        out_w=grid.shape[2],
        grid_n=grid.shape[1] * grid.shape[2] * 2,
        grid_h=grid.shape[2] * 2,
        grid_w=2,
        grid_xy=1,
        method=METHODS.index(method),
        padding=PADDINGS.index(padding),
        align_corners=int(align),
    )


@every("align", [False, True])
@every("padding", PADDINGS)
@every("method", METHODS)
@every("channels", [1, 3, 16, 37])
def test_places_inside_and_far_outside(
    lib: ctypes.CDLL, channels: int, method: str, padding: str, align: bool
) -> None:
    rng = np.random.default_rng(7)
    for height, width in ((5, 7), (1, 3), (1, 1)):
        x = at_page_end(rng.standard_normal((2, height, width, channels)))
        grid = at_page_end(rng.uniform(-3, 3, (2, 3, 6, 2)))
        y = Rows(2 * 3 * 6, channels)
        p = params(x, grid, method, padding, align)
        assert lib.ext_grid_sample(p, x.ctypes.data, grid.ctypes.data, y.pointer) == 0
        y.check_gaps()
        want = sampled(x, grid, method, padding, align).reshape(-1, channels)
        assert_close(y.view.astype(np.float64), want, 1e-4)


@every("align", [False, True])
@every("padding", PADDINGS)
@every("method", METHODS[:2])
@every("channels", [1, 2, 3, 37])
def test_places_of_volumes(
    lib: ctypes.CDLL, channels: int, method: str, padding: str, align: bool
) -> None:
    rng = np.random.default_rng(8)
    for depth, height, width in ((4, 5, 7), (1, 1, 3), (2, 1, 1)):
        x = at_page_end(rng.standard_normal((2, depth, height, width, channels)))
        grid = at_page_end(rng.uniform(-2, 2, (2, 2, 3, 4, 3)))
        y = Rows(2 * 2 * 3 * 4, channels)
        p = params(x[:, 0], grid[:, 0], method, padding, align)
        p.volumes, p.in_d, p.out_d = 1, depth, 2
        p.grid_n, p.grid_d, p.grid_h, p.grid_w = 72, 36, 12, 3
        assert lib.ext_grid_sample(p, x.ctypes.data, grid.ctypes.data, y.pointer) == 0
        y.check_gaps()
        want = np.zeros((2, 2, 3, 4, channels))
        for n, *place in itertools.product(*map(range, grid.shape[:4])):
            sides = zip(grid[(n, *place)][::-1], x.shape[1:4], strict=True)
            axes = (taps(at, size, method, padding, align) for at, size in sides)
            for corner in itertools.product(*axes):
                pixel = x[(n, *(at for at, _ in corner))].astype(np.float64)
                want[(n, *place)] += np.prod([weight for _, weight in corner]) * pixel
        assert_close(y.view.astype(np.float64), want.reshape(-1, channels), 1e-4)


@every("method", METHODS)
def test_what_is_outside_counts_nothing(lib: ctypes.CDLL, method: str) -> None:
    """Not even where the place is no number, or the image has no pixel."""
    places = np.array([[np.nan, 0], [0, np.inf], [-np.inf, 0], [9, 9], [3e38, -3e38]])
    for height, width in ((4, 4), (0, 4), (0, 0)):
        x = at_page_end(np.ones((1, height, width, 5)))
        grid = at_page_end(places.reshape(1, 1, -1, 2))
        y = Rows(len(places), 5)
        p = params(x, grid, method, "zeros", False)
        assert lib.ext_grid_sample(p, x.ctypes.data, grid.ctypes.data, y.pointer) == 0
        assert (y.view == 0).all()


@every("padding", ["border", "reflection"])
def test_places_that_are_no_numbers(lib: ctypes.CDLL, padding: str) -> None:
    """Are some pixel of the image."""
    places = np.array([[np.nan, np.nan], [np.inf, -np.inf], [3e38, -3e38], [-1e30, 1e30]])
    x = at_page_end(np.full((1, 4, 4, 5), 2))
    grid = at_page_end(places.reshape(1, 1, -1, 2))
    for method in ("nearest", "bilinear"):
        y = Rows(len(places), 5)
        p = params(x, grid, method, padding, False)
        assert lib.ext_grid_sample(p, x.ctypes.data, grid.ctypes.data, y.pointer) == 0
        assert (y.view == 2).all()


def test_what_is_refused(lib: ctypes.CDLL) -> None:
    one = np.zeros((1, 1, 1, 2), np.float32)
    for name, value in (("method", 3), ("padding", 7)):
        p = params(one, one, "nearest", "zeros", False)
        setattr(p, name, value)
        assert lib.ext_grid_sample(p, None, None, None) == 2
    p = params(one, one, "bicubic", "zeros", False)
    p.volumes = 1
    assert lib.ext_grid_sample(p, None, None, None) == 2
