"""Winograd's F(m x m, 3 x 3): the transform of weights, and what the transforms cost and err.

The points of interpolation are those of ``runtime/kernels/winograd_transform.h``, which has the
other two transforms.  Sources: S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin
and S. Gray, Fast Algorithms for Convolutional Neural Networks, 2016.
"""

from __future__ import annotations

import numpy as np

from codegen_cc.operators.packing import PANEL

#: Finite points of interpolation by tile, m + 2; infinity is the last one.
POINTS = {
    4: (0.0, 1.0, -1.0),
    6: (0.0, 0.75, -0.75, 1.5, -1.5),
    8: (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5),
}


def filter_matrix(tile: int) -> np.ndarray:
    """G [tile, 3] in double precision: row p is (1, p, p^2) over the product of (p - others)."""
    points = np.array(POINTS[tile])
    rows = [
        np.array([1.0, p, p * p]) / np.prod(p - np.delete(points, i)) for i, p in enumerate(points)
    ]
    return np.stack([*rows, np.array([0.0, 0.0, 1.0])])


def pack_winograd(weight: np.ndarray, tile: int) -> np.ndarray:
    """Transform OIHW weights [O, I, 3, 3] into panels [tile^2, ceil(O / 16), I, 16], float32."""
    outputs, inputs = weight.shape[:2]
    matrix = filter_matrix(tile)
    # Rows (f, g), columns (h, w): both transforms of a filter at once.
    both = np.einsum("fh,gw->fghw", matrix, matrix).reshape(tile * tile, 9)
    panels = np.empty((tile * tile, -(-outputs // PANEL), inputs, PANEL), np.float32)
    for index in range(panels.shape[1]):  # panel by panel: little memory in double precision
        part = weight[index * PANEL : (index + 1) * PANEL]
        filters = np.zeros((9, inputs, PANEL))
        filters[:, :, : len(part)] = part.reshape(len(part), inputs, 9).transpose(2, 1, 0)
        panels[:, index] = (both @ filters.reshape(9, -1)).reshape(-1, inputs, PANEL)
    return panels


#: Seconds of one core in ``estimated_seconds``, fitted to measurements of 3 x 3 layers from 7 x 7 x
#: 512 to 224 x 224 x 64 on one AVX-512 core; only their ratios matter.
_PER_MAC = 1 / 56e9
_PER_VALUE = {4: 0.10e-9, 6: 0.22e-9, 8: 0.28e-9}  # one element of V or M
_PER_WEIGHT_BYTE = 1 / 20e9
_DIRECT_SHARE = 1.0  # of that rate, which direct convolution reaches
#: How much better than the alternative with less memory and smaller errors a choice has to be, with
#: weights of some bytes and of many.
_MARGIN, _MARGIN_OF_MANY, _MANY_BYTES = 0.97, 0.9, 8 << 20
_VECTOR = 16
#: What a core's L2 holds; measured on AMD's Zen 5, where products in bfloat16 beat Winograd's in
#: float32 from 128 channels on, whose transformed weights come from L3.
_L2_BYTES = 1 << 20
#: In a network weights come from beyond L2, in bfloat16 an eighth of the bytes and less; and what
#: Winograd's algorithm reads and writes is float32.
_PER_COLD_BYTE, _MARGIN_OF_NARROW = 1 / 10e9, 0.85


def estimated_seconds(
    tile: int, images: int, height: int, width: int, inputs: int, outputs: int
) -> float:
    """Time of one core for a 3 x 3 convolution with so many output pixels and channels.

    ``tile`` 0 is direct convolution.  Winograd's products read every transformed weight at least
    once, which small images pay for; its transforms cost by input and output channel, which few
    channels pay for.
    """
    pixels = images * height * width
    if tile == 0:
        return 9 * pixels * inputs * outputs * _PER_MAC / _DIRECT_SHARE
    tiles = images * -(-height // (tile - 2)) * -(-width // (tile - 2))
    area = tile * tile
    products = max(
        tiles * area * inputs * outputs * _PER_MAC,
        4 * area * inputs * outputs * _PER_WEIGHT_BYTE,
    )
    channels = sum(-(-count // _VECTOR) * _VECTOR for count in (inputs, outputs))
    return products + tiles * area * channels * _PER_VALUE[tile]


def best_tile(
    images: int,
    height: int,
    width: int,
    inputs: int,
    outputs: int,
    most: int = 8,
    direct_rate: float = 1.0,
) -> int:
    """The tile, at most ``most``, that a 3 x 3 convolution should use, or 0 for direct.

    ``direct_rate`` is how many times as fast as in float32 direct convolution is computed, whose
    weights and images then are smaller, too: transformed ones have to stay in L2 beside it, and
    reading them counts.
    """
    best, seconds = 0, estimated_seconds(0, images, height, width, inputs, outputs) / direct_rate
    for tile in POINTS:
        found = estimated_seconds(tile, images, height, width, inputs, outputs)
        nbytes = 4 * tile * tile * inputs * outputs
        if tile > most or (direct_rate > 1 and nbytes > _L2_BYTES):
            continue
        margin = _MARGIN_OF_MANY if nbytes > _MANY_BYTES else _MARGIN
        if direct_rate > 1:
            found += nbytes * _PER_COLD_BYTE
            margin = margin if best else _MARGIN_OF_NARROW
        if found < margin * seconds:
            best, seconds = tile, found
    return best
