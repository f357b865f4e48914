"""Packed weights: constants in the formats that the kernels of ``ext_kernels.h`` read.

Packing happens when a model is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_cc import dtypes

PANEL = 16


@dataclass(frozen=True)
class PanelFormat:
    """How the constant side B[K, N] of a product lies: [ceil(N / 16)][ceil(K / group)][16][group].

    ``group`` is how many neighbours in K an instruction multiplies and sums at once.  What lies
    past N and past K is zero.
    """

    dtype: str
    group: int

    def pack(self, matrices: np.ndarray) -> np.ndarray:
        """Pack each B of [count, K, N], any strides; groups of one have no axis of their own."""
        count, k, n = matrices.shape
        group, whole, past = self.group, n // PANEL, n % PANEL
        rows = -(-k // group)
        shape = (count, -(-n // PANEL), rows, PANEL, group)
        panels = np.empty(shape, dtypes.of(self.dtype).numpy)
        for packed, matrix in zip(panels, matrices, strict=True):
            full = matrix if k % group == 0 else np.pad(matrix, ((0, rows * group - k), (0, 0)))
            columns = full[:, : whole * PANEL].reshape(rows, group, whole, PANEL)
            packed[:whole] = columns.transpose(2, 0, 3, 1)
            if past:
                last = full[:, whole * PANEL :].reshape(rows, group, past)
                packed[whole, :, :past] = last.transpose(0, 2, 1)
                packed[whole, :, past:] = 0
        return panels.reshape(shape[:-1]) if group == 1 else panels


#: What the kernels for float32 read: one product at a time.
FLOAT32_PANELS = PanelFormat("float32", 1)


def pack_fields(matrix: np.ndarray, bits: int) -> np.ndarray:
    """Pack [K, N] of unsigned integers of so many bits, stored as uint8, for ``ext_block_weight``.

    Gives uint32 [ceil(N / 16)][ceil(K / rows)][16], where a word holds 32 / bits rows of a column:
    each row in a byte, the upper half of which has a row of the second half.
    """
    k, n = matrix.shape
    rows, panels = 32 // bits, -(-n // PANEL)
    words = -(-k // rows)
    packed = np.zeros((words, panels * PANEL), np.uint32)
    for row in range(rows):
        part = matrix[row::rows]
        place = 8 * (row % 4) + 4 * (row // 4)
        packed[: len(part), :n] |= part.astype(np.uint32) << np.uint32(place)
    return np.ascontiguousarray(packed.reshape(words, panels, PANEL).transpose(1, 0, 2))


def pack_block_numbers(numbers: np.ndarray) -> np.ndarray:
    """Pack the scales or zero points [blocks, N] of a weight: [ceil(N / 16)][blocks][16]."""
    blocks, n = numbers.shape
    padded = np.pad(numbers, ((0, 0), (0, -n % PANEL)))
    return np.ascontiguousarray(padded.reshape(blocks, -(-n // PANEL), PANEL).transpose(1, 0, 2))


def pad_channels(vector: np.ndarray) -> np.ndarray:
    """Pad a [C] vector with zeros to a multiple of the panel width."""
    flat = np.ascontiguousarray(vector).reshape(-1)
    return np.pad(flat, (0, -flat.size % PANEL))


def pack_conv2d(
    weight: np.ndarray, groups: int, format: PanelFormat, whole_taps: bool = False
) -> np.ndarray:
    """Pack OIHW weights [O, I/groups, KH, KW] into panels per group, K in (kh, kw, i) order.

    With ``whole_taps`` each tap has i padded with zeros to a multiple of the format's group.
    """
    outputs = weight.shape[0] // groups
    if whole_taps and (past := -weight.shape[1] % format.group):
        weight = np.pad(weight, ((0, 0), (0, past), (0, 0), (0, 0)))
    parts = weight.reshape(groups, outputs, *weight.shape[1:]).transpose(0, 3, 4, 2, 1)
    return format.pack(parts.reshape(groups, -1, outputs))


def join_groups(weight: np.ndarray, groups: int) -> tuple[np.ndarray, int]:
    """Make groups of small ones: OIHW weights, zero between what was apart, and how many groups.

    As many as divide ``groups`` and have ``PANEL`` outputs together at most.  A panel has that many
    columns anyhow.
    """
    outputs, inputs = weight.shape[0] // groups, weight.shape[1]
    many = together(outputs, groups)
    joined = np.zeros((groups // many, many, outputs, many, *weight.shape[1:]), weight.dtype)
    apart = weight.reshape(groups // many, many, outputs, *weight.shape[1:])
    for i in range(many):
        joined[:, i, :, i] = apart[:, i]
    shape = (weight.shape[0], many * inputs, *weight.shape[2:])
    return joined.reshape(shape), groups // many


def together(outputs: int, groups: int) -> int:
    """How many groups of so many outputs ``join_groups`` makes one."""
    fit = range(1, min(groups, PANEL // max(1, outputs)) + 1)
    return max((count for count in fit if groups % count == 0), default=1)


def pack_grouped(weight: np.ndarray, format: PanelFormat) -> np.ndarray:
    """Pack OIHW weights [O, I/groups, KH, KW] into panels of all groups' outputs side by side."""
    return format.pack(weight.transpose(2, 3, 1, 0).reshape(1, -1, weight.shape[0]))


def pack_conv2d_transpose(weight: np.ndarray, groups: int, format: PanelFormat) -> np.ndarray:
    """Pack IOHW weights [I, O/groups, KH, KW] into panels per group: K is I, N is (kh, kw, o)."""
    matrices = weight.transpose(0, 2, 3, 1).reshape(groups, weight.shape[0] // groups, -1)
    return format.pack(matrices)


def pack_conv3d(weight: np.ndarray, groups: int, format: PanelFormat) -> np.ndarray:
    """Pack OIDHW weights [O, I/groups, KD, KH, KW] into panels per group, K is (kd, kh, kw, i)."""
    outputs = weight.shape[0] // groups
    parts = weight.reshape(groups, outputs, *weight.shape[1:]).transpose(0, 3, 4, 5, 2, 1)
    return format.pack(parts.reshape(groups, -1, outputs))


def pack_depthwise(weight: np.ndarray) -> np.ndarray:
    """Pack [C, 1, (KD,) KH, KW] weights into [(KD,) KH, KW, C padded to the panel width]."""
    taps = np.moveaxis(weight[:, 0], 0, -1)
    padding = [(0, 0)] * (taps.ndim - 1) + [(0, -taps.shape[-1] % PANEL)]
    return np.ascontiguousarray(np.pad(taps, padding))
