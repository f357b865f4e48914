"""Models of PyTorch that came by themselves, beside the same ones that came as ONNX files.

``python -m benchmarks.pytorch_onnx --libraries FOLDER --prepare``, then the same without
``--prepare`` ``[NETWORK ...] [--threads 1] [--rounds 7] [--write]``

Each of ``models/pytorch.py``'s networks is compiled twice, by ``byoc.compile`` from the module and
from what PyTorch's own exporter writes; the two libraries take turns on one input. ``--prepare``
compiles what the folder lacks and times nothing, so that it may run beside other work: half an hour
for all forty. ``--write`` writes the table of docs/pytorch.md, of all networks.
Exit code 1 where the results differ, or the module's library takes over 1.05 times as long.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

import byoc
from benchmarks import harness
from benchmarks.pytorch import DOCUMENT, turn
from byoc.bench.machine import Machine
from byoc.bench.tables import Sheet
from byoc.errors import BenchmarkError, ByocError
from byoc.machine import choose_cores

_BEGIN = "<!-- Written by `python -m benchmarks.pytorch_onnx --write`; do not edit. -->"
DOORS = ("module", "ONNX")
#: Greatest difference of results as a share of their range, and of medians that is no noise.
_LIMIT, _NOISE = 1e-4, 1.05


@dataclass(frozen=True)
class Row:
    """A network: milliseconds of each run by the door it came through, and how results differ."""

    network: str
    error: float
    milliseconds: dict[str, list[float]]

    def ratio(self) -> float:
        """The median of the module's library by that of the file's."""
        module, file = (harness.spread(self.milliseconds[door])[1] for door in DOORS)
        return module / file


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = harness.parser("pytorch_onnx", __doc__, markdown=True, threads=1, rounds=7)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="of models/pytorch.py")
    parser.add_argument("--libraries", type=Path, required=True, help="where libraries are kept")
    parser.add_argument("--prepare", action="store_true", help="compile alone; time nothing")
    parser.add_argument("--write", action="store_true", help="write the table of docs/pytorch.md")
    asked = parser.parse_args(arguments)
    try:
        from models.pytorch import ARCHITECTURES
    except ImportError as error:
        raise BenchmarkError(f"PyTorch is missing: {error}") from error
    if unknown := [name for name in asked.networks if name not in ARCHITECTURES]:
        raise BenchmarkError(f"no network {unknown[0]!r}; there are {', '.join(ARCHITECTURES)}")
    if asked.write and (asked.networks or asked.prepare):
        parser.error("--write is for times of all networks")
    asked.libraries.mkdir(parents=True, exist_ok=True)
    names, rows = asked.networks or list(ARCHITECTURES), []
    cores = choose_cores(asked.threads)
    for name in names:
        print(name, end=" ", flush=True, file=sys.stderr)
        given = (name, str(asked.libraries), asked.threads, cores)
        done = all(path.exists() for path in _paths(asked.libraries, name).values())
        found = {} if done else harness.call_apart("benchmarks.pytorch_onnx", *given, 0)
        if refused := found.get("refused"):
            print(f"(refused as an ONNX file: {refused})", flush=True, file=sys.stderr)
        elif not asked.prepare:
            found = harness.call_apart("benchmarks.pytorch_onnx", *given, asked.rounds)
            rows.append(Row(**found["row"]))
    print(file=sys.stderr)
    if asked.prepare:
        return 0
    _show(rows, asked)
    return int(not all(row.error <= _LIMIT and row.ratio() <= _NOISE for row in rows))


def _show(rows: Sequence[Row], asked: Any) -> None:
    """Print the table, and write it where that is asked for."""
    sheet = _sheet(rows, asked.threads)
    notes = [
        harness.versions(f"{asked.rounds} rounds", f"PyTorch {version('torch')}"),
        Machine.measure(()).lines()[0],
    ]
    if asked.json:
        harness.show_json([asdict(row) for row in rows])
    else:
        harness.show_sheets([sheet], notes, asked.markdown)
    if asked.write:
        harness.write_between(DOCUMENT, _BEGIN, [sheet], notes)


def _sheet(rows: Sequence[Row], threads: int) -> Sheet:
    cells = []
    for row in rows:
        times = (harness.spread(row.milliseconds[door]) for door in DOORS)
        told = [" ".join(f"{time:.2f}" for time in spread) for spread in times]
        cells.append([row.network, *told, f"{row.ratio():.2f}", f"{row.error:.0e}"])
    mean = geometric_mean([row.ratio() for row in rows])
    cells.append(["geometric mean", "", "", f"{mean:.2f}", ""])
    plural = "" if threads == 1 else "s"
    title = f"From the module and from an ONNX file, {threads} thread{plural}: min, p50, p90"
    headings = ["network", "module ms", "ONNX ms", "module / ONNX", "difference"]
    return Sheet(title, headings, cells)


# ---------------------------------------------------------------------- a network


def _paths(libraries: Path, name: str) -> dict[str, Path]:
    """Where a network's libraries are, by the door it came through."""
    return {door: libraries / f"{name}.{door}.so" for door in DOORS}


def child(
    name: str, libraries: str, threads: int, cores: Sequence[int], rounds: int
) -> dict[str, Any]:
    """Compile one network where that is not done, and time it in a process of its own."""
    from models.pytorch import ARCHITECTURES

    network, inputs = ARCHITECTURES[name].build()
    paths = _paths(Path(libraries), name)
    if not rounds:
        return {"refused": _compiled(network, inputs, paths)}
    arrays = [tensor.numpy() for tensor in inputs]
    os.sched_setaffinity(0, cores)
    with (
        byoc.load(paths["module"], threads=threads) as module,
        byoc.load(paths["ONNX"], threads=threads) as file,
    ):
        calls = {"module": lambda: module(*arrays), "ONNX": lambda: file(*arrays)}
        ours, theirs = (_first(calls[door]()) for door in DOORS)
        # A head of zeros gives zeros, which range over nothing.
        error = float(np.abs(ours - theirs).max() / (np.ptp(theirs) or 1.0))
        times: dict[str, list[float]] = {door: [] for door in DOORS}
        for door in harness.in_turns(DOORS, rounds):
            times[door].extend(turn(calls[door]))
    return {"row": asdict(Row(name, error, times))}


def _compiled(network: Any, inputs: Sequence[Any], paths: dict[str, Path]) -> str:
    """Compile what is not there; why the ONNX file is refused, or nothing."""
    import torch

    if not paths["module"].exists():
        byoc.compile(network, paths["module"], example_inputs=inputs, verify=False)
    if paths["ONNX"].exists():
        return ""
    model = paths["ONNX"].with_suffix(".onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network, tuple(inputs), model, dynamo=True, verbose=False)
    try:
        byoc.compile(model, paths["ONNX"])
    except ByocError as error:
        return str(error)
    finally:
        model.unlink()
        model.with_suffix(".onnx.data").unlink(missing_ok=True)
    return ""


def _first(result: Any) -> Any:
    """The first array of a call."""
    return result[0] if isinstance(result, tuple) else result


if __name__ == "__main__":
    sys.exit(main())
