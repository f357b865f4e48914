"""The ways to compute a convolution of images: which there are, which is chosen, their names."""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from codegen_cc.dim import Dim, estimate, is_static, product, same
from codegen_cc.node import Node
from codegen_cc.operators.bfloat16 import in_parts, no_gain, product_rate, short_name
from codegen_cc.operators.operands import not_constant
from codegen_cc.operators.packing import PANEL
from codegen_cc.operators.requantise import is_quantised
from codegen_cc.operators.winograd import POINTS, best_tile, best_tile_beside

#: Outputs from which products in bfloat16 pay, as measured on AMD's Zen 5: columns of a panel that
#: are not there are computed as well, in each group.
_LEAST_OUTPUTS, _LEAST_IN_GROUP = 4, PANEL
#: Those from which windows in bfloat16x3 pay, whose images are taken apart for each tap.
_LEAST_OF_PARTS = 32

#: Outputs of a group up to which ``ext_grouped_conv2d`` is faster than a product for each group, as
#: measured on AMD's Zen 5: of 1 x 1 kernels, and where tiles of 3 columns share their inputs.
_MOST_OF_POINTS, _MOST_SIDE_BY_SIDE = 4, 3 * PANEL

#: Channels of a group, as many outputs as inputs, for which ``ext_qgrouped_conv2d`` is faster than
#: a product for each group; of 32 it takes 1.3 to 1.9 of the time (AMD's Zen 5).
_BYTES_OF_GROUPS = (4, 8, PANEL)

#: Outputs for which ``ext_conv2d_few`` can be the faster one: each is a dot of its window and its
#: filter, while a product computes a panel of them.  The sum over a vector's lanes takes as long as
#: so many multiplications of vectors (AMD's Zen 4).
_MOST_FEW, _SUM_OF_LANES = 12, 10

#: How much longer a multiplication takes there, as operands are loaded for fewer of them.
_COST_OF_DOTS = 1.25

#: Outputs up to which dots are faster than Winograd's algorithm, whose products have panels too.
_FEWER_THAN_WINOGRAD = 4

#: Pixels along an open side to reckon with where a convolution is dilated: DeepLab has 32 or 64 for
#: an image of 512, and a small image is not to take a hundred times as long.
_SMALL_SIDE = 16

#: Dilations from which on direct convolution leaves out taps outside of the image (in its kernel).
_WIDE_DILATION = 4

#: Rate of products in bfloat16 up to which it is faster than those of groups of a panel.
_MOST_RATE_OF_GROUPS = 2.0

#: ``EXT_TILE_ROWS``: the tallest register tile of any level.
TILE_ROWS = 14


class Way(NamedTuple):
    """How ``lower`` computes a convolution that is not depthwise.

    By Winograd's algorithm with a tile, or ``grouped`` in vectors of outputs of all groups, or by
    ``dots`` of windows and filters, else by implicit GEMM, in which register tiles of so many rows
    at most read the image in place and taller ones pack patches of it.
    """

    tile: int = 0
    in_place_rows: int = TILE_ROWS
    grouped: bool = False
    dots: bool = False


def is_point(node: Node) -> bool:
    """Whether the kernel is 1 x 1: nothing is packed but rows of pixels."""
    return tuple(node.operand("weight").shape[2:]) == (1, 1)


def is_column(node: Node) -> bool:
    """Whether images and kernel are one pixel wide; kernels take such a column for a row.

    They go along rows, pixel by pixel, and in memory the two are the same.
    """
    widths = (node.operand("input").shape[3], node.operand("weight").shape[3], node.shape[3])
    return all(same(width, 1) for width in widths) and node.attrs["padding"][1] == 0


def along_row(node: Node) -> tuple[int, int, int]:
    """Kernel, stride and dilation along what kernels take for a row."""
    axis = 0 if is_column(node) else 1
    window = node.operand("weight").shape[2:]
    return window[axis], node.attrs["strides"][axis], node.attrs["dilation"][axis]


def is_depthwise(node: Node) -> bool:
    """Whether every channel is a group of its own."""
    groups = node.attrs["groups"]
    return groups > 1 and groups == node.operand("input").shape[1] == node.shape[1]


