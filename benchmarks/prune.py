"""What a region must do to be worth its call: tiny networks as a region and as TVM's own code.

``python -m benchmarks.prune`` prints microseconds per run of both, in turns, from four bytes on,
and from which size on the region is never slower. ``byoc.partition.prune`` takes its thresholds
from here.
TVM's side is fused and compiled as ``byoc.compile`` does with what stays behind.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import prod

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks import harness

#: A region may lose this share of time, which is the noise of the measurement.
NOISE = 0.05
ROUNDS = 7

Build = Callable[[relax.BlockBuilder, relax.Var], relax.Expr]


@dataclass(frozen=True)
class Row:
    """One measured pair: what, bytes that computing operators read and write, microseconds."""

    name: str
    shape: tuple[int, ...]
    bytes: int
    region_us: float
    tvm_us: float

    @property
    def wins(self) -> bool:
        """Whether the region is no slower than TVM's code but for noise."""
        return self.region_us <= self.tvm_us * (1 + NOISE)


def _chain(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    y = builder.emit(op.multiply(x, builder.emit(op.sigmoid(x))))
    return builder.emit(op.add(builder.emit(op.exp(y)), x))


#: Name, whether it computes or only moves data, and the network.
NETWORKS: dict[str, tuple[bool, Build]] = {
    "relu": (True, lambda b, x: b.emit(op.nn.relu(x))),
    "tanh": (True, lambda b, x: b.emit(op.tanh(x))),
    "add": (True, lambda b, x: b.emit(op.add(x, x))),
    "softmax": (True, lambda b, x: b.emit(op.nn.softmax(x))),
    "three in a row": (True, _chain),
    "permute": (False, lambda b, x: b.emit(op.permute_dims(x, [1, 0]))),
    "slice": (False, lambda b, x: b.emit(op.strided_slice(x, [1], [0], [1]))),
    "reshape": (False, lambda b, x: b.emit(op.reshape(x, [prod(map(int, x.ty.shape))]))),
}

SHAPES = ((1, 1), (1, 4), (2, 8), (4, 16), (8, 32), (32, 32), (64, 128))


def network(build: Build, shape: tuple[int, ...]) -> tvm.IRModule:
    """A module whose ``main`` is one network."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(list(shape), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(build(builder, x))
        builder.emit_func_output(y)
    return builder.get()


def as_region(mod: tvm.IRModule) -> relax.VirtualMachine | None:
    """The network in one region, however small; None if it does nothing, such as a whole slice."""
    from byoc import _autoload
    from byoc.canonicalise import canonicalise
    from byoc.partition.annotate import annotate
    from byoc.partition.detach_constants import detach_constants
    from byoc.partition.merge import merge

    _autoload()
    mod = detach_constants(merge(annotate(canonicalise(mod))))
    if not any("Codegen" in (func.attrs or {}) for func in mod.functions.values()):
        return None
    return _machine(relax.transform.RunCodegen()(mod))


def _machine(mod: tvm.IRModule) -> relax.VirtualMachine:
    with tvm.target.Target("llvm"), tvm.transform.PassContext(opt_level=3):
        executable = tvm.compile(relax.get_pipeline("zero")(mod), "llvm")
    return relax.VirtualMachine(executable, tvm.cpu())


def measure(name: str, shape: tuple[int, ...]) -> Row | None:
    """Compile both, and time them in turns; the least of some rounds each. None for a no-op."""
    computes, build = NETWORKS[name]
    mod = network(build, shape)
    region = as_region(mod)
    if region is None:
        return None
    machines = (region, _machine(mod))
    x = tvm.runtime.tensor(np.random.default_rng(0).random(shape, dtype="float32"))
    best = [float("inf")] * 2
    for index in harness.in_turns(range(len(machines)), ROUNDS):
        timer = machines[index].time_evaluator("main", tvm.cpu(), number=2000, repeat=1)
        best[index] = min(best[index], timer(x).mean * 1e6)
    bytes_moved = 8 * prod(shape) if computes else 0
    return Row(name, shape, bytes_moved * (4 if name == "three in a row" else 1), *best)


def threshold(rows: list[Row]) -> int:
    """The least bytes from which on no region of computing operators loses."""
    computing = [row for row in rows if row.bytes > 0]
    losing = [row.bytes for row in computing if not row.wins]
    worth = [row.bytes for row in computing if row.bytes > max(losing, default=0)]
    return min(worth, default=0)


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure and print."""
    parser = harness.parser("prune", __doc__)
    parser.add_argument("--only", choices=list(NETWORKS), help="one of the networks")
    options = parser.parse_args(arguments)
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    names = [options.only] if options.only else list(NETWORKS)
    measured = [measure(name, shape) for name in names for shape in SHAPES]
    rows = [row for row in measured if row is not None]
    if options.json:
        harness.show_json([asdict(row) for row in rows])
        return 0
    headings = ("network", "shape", "bytes", "region", "TVM", "region / TVM")
    cells = [
        [
            *(row.name, str(list(row.shape)), str(row.bytes or "moves")),
            *(f"{us:.2f}" for us in (row.region_us, row.tvm_us, row.region_us / row.tvm_us)),
        ]
        for row in rows
    ]
    said = f"from {threshold(rows)} computed bytes on, no region that computes loses"
    harness.show([harness.table("one run, in microseconds, 1 thread", headings, cells), said])
    return 0


if __name__ == "__main__":
    sys.exit(main())
