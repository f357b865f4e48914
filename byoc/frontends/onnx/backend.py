"""This backend behind ONNX's own interface for backends (``onnx.backend.base``).

``prepare(model).run(inputs)`` takes a model the whole way in process: prepare, import, partition,
generate code, compile. ONNX's conformance tests drive any backend through this interface::

    import byoc.frontends.onnx.backend as backend
    y, = backend.prepare(onnx.load("model.onnx")).run([x])
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import tvm
from onnx.backend.base import Backend, BackendRep, namedtupledict
from tvm import relax

from byoc.arguments import as_whole
from byoc.autoload import register
from byoc.errors import CompileError, InputError, ModelError, RunError
from byoc.frontends.onnx import import_onnx
from byoc.frontends.onnx import prepare as prepare_onnx
from byoc.frontends.onnx.input_shapes import model_inputs
from byoc.frontends.onnx.sequence_inputs import laid_open, needs_values
from byoc.ir.packed_calls import bring_along
from byoc.link_shared import linker_of
from byoc.partition import partition
from byoc.partition.prune import MIN_COMPUTE_BYTES
from byoc.partition.rules import Rules
from byoc.report import Report
from codegen_cc.errors import foreign_errors_as
from codegen_cc.target import HOST

#: What one value of a call may be: a tensor, or for sequences a list of them.
Value = Any


class ExtBackendRep(BackendRep):
    """A model, compiled for the shapes that it is run with.

    A model with static shapes is compiled at once. Dynamic axes take their size from the inputs of
    ``run``, and sequences their length; it compiles again when these differ from those of the call
    before, and where a value does that says how many tensors there are (``sequence_inputs``).
    ``min_bytes`` is that of ``partition_for_ext``, ``allow_wrong`` that of ``import_onnx``.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        min_bytes: int = MIN_COMPUTE_BYTES,
        allow_wrong: Sequence[str] = (),
    ) -> None:
        if not isinstance(model, onnx.ModelProto):
            raise ModelError(f"the model is of type {type(model).__name__}; need onnx.ModelProto")
        self.model = model
        self.allow_wrong = allow_wrong
        self.rules = Rules.of(min_bytes=min_bytes)
        self.report: Report | None = None
        self._names = [value.name for value in model_inputs(model)]
        #: Of what the machine is: the model that it serves, and the shapes of its dynamic inputs.
        self._compiled: tuple[onnx.ModelProto, dict[str, tuple[int, ...]]] | None = None
        self._machine: relax.VirtualMachine | None = None
        self._opens = needs_values(model)
        if not self._opens and not dynamic_inputs(model):
            self._compile(model, {})

    def run(self, inputs: Value, **kwargs: Any) -> tuple[Value, ...]:
        """The outputs, in order, as arrays; fields of the tuple have the outputs' names.

        ``inputs`` are arrays in the order of the model's inputs, or a mapping by name. Raises
        ``ByocError`` where the model cannot be compiled for them, where they do not fit it, and
        where it fails.
        """
        del kwargs  # of the interface; none has a meaning here
        values = self._values(inputs)
        if self._opens:
            model, arrays = laid_open(self.model, values)
        else:
            model, arrays = self.model, {n: np.asarray(value) for n, value in values.items()}
        shapes = {name: arrays[name].shape for name in dynamic_inputs(model)}
        if self._compiled != (model, shapes):
            self._compile(model, shapes)
        with foreign_errors_as(RunError, "running the model"):
            values = run_machine(self._machine, list(arrays.values()))
        outputs = self.model.graph.output
        if len(outputs) == 1 and _is_list(outputs[0].type):
            values = [values]  # the one output is the list
        return namedtupledict("Outputs", [value.name for value in outputs])(*values)

    def _values(self, inputs: Value) -> dict[str, Value]:
        if isinstance(inputs, Mapping):
            if missing := [name for name in self._names if name not in inputs]:
                raise InputError(f"input {missing[0]!r} is missing")
            inputs = [inputs[name] for name in self._names]
        elif isinstance(inputs, np.ndarray):
            inputs = [inputs]
        elif not isinstance(inputs, Sequence):
            raise InputError(
                f"the inputs are of type {type(inputs).__name__}; need a list or a dictionary"
            )
        if len(inputs) != len(self._names):
            raise InputError(
                f"{len(inputs)} inputs given; the model has {len(self._names)}:"
                f" {', '.join(self._names)}"
            )
        return dict(zip(self._names, inputs, strict=True))

    def _compile(self, model: onnx.ModelProto, shapes: dict[str, tuple[int, ...]]) -> None:
        prepared = prepare_onnx(model, {name: list(shape) for name, shape in shapes.items()})
        module = import_onnx(prepared, self.allow_wrong)
        module, self.report = partition(module, self.rules)
        register()  # for a source tree that is not installed, where TVM sees no entry point
        with foreign_errors_as(CompileError, "compiling the model"):
            module = bring_along(relax.transform.RunCodegen()(module))
            built = tvm.compile(module, "llvm").jit(**linker_of(HOST))
            self._machine = relax.VirtualMachine(built, tvm.cpu())
        self._compiled = model, shapes


