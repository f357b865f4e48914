"""What limits a decoder: a plain read of memory, and its products alone, as engines of a race."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

from benchmarks import abi
from byoc.bench.decoders import Arrays, Decoder


class PlainRead:
    """Reads as many bytes as a step does."""

    def __init__(
        self, path: Path, decoder: Decoder, threads: int, capacity: int, nbytes: int
    ) -> None:
        del path, capacity
        if threads > 1:
            abi.join_pool(threads)
        self._row, self._weights, self._bytes = decoder.row_bytes, nbytes, nbytes
        self._read, self._memory = abi.load().ext_bench_read, abi.aligned((1 << 26,))
        self._memory[...] = 1.0

    def restore(self, inputs: Arrays) -> None:
        """Note how long the cache is."""
        self._bytes = self._weights + self._row * inputs["input_ids"].shape[1]

    def call(self, inputs: Arrays) -> None:
        """Read once: memory that is read again is long out of the caches."""
        del inputs
        left, most = self._bytes, self._memory.nbytes
        while left > 0:
            part = min(left, most) // 64 * 64 or 64
            self._read(ctypes.c_int64(part), ctypes.c_void_p(self._memory.ctypes.data))
            left -= part


class PlainProducts:
    """The products of a prompt alone: ``layers`` times those of a layer, and the last one.

    With ``attention`` those of queries, keys and values are among them, of all tokens by all.
    """

    def __init__(
        self,
        path: Path,
        decoder: Decoder,
        threads: int,
        capacity: int,
        layers: int,
        length: int,
        attention: bool = False,
    ) -> None:
        del decoder, capacity
        from byoc.deploy.loader import load

        self._layers, self._runs = layers, []
        for part in ("last", "layer", *(("attention",) if attention else ())):
            model = load(path / f"{part}.so", threads)
            draw = np.random.default_rng(0)
            arrays = {}
            for info in model.inputs:
                shape = [extent if isinstance(extent, int) else length for extent in info.shape]
                arrays[info.name] = draw.standard_normal(shape, np.float32)
            tensors = model.tensors(arrays)
            self._runs.append(lambda model=model, tensors=tensors: model.invoke(tensors))

    def restore(self, inputs: Arrays) -> None:
        """Nothing is kept."""

    def call(self, inputs: Arrays) -> None:
        """All products once."""
        del inputs
        last, *layer = self._runs
        for _ in range(self._layers):
            for run in layer:
                run()
        last()
