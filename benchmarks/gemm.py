"""Matrix products beside a BLAS and beside the multiply-add peak of the same run.

``python -m benchmarks.gemm [--threads 1 2] [--only TEXT] [--rounds N] [--json | --markdown]``

All take turns in one process, bound to as many cores as there are threads.  *packed* has B in the
kernels' panels already, as constants are; *plain* packs it in the call.  The operands of a call are
those of the call before: what fits is in the caches.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import abi, harness
from benchmarks.abi import join_pool
from benchmarks.gemm_shapes import CUBES, SHAPES, Product
from byoc.bench.machine import measure_peak
from byoc.bench.tables import Sheet, in_words
from byoc.errors import BenchmarkError
from byoc.machine import choose_cores, cpu_name
from codegen_cc.libraries.blas import Blas, find_blas

_SOURCE = Path(__file__).with_name("gemm.c")
_BURST = 2e-3  # seconds of calls between two looks at the clock
_MOST = 6.0  # seconds of all bursts of a product; slow ones make fewer, but five
_REST = 0.03  # seconds in which waiting threads of the other library fall asleep
_TOLERANCE = 1e-5  # of the greatest sum of absolute products
#: Share of the peak that cubes should reach, by threads.
_TARGETS = {1: 0.95, 2: 0.90}

Burst = Callable[[int], float]


class _Sizes(ctypes.Structure):
    """``product`` of gemm.c."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("batch", "m", "n", "k", "transposed")),
        ("step_b", ctypes.c_long),
    ]


@dataclass(frozen=True)
class Times:
    """Milliseconds of a call: the means of short bursts of calls."""

    min_ms: float
    p50_ms: float
    p90_ms: float


@dataclass(frozen=True)
class Row:
    """One product: ours with B packed, ours with B plain, and the BLAS."""

    product: Product
    packed: Times
    plain: Times
    blas: Times

    @property
    def ratio(self) -> float:
        """Ours, packed, in times of the BLAS; of the fastest bursts."""
        return self.packed.min_ms / self.blas.min_ms

    @property
    def plain_ratio(self) -> float:
        """Ours with B packed in the call, in times of the BLAS."""
        return self.plain.min_ms / self.blas.min_ms

    @property
    def gflops(self) -> float:
        """Ours, packed."""
        return 1e3 * self.product.gflop / self.packed.min_ms


@dataclass(frozen=True)
class Run:
    """All products with one number of threads; ``peak`` is GFLOP/s of one core."""

    threads: int
    isa: str
    peak: float
    blas: str
    rows: list[Row]


class _Contest:
    """The three contestants on one product."""

    def __init__(self, clock: ctypes.CDLL, kernels: ctypes.CDLL, blas: ctypes.CDLL) -> None:
        self._clock, self._kernels, self._blas = clock, kernels, blas
        for name in ("matmul", "sgemm", "sgemm_batch", "sgemv"):
            getattr(clock, f"byoc_time_{name}").restype = ctypes.c_double

    def bursts(self, product: Product, prefix: str) -> dict[str, list[Burst]]:
        """Functions that make so many calls and return their seconds, by contestant.

        Of the BLAS there may be several ways, of which the fastest counts. All are run once and
        their answers compared.
        """
        a, b, wanted, limit = _operands(product)
        results = {name: abi.aligned(wanted.shape) for name in ("packed", "plain", "blas")}
        panels = _panels(b, product)
        p = _params(product, b_batch=product.k * product.n, transposed=product.transposed)
        with_panels = _params(product, b_batch=panels[0].size, transposed=False)
        found = {
            "packed": [self._ours("ext_matmul_packed", with_panels, a, panels, results["packed"])],
            "plain": [self._ours("ext_matmul", p, a, b, results["plain"])],
            "blas": self._ways(product, prefix, a, b, results["blas"]),
        }
        for name, ways in found.items():
            for way in ways:
                results[name].fill(np.nan)
                seconds = way(1)
                worst = np.abs(results[name] - wanted).max()
                if seconds < 0 or not worst <= _TOLERANCE * limit:
                    raise BenchmarkError(f"{name} on {product.label}: wrong by {worst}")
        return found

    def _ours(self, function: str, params: abi.MatmulParams, *arrays: np.ndarray) -> Burst:
        a, b, y = arrays
        e = abi.Epilogue()
        address = ctypes.cast(getattr(self._kernels, function), ctypes.c_void_p)
        head = (address, ctypes.byref(params), _pointer(a), _pointer(b))

        def burst(calls: int, _keep: object = (params, arrays)) -> float:
            tail = (ctypes.byref(e), _pointer(y), ctypes.c_long(calls))
            return self._clock.byoc_time_matmul(*head, *tail)

        return burst

    def _ways(self, product: Product, prefix: str, *arrays: np.ndarray) -> list[Burst]:
        names = {"sgemm": "cblas_sgemm"}
        if product.batch > 1:
            names["sgemm_batch"] = "cblas_sgemm_batch_strided"
        elif 1 in (product.m, product.n):
            names["sgemv"] = "cblas_sgemv"
        sizes = _Sizes(
            *(product.batch, product.m, product.n, product.k),
            *(product.transposed, product.k * product.n),
        )
        ways = []
        for clock, name in names.items():
            function = getattr(self._blas, prefix + name, None)
            if function is None:
                continue
            timer = getattr(self._clock, f"byoc_time_{clock}")
            address = ctypes.cast(function, ctypes.c_void_p)

            def burst(
                calls: int,
                timer: Any = timer,
                address: ctypes.c_void_p = address,
                _keep: object = arrays,
            ) -> float:
                pointers = map(_pointer, arrays)
                return timer(address, ctypes.byref(sizes), *pointers, ctypes.c_long(calls))

            ways.append(burst)
        return ways


