"""Products with weights of few bits beside a plain read of as many bytes, or float32's product.

``python -m benchmarks.block_weight [--threads N] [--only TEXT] [--rounds N] [--rows N ...]
[--bytes]``

One row (a language model that writes one word after the other) waits for its weight, so it is
measured against ``ext_bench_read`` of as many bytes; ``fp32`` is ``ext_matmul_packed``.  Copies of
the weight take turns, several times as many as L3 holds, so that all come from memory.  More rows
are measured against ``ext_matmul_packed`` of the same shape, with the operands of the call before.
With ``--bytes`` data are rounded to bytes, and 8 bits have one scale for each column as well.
All take turns in one process; ratios are of medians.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import abi, harness
from benchmarks.abi import join_pool
from byoc.bench.interleave import thread_environment
from byoc.bench.tables import Sheet
from byoc.errors import BenchmarkError
from byoc.machine import choose_cores, cpu_name
from codegen_cc.operators.packing import pack_block_numbers, pack_fields

#: (K, N) of decoders with 0.5 to 7 billion weights.
SHAPES = ((896, 4864), (4864, 896), (2048, 5632), (4096, 4096), (4096, 11008))
#: Rows of a block; whether zero points are given.
BLOCKS, ZEROS = (32, 64, 128), (False, True)
#: Bytes of the copies of a weight, in times of L3.
_COPIES, _USUAL_L3 = 3, 32 << 20
#: Of a plain read's speed with one row, and of float32's with more.
_TARGET, _TARGET_OF_MANY = 0.85, 0.90
#: Of the sum of the products' sizes.
_TOLERANCE = 1e-5
_ROUNDED = 1e-2

Call = Callable[[], int]


@dataclass(frozen=True)
class Weight:
    """A weight [k, n] of so many bits (32: float32), which ``rows`` rows are multiplied with."""

    bits: int
    k: int
    n: int
    block: int = 0
    zeros: bool = False
    rows: int = 1
    data_bits: int = 0

    @property
    def label(self) -> str:
        """Storage, shape, block."""
        if self.bits == 32:
            return f"fp32 {self.rows} x {self.k} x {self.n}"
        more = " with zero points" if self.zeros else ""
        more += f", data of {self.data_bits} bits" if self.data_bits else ""
        return f"{self.bits} bits {self.rows} x {self.k} x {self.n} by {self.block}{more}"


@dataclass(frozen=True)
class Row:
    """Medians in milliseconds; ``other`` is the plain read, or float32's product."""

    weight: Weight
    mbyte: float
    ours: float
    other: float

    @property
    def share(self) -> float:
        """The speed in times of the other's."""
        return self.other / self.ours


def weights(rows: Sequence[int], data_bits: int = 0) -> Iterator[Weight]:
    """All that is measured."""
    for count in rows:
        for k, n in SHAPES:
            if count == 1:
                yield Weight(32, k, n)
            for bits in (4, 8):
                for block in (*BLOCKS, *([k] if data_bits and bits == 8 else [])):
                    for zeros in ZEROS if count == 1 else ZEROS[:1]:
                        yield Weight(bits, k, n, block, zeros, count, data_bits)


