"""The engines that a benchmark compares: each turns a file and inputs into one callable.

Only a worker process calls the loaders, so that no engine's threads or libraries disturb another's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byoc.bench.precision import ALL, FP32
from byoc.bench.torch_engines import load_inductor, load_pytorch
from byoc.errors import BenchmarkError

if TYPE_CHECKING:
    import numpy as np

    Inputs = dict[str, np.ndarray]
    Run = Callable[[], object]
    Fetch = Callable[[], list[np.ndarray]]


def load_byoc(path: Path, inputs: Inputs, threads: int, precision: str = FP32) -> tuple[Run, Fetch]:
    """This project: a library from ``byoc.compile``."""
    del precision  # compiled in
    # TVM's FFI imports PyTorch where that is installed: a second, and memory, for nothing.
    sys.modules.setdefault("torch", None)
    from byoc.deploy.loader import load

    model = load(path, threads)
    tensors = model.tensors(inputs)
    return lambda: model.invoke(tensors), lambda: list(model.run(inputs).values())


def load_tvm(path: Path, inputs: Inputs, threads: int, precision: str = FP32) -> tuple[Run, Fetch]:
    """TVM as it is: a library from ``tvm.compile`` with its default pipeline."""
    del threads, precision  # TVM_NUM_THREADS, set by whoever started the process
    import tvm
    from tvm.runtime.vm import VirtualMachine

    main = VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())["main"]
    tensors = [tvm.runtime.tensor(array) for array in inputs.values()]

    def fetch() -> list[np.ndarray]:
        result = main(*tensors)
        results = [result] if hasattr(result, "numpy") else list(result)
        return [value.numpy() for value in results]

    return lambda: main(*tensors), fetch


def load_onnxruntime(
    path: Path, inputs: Inputs, threads: int, precision: str = FP32
) -> tuple[Run, Fetch]:
    """ONNX Runtime's CPU provider with all optimisations (its default)."""
    del precision  # the file's
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    values = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in inputs.items()
    }
    names = [output.name for output in session.get_outputs()]
    return (
        lambda: session.run_with_ort_values(names, values),
        lambda: list(session.run(names, inputs)),
    )


def load_openvino(
    path: Path, inputs: Inputs, threads: int, precision: str = FP32
) -> tuple[Run, Fetch]:
    """OpenVINO's CPU plug-in; the precision by name, as its default is bf16 where the CPU has it.

    What is quantised in the file is computed on integers, and the rest in fp32.
    """
    import numpy as np
    import openvino

    core = openvino.Core()
    options = {
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    compiled = core.compile_model(core.read_model(str(path)), "CPU", options)
    request = compiled.create_infer_request()
    for port, array in zip(compiled.inputs, inputs.values(), strict=True):
        request.set_tensor(port, openvino.Tensor(array, shared_memory=True))

    def run(_keep: Inputs = inputs) -> Any:  # the tensors only point at them
        return request.infer(share_outputs=True)

    def fetch() -> list[np.ndarray]:
        results = run()
        return [np.array(results[port]) for port in compiled.outputs]

    return run, fetch


def load_ncnn(path: Path, inputs: Inputs, threads: int, precision: str = FP32) -> tuple[Run, Fetch]:
    """ncnn on the files that pnnx wrote, ``path`` and the .bin beside it; no fp16 anywhere."""
    import ncnn
    import numpy as np

    net = ncnn.Net()
    options = net.opt
    for reduced in ("fp16_packed", "fp16_storage", "fp16_arithmetic"):
        setattr(options, f"use_{reduced}", False)
    for reduced in ("bf16_packed", "bf16_storage"):
        setattr(options, f"use_{reduced}", precision == "bf16")
    options.lightmode = True
    options.num_threads = threads
    if net.load_param(str(path)) or net.load_model(str(path.with_suffix(".bin"))):
        raise BenchmarkError("it cannot load what pnnx wrote")
    names = [f"in{index}" for index in range(len(inputs))]
    if unknown := [name for name in names if name not in net.input_names()]:
        raise BenchmarkError(f"pnnx dropped input {unknown[0]}; its inputs are {net.input_names()}")
    # Integers have 32 bits there; clone() copies into memory of its own alignment.
    arrays = (a.astype(np.int32) if a.dtype == np.int64 else a for a in inputs.values())
    mats = [ncnn.Mat(array, batch_index=0).clone() for array in arrays]
    # In the order of the model, not in that of the computation.
    results = [f"out{index}" for index in range(len(net.output_names()))]

    def run() -> list[Any]:
        with net.create_extractor() as extractor:
            for name, mat in zip(names, mats, strict=True):
                extractor.input(name, mat)
            found = [extractor.extract(name) for name in results]
        if any(status for status, _ in found):
            raise BenchmarkError("it failed while running")
        return [mat for _, mat in found]

    return run, lambda: [np.array(mat.numpy(batch_index=0)) for mat in run()]


#: Kinds of models' files.
ONNX, TORCH = "ONNX", "PyTorch"


def how_to_install(packages: Mapping[str, str]) -> str | None:
    """None where all modules are there, or what would install those that are not."""
    missing = [name for module, name in packages.items() if find_spec(module) is None]
    commands = (f"pip install {name}" for name in missing)
    return f"not installed; {' and '.join(commands)}" if missing else None


@dataclass(frozen=True)
class Engine:
    """How an engine is loaded, what it is called in tables, and which packages it needs."""

    title: str
    load: Callable[[Path, Inputs, int, str], tuple[Run, Fetch]]
    #: Module: what pip installs for it; the first one has the engine's version.
    packages: dict[str, str]
    #: Whether ours is held against it: plain TVM is where we come from.
    peer: bool = True
    #: In which it can compute.
    precisions: tuple[str, ...] = tuple(ALL)
    #: What kinds of models it is measured on.
    models: tuple[str, ...] = (ONNX,)

    def absent(self) -> str | None:
        """None, or what would install it."""
        return how_to_install(self.packages)

    def version(self) -> str:
        """The version of its package."""
        try:
            return metadata.version(next(iter(self.packages.values())))
        except metadata.PackageNotFoundError:  # of a build with another name
            return "of unknown version"


#: By the name on the command line.
ENGINES = {
    "byoc": Engine("byoc", load_byoc, {"byoc": "tvm-byoc-ext"}, peer=False, models=(ONNX, TORCH)),
    "tvm": Engine(
        "plain TVM",
        load_tvm,
        {"tvm": "apache-tvm"},
        peer=False,
        precisions=("fp32", "int8"),
        models=(ONNX, TORCH),
    ),
    "onnxruntime": Engine(
        "ONNX Runtime",
        load_onnxruntime,
        {"onnxruntime": "onnxruntime"},
        precisions=("fp32", "int8"),
    ),
    "openvino": Engine("OpenVINO", load_openvino, {"openvino": "openvino"}),
    "ncnn": Engine(
        "ncnn",
        load_ncnn,
        {"ncnn": "ncnn", "pnnx": "--no-deps pnnx"},
        precisions=("fp32", "bf16"),
    ),
    "pytorch": Engine(
        "PyTorch", load_pytorch, {"torch": "torch"}, precisions=("fp32", "bf16"), models=(TORCH,)
    ),
    "inductor": Engine(
        "Inductor", load_inductor, {"torch": "torch"}, precisions=("fp32", "bf16"), models=(TORCH,)
    ),
}

#: By the kind of a model, the engine whose answer the others' are compared with.
REFERENCES = {ONNX: "onnxruntime", TORCH: "pytorch"}
