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
#: What a frequency of a tile takes however few its channels are: places of pixels and of slots, and
#: rows of a product that is soon at its end. Fitted to 8 to 64 channels on an Intel Xeon with AMX.
_PER_FREQUENCY = 9e-9
_PER_WEIGHT_BYTE = 1 / 20e9
_DIRECT_SHARE = 1.0  # of that rate, which direct convolution reaches
#: How much better than the alternative with less memory and smaller errors a choice has to be, with
#: weights of some bytes and of many. On AMD's Zen 5, with twice the products in the same time and
#: no faster memory, these leave 0.6 % of the time of 40 layers to ``byoc tune``.
_MARGIN, _MARGIN_OF_MANY, _MANY_BYTES = 0.94, 0.9, 8 << 20
_VECTOR = 16


def estimated_seconds(
    tile: int, images: int, height: int, width: int, inputs: int, outputs: int
) -> float:
    """Time of one core for a 3 x 3 convolution with so many output pixels and channels.

    Winograd's products read every transformed weight at least once, which small images pay for; its
    transforms cost by input and output channel, which few channels pay for.
    """
    tiles = images * -(-height // (tile - 2)) * -(-width // (tile - 2))
    area = tile * tile
    products = max(
        tiles * area * inputs * outputs * _PER_MAC,
        4 * area * inputs * outputs * _PER_WEIGHT_BYTE,
    )
    channels = sum(-(-count // _VECTOR) * _VECTOR for count in (inputs, outputs))
    return products + tiles * area * (channels * _PER_VALUE[tile] + _PER_FREQUENCY)


def best_tile(
    images: int, height: int, width: int, inputs: int, outputs: int, most: int, pixels: float
) -> int:
    """The tile, at most ``most``, that a 3 x 3 convolution should use, or 0 for direct.

    ``pixels`` are those of all images, as many as have all of their taps inside; of a dilated
    convolution some images have fewer than others, and all take the same number of tiles.
    """
    best, seconds = 0, 9 * pixels * inputs * outputs * _PER_MAC / _DIRECT_SHARE
    for tile in POINTS:
        found = estimated_seconds(tile, images, height, width, inputs, outputs)
        nbytes = 4 * tile * tile * inputs * outputs
        margin = _MARGIN_OF_MANY if nbytes >= _MANY_BYTES else _MARGIN
        if tile <= most and found < margin * seconds:
            best, seconds = tile, found
    return best


#: What is done in the time of one product of float32, whose image and result are stored as
#: bfloat16: an element of V, one of M, and a byte of weights that comes from beyond L2.  Direct
#: convolution packs inputs for every tap, and stores outputs.  Fitted to 44 layers from 7 x 7 x 512
#: to 224 x 224 x 64 on AMD's Zen 5.
_PRODUCTS_PER_INPUT = {6: 17, 8: 23}
_PRODUCTS_PER_OUTPUT = {6: 17, 8: 26}
_PRODUCTS_PER_BYTE = 2
_PRODUCTS_PER_PACKED, _PRODUCTS_PER_STORED = 3, 16
_MARGIN_OF_STORED = 0.97


def best_tile_beside(
    direct_rate: float,
    images: int,
    height: int,
    width: int,
    inputs: int,
    outputs: int,
    most: int,
    pixels: int,
) -> int:
    """The same beside direct convolution that does so many products in the time of one of float32.

    What is read and written is stored in fewer bytes, and so are the other's weights, which stay in
    caches.
    """
    columns = -(-outputs // PANEL) * PANEL
    direct = 9 * inputs * (columns / direct_rate + _PRODUCTS_PER_PACKED)
    best, products = 0, pixels * (direct + _PRODUCTS_PER_STORED * columns)
    for tile in _PRODUCTS_PER_INPUT:
        tiles = images * -(-height // (tile - 2)) * -(-width // (tile - 2))
        lanes = -(-inputs // _VECTOR) * _VECTOR
        values = _PRODUCTS_PER_INPUT[tile] * lanes + _PRODUCTS_PER_OUTPUT[tile] * columns
        weights = 4 * _PRODUCTS_PER_BYTE * inputs * columns
        found = tile * tile * (tiles * (inputs * columns + values) + weights)
        if tile <= most and found < _MARGIN_OF_STORED * products:
            best, products = tile, found
    return best
