"""Matrix products of bf16 beside float32's, oneDNN's and the peak of the CPU's unit.

``python -m benchmarks.gemm_bf16 [--only TEXT] [--rounds N] [--json | --markdown]``

All take turns in one process on one core.  *bf16* has A and y in bf16, *from fp32* rounds A as it
is packed and writes float32, *fp32* is ``ext_matmul_packed``; all have B packed.  oneDNN, where it
is installed and the CPU has AVX-512, multiplies bf16 with weights in its own layout.  The operands
of a call are those of the call before: what fits is in the caches.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from benchmarks import abi, harness
from benchmarks.gemm_shapes import CUBES, SHAPES, Product
from byoc.bench.machine import measure_peak
from byoc.bench.tables import Sheet
from byoc.errors import BenchmarkError
from byoc.machine import choose_cores, cpu_name
from codegen_cc.errors import LibraryError
from codegen_cc.instruction_sets import names_in
from codegen_cc.libraries.onednn.installation import Installation, find_installation
from codegen_cc.operators.packing import PanelFormat

_SOURCE = Path(__file__).with_name("gemm_bf16.c")
_ONEDNN_NEEDS = "avx512"  # else it refuses products of bf16
_BURST = 2e-3  # seconds of calls between two looks at the clock
#: Of the greatest sum of absolute products; a result in bf16 has half a step more.
_TOLERANCE, _HALF_STEP = 1e-5, 2.0**-8
#: Share of the unit's peak that cubes should reach.
_TARGET = 0.90
_PANELS = PanelFormat("bfloat16", 2)

Burst = Callable[[int], float]


@dataclass(frozen=True)
class Row:
    """One product: GFLOP/s of the fastest bursts, by contestant."""

    product: Product
    gflops: dict[str, float]


@dataclass(frozen=True)
class Run:
    """All products; peaks are GFLOP/s of one core. ``onednn`` is its version, or empty."""

    isas: str
    peak: float
    fp32_peak: float
    onednn: str
    rows: list[Row]


@dataclass(frozen=True)
class _Operands:
    """A and B as float32 and as bf16, these as their bits, and B packed."""

    a: np.ndarray
    a_bits: np.ndarray
    b_bits: np.ndarray
    panels: np.ndarray
    bf16_panels: np.ndarray


def _aligned(values: np.ndarray) -> np.ndarray:
    """A copy that begins at a line."""
    memory = abi.aligned((-(-values.nbytes // 4),)).view(np.uint8)
    copy = memory[: values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def _draw(product: Product) -> _Operands:
    draw = np.random.default_rng(0)
    a = draw.standard_normal((product.m, product.k), np.float32).astype(ml_dtypes.bfloat16)
    b = draw.standard_normal((product.k, product.n), np.float32).astype(ml_dtypes.bfloat16)
    return _Operands(
        _aligned(a.astype(np.float32)),
        _aligned(a.view(np.uint16)),
        _aligned(b.view(np.uint16)),
        abi.pack_panels(b.astype(np.float32)),
        _aligned(_PANELS.pack(b[None]).view(np.uint16)),
    )


class _Contest:
    """The contestants on one product."""

    def __init__(self, clock: ctypes.CDLL, kernels: ctypes.CDLL, onednn: bool) -> None:
        self._clock, self._kernels, self._onednn = clock, kernels, onednn
        names = ["byoc_time_bf16", "byoc_time_fp32", *["byoc_time_onednn"] * onednn]
        for name in names:
            getattr(clock, name).restype = ctypes.c_double
        if onednn:
            clock.byoc_onednn_product.restype = ctypes.c_void_p
            clock.byoc_onednn_product.argtypes = [ctypes.c_long] * 3 + [ctypes.c_void_p] * 3

    def bursts(self, product: Product) -> dict[str, Burst]:
        """Functions that make so many calls and return their seconds; answers are compared."""
        x = _draw(product)
        shape = (product.m, product.n)
        wide = {name: abi.aligned(shape) for name in ("from fp32", "fp32")}
        narrow = {name: _aligned(np.zeros(shape, np.uint16)) for name in ("bf16", "oneDNN")}
        bf16, fp32 = abi.DTYPE.index("bfloat16"), abi.DTYPE.index("float32")
        found = {
            "bf16": self._bf16(product, bf16, x.a_bits, x.bf16_panels, narrow["bf16"]),
            "from fp32": self._bf16(product, fp32, x.a, x.bf16_panels, wide["from fp32"]),
            "fp32": self._fp32(product, x.a, x.panels, wide["fp32"]),
        }
        if self._onednn:
            found["oneDNN"] = self._of_onednn(product, x, narrow["oneDNN"])
        b = x.b_bits.view(ml_dtypes.bfloat16).astype(np.float64)
        wanted = x.a.astype(np.float64) @ b
        limit = _TOLERANCE * float((np.abs(x.a) @ np.abs(b)).max())
        for name, burst in found.items():
            seconds = burst(1)
            got = wide[name] if name in wide else narrow[name].view(ml_dtypes.bfloat16)
            allowed = limit + (0 if name in wide else _HALF_STEP) * np.abs(wanted)
            worst = np.abs(got.astype(np.float64) - wanted)
            if seconds < 0 or not (worst <= allowed).all():
                raise BenchmarkError(f"{name} on {product.label}: wrong by {worst.max()}")
        return found

    def _bf16(self, product: Product, dtype: int, *arrays: np.ndarray) -> Burst:
        storage = abi.Storage(dtype, dtype, dtype)
        return self._ours("bf16", product, [ctypes.byref(storage)], (storage, *arrays), arrays)

    def _fp32(self, product: Product, *arrays: np.ndarray) -> Burst:
        return self._ours("fp32", product, [], arrays, arrays)

    def _ours(
        self,
        kind: str,
        product: Product,
        more: list[object],
        keep: tuple[object, ...],
        arrays: tuple[np.ndarray, ...],
    ) -> Burst:
        a, b, y = arrays
        p = abi.MatmulParams(m=product.m, n=product.n, k=product.k, a_row=product.k, a_col=1)
        p.y_row = product.n
        e = abi.Epilogue()
        name = {"bf16": "ext_matmul_bf16", "fp32": "ext_matmul_packed"}[kind]
        function = ctypes.cast(getattr(self._kernels, name), ctypes.c_void_p)
        timer = getattr(self._clock, f"byoc_time_{kind}")
        head = (function, ctypes.byref(p), *more, _pointer(a), _pointer(b))

        def burst(calls: int, _keep: object = (p, keep)) -> float:
            return timer(*head, ctypes.byref(e), _pointer(y), ctypes.c_long(calls))

        return burst

    def _of_onednn(self, product: Product, x: _Operands, y: np.ndarray) -> Burst:
        sizes, arrays = (product.m, product.n, product.k), (x.a_bits, x.b_bits, y)
        made = self._clock.byoc_onednn_product(*sizes, *(array.ctypes.data for array in arrays))
        if not made:
            raise BenchmarkError(f"oneDNN refuses {product.label} of bf16")

        def burst(calls: int, _keep: object = arrays) -> float:
            return self._clock.byoc_time_onednn(ctypes.c_void_p(made), ctypes.c_long(calls))

        return burst


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


# ---------------------------------------------------------------------- measuring


def _installation() -> Installation | None:
    try:
        return find_installation()
    except LibraryError:
        return None


def measure(products: Sequence[Product], rounds: int) -> Run:
    """Time products in this process, which is bound to one core from now on.

    Raises ``ByocError``.
    """
    os.sched_setaffinity(0, choose_cores(1))
    kernels = abi.load()
    isas = names_in(kernels.ext_isas())
    found = _installation() if _ONEDNN_NEEDS in isas else None
    flags, link = [], []
    if found is not None:
        flags = ["-DBYOC_ONEDNN", f"-I{found.include}"]
        link = [str(found.library), f"-Wl,-rpath,{found.library.parent}"]
    with tempfile.TemporaryDirectory(prefix="byoc_") as folder:
        built = harness.build_c(_SOURCE, Path(folder, "gemm.so"), "-shared", *flags, link=link)
        contest = _Contest(ctypes.CDLL(str(built)), kernels, found is not None)
        peak = fp32_peak = 0.0
        rows = []
        for product in products:
            rows.append(Row(product, _race(product, contest.bursts(product), rounds)))
            peak = max(peak, *(kernels.ext_bench_bf16_peak() for _ in range(50)))
            fp32_peak = max(fp32_peak, measure_peak(kernels, 50))
    return Run(" + ".join(isas), peak, fp32_peak, "" if found is None else found.version, rows)


def _race(product: Product, contestants: dict[str, Burst], rounds: int) -> dict[str, float]:
    """Let all take turns, in another order each time; the first burst warms up."""
    best = {name: min(burst(1) for _ in range(2)) for name, burst in contestants.items()}
    calls = {name: max(1, round(_BURST / seconds)) for name, seconds in best.items()}
    for name in harness.in_turns(list(contestants), rounds):
        contestants[name](max(1, calls[name] // 4))
        best[name] = min(best[name], contestants[name](calls[name]) / calls[name])
    return {name: product.gflop / seconds for name, seconds in best.items()}


# ---------------------------------------------------------------------- tables


def about(run: Run) -> list[str]:
    """What the table must be read with."""
    onednn = f"oneDNN {run.onednn}" if run.onednn else "no oneDNN that multiplies bf16 here"
    return [
        f"{cpu_name()}, 1 thread, {run.isas}; peaks of a core, measured: bf16 {run.peak:.1f}, "
        f"fp32 {run.fp32_peak:.1f} GFLOP/s",
        harness.versions(f"kernel ABI {abi.ABI_VERSION}", onednn),
    ]


def sheet(run: Run) -> Sheet:
    """GFLOP/s of every contestant, and shares of the peaks."""
    names = ["bf16", "from fp32", "fp32", *["oneDNN"] * bool(run.onednn)]
    rows = []
    for row in run.rows:
        shares = (row.gflops["bf16"] / run.peak, row.gflops["from fp32"] / run.peak)
        rows.append([
            row.product.group, row.product.label, *(f"{row.gflops[name]:.1f}" for name in names),
            *(f"{100 * share:.1f}" for share in shares), f"{ratio(row):.2f}",
        ])  # fmt: skip
    headings = ("", "m x n x k", *names, "peak %", "from fp32 %", "of fp32")
    return Sheet("GFLOP/s, 1 thread", headings, rows, left=2)


def ratio(row: Row) -> float:
    """The time of bf16 in times of fp32."""
    return row.gflops["fp32"] / row.gflops["bf16"]


def checks(run: Run) -> list[str]:
    """Whether cubes reach their share of the peak, and beat oneDNN's, one line each."""
    lines = []
    for row in run.rows:
        if row.product.group != "cube" or row.product.n < 1024:
            continue
        share = row.gflops["bf16"] / run.peak
        verdict = "reaches" if share >= _TARGET else "MISSES"
        line = (
            f"{row.product.label}: {100 * share:.1f} % of the peak {verdict} {100 * _TARGET:.0f} %"
        )
        if run.onednn:
            line += f"; {row.gflops['bf16'] / row.gflops['oneDNN']:.2f} times oneDNN's speed"
        lines.append(line)
    return lines


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, print. 1 where a target is missed, 2 for errors."""
    parser = harness.parser("gemm_bf16", __doc__, markdown=True, only="", rounds=25)
    options = parser.parse_args(arguments)
    raw = harness.call_apart("benchmarks.gemm_bf16", options.only, options.rounds)
    rows = [Row(Product(**row["product"]), row["gflops"]) for row in raw.pop("rows")]
    run = Run(**raw, rows=rows)
    if options.json:
        harness.show_json({"cpu": cpu_name(), "run": asdict(run), "checks": checks(run)})
    else:
        harness.show_sheets([about(run), sheet(run)], checks(run), options.markdown)
    return int(harness.misses(checks(run)))


def child(only: str, rounds: int) -> dict[str, object]:
    """The run as plain values."""
    products = [p for p in (*CUBES, *SHAPES) if p.batch == 1 and only in f"{p.group} {p.label}"]
    if not products:
        raise BenchmarkError(f"no product has {only!r} in its row")
    return asdict(measure(products, rounds))


if __name__ == "__main__":
    sys.exit(main())
