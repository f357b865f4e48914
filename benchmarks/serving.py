"""Requests per second and their times: a library and ONNX Runtime in one MLServer.

``python -m benchmarks.serving [resnet50] [--clients 8] [--seconds 6] [--rounds 3] [--json]``

So many clients of Triton's send rows one by one over gRPC, each the next when it has the answer.
Three models take turns: the library with all threads in a call (``byoc_threads``), the library
with as many calls of one thread (``byoc_callers``), and ONNX Runtime with all threads. All join
requests, ours by ``max_batch_rows``, ONNX Runtime's by MLServer's adaptive batching, of as many
rows as there are clients, after 2 milliseconds at most. The network ``nothing`` only sums up an
image: its requests per second are what one process of the server can read.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import harness
from benchmarks.engine_files import require_engines, write_files
from byoc.bench.machine import Machine


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; exit code 1 where we answer fewer requests, or p99 is longer,
    than with ONNX Runtime."""
    parser = harness.parser("serving", __doc__, rounds=3, threads=os.cpu_count() or 1)
    parser.add_argument(
        "network",
        nargs="?",
        default="resnet50",
        help="of the zoo, an ONNX file, or nothing (default resnet50)",
    )
    parser.add_argument("--clients", type=int, default=8, help="that wait for an answer each")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each turn")
    options = parser.parse_args(arguments)
    more = require_engines()
    machine = Machine.measure(["byoc", "onnxruntime"])
    with tempfile.TemporaryDirectory(prefix="byoc_") as name:
        write_files(options.network, Path(name))
        given = (name, options.clients, options.threads, options.seconds, options.rounds)
        times = harness.call_apart("benchmarks.serving_load", *given, more=more)
    rows = []
    for model, turns in times.items():
        rate = median(len(turn) / options.seconds for turn in turns)
        p50, p99 = (median(1e3 * float(np.percentile(t, q)) for t in turns) for q in (50, 99))
        rows.append({"model": model, "requests_per_second": rate, "p50_ms": p50, "p99_ms": p99})
    if options.json:
        harness.show_json({"machine": machine.to_json(), "rows": rows})
    else:
        print("\n".join(machine.lines()))
        print("| network | clients | threads | model | requests/s | p50 ms | p99 ms |")
        print("|---|--:|--:|---|--:|--:|--:|")
        for row in rows:
            print(
                f"| {options.network} | {options.clients} | {options.threads} | {row['model']} | "
                f"{row['requests_per_second']:.1f} | {row['p50_ms']:.1f} | {row['p99_ms']:.1f} |"
            )
    *ours, theirs = rows
    best = max(ours, key=lambda row: row["requests_per_second"])
    worse = best["requests_per_second"] < theirs["requests_per_second"]
    return int(worse or best["p99_ms"] > theirs["p99_ms"])


if __name__ == "__main__":
    sys.exit(main())