def _operands(product: Product) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """A, B as they are stored, the product, and the greatest sum of absolute products."""
    draw = np.random.default_rng(0)
    batch, m, n, k = product.batch, product.m, product.n, product.k
    stored = (n, k) if product.transposed else (k, n)
    a, b = abi.aligned((batch, m, k)), abi.aligned((batch, *stored))
    for array in (a, b):
        array[...] = draw.standard_normal(array.shape, np.float32)
    right = b.transpose(0, 2, 1) if product.transposed else b
    wanted = (a.astype(np.float64) @ right).astype(np.float32)
    return a, b, wanted, float((np.abs(a) @ np.abs(right)).max())


def _panels(b: np.ndarray, product: Product) -> np.ndarray:
    right = b.transpose(0, 2, 1) if product.transposed else b
    items = [abi.pack_panels(matrix) for matrix in right]
    packed = abi.aligned((len(items), *items[0].shape))
    packed[...] = items
    return packed


def _params(product: Product, b_batch: int, transposed: bool) -> abi.MatmulParams:
    m, n, k = product.m, product.n, product.k
    b_row, b_col = (1, k) if transposed else (n, 1)
    p = abi.MatmulParams(m=m, n=n, k=k, a_row=k, a_col=1, b_row=b_row, b_col=b_col, y_row=n)
    if product.batch > 1:
        p.batch_ndim, p.batch[0] = 1, product.batch
        p.a_batch[0], p.b_batch[0], p.y_batch[0] = m * k, b_batch, m * n
    return p


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


# ---------------------------------------------------------------------- measuring


def measure(threads: int, products: Sequence[Product] = (*CUBES, *SHAPES), rounds: int = 25) -> Run:
    """Time products in this process, which is bound to so many cores from now on.

    Raises ``ByocError``.
    """
    os.sched_setaffinity(0, choose_cores(threads))
    os.environ["TVM_BIND_THREADS"] = "0"
    found = find_blas()
    blas = _open_blas(found, threads)
    if threads > 1:
        join_pool(threads)  # before the kernels, which look for it when they are loaded
    kernels = abi.load()
    with tempfile.TemporaryDirectory(prefix="byoc_") as folder:
        clock = harness.build_c(_SOURCE, Path(folder, "gemm.so"), "-shared")
        contest = _Contest(ctypes.CDLL(str(clock)), kernels, blas)
        peak, rows = measure_peak(kernels, 100), []
        for product in products:
            rows.append(_race(product, contest.bursts(product, found.prefix), rounds, threads))
            peak = max(peak, measure_peak(kernels, 10))
    if kernels.ext_num_threads() != threads:
        raise BenchmarkError(
            f"the kernels use {kernels.ext_num_threads()} threads instead of {threads}; "
            "unset TVM_NUM_THREADS"
        )
    return Run(threads, kernels.ext_isa_name().decode(), peak, found.version, rows)


def _open_blas(found: Blas, threads: int) -> ctypes.CDLL:
    if found.static:
        raise BenchmarkError(f"{found.path} is an archive; a benchmark needs a shared BLAS")
    library = ctypes.CDLL(str(found.path))
    if found.family is not None:
        getattr(library, found.family.set_threads)(threads)
    return library


