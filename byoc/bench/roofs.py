"""The roofs of this CPU, measured: how fast so many threads multiply, and how fast they read."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from codegen_cc.dtypes import SINGLE
from codegen_cc.instruction_sets import kernels_here

#: Of the kernels' library, by the precision: what measures one core's peak, and how many of its
#: products stand for one. Products in fp32 go by three parts of bf16 where six of these are faster.
_PEAKS = {
    "fp32": (("ext_bench_fma_peak", 1), ("ext_bench_bf16_peak", 6)),
    "bf16": (("ext_bench_bf16_peak", 1),),
    "bf16x3": (("ext_bench_bf16_peak", 3),),
    "int8": (("ext_bench_int8_peak", 1),),
}
#: The precisions of dtypes that are multiplied in; others have no roof.
_PRECISIONS = {SINGLE: "fp32", "bfloat16": "bf16", "int8": "int8", "uint8": "int8"}

_SHORT_RUNS = 40  # of a millisecond each
_READS = 5
#: Bytes that are read: more than any cache would keep.
_LEAST, _MOST = 64 << 20, 512 << 20
_TIMES_L3 = 4


class _Caches(ctypes.Structure):
    _fields_ = (("l2", ctypes.c_int64), ("l3", ctypes.c_int64))


@dataclass(frozen=True)
class Roofs:
    """What ``threads`` threads reach: GFLOP/s by precision, and GB/s of reading memory."""

    threads: int
    gflops: Mapping[str, float]
    gbytes: float

    def at(self, precision: str, intensity: float) -> float | None:
        """The most GFLOP/s at so many operations for each byte; None where no peak is known."""
        peak = self.gflops.get(precision)
        return None if peak is None else min(peak, self.gbytes * intensity)


def precision_of(compute: str, function: str) -> str:
    """The precision of a call that multiplies in this dtype; empty for one without a roof."""
    precision = _PRECISIONS.get(compute, "")
    return "bf16x3" if precision == "bf16" and function.endswith("_bf16x3") else precision


def measure_roofs(threads: int, precisions: Iterable[str]) -> Roofs:
    """Measure for a quarter of a second; the calling thread's pool has ``threads`` workers.

    Peaks are sums over threads that multiply at the same time, of each one's best run; the read is
    the best of several of more memory than the caches hold.
    """
    found = {
        name: max(_peak(threads, *unit) for unit in _PEAKS[name])
        for name in dict.fromkeys(precisions)
    }
    return Roofs(threads, found, _read_gbytes())


def _peak(threads: int, symbol: str, products: int) -> float:
    function = getattr(kernels_here(), symbol)
    function.restype = ctypes.c_double
    best = [0.0] * threads

    def run(index: int) -> None:
        best[index] = max(function() for _ in range(_SHORT_RUNS))

    workers = [threading.Thread(target=run, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(best) / products


def _read_gbytes() -> float:
    library = kernels_here()
    library.ext_bench_read.argtypes = (ctypes.c_int64, ctypes.c_void_p)
    library.ext_cache_sizes.restype = ctypes.POINTER(_Caches)
    size = min(_MOST, max(_LEAST, _TIMES_L3 * library.ext_cache_sizes().contents.l3))
    memory = np.ones(size + 64, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % 64
    best = float("inf")
    for _ in range(_READS):
        begin = time.perf_counter()
        library.ext_bench_read(size, start)
        best = min(best, time.perf_counter() - begin)
    return 1e-9 * size / best
