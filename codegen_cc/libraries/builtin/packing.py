"""Packed weights: constants in the formats that the kernels of ``ext_kernels.h`` read.

Packing happens when a model is compiled.
"""

from __future__ import annotations

import numpy as np

PANEL = 16


def pad_channels(vector: np.ndarray) -> np.ndarray:
    """Pad a [C] vector with zeros to a multiple of the panel width."""
    flat = np.ascontiguousarray(vector, dtype=np.float32).reshape(-1)
    return np.pad(flat, (0, -flat.size % PANEL))


def pack_panels(matrix: np.ndarray) -> np.ndarray:
    """Pack B[K, N] into panels [ceil(N / 16), K, 16]; columns past N are zero."""
    return pack_matrices(matrix[None])[0]


def pack_matrices(matrices: np.ndarray) -> np.ndarray:
    """Pack each B[K, N] of [count, K, N], any strides, into panels [count, ceil(N / 16), K, 16]."""
    count, k, n = matrices.shape
    panels = np.empty((count, -(-n // PANEL), k, PANEL), dtype=np.float32)
    whole = n // PANEL
    for packed, matrix in zip(panels, matrices, strict=True):
        columns = matrix[:, : whole * PANEL].reshape(k, whole, PANEL)
        packed[:whole] = columns.transpose(1, 0, 2)
        if whole < packed.shape[0]:
            packed[whole, :, : n % PANEL] = matrix[:, whole * PANEL :]
            packed[whole, :, n % PANEL :] = 0
    return panels


def pack_conv2d(weight: np.ndarray, groups: int) -> np.ndarray:
    """Pack OIHW weights [O, I/groups, KH, KW] into panels per group, K in (kh, kw, i) order."""
    outputs = weight.shape[0] // groups
    parts = weight.reshape(groups, outputs, *weight.shape[1:]).transpose(0, 3, 4, 2, 1)
    return pack_matrices(parts.reshape(groups, -1, outputs))


def pack_conv2d_transpose(weight: np.ndarray, groups: int) -> np.ndarray:
    """Pack IOHW weights [I, O/groups, KH, KW] into panels per group: K is I, N is (kh, kw, o)."""
    matrices = weight.transpose(0, 2, 3, 1).reshape(groups, weight.shape[0] // groups, -1)
    return pack_matrices(matrices)


def pack_conv3d(weight: np.ndarray, groups: int) -> np.ndarray:
    """Pack OIDHW weights [O, I/groups, KD, KH, KW] into panels per group, K is (kd, kh, kw, i)."""
    outputs = weight.shape[0] // groups
    parts = weight.reshape(groups, outputs, *weight.shape[1:]).transpose(0, 3, 4, 5, 2, 1)
    return pack_matrices(parts.reshape(groups, -1, outputs))


def pack_depthwise(weight: np.ndarray) -> np.ndarray:
    """Pack [C, 1, KH, KW] weights into [KH, KW, C padded to the panel width]."""
    channels = weight.shape[0]
    spread = weight[:, 0].transpose(1, 2, 0)
    padding = ((0, 0), (0, 0), (0, -channels % PANEL))
    return np.ascontiguousarray(np.pad(spread, padding), dtype=np.float32)
