"""Packed weights: constants in the kernels' own formats, stored once.

The formats are those of ``runtime/include/ext_kernels.h``.  Packing happens here, at compile time;
equal contents are stored once, at 64-byte boundaries of one section of an object file.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from codegen_cc.link.embedded_text import WEIGHTS_SECTION
from codegen_cc.link.object_file import ALIGNMENT, ObjectFile

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


@dataclass(frozen=True)
class Weight:
    """One stored constant: its C symbol, and where it lies in the blob (bytes)."""

    symbol: str
    offset: int
    nbytes: int


class WeightBlob:
    """Packed constants, each written to an object file as it comes; equal contents get one symbol.

    Nothing is kept in memory.  Without ``path`` nothing is written either: for plans alone.
    """

    def __init__(self, prefix: str, path: Path | None = None) -> None:
        self.prefix = prefix
        self.weights: list[Weight] = []
        self.nbytes = 0
        self._object = ObjectFile(path) if path is not None else None
        self._known: dict[bytes, Weight] = {}

    def add(self, array: np.ndarray) -> Weight:
        """Store an array in C order, or find the equal one that is stored already."""
        array = np.ascontiguousarray(array)
        content = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
        # SHA-256 because CPUs have instructions for it: twice as fast as BLAKE2.
        digest = hashlib.sha256(array.dtype.str.encode())
        digest.update(content)
        key = digest.digest()
        if key not in self._known:
            weight = Weight(f"{self.prefix}_w{len(self.weights)}", self.nbytes, array.nbytes)
            if self._object is not None:
                self._object.write(weight.offset, content)
            self.weights.append(weight)
            self._known[key] = weight
            self.nbytes += -(-max(array.nbytes, 1) // ALIGNMENT) * ALIGNMENT
        return self._known[key]

    def finish(self, like: Path) -> Path | None:
        """Complete the object file for the machine that the object ``like`` is for.

        Its symbols are hidden: they stay inside the library that it is linked into. None, and no
        file, where there are no weights.
        """
        if self._object is None or not self.weights:
            return None
        symbols = [(weight.symbol, weight.offset, weight.nbytes) for weight in self.weights]
        return self._object.finish(WEIGHTS_SECTION, self.nbytes, symbols, like)
