"""Trained networks of public packages: compiled without sizes, compared, timed.

``python -m benchmarks.corpus [NETWORK ...] [--threads 1] [--rounds 3] [--write]``

With ``--json``, the first network is measured in this process.

Each network of ``models/real.py`` is compiled by ``byoc.compile`` without being told a size, run on
its input beside ONNX Runtime's answer (``byoc.verify``), and takes turns with ONNX Runtime.  Where
operators stay with TVM, their share of the time tells what they cost.
``--write`` writes docs/corpus.md, of all networks.
Exit code 1 where a network is refused or wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import exp, log
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import tvm
from tvm import relax

import byoc
from benchmarks import harness
from byoc.accuracy import relative_error
from byoc.bench.interleave import Entrant, take_turns
from byoc.bench.machine import Machine
from models.corpus.file import QUANTISED, RealNetwork, fetch
from models.real import NETWORKS

DOCUMENT = Path(__file__).parents[1] / "docs" / "corpus.md"
_ORT = "onnxruntime"
#: Runs to take the share of TVM's operators from.
_RUNS = 20
#: A function of TVM's that does nothing, with any arguments.
_NOTHING = "testing.nop"
#: Seconds that a network may take in all.
_PATIENCE = 900


@dataclass(frozen=True)
class Row:
    """What became of a network; ``failed`` says what went wrong, and the rest is then 0."""

    network: str
    failed: str = ""
    regions: int = 0
    operators: int = 0
    left: tuple[str, ...] = ()
    share_of_macs: float = 0.0
    #: Of the time of a run, that of operators which stay with TVM, and that of the longest one.
    left_share: float = 0.0
    longest_left: float = 0.0
    error: float = 0.0
    #: Where the error is large: how far ONNX Runtime is from itself (``spread_of``).
    spread: float = 0.0
    seconds: float = 0.0
    ours_ms: float = 0.0
    theirs_ms: float = 0.0

    @property
    def ratio(self) -> float:
        """Our time by ONNX Runtime's; 0 where there is none."""
        return self.ours_ms / self.theirs_ms if self.theirs_ms else 0.0


def measure(network: RealNetwork, threads: int, rounds: int, folder: Path) -> Row:
    """One network, in this process; raises ``ByocError`` where it does not go."""
    warnings.simplefilter("ignore")
    model, library, inputs = fetch(network), folder / "model.so", network.draw()
    start = time.perf_counter()
    compiled = byoc.compile(model, library, progress=harness.tell)
    report = compiled.report
    seconds = time.perf_counter() - start
    run = byoc.verify(model, library, inputs).runs[0]
    error = max((o.error for o in run.outputs), default=0.0)
    spread = 0.0
    if not run.holds and QUANTISED in network.file.kinds:
        spread = spread_of(model, inputs)
    wrong = run.failed or "; ".join(
        f"output {o.name}: {o.problem or f'error {o.error:.1e}'}"
        for o in run.outputs
        if not o.holds and (o.problem or o.error > spread)
    )
    if wrong or run.skipped:
        raise byoc.VerifyError(wrong or run.skipped)
    arrays = folder / "inputs.npz"
    np.savez(arrays, **inputs)
    entrants = [Entrant("byoc", "byoc", library, arrays), Entrant(_ORT, _ORT, model, arrays)]
    times = {t.engine: t.percentile(50) for t in take_turns(entrants, threads, rounds, folder)}
    shares = _left_shares(compiled, inputs) if report.left else (0.0, 0.0)
    return Row(
        network.name,
        regions=len(report.regions),
        operators=report.operators,
        left=tuple(sorted({entry.op.removeprefix("relax.") for entry in report.left})),
        share_of_macs=report.offloaded_macs / report.macs if report.macs else 1.0,
        left_share=shares[0],
        longest_left=shares[1],
        error=error,
        spread=spread,
        seconds=seconds,
        ours_ms=times["byoc"],
        theirs_ms=times[_ORT],
    )


