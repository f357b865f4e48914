"""Packed weights: constants in the kernels' own formats, stored once.

The formats are those of ``runtime/include/ext_kernels.h``.  Packing happens here, at compile time;
equal contents are stored once, at 64-byte boundaries of one blob that the assembler includes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PANEL = 16
ALIGNMENT = 64


def pad_channels(vector: np.ndarray) -> np.ndarray:
    """Pad a [C] vector with zeros to a multiple of the panel width."""
    flat = np.ascontiguousarray(vector, dtype=np.float32).reshape(-1)
    return np.pad(flat, (0, -flat.size % PANEL))


def pack_panels(matrix: np.ndarray) -> np.ndarray:
    """Pack B[K, N] into panels [ceil(N / 16), K, 16]; columns past N are zero."""
    k, n = matrix.shape
    padded = np.zeros((k, n + -n % PANEL), dtype=np.float32)
    padded[:, :n] = matrix
    return np.ascontiguousarray(padded.reshape(k, -1, PANEL).transpose(1, 0, 2))


def pack_conv2d(weight: np.ndarray, groups: int) -> np.ndarray:
    """Pack OIHW weights [O, I/groups, KH, KW] into panels per group, K in (kh, kw, i) order."""
    out_per_group = weight.shape[0] // groups
    packed = []
    for group in range(groups):
        part = weight[group * out_per_group : (group + 1) * out_per_group]
        packed.append(pack_panels(part.transpose(2, 3, 1, 0).reshape(-1, out_per_group)))
    return np.stack(packed)


def pack_conv2d_transpose(weight: np.ndarray, groups: int) -> np.ndarray:
    """Pack IOHW weights [I, O/groups, KH, KW] into panels per group: K is I, N is (kh, kw, o)."""
    matrices = weight.transpose(0, 2, 3, 1).reshape(groups, weight.shape[0] // groups, -1)
    return np.stack([pack_panels(matrix) for matrix in matrices])


def pack_conv3d(weight: np.ndarray, groups: int) -> np.ndarray:
    """Pack OIDHW weights [O, I/groups, KD, KH, KW] into panels per group, K is (kd, kh, kw, i)."""
    outputs = weight.shape[0] // groups
    parts = weight.reshape(groups, outputs, *weight.shape[1:]).transpose(0, 3, 4, 5, 2, 1)
    return np.stack([pack_panels(part) for part in parts.reshape(groups, -1, outputs)])


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
    """Collects packed constants; equal contents get one symbol."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.weights: list[Weight] = []
        self.nbytes = 0
        self._arrays: list[np.ndarray] = []
        self._known: dict[bytes, Weight] = {}

    def add(self, array: np.ndarray) -> Weight:
        """Store an array in C order, or find the equal one that is stored already."""
        array = np.ascontiguousarray(array)
        digest = hashlib.blake2b(
            array.reshape(-1).view(np.uint8).data if array.size else b"",
            digest_size=16,
            person=array.dtype.str.encode(),
        ).digest()
        if digest not in self._known:
            weight = Weight(f"{self.prefix}_w{len(self.weights)}", self.nbytes, array.nbytes)
            self.weights.append(weight)
            self._arrays.append(array)
            self._known[digest] = weight
            self.nbytes += -(-max(array.nbytes, 1) // ALIGNMENT) * ALIGNMENT
        return self._known[digest]

    def write(self, blob: Path) -> None:
        """Write the blob that ``assembly`` includes."""
        with blob.open("wb") as file:
            for weight, array in zip(self.weights, self._arrays, strict=True):
                file.seek(weight.offset)
                file.write(array.reshape(-1).view(np.uint8).data if array.size else b"")
            file.truncate(self.nbytes)

    def assembly(self, blob: str) -> str:
        """Assembler text that places the blob, a file name without quotes, in read-only data."""
        lines = [
            "/* Packed weights of the regions; every symbol is 64-byte aligned. */",
            '  .section .rodata.ext_weights,"a",%progbits',
            f"  .balign {ALIGNMENT}",
            f"{self.prefix}_weights:",
            f'  .incbin "{blob}"',
        ]
        for weight in self.weights:
            lines.append(f"  .globl {weight.symbol}")
            lines.append(f"  .hidden {weight.symbol}")
            lines.append(f"  .set {weight.symbol}, {self.prefix}_weights + {weight.offset}")
        # Without this section the linker would mark the whole library executable-stack.
        lines.append('  .section .note.GNU-stack,"",%progbits')
        return "\n".join(lines) + "\n"
