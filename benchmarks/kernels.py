"""How fast the kernels are, against the multiply-add peak of a core measured in the same run.

``python -m benchmarks.kernels [--threads N] [--only TEXT] [--json]``
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks import abi, harness
from byoc.bench.machine import measure_peak
from byoc.machine import cpu_name
from codegen_cc.operators.conv2d_ways import rows_in_place

#: (m, n, k) of plain products: square, transformer layers, classifiers, late CNN layers.
GEMM: tuple[tuple[int, int, int], ...] = (
    (1024, 1024, 1024),
    (512, 512, 512),
    (128, 768, 768),
    (128, 3072, 768),
    (128, 768, 3072),
    (16, 1024, 1024),
    (1, 1000, 2048),
    (1, 4096, 4096),
)


@dataclass(frozen=True)
class ConvShape:
    """A square convolution with bias and ReLU, as often as it occurs in the network."""

    count: int
    size: int
    inputs: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    residual: bool = False

    @property
    def out(self) -> int:
        """Height and width of the result."""
        return -(-self.size // self.stride)

    @property
    def label(self) -> str:
        """Short name with the shape."""
        text = f"{self.kernel}x{self.kernel}/{self.stride} {self.size}x{self.size} "
        return text + f"{self.inputs}->{self.outputs}" + (" +res" if self.residual else "")


#: Every convolution of ResNet-50 (v1.5: the stride is in the 3x3) at 224 x 224.
RESNET50: tuple[ConvShape, ...] = (
    ConvShape(1, 224, 3, 64, 7, 2),
    ConvShape(1, 56, 64, 64),
    ConvShape(2, 56, 256, 64),
    ConvShape(3, 56, 64, 64, 3),
    ConvShape(1, 56, 64, 256),
    ConvShape(3, 56, 64, 256, residual=True),
    ConvShape(1, 56, 256, 128),
    ConvShape(1, 56, 128, 128, 3, 2),
    ConvShape(3, 28, 512, 128),
    ConvShape(3, 28, 128, 128, 3),
    ConvShape(4, 28, 128, 512, residual=True),
    ConvShape(1, 56, 256, 512, 1, 2),
    ConvShape(1, 28, 512, 256),
    ConvShape(1, 28, 256, 256, 3, 2),
    ConvShape(5, 14, 1024, 256),
    ConvShape(5, 14, 256, 256, 3),
    ConvShape(6, 14, 256, 1024, residual=True),
    ConvShape(1, 28, 512, 1024, 1, 2),
    ConvShape(1, 14, 1024, 512),
    ConvShape(1, 14, 512, 512, 3, 2),
    ConvShape(2, 7, 2048, 512),
    ConvShape(2, 7, 512, 512, 3),
    ConvShape(3, 7, 512, 2048, residual=True),
    ConvShape(1, 14, 1024, 2048, 1, 2),
)

#: Depthwise layers of MobileNetV2 and ConvNeXt-T, once each.
DEPTHWISE: tuple[ConvShape, ...] = (
    ConvShape(1, 112, 32, 32, 3),
    ConvShape(1, 112, 96, 96, 3, 2),
    ConvShape(1, 56, 144, 144, 3),
    ConvShape(1, 28, 192, 192, 3),
    ConvShape(1, 14, 576, 576, 3),
    ConvShape(1, 7, 960, 960, 3),
    ConvShape(1, 56, 96, 96, 7),
    ConvShape(1, 14, 384, 384, 7),
)


#: (heads, rows, depth) of self-attention: BERT-base, ViT-B/16, GPT-2 at 512 tokens.
ATTENTION: tuple[tuple[int, int, int], ...] = ((12, 128, 64), (12, 197, 64), (12, 512, 64))


@dataclass(frozen=True)
class Row:
    """One measured kernel; times in milliseconds."""

    table: str
    name: str
    count: int
    gflop: float
    gbyte: float
    min_ms: float
    p50_ms: float
    p90_ms: float


@dataclass(frozen=True)
class Task:
    """A kernel ready to run: its work (floating-point operations, bytes) and its call."""

    table: str
    name: str
    count: int
    flop: float
    bytes: float
    run: Callable[[], None]


def _random(*shape: int) -> abi.FloatArray:
    out = abi.aligned(shape)
    out[...] = np.random.default_rng(0).standard_normal(shape, np.float32)
    return out


def _caller(function: Callable[..., int], *arguments: object) -> Callable[[], None]:
    """Bind arguments; arrays are passed as pointers and kept alive."""
    values = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]

    def run(_keep: tuple[object, ...] = arguments) -> None:
        if function(*values):
            raise RuntimeError(f"{function.__name__} failed")

    return run


def _gemm_tasks(lib: ctypes.CDLL) -> Iterator[Task]:
    for m, n, k in GEMM:
        p = abi.MatmulParams(m=m, n=n, k=k, a_row=k, a_col=1, y_row=n)
        e = abi.Epilogue()
        b, y = abi.pack_panels(_random(k, n)), abi.aligned((m, n))
        run = _caller(lib.ext_matmul_packed, p, _random(m, k), b, e, y)
        yield Task("gemm", f"{m} x {n} x {k}", 1, 2 * m * n * k, 4 * (m * k + k * n + m * n), run)


def _conv_params(c: ConvShape, groups: int) -> abi.Conv2dParams:
    pad = c.kernel // 2
    return abi.Conv2dParams(
        1, c.size, c.size, c.inputs, c.out, c.out, c.outputs, c.kernel, c.kernel,
        c.stride, c.stride, pad, pad, 1, 1, groups, c.inputs, c.outputs,
        rows_in_place(c.stride * c.inputs),
    )  # fmt: skip


def _conv_tasks(lib: ctypes.CDLL) -> Iterator[Task]:
    for c in RESNET50:
        bias, y = _random(c.outputs), abi.aligned((c.out**2, c.outputs))
        residual = _random(c.out**2, c.outputs) if c.residual else None
        e = abi.Epilogue(bias=bias.ctypes.data, after=abi.activation("relu"))
        if residual is not None:
            e.residual, e.residual_stride = residual.ctypes.data, c.outputs
        w = abi.pack_conv_weight(_random(c.outputs, c.inputs, c.kernel, c.kernel))
        x = _random(c.size**2, c.inputs)
        keep = (bias, residual)
        run = _caller(lib.ext_conv2d, _conv_params(c, 1), x, w, e, y)
        macs = c.out**2 * c.outputs * c.inputs * c.kernel**2
        moved = 4 * (x.size + w.size + y.size * (1 + c.residual))
        yield Task("resnet50", c.label, c.count, 2 * macs, moved, _holding(run, keep))


def _holding(run: Callable[[], None], keep: object) -> Callable[[], None]:
    """Return ``run`` with a reference to what its structures only point at."""

    def held(_keep: object = keep) -> None:
        run()

    return held


def _depthwise_tasks(lib: ctypes.CDLL) -> Iterator[Task]:
    for c in DEPTHWISE:
        bias, y = abi.pad_to_panel(_random(c.inputs)), abi.aligned((c.out**2, c.inputs))
        e = abi.Epilogue(bias=bias.ctypes.data, after=abi.activation("clip", 0.0, 6.0))
        x, w = _random(c.size**2, c.inputs), abi.pad_to_panel(_random(c.kernel**2, c.inputs))
        run = _caller(lib.ext_depthwise_conv2d, _conv_params(c, c.inputs), x, w, e, y)
        flop = 2 * y.size * c.kernel**2
        yield Task("depthwise", c.label, 1, flop, 4 * (x.size + y.size), _holding(run, bias))


def _attention_tasks(lib: ctypes.CDLL) -> Iterator[Task]:
    """One kernel, and the three that do the same with the scores in memory."""
    for heads, rows, depth in ATTENTION:
        width = heads * depth
        q, k, v = (_random(rows, width) for _ in range(3))
        scores, y = abi.aligned((heads, rows, rows)), abi.aligned((rows, width))
        p = abi.AttentionParams(1, heads, rows, rows, depth, depth, depth**-0.5)
        for name in "qkvy":
            getattr(p, f"{name}_strides")[:] = (rows * width, depth, width)
        flop, moved = 4 * heads * rows * rows * depth, 16 * rows * width
        run = _caller(lib.ext_attention, p, q, k, v, None, y)
        yield Task("attention", f"{heads} x {rows} x {depth}", 1, flop, moved, run)
        by_keys = abi.MatmulParams(rows, rows, depth, width, 1, 1, width, rows, 1)
        by_values = abi.MatmulParams(rows, depth, rows, rows, 1, width, 1, width, 1)
        for product, strides in (
            (by_keys, (depth, depth, rows * rows)),
            (by_values, (rows * rows, depth, depth)),
        ):
            product.batch[0] = heads
            product.a_batch[0], product.b_batch[0], product.y_batch[0] = strides
        e = abi.Epilogue()
        steps = (
            _caller(lib.ext_matmul, by_keys, q, k, e, scores),
            _caller(lib.ext_softmax, heads * rows, rows, 1, 0, scores, scores),
            _caller(lib.ext_matmul, by_values, scores, v, e, y),
        )

        def separately(steps: tuple[Callable[[], None], ...] = steps) -> None:
            for step in steps:
                step()

        name = f"{heads} x {rows} x {depth} in 3 kernels"
        yield Task("attention", name, 1, flop, moved + 16 * scores.size, separately)


def _memory_tasks(lib: ctypes.CDLL) -> Iterator[Task]:
    """The rest: kernels whose limit is memory, or their own arithmetic."""
    x, y = _random(112 * 112, 64), abi.aligned((112 * 112, 64))
    size = 8 * x.size
    for kind in ("relu", "sigmoid", "gelu", "gelu_tanh", "tanh", "exp", "log"):
        run = _caller(lib.ext_unary, abi.activation(kind), x.size, x, y)
        yield Task("other", f"{kind} {x.size}", 1, 0, size, run)
    add = abi.BinaryParams(0, abi.activation("relu"), 1)
    add.shape[0], add.a_strides[0], add.b_strides[0] = x.size, 1, 1
    other = _random(*x.shape)
    run = _caller(lib.ext_binary, add, x, other, y)
    yield Task("other", f"add+relu {x.size}", 1, 0, 12 * x.size, run)
    for name, strides in (("nchw->nhwc", (1, 112 * 112)), ("nhwc->nchw", (64, 1))):
        shape = (112 * 112, 64) if strides[0] == 1 else (64, 112 * 112)
        p = abi.CopyParams(2)
        p.shape[:2], p.y_strides[:2] = shape, (shape[1], 1)
        p.x_strides[:2] = (1, shape[0])
        yield Task("other", f"{name} 112x112x64", 1, 0, size, _caller(lib.ext_copy, p, x, y))
    image, pixels = _random(3, 224 * 224), abi.aligned((224 * 224, 3))
    p = abi.CopyParams(2)
    p.shape[:2], p.y_strides[:2], p.x_strides[:2] = (224 * 224, 3), (3, 1), (1, 224 * 224)
    run = _caller(lib.ext_copy, p, image, pixels)
    yield Task("other", "nchw->nhwc 224x224x3", 1, 0, 8 * image.size, run)
    pool = abi.Pool2dParams(
        1, 112, 112, 64, 56, 56, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 64, 64, 0
    )  # fmt: skip
    run = _caller(lib.ext_max_pool2d, pool, x, y)
    yield Task("other", "max pool 3x3/2 112x112x64", 1, 0, 5 * x.size, run)
    z = _random(49, 2048)
    run = _caller(lib.ext_reduce, 1, 1, 49, 2048, z, abi.aligned((2048,)))
    yield Task("other", "mean 49 of 2048 channels", 1, 0, 4 * z.size, run)
    for rows, n in ((12 * 128, 128), (128, 768)):
        a = _random(rows, n)
        b = abi.aligned(a.shape)
        run = _caller(lib.ext_softmax, rows, n, 1, 0, a, b)
        yield Task("other", f"softmax {rows} x {n}", 1, 0, 8 * a.size, run)
        run = _caller(lib.ext_layer_norm, rows, n, 1e-5, a, _random(n), _random(n), b)
        yield Task("other", f"layer norm {rows} x {n}", 1, 0, 8 * a.size, run)


def _measure(task: Task, seconds: float) -> Row:
    """Run for about ``seconds`` (at least 5 times) after one warm-up call."""
    task.run()
    times: list[float] = []
    stop = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < stop:
        start = time.perf_counter()
        task.run()
        times.append(1e3 * (time.perf_counter() - start))
    gflop, gbyte = task.flop * 1e-9, task.bytes * 1e-9
    return Row(task.table, task.name, task.count, gflop, gbyte, *harness.spread(times))


def run(
    only: str = "", seconds: float = 0.2, threads: int = 1
) -> tuple[dict[str, object], list[Row]]:
    """Measure every kernel whose table or name contains ``only``.

    Returns facts about the run (CPU, instruction set, threads, precision, versions, peak in GFLOP/s
    of one core) and the rows.
    """
    if threads > 1:
        abi.join_pool(threads)
    lib = abi.load()
    peak, rows = measure_peak(lib, 100), []
    for tasks in (_gemm_tasks, _conv_tasks, _depthwise_tasks, _attention_tasks, _memory_tasks):
        for task in tasks(lib):
            if only in f"{task.table} {task.name}":
                rows.append(_measure(task, seconds))
                peak = max(peak, measure_peak(lib, 5))
    facts = {
        "cpu": cpu_name(),
        "isa": lib.ext_isa_name().decode(),
        "threads": lib.ext_num_threads(),
        "precision": "fp32",
        "versions": harness.versions(f"kernel ABI {abi.ABI_VERSION}"),
        "peak_gflops_per_core": peak,
    }
    return facts, rows


def render(facts: dict[str, object], rows: list[Row]) -> str:
    """Return the tables as text: shares are of the measured peak of all threads in use."""
    peak = float(facts["peak_gflops_per_core"]) * int(facts["threads"])  # type: ignore[arg-type]
    lines = [
        f"{facts['cpu']}, {facts['isa']}, {facts['precision']}, threads: {facts['threads']}, "
        f"peak {peak:.1f} GFLOP/s (measured), {facts['versions']}"
    ]
    for table in dict.fromkeys(row.table for row in rows):
        part = [row for row in rows if row.table == table]
        lines += ["", f"{table:<28}{'count':>6}{'min ms':>9}{'p50 ms':>9}{'p90 ms':>9}"
                  f"{'GFLOP/s':>9}{'peak %':>8}{'GB/s':>7}"]  # fmt: skip
        lines += [_render_row(row, peak) for row in part]
        if table == "resnet50":
            total = [sum(getattr(r, f) * r.count for r in part) for f in
                     ("gflop", "gbyte", "min_ms", "p50_ms", "p90_ms")]  # fmt: skip
            lines.append(_render_row(Row(table, "all, with counts", sum(r.count for r in part),
                                         *total), peak))  # fmt: skip
    return "\n".join(lines)


def _render_row(row: Row, peak: float) -> str:
    speed = row.gflop / row.min_ms * 1e3
    compute = f"{speed:>9.1f}{100 * speed / peak:>8.1f}" if row.gflop else f"{'':>17}"
    return (
        f"{row.name:<28}{row.count:>6}{row.min_ms:>9.3f}{row.p50_ms:>9.3f}{row.p90_ms:>9.3f}"
        f"{compute}{row.gbyte / row.min_ms * 1e3:>7.1f}"
    )


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, print; 2 for errors."""
    parser = harness.parser("kernels", __doc__, threads=1, only="")
    parser.add_argument("--seconds", type=float, default=0.2, help="per row (default 0.2)")
    options = parser.parse_args(arguments)
    facts, rows = run(options.only, options.seconds, options.threads)
    if options.json:
        harness.show_json({**facts, "rows": [asdict(row) for row in rows]})
    else:
        print(render(facts, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
