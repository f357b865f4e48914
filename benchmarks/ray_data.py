"""Rows per second of a job of Ray Data: a library, ONNX Runtime, and the library with no Ray.

``python -m benchmarks.ray_data [squeezenet] [--rows 256] [--batch 16] [--rounds 5] [--json]``

One worker with one CPU. A job's time is from its first row's begin in the worker to its last one's
end, with what Ray does between batches. The bare loop calls the library on the same rows in a task.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks import harness
from benchmarks.engine_files import require_engines, write_files
from byoc.bench.machine import Machine

_MOST_OVERHEAD = 0.05


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; exit code 1 where the job costs more than 5 % over the bare loop."""
    parser = harness.parser("ray_data", __doc__, rounds=5)
    parser.add_argument("network", nargs="?", default="squeezenet", help="(default squeezenet)")
    parser.add_argument("--rows", type=int, default=256, help="of a job")
    parser.add_argument("--batch", type=int, default=16, help="rows of a call")
    options = parser.parse_args(arguments)
    more = require_engines()
    machine = Machine.measure(["byoc", "onnxruntime"])
    with tempfile.TemporaryDirectory(prefix="byoc_") as name:
        write_files(options.network, Path(name))
        given = (name, options.rows, options.batch, options.rounds)
        times = harness.call_apart("benchmarks.ray_contestants", *given, more=more)
    rates = {key: options.rows / median(seconds) for key, seconds in times.items()}
    rounds = zip(times["byoc"], times["bare loop"], strict=True)
    overhead = median(ours / bare for ours, bare in rounds) - 1
    if options.json:
        harness.show_json({"machine": machine.to_json(), "rows_per_second": rates, "times": times})
    else:
        print("\n".join(machine.lines()))
        print(
            "| network | rows of a call | byoc rows/s | ONNX Runtime rows/s | ratio | over bare |"
        )
        print("|---|--:|--:|--:|--:|--:|")
        ratio = rates["byoc"] / rates["ONNX Runtime"]
        print(
            f"| {options.network} | {options.batch} | {rates['byoc']:.1f} | "
            f"{rates['ONNX Runtime']:.1f} | {ratio:.2f} | {100 * overhead:+.1f} % |"
        )
    return int(overhead > _MOST_OVERHEAD)


if __name__ == "__main__":
    sys.exit(main())