def spread_of(model: Path, inputs: dict[str, np.ndarray]) -> float:
    """How far ONNX Runtime's answers are from its own where float weights move by 1e-6 of each.

    Rounding to 8 bits in each layer turns such a change into steps, which grow from layer to layer;
    an engine that sums in another order is as far off.
    """
    given = onnx.load(model)
    answers = []
    for seed in range(4):
        moved, rng = onnx.ModelProto(), np.random.default_rng(seed)
        moved.CopyFrom(given)
        for tensor in moved.graph.initializer if seed else ():
            if tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims:
                array = onnx.numpy_helper.to_array(tensor)
                factor = 1 + 1e-6 * rng.standard_normal(array.shape)
                new = onnx.numpy_helper.from_array((array * factor).astype("float32"), tensor.name)
                tensor.CopyFrom(new)
        session = onnxruntime.InferenceSession(moved.SerializeToString())
        answers.append(session.run(None, inputs))
    return max(relative_error(answer, answers[0]) for answer in answers[1:])


def _left_shares(compiled: byoc.Compiled, inputs: dict[str, np.ndarray]) -> tuple[float, float]:
    """The shares of what TVM compiled in the time of all functions that a run calls.

    That of all, and that of the one function that takes longest.  Noting a call takes longer than
    many a function, and longer with each argument: what a function that does nothing takes with as
    many arguments is not counted.
    """
    machine = relax.VirtualMachine(compiled.executable, tvm.cpu())
    tensors = [tvm.runtime.tensor(inputs[info.name]) for info in compiled.metadata.inputs]
    noted, calling = _noted(machine, tensors)
    nothing = _of_nothing(max(arguments for _, arguments in noted))
    spent: dict[str, float] = defaultdict(float)
    for (name, arguments), found in noted.items():
        if name not in calling:  # branches and bodies of loops are what they call
            own = float(np.median(found.sum(axis=1))) - found.shape[1] * nothing[arguments]
            spent[name] += max(0.0, own)
    ours = sum(s for name, s in spent.items() if name.startswith("ext_"))
    theirs = [s for name, s in spent.items() if not name.startswith(("ext_", "vm."))]
    whole = ours + sum(theirs)
    return sum(theirs) / whole, max(theirs, default=0.0) / whole


def _noted(
    machine: relax.VirtualMachine, tensors: Sequence[tvm.runtime.Tensor]
) -> tuple[dict[tuple[str, int], np.ndarray], set[str]]:
    """Seconds [run, call] of functions by name and number of arguments; which call others."""
    seconds: dict[tuple[str, int], list[float]] = defaultdict(list)
    begun: list[float] = []
    calling: set[str] = set()
    names: list[str] = []

    def note(function: object, name: str, before: bool, result: object, *given: object) -> int:
        if before:
            calling.update(names[-1:])
            names.append(name)
            begun.append(time.perf_counter())
        else:
            names.pop()
            seconds[name, len(given)].append(time.perf_counter() - begun.pop())
        return 0

    machine["main"](*tensors)
    machine.set_instrument(note)
    for _ in range(_RUNS):
        machine["main"](*tensors)
    return {key: np.reshape(s, (_RUNS, -1)) for key, s in seconds.items()}, calling


def _of_nothing(most: int) -> list[float]:
    """Seconds that noting a call takes which does nothing, with 0, 1, ... ``most`` arguments."""
    builder = relax.BlockBuilder()
    given = relax.Var("x", relax.TensorType([1], "float32"))
    with builder.function("main", [given]):
        for count in range(most + 1):
            called = relax.ExternFunc(_NOTHING)
            builder.emit(relax.Call(called, [given] * count, None, [relax.ObjectType()]))
        builder.emit_func_output(given)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), "llvm"), tvm.cpu())
    noted, _ = _noted(machine, [tvm.runtime.tensor(np.zeros(1, "float32"))])
    return [float(np.median(noted[_NOTHING, count])) for count in range(most + 1)]


