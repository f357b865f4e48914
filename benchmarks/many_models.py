"""Many models in one process: what each costs to load, in memory of its own and of its file.

``python -m benchmarks.many_models [squeezenet] [--models 100] [--json]``

Each model is a file of its own, a copy of one library. Memory of the process's own is what /proc
calls anonymous; pages of files are shared with every process that maps them, and can be dropped.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import harness
from byoc.bench.machine import Machine
from byoc.bench.subjects import load_subject


def child(folder: str, count: int) -> dict[str, float]:
    """Load all, then run each once on one thread; milliseconds, MB and mappings for each model."""
    from byoc.deploy.loader import load
    from byoc.deploy.tvm_runtime import start_runtime

    start_runtime(1)
    with np.load(Path(folder, "inputs.npz")) as file:
        inputs = dict(file)
    load(Path(folder, "first.so"), 1).run(inputs)  # what all models share
    before = _memory()
    times, models = [], []
    for number in range(count):
        begin = time.perf_counter()
        models.append(load(Path(folder, f"{number}.so"), 1))
        times.append(1e3 * (time.perf_counter() - begin))
    loaded = _memory()
    for model in models:
        model.run(inputs)
    ran = _memory()
    found = {"load_ms": float(np.median(times)), "last_load_ms": float(np.median(times[-10:]))}
    for name, now, then in (("loaded", loaded, before), ("ran", ran, before)):
        for key in now:
            found[f"{name}_{key}"] = (now[key] - then[key]) / count
    return found


def _memory() -> dict[str, float]:
    """MB of the process's own and of files, and the number of its mappings."""
    sizes = {}
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
        key, _, rest = line.partition(":")
        sizes[key] = float(rest.split()[0]) * 1024e-6
    mappings = len(Path("/proc/self/maps").read_text(encoding="utf-8").splitlines())
    own = sizes["Anonymous"]
    return {"own_mb": own, "file_mb": sizes["Rss"] - own, "mappings": mappings}


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table."""
    parser = harness.parser("many_models", __doc__)
    parser.add_argument("network", nargs="?", default="squeezenet", help="(default squeezenet)")
    parser.add_argument("--models", type=int, default=100, help="(default 100)")
    options = parser.parse_args(arguments)
    subject = load_subject(options.network)
    machine = Machine.measure(["byoc"])
    with tempfile.TemporaryDirectory(prefix="byoc_") as name:
        folder = Path(name)
        first = folder / "first.so"
        import byoc

        byoc.compile(subject.model, first)
        np.savez(folder / "inputs.npz", **subject.inputs)
        for number in range(options.models):
            shutil.copy(first, folder / f"{number}.so")
        found = harness.call_apart("benchmarks.many_models", name, options.models)
        size = first.stat().st_size * 1e-6
    limit = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
    if options.json:
        harness.show_json({"library_mb": size, "max_map_count": limit, **found})
        return 0
    print("\n".join(machine.lines()))
    print(
        "| network | file MB | load ms | the last ten | own MB, loaded | own MB, run once "
        "| of the file MB | mappings |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    print(
        f"| {options.network} | {size:.1f} | {found['load_ms']:.2f} | "
        f"{found['last_load_ms']:.2f} | {found['loaded_own_mb']:.2f} | {found['ran_own_mb']:.2f} | "
        f"{found['ran_file_mb']:.1f} | {found['ran_mappings']:.1f} |"
    )
    print(f"The system allows {limit} mappings of a process (vm.max_map_count).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