def winograd_tile(node: Node) -> int:
    """The tile with which Winograd's algorithm should compute the node, or 0 for not at all.

    Direct convolution is the other choice, as fast as what the node multiplies in, or what its
    values are stored as.
    """
    if not fits_winograd(node):
        return 0
    inputs = node.operand("weight").shape[1]
    images, outputs, height, width = node.shape
    # Of an unknown size it is only known that it may be small.
    most = 8 if is_static([images, height, width]) else 6
    # Pixels that a dilation lies between are images of their own, each of a tile at least.
    down, across = node.attrs["dilation"]
    height, width = _side(height, down), _side(width, across)
    sizes = (
        estimate(images) * down * across,
        -(-height // down),
        -(-width // across),
        *(inputs, outputs, most),
    )
    pixels = estimate(images) * height * width
    if node.compute or node.storage:
        return best_tile_beside(product_rate(node), *sizes, pixels)
    top, left = node.attrs["padding"][:2]
    inside = _taps_inside(height, down, top) * _taps_inside(width, across, left)
    return best_tile(*sizes, pixels * inside)


def _taps_inside(side: int, step: int, padding: int) -> float:
    """The share of 3 taps, ``step`` apart, that lie inside a side where they are read at all.

    Direct convolution reads none of those that a wide dilation has outside of the image; there, the
    side is taken to be as long as the result's.
    """
    if step < _WIDE_DILATION or side == 0:
        return 1.0
    begins = (tap * step - padding for tap in range(3))
    return sum(max(0, min(side, side - b) - max(0, -b)) for b in begins) / (3 * side)


def _side(extent: Dim, step: int) -> int:
    """Pixels along a side to reckon with, where every ``step``-th is of an image of its own."""
    found = estimate(extent)
    return found if step == 1 or isinstance(extent, int) else min(found, _SMALL_SIDE)


def fits_grouped(node: Node) -> bool:
    """Whether ``ext_grouped_conv2d`` can compute the node: vectors hold whole groups or parts."""
    groups, (outputs, inputs) = node.attrs["groups"], node.operand("weight").shape[:2]
    if groups == 1 or not outputs:
        return False
    outputs //= groups
    return outputs % PANEL == 0 or (PANEL % outputs == 0 and inputs <= outputs)


def prefers_grouped(node: Node) -> bool:
    """Whether ``ext_grouped_conv2d`` is faster than a product for each group.

    A product leaves lanes empty where a group has few outputs; where it has many, its tiles are
    wider.  Without tiles for the kernel, each multiplication needs an input of its own.
    """
    outputs = node.operand("weight").shape[0] // node.attrs["groups"]
    if is_point(node):
        return outputs <= _MOST_OF_POINTS
    window, stride, dilation = along_row(node)
    if window != 3 or dilation != 1 or stride > 2:
        return outputs < PANEL
    return outputs <= (_MOST_SIDE_BY_SIDE if stride == 1 else PANEL)


def fits_dots(node: Node) -> bool:
    """Whether ``ext_conv2d_few`` can compute the node, and not much slower than a product."""
    return node.attrs["groups"] == 1 and 0 < node.operand("weight").shape[0] <= _MOST_FEW


def prefers_dots(node: Node) -> bool:
    """Whether ``ext_conv2d_few`` is faster than a product, by vectors that are multiplied."""
    outputs, inputs, *window = node.operand("weight").shape
    if outputs > _FEWER_THAN_WINOGRAD and winograd_tile(node):
        return False
    taps = product(window)
    vectors = -(-inputs * taps // PANEL)
    return outputs * (vectors + _SUM_OF_LANES) * _COST_OF_DOTS < inputs * taps


def shares_bytes(node: Node) -> bool:
    """Whether ``ext_qgrouped_conv2d`` computes a quantised node.

    It does where four inputs are of one group, and a panel has whole groups.  Others are products,
    of groups that are joined.
    """
    groups, (outputs, inputs) = node.attrs["groups"], node.operand("weight").shape[:2]
    return groups > 1 and inputs in _BYTES_OF_GROUPS and outputs == groups * inputs


def rows_in_place(distance: int) -> int:
    """How many rows that begin so many floats apart a register tile can read where they lie.

    At most ``TILE_ROWS``; the rule of ``ext_rows_in_place``: a line of each row has to stay in L1,
    which has 64 sets of 8 lines of 64 bytes.
    """
    lines, rest = divmod(4 * distance, 64)
    return TILE_ROWS if rest else min(TILE_ROWS, 7 * (64 // gcd(64, lines)))


def own_rows(node: Node, pixel: int | None = None) -> int:
    """The own choice of ``Way.in_place_rows``; ``pixel`` is the distance of pixels, else dense."""
    return rows_in_place(along_row(node)[1] * (pixel or node.operand("input").shape[1]))


def fits_winograd(node: Node) -> bool:
    """Whether Winograd's algorithm can compute the node: 3 x 3, stride 1, one group.

    Winograd's transforms add up whole tiles, so that one infinite pixel makes all pixels of the
    tiles that read it NaN: not for an exact node.  A weight is transformed when it is packed.
    """
    attrs = node.attrs
    if node.exact or not node.operand("weight").constant:
        return False
    plain = list(attrs["strides"]) == [1, 1] and attrs["groups"] == 1
    return plain and tuple(node.operand("weight").shape[2:]) == (3, 3)


def ways(node: Node) -> tuple[Way, ...]:
    """All that ``lower`` can do, its own choice first."""
    if is_depthwise(node) or is_quantised(node) or node.compute:
        return (Way(),)
    if fits_grouped(node):
        grouped = (Way(grouped=True),)
        return grouped + products(node) if prefers_grouped(node) else products(node) + grouped
    if fits_dots(node):
        dots = (Way(dots=True),)
        return dots + products(node) if prefers_dots(node) else products(node) + dots
    return products(node)


def products(node: Node) -> tuple[Way, ...]:
    """Those by matrix products, the own choice first."""
    if is_point(node):
        return (Way(),)
    rows = own_rows(node)
    tiles = (winograd_tile(node), 0, *POINTS) if fits_winograd(node) else (0,)
    product = (Way(0, rows), Way(0, TILE_ROWS), Way(0, 0))
    found = (Way(tile, TILE_ROWS) if tile else Way(0, rows) for tile in tiles)
    return tuple(dict.fromkeys((*found, *product)))


def way_of(node: Node) -> Way:
    """The one that ``node.algorithm`` names, else the own choice."""
    known = ways(node)
    return next((way for way in known if algorithm_of(node, way) == node.algorithm), known[0])


def algorithms(node: Node) -> tuple[str, ...]:
    """The names of ``ways``."""
    return tuple(algorithm_of(node, way) for way in ways(node))


def algorithm(node: Node) -> str:
    """The name of what ``lower`` would call."""
    return algorithm_of(node, way_of(node))


def algorithm_of(node: Node, way: Way) -> str:
    """The name of what ``lower_with`` would call."""
    if is_quantised(node):
        if is_depthwise(node):
            return "depthwise, int8"
        return "grouped, int8" if shares_bytes(node) else "GEMM, int8"
    if node.compute:
        return f"{'GEMM' if is_point(node) else 'implicit GEMM'}, {short_name(node)}"
    if is_depthwise(node):
        return "depthwise"
    if way.tile:
        return f"Winograd F({way.tile - 2}, 3)"
    if way.grouped:
        return "grouped"
    if way.dots:
        return "dots"
    if is_point(node):
        return "GEMM"
    if way.in_place_rows == TILE_ROWS:
        return "implicit GEMM"
    beyond = f" in tiles of more than {way.in_place_rows} rows" if way.in_place_rows else ""
    return f"implicit GEMM, packed{beyond}"


def computes(node: Node) -> str | None:
    """None where a convolution gains by being computed in ``node.compute``, else the reason."""
    if reason := no_gain(node):
        return reason
    if is_depthwise(node):
        return "depthwise, which memory limits; float32 is as fast"
    if reason := not_constant(node.operand("weight")):
        return reason
    groups = node.attrs["groups"]
    outputs = node.operand("weight").shape[0] // groups
    least = _LEAST_OUTPUTS if groups == 1 else _LEAST_IN_GROUP
    if in_parts(node):
        least = PANEL if is_point(node) else _LEAST_OF_PARTS
    if outputs < least:
        return f"{outputs} outputs in a group; need {least} for {node.compute}"
    in_vectors = outputs == PANEL and fits_grouped(node) and prefers_grouped(node)
    if in_vectors and product_rate(node) <= _MOST_RATE_OF_GROUPS:
        return f"{outputs} outputs in a group; {node.dtype} in vectors of them is faster"
    if tile := winograd_tile(node):
        return f"Winograd F({tile - 2}, 3) in float32 is faster than {node.compute}"
    return None