def apart(name: str, threads: int, rounds: int) -> Row:
    """One network in a process of its own, which may die."""
    counts = ["--threads", str(threads), "--rounds", str(rounds)]
    command = [sys.executable, "-m", "benchmarks.corpus", name, *counts, "--json"]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return Row(name, f"not done after {_PATIENCE} s")
    try:
        found = json.loads(ran.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        said = [line for line in ran.stderr.splitlines() if line.strip()]
        return Row(name, f"exit status {ran.returncode}: {said[-1].strip() if said else None}")
    return Row(**{**found, "left": tuple(found["left"])})


def _one(name: str, threads: int, rounds: int) -> int:
    os.environ["TVM_NUM_THREADS"] = str(threads)  # of the shares; engines have their own processes
    with tempfile.TemporaryDirectory(prefix="byoc-corpus-") as folder:
        try:
            row = measure(NETWORKS[name], threads, rounds, Path(folder))
        except byoc.ByocError as error:
            row = Row(name, str(error))
    print(json.dumps(asdict(row)))
    return 0


# ---------------------------------------------------------------------- the document


_HEADINGS = (
    *("network", "kinds", "regions", "operators", "MACs %", "stays with TVM", "error"),
    *("compile s", "ms", "ONNX Runtime ms", "ratio"),
)


def _cells(row: Row) -> tuple[str, ...]:
    kinds = ", ".join(sorted(NETWORKS[row.network].file.kinds))
    shares = f"{100 * row.left_share:.1f} % ({100 * row.longest_left:.1f})"
    left = f"{shares}: {', '.join(row.left)}" if row.left else ""
    error = f"{row.error:.1e}" + (f" ({row.spread:.1e})" if row.spread else "")
    return (
        *(row.network, kinds, str(row.regions), str(row.operators)),
        *(f"{100 * row.share_of_macs:.1f}", left, error, f"{row.seconds:.1f}"),
        *(f"{row.ours_ms:.3g}", f"{row.theirs_ms:.3g}", f"{row.ratio:.2f}"),
    )


def document(rows: Sequence[Row], machine: Machine, threads: int) -> str:
    """docs/corpus.md."""
    done, failed = [r for r in rows if not r.failed], [r for r in rows if r.failed]
    mean = exp(sum(log(r.ratio) for r in done) / len(done)) if done else 0.0
    kinds = sorted({kind for row in rows for kind in NETWORKS[row.network].file.kinds})
    counted = ", ".join(
        f"{sum(kind in NETWORKS[r.network].file.kinds for r in rows)} with {kind}" for kind in kinds
    )
    lines = [
        "# Corpus",
        "",
        "Trained networks that public packages carry as ONNX files (`models/real.py`), compiled",
        "without a size given, compared with ONNX Runtime on a realistic input, and timed beside",
        "it in one interleaved run. Written by `make corpus ARGS=--write`.",
        "",
        *machine.lines(),
        f"{threads} thread{'' if threads == 1 else 's'}, fp32, medians.",
        "",
        "What stays with TVM takes a share of the time of all functions that a run calls; in",
        "brackets that of the one that takes longest.",
        "",
        "An error is a share of the output's range. In brackets: how far ONNX Runtime is from",
        "itself where float weights of a quantised network move by a millionth.",
        "",
        f"{len(rows)} networks ({counted}): {len(done)} right, {len(failed)} refused or wrong;"
        f" geometric mean of the ratios {mean:.2f}.",
        "",
        "|".join(("", *_HEADINGS, "")),
        "|".join(("", "---", "---", *["--:"] * 3, "---", *["--:"] * 5, "")),
        *("|".join(("", *_cells(row), "")) for row in done),
    ]
    if failed:
        lines += ["", "|network|what is in the way|", "|---|---|"]
        lines += [f"|{row.network}|{row.failed.replace('|', chr(92) + '|')}|" for row in failed]
    lines += ["", "|network|package|version|licence|", "|---|---|---|---|"]
    packages = ((row.network, NETWORKS[row.network].package) for row in rows)
    lines += [f"|{name}|{p.name}|{p.version}|{p.licence}|" for name, p in packages]
    return "\n".join(lines) + "\n"


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure networks of the corpus."""
    parser = harness.parser("corpus", __doc__ or "", threads=1, rounds=3)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="by default all")
    parser.add_argument("--write", action="store_true", help="write docs/corpus.md")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.networks if name not in NETWORKS]:
        parser.error(f"no network {unknown[0]!r}; need some of {', '.join(NETWORKS)}")
    if options.json:
        return _one(options.networks[0], options.threads, options.rounds)
    if options.write and options.networks:
        parser.error("--write is for all networks")
    rows, names = [], options.networks or list(NETWORKS)
    for number, name in enumerate(names, 1):
        harness.tell(f"{number} of {len(names)}: {name}")
        rows.append(apart(name, options.threads, options.rounds))
        _say(rows[-1])
    if options.write:
        machine = Machine.measure(["byoc", _ORT])
        DOCUMENT.write_text(document(rows, machine, options.threads), encoding="utf-8")
    return any(row.failed for row in rows)


def _say(row: Row) -> None:
    say = partial(print, flush=True)
    say(f"{row.network}: {row.failed}" if row.failed else "  ".join(_cells(row)))


if __name__ == "__main__":
    sys.exit(main())