def _race(product: Product, contestants: dict[str, list[Burst]], rounds: int, threads: int) -> Row:
    """Let all take turns, in another order each time; the first burst warms up."""
    ways = [(name, way) for name, found in contestants.items() for way in found]
    once = [min(way(1) for _ in range(2)) for _, way in ways]
    calls = [max(1, round(_BURST / seconds)) for seconds in once]
    milliseconds: list[list[float]] = [[] for _ in ways]
    rounds = min(rounds, max(5, int(_MOST / sum(once))))
    for index in harness.in_turns(range(len(ways)), rounds):
        way = ways[index][1]
        if threads > 1:
            time.sleep(_REST)
        way(max(1, calls[index] // 4))
        milliseconds[index].append(1e3 * way(calls[index]) / calls[index])
    times: dict[str, Times] = {}
    for (name, _), found in zip(ways, milliseconds, strict=True):
        one = Times(*harness.spread(found))
        if name not in times or one.min_ms < times[name].min_ms:
            times[name] = one
    return Row(product, **times)


# ---------------------------------------------------------------------- tables


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of ratios."""
    return float(np.exp(np.mean(np.log(values))))


def about(run: Run) -> list[str]:
    """What the tables must be read with."""
    return [
        f"{cpu_name()}, {in_words(run.threads)}, {run.isa}, fp32; FMA peak of a core, measured: "
        f"{run.peak:.1f} GFLOP/s",
        harness.versions(f"kernel ABI {abi.ABI_VERSION}", run.blas),
    ]


def sheets(run: Run) -> list[Sheet]:
    """Cubes beside the peak, and the other products beside the BLAS."""
    cubes = [row for row in run.rows if row.product.group == "cube"]
    others = [row for row in run.rows if row.product.group != "cube"]
    found = []
    times = ("min ms", "p50", "p90")
    ratios = ("plain", "BLAS", "ratio", "plain ratio")
    if cubes:
        rows = [[*_cells(row), f"{100 * _share(row, run):.1f}"] for row in cubes]
        headings = ("m x n x k", *times, *ratios, "GFLOP/s", "peak %")
        found.append(Sheet(f"cubes, {in_words(run.threads)}", headings, rows))
    if others:
        rows = [[row.product.group, *_cells(row)] for row in others]
        headings = ("", "m x n x k", *times, *ratios, "GFLOP/s")
        title = f"{len(others)} shapes, {in_words(run.threads)}"
        found.append(Sheet(title, headings, rows, left=2))
    return found


def checks(run: Run) -> list[str]:
    """Whether targets are met, one line each."""
    lines = []
    target = _TARGETS.get(run.threads)
    for row in run.rows:
        if row.product.group == "cube" and target is not None:
            share = _share(row, run)
            verdict = "reaches" if share >= target else "MISSES"
            lines.append(
                f"{row.product.label}, {in_words(run.threads)}: {100 * share:.1f} % of the peak "
                f"{verdict} {100 * target:.0f} %"
            )
    others = [row for row in run.rows if row.product.group != "cube"]
    if others:
        mean = geometric_mean([row.ratio for row in others])
        plain = geometric_mean([row.plain_ratio for row in others])
        slower = sum(row.ratio > 1 for row in others)
        verdict = "within" if mean <= 1 else "MISSES"
        lines.append(
            f"{in_words(run.threads)}: geometric mean of ours / BLAS {mean:.3f}, {verdict} 1.000; "
            f"with B packed in the call {plain:.3f}; {slower} of {len(others)} shapes slower"
        )
    return lines


def _share(row: Row, run: Run) -> float:
    return row.gflops / (run.peak * run.threads)


def _cells(row: Row) -> list[str]:
    ours = row.packed
    numbers = (ours.min_ms, ours.p50_ms, ours.p90_ms, row.plain.min_ms, row.blas.min_ms)
    return [
        row.product.label,
        *(f"{number:.4g}" for number in numbers),
        f"{row.ratio:.2f}",
        f"{row.plain_ratio:.2f}",
        f"{row.gflops:.1f}",
    ]


# ---------------------------------------------------------------------- command line


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, print. 1 where a target is missed, 2 for errors."""
    parser = harness.parser("gemm", __doc__, markdown=True, threads=[1], only="", rounds=25)
    options = parser.parse_args(arguments)
    runs = [_run_apart(count, options.only, options.rounds) for count in options.threads]
    lines = [line for run in runs for line in checks(run)]
    if options.json:
        harness.show_json({"cpu": cpu_name(), "runs": list(map(asdict, runs)), "checks": lines})
    else:
        parts = [part for run in runs for part in (about(run), *sheets(run))]
        harness.show_sheets(parts, lines, options.markdown)
    return int(harness.misses(lines))


def _run_apart(threads: int, only: str, rounds: int) -> Run:
    """Measure in a process of its own: pools of threads cannot be made anew."""
    # OpenBLAS's threads would spin for tens of milliseconds on the cores that ours need next.
    more = {"OPENBLAS_THREAD_TIMEOUT": "22"}
    raw = harness.call_apart("benchmarks.gemm", threads, only, rounds, more=more)
    rows = [
        Row(
            Product(**row["product"]), *(Times(**row[name]) for name in ("packed", "plain", "blas"))
        )
        for row in raw.pop("rows")
    ]
    return Run(**raw, rows=rows)


def child(threads: int, only: str, rounds: int) -> dict[str, Any]:
    """The run as plain values."""
    chosen = [p for p in (*CUBES, *SHAPES) if only in f"{p.group} {p.label}"]
    if not chosen:
        raise BenchmarkError(f"no product has {only!r} in its row")
    return asdict(measure(threads, chosen, rounds))


if __name__ == "__main__":
    sys.exit(main())