def _is_list(kind: onnx.TypeProto) -> bool:
    """Whether a type is a sequence, or an optional that holds one."""
    held = kind.optional_type.elem_type if kind.HasField("optional_type") else kind
    return held.HasField("sequence_type")


def dynamic_inputs(model: onnx.ModelProto) -> list[str]:
    """Names of the tensor inputs with an axis of unknown size, or of unknown rank."""
    names = []
    for value in model_inputs(model):
        kind = value.type.tensor_type
        sized = all(dim.dim_value > 0 for dim in kind.shape.dim)  # 0 may mean unknown
        if value.type.HasField("tensor_type") and not (kind.HasField("shape") and sized):
            names.append(value.name)
    return names


def run_machine(machine: relax.VirtualMachine, arrays: Sequence[np.ndarray]) -> list[Value]:
    """Results of ``main`` as arrays, for any nesting of tuples as lists of them."""
    # ascontiguousarray alone would make a scalar a vector of one element
    tensors = [tvm.runtime.tensor(np.ascontiguousarray(a).reshape(a.shape)) for a in arrays]
    result = machine["main"](*tensors)
    value = _to_numpy(result)
    return value if isinstance(value, list) else [value]


def _to_numpy(value: Any) -> Value:
    if isinstance(value, tvm.runtime.Tensor):
        return value.numpy()
    if isinstance(value, tvm.runtime.ShapeTuple):
        return np.asarray(list(value), "int64")
    return [_to_numpy(item) for item in value]


class ExtBackend(Backend):
    """Compiles ONNX models with TVM and this package's kernels, for the CPU."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models can run on a device, such as ``CPU`` or ``CPU:0``."""
        return device.partition(":")[0] == "CPU"

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> ExtBackendRep:
        """Compile a model; of ``kwargs``, ``min_bytes`` and ``allow_wrong`` are as above.

        Raises ``ByocError``, also for another device than the CPU.
        """
        if not cls.supports_device(device):
            raise CompileError(f"device {device!r}; this backend runs on CPU")
        # The others are of the interface, such as tolerances of ONNX's test runner.
        least = kwargs.get("min_bytes", MIN_COMPUTE_BYTES)
        least = as_whole(least, "min_bytes", CompileError, 0, sys.maxsize)
        return ExtBackendRep(model, least, kwargs.get("allow_wrong", ()))

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Sequence[np.ndarray],
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Value, ...]:
        """Run one operator. ``opset_version`` among ``kwargs`` sets the version it is read as."""
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        names = [name for name in node.input if name]
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [
                onnx.helper.make_tensor_value_info(
                    name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
                )
                for name, array in zip(names, inputs, strict=True)
            ],
            [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name],
        )
        version = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        opset = onnx.helper.make_opsetid(node.domain, version)
        return cls.run_model(onnx.helper.make_model(graph, opset_imports=[opset]), inputs, device)


is_compatible = ExtBackend.is_compatible
prepare = ExtBackend.prepare
run_model = ExtBackend.run_model
run_node = ExtBackend.run_node
supports_device = ExtBackend.supports_device