class _Parts:
    """What a weight consists of, one array after the other, each from a line on; and its values."""

    def __init__(self, w: Weight) -> None:
        draw = np.random.default_rng(0)
        if w.bits == 32:
            values = draw.standard_normal((w.k, w.n), np.float32)
            self.arrays = [abi.pack_panels(values)]
            self.columns = values[:, : abi.PANEL].astype(np.float64)
            return
        blocks = -(-w.k // w.block)
        q = draw.integers(0, 1 << w.bits, (w.k, w.n), np.uint8)
        scale = draw.uniform(0.5, 1, (blocks, w.n)).astype(np.float32)
        zero = draw.integers(0, 1 << w.bits, (blocks, w.n), np.uint8)
        if not w.zeros:
            zero[...] = 1 << (w.bits - 1)
        self.arrays = [pack_fields(q, w.bits), pack_block_numbers(scale)]
        self.arrays += [pack_block_numbers(zero)] * w.zeros
        block, few = np.arange(w.k) // w.block, slice(abi.PANEL)
        self.columns = (q[:, few] - zero[block, few].astype(np.float64)) * scale[block, few]

    def copies(self, count: int) -> tuple[np.ndarray, list[list[int]], int]:
        """Memory with copies, the addresses of each one's arrays, and the bytes of one."""
        places, nbytes = [], 0
        for array in self.arrays:
            places.append(nbytes)
            nbytes += -(-array.nbytes // 64) * 64
        memory = abi.aligned((count * nbytes // 4,)).view(np.uint8)
        for copy in memory.reshape(count, nbytes):
            for place, array in zip(places, self.arrays, strict=True):
                copy[place : place + array.nbytes] = array.reshape(-1).view(np.uint8)
        first = memory.ctypes.data
        addresses = [[first + i * nbytes + place for place in places] for i in range(count)]
        return memory, addresses, nbytes


def _l3() -> int:
    """Bytes of L3, or what many CPUs have where the system does not tell."""
    with suppress(OSError, ValueError):
        text = Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text(encoding="ascii")
        return int(text.strip().removesuffix("K")) << 10
    return _USUAL_L3


def _product(
    lib: ctypes.CDLL, w: Weight, places: Sequence[int], a: np.ndarray, y: np.ndarray
) -> Call:
    p = abi.MatmulParams(m=w.rows, n=w.n, k=w.k, a_row=w.k, a_col=1, y_row=w.n)
    head, tail = ctypes.byref(p), (ctypes.byref(abi.Epilogue()), y.ctypes.data)
    if w.bits == 32:
        return partial(lib.ext_matmul_packed, head, a.ctypes.data, places[0], *tail)
    struct = abi.BlockWeight(
        bits=w.bits, block=w.block, values=places[0], scale=places[1], data_bits=w.data_bits
    )
    if w.zeros:
        struct.zero, struct.zero_dtype = places[2], abi.DTYPE.index("uint8")
    return partial(lib.ext_matmul_block, head, ctypes.byref(struct), a.ctypes.data, *tail)


def measure_weight(lib: ctypes.CDLL, w: Weight, rounds: int) -> Row:
    """Time one product beside what it is measured against. Raises ``BenchmarkError``."""
    parts = _Parts(w)
    cold = w.rows == 1
    once = sum(array.nbytes for array in parts.arrays)
    memory, places, nbytes = parts.copies(max(2, -(-_COPIES * _l3() // once)) if cold else 1)
    a = abi.aligned((w.rows, w.k))
    a[...] = np.random.default_rng(1).standard_normal(a.shape, np.float32)
    y, other_y = abi.aligned((w.rows, w.n)), abi.aligned((w.rows, w.n))
    ours = [_product(lib, w, place, a, y) for place in places]
    if cold:
        starts = [place[0] for place in places]
        others: list[Call] = [partial(lib.ext_bench_read, nbytes, start) for start in starts]
    else:
        plain = abi.pack_panels(np.random.default_rng(0).standard_normal((w.k, w.n), np.float32))
        fp32 = Weight(32, w.k, w.n, rows=w.rows)
        others = [_product(lib, fp32, [plain.ctypes.data], a, other_y)]
    if ours[0]():
        raise BenchmarkError(f"{w.label}: the kernel refuses")
    few = a.astype(np.float64)
    worst = np.abs(y[:, : abi.PANEL] - few @ parts.columns)
    tolerance = _ROUNDED if w.data_bits else _TOLERANCE
    if not (worst <= tolerance * (np.abs(few) @ np.abs(parts.columns))).all():
        raise BenchmarkError(f"{w.label}: wrong by {worst.max()}")
    times = _race(ours, others, rounds)
    del memory, other_y  # until here, calls have their addresses
    return Row(w, once * 1e-6, *(1e3 * float(np.median(found)) for found in times))


def _race(ours: Sequence[Call], others: Sequence[Call], rounds: int) -> tuple[list[float], ...]:
    """Seconds of each; in a turn the two are given copies that lie far apart."""
    times: tuple[list[float], list[float]] = ([], [])
    count = len(ours)
    far = count // 2
    for turn in range(rounds * count):
        pair = (ours[turn % count], others[(turn + far) % len(others)])
        for which in (turn % 2, 1 - turn % 2):
            start = time.perf_counter()
            pair[which]()
            times[which].append(time.perf_counter() - start)
    return times


def measure(wanted: Sequence[Weight], rounds: int, threads: int) -> list[Row]:
    """Time products in this process, which is bound to so many cores from now on."""
    os.sched_setaffinity(0, choose_cores(threads))
    if threads > 1:
        join_pool(threads)
    lib = abi.load()
    return [measure_weight(lib, weight, rounds) for weight in wanted]


def _target(row: Row) -> float:
    return _TARGET if row.weight.rows == 1 else _TARGET_OF_MANY


def checks(rows: Sequence[Row]) -> list[str]:
    """What misses its target, a line each, or that all reach it."""
    missing = [row for row in rows if row.share < _target(row)]
    lines = [f"{r.weight.label}: {r.share:.2f} MISSES {_target(r):.2f}" for r in missing]
    return lines or ["all reach their targets"]


def sheet(rows: Sequence[Row], threads: int) -> Sheet:
    """Every product, with its share."""
    shown = [
        [r.weight.label, f"{r.mbyte:.1f}", f"{r.ours:.3f}", f"{r.other:.3f}",
         f"{r.mbyte / r.ours:.1f}", f"{r.share:.2f}"]
        for r in rows
    ]  # fmt: skip
    headings = ("m x K x N", "MB", "ours ms", "read or fp32 ms", "GB/s", "share")
    return Sheet(f"weights of few bits, threads: {threads}", headings, shown, left=1)


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, print. 1 where a target is missed, 2 for errors."""
    parser = harness.parser("block_weight", __doc__, markdown=True, threads=1, only="", rounds=5)
    parser.add_argument("--rows", type=int, nargs="+", default=[1], metavar="N", help="rows of A")
    parser.add_argument("--bytes", action="store_true", help="round data to bytes")
    options = parser.parse_args(arguments)
    raw = harness.call_apart(
        "benchmarks.block_weight", options.only, options.rounds, options.threads, options.rows,
        8 if options.bytes else 0,
        more=thread_environment(options.threads),
    )  # fmt: skip
    rows = [Row(**{**row, "weight": Weight(**row["weight"])}) for row in raw["rows"]]
    if options.json:
        harness.show_json({"cpu": cpu_name(), "rows": raw["rows"], "checks": checks(rows)})
    else:
        about = [f"{cpu_name()}, {raw['isas']}", harness.versions(f"kernel ABI {abi.ABI_VERSION}")]
        harness.show_sheets([about, sheet(rows, options.threads)], checks(rows), options.markdown)
    return int(harness.misses(checks(rows)))


def child(
    only: str, rounds: int, threads: int, rows: Sequence[int], data_bits: int
) -> dict[str, object]:
    """The run as plain values."""
    from codegen_cc.instruction_sets import names_in

    wanted = [weight for weight in weights(rows, data_bits) if only in weight.label]
    if not wanted:
        raise BenchmarkError(f"no product has {only!r} in its row")
    found = [asdict(row) for row in measure(wanted, rounds, threads)]
    return {"isas": " + ".join(names_in(abi.load().ext_isas())), "rows": found}


if __name__ == "__main__":
    sys.exit(main())
