"""The engines that a benchmark compares: each turns a model file and inputs into one callable.

Only a worker process calls these, so that no engine's threads or libraries disturb another's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

Inputs = dict[str, np.ndarray]
Run = Callable[[], object]
Fetch = Callable[[], list[np.ndarray]]


def byoc_engine(path: Path, inputs: Inputs, threads: int) -> tuple[Run, Fetch]:
    """This project: a library from ``byoc.compile``."""
    from byoc.loader import load

    model = load(path, threads)
    tensors = model.tensors(inputs)
    return lambda: model.invoke(tensors), lambda: list(model.run(inputs).values())


def tvm_engine(path: Path, inputs: Inputs, threads: int) -> tuple[Run, Fetch]:
    """TVM as it is: a library from ``tvm.compile`` with its default pipeline."""
    del threads  # TVM_NUM_THREADS, set by whoever started the process
    import tvm
    from tvm.runtime.vm import VirtualMachine

    main = VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())["main"]
    tensors = [tvm.runtime.tensor(array) for array in inputs.values()]

    def fetch() -> list[np.ndarray]:
        result = main(*tensors)
        results = [result] if hasattr(result, "numpy") else list(result)
        return [value.numpy() for value in results]

    return lambda: main(*tensors), fetch


def onnxruntime_engine(path: Path, inputs: Inputs, threads: int) -> tuple[Run, Fetch]:
    """ONNX Runtime's CPU provider with all optimisations (its default)."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    values = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in inputs.items()
    }
    names = [output.name for output in session.get_outputs()]
    return (
        lambda: session.run_with_ort_values(names, values),
        lambda: list(session.run(names, inputs)),
    )


#: Name on the command line: loader, title in tables.
ENGINES = {
    "byoc": (byoc_engine, "byoc"),
    "onnxruntime": (onnxruntime_engine, "ONNX Runtime"),
    "tvm": (tvm_engine, "plain TVM"),
}
