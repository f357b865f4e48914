"""What benchmarks of engines share: a network with any number of rows, in files, and answers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import onnx

from benchmarks import harness
from byoc.bench.subjects import load_subject
from byoc.errors import BenchmarkError
from models.builder import GraphBuilder

#: Where ``make test-all`` installs the engines.
APART = Path(sys.prefix, "serving")
_DIFFERENT = 8
#: A network that only sums up an image, to see what an engine itself costs.
NOTHING = "nothing"


def _nothing() -> onnx.ModelProto:
    graph = GraphBuilder(NOTHING, 0)
    x = graph.input("image", (1, 3, 224, 224))
    graph.output(graph.op("Flatten", graph.op("GlobalAveragePool", x)), "means", (1, 3))
    return graph.build()


def require_engines() -> dict[str, str]:
    """Variables for a process that finds the engines. Raises ``BenchmarkError``."""
    if not APART.is_dir():
        raise BenchmarkError(f"Ray and MLServer are not in {APART}; make test-all installs them")
    return {
        "PYTHONPATH": os.pathsep.join([str(APART), str(harness.ROOT)]),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # else what runs beside takes turns with the workers
    }


def write_files(network: str, folder: Path) -> None:
    """Write ``model.onnx``, ``model.so``, and rows with ONNX Runtime's answers as ``.npy`` files.

    Raises ``BenchmarkError`` for a network with more than one input or output.
    """
    import onnxruntime

    if network == NOTHING:
        onnx.save(_nothing(), folder / "nothing.onnx")
        network = str(folder / "nothing.onnx")
    subject = load_subject(network)
    model = subject.model
    tensors = (*model.graph.input, *model.graph.output)
    if len(tensors) != 2 or not isinstance(model, onnx.ModelProto):
        raise BenchmarkError(f"{network} has more than one input or output; take another network")
    for tensor in tensors:
        tensor.type.tensor_type.shape.dim[0].dim_param = "batch"
    del model.graph.value_info[:]
    onnx.save(model, folder / "model.onnx")
    harness.byoc("compile", folder / "model.onnx", "-o", folder / "model.so", "--require-full")
    session = onnxruntime.InferenceSession(
        folder / "model.onnx", providers=["CPUExecutionProvider"]
    )
    (name, drawn), *_ = subject.inputs.items()
    draw = np.random.default_rng(0)
    rows = draw.standard_normal((_DIFFERENT, *drawn.shape[1:])).astype(drawn.dtype)
    np.save(folder / "rows.npy", rows)
    np.save(folder / "expected.npy", session.run(None, {name: rows})[0])
