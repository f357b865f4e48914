"""Damaged models: one flipped bit, compiled in a child process and compared with ONNX Runtime.

The models are small, and together hold what files hold: kinds of operators and attributes, sizes
that are computed, branches, constants, data in a file beside them, and names of every sort.
"""

from __future__ import annotations

import random
import resource
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import byoc
from tests.fuzz.evaluate import difference
from tests.fuzz.trial import is_internal
from tests.hostile.libraries import one_bit
from tests.workers import Lost, Pool

#: Outcomes that are as they should be; any other text is one that is not.
RIGHT, REFUSED = "right answer", "refused in one line"
#: ONNX Runtime refuses the file, and we compile it; only for the reasons in ``HARMLESS``.
LENIENT = "ONNX Runtime alone refuses"
FINE = (RIGHT, REFUSED, LENIENT)

#: What ONNX Runtime says of files that say what to compute all the same.
HARMLESS = (
    "Pad should be smaller than kernel",  # its own rule: ONNX has none
    "Field 'name' of 'graph' is required",  # nobody reads it
    "returned while running If node",  # the declared shape of a branch's result
    "does not match expected type",  # the declared type of a branch's result
)

#: Seconds and bytes of address space that one case may take.
LIMIT, MEMORY = 60.0, 8 << 30

#: Of this many bits one is of the weights; the rest is of what says how to read them.
ONE_OF_WEIGHTS = 8

#: Names that would do damage in C, a shell, a terminal, a format or a path.
NAMES = (
    "a\"b'c",
    "two\nlines",
    "%s%n",
    "*/ #error /*",
    "\x1b[2J\x1b]0;title\x07",
    "../../../up",
    "$(touch x)`touch x`; x",
    "back\\slash\\",
    "??/",
    "\u202eright to left",
)


class _Graph:
    """Collects nodes whose names, and those of their tensors, are ``NAMES`` in turn."""

    def __init__(self, hostile: bool) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._hostile = hostile
        self._count = 0
        self._draw = np.random.default_rng(7)

    def name(self, kind: str) -> str:
        self._count += 1
        word = NAMES[self._count % len(NAMES)] if self._hostile else ""
        return f"{kind}{self._count}{word}"

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        output = self.name("t")
        self.nodes.append(
            helper.make_node(kind, inputs, [output], name=self.name(kind), **attributes)
        )
        return output

    def weight(self, *shape: int) -> str:
        return self.constant(self._draw.uniform(0.1, 0.6, shape).astype(np.float32))

    def constant(self, value: Any) -> str:
        name = self.name("w")
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def model(self, inputs: dict[str, list[int]], outputs: dict[str, list[int]]) -> onnx.ModelProto:
        def values(of: dict[str, list[int]]) -> list[onnx.ValueInfoProto]:
            return [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in of.items()]

        name = NAMES[3] if self._hostile else "graph"
        graph = helper.make_graph(self.nodes, name, values(inputs), values(outputs), self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        model.producer_name = "by hand"
        helper.set_model_props(model, {"key": "value"})
        return model


def image_model() -> onnx.ModelProto:
    """Convolution, batch norm, pool, resize, concatenation."""
    graph = _Graph(hostile=False)
    x = graph.op(
        "Conv", "x", graph.weight(4, 2, 3, 3), graph.weight(4), kernel_shape=[3, 3], pads=[1] * 4
    )
    x = graph.op("BatchNormalization", x, *(graph.weight(4) for _ in range(4)), epsilon=1e-3)
    x = graph.op("Relu", x)
    small = graph.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    scales = graph.constant(np.array([1, 1, 2, 2], np.float32))
    large = graph.op("Resize", small, "", scales, mode="nearest", nearest_mode="floor",
                     coordinate_transformation_mode="asymmetric")  # fmt: skip
    x = graph.op("Concat", x, large, axis=1)
    graph.op("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, ceil_mode=0, count_include_pad=1)
    return graph.model({"x": [1, 2, 6, 6]}, {graph.nodes[-1].output[0]: [1, 8, 6, 6]})


def row_model() -> onnx.ModelProto:
    """Computed sizes, a branch, Gemm, softmax and constants, with hostile names."""
    graph = _Graph(hostile=True)
    given, result = f"in {NAMES[0]}", f"out {NAMES[1]}{NAMES[4]}"
    batch = graph.op("Gather", graph.op("Shape", given), graph.constant(np.int64(0)), axis=0)
    batch = graph.op("Unsqueeze", batch, graph.constant(np.array([0], np.int64)))
    rest = graph.op("Constant", value=numpy_helper.from_array(np.array([-1], np.int64)))
    x = graph.op("Reshape", given, graph.op("Concat", batch, rest, axis=0))
    x = graph.op("Gemm", x, graph.weight(5, 12), graph.weight(5), transB=1, alpha=1.5)
    branches = {}
    for side, operator in (("then_branch", "Tanh"), ("else_branch", "Sigmoid")):
        inner = graph.name(side)
        node = helper.make_node(operator, [x], [inner], name=graph.name(operator))
        value = helper.make_tensor_value_info(inner, TensorProto.FLOAT, [2, 5])
        branches[side] = helper.make_graph([node], graph.name(side), [], [value])
    x = graph.op("If", graph.constant(np.bool_(True)), **branches)
    x = graph.op("Softmax", x, axis=-1)
    x = graph.op("Slice", x, *(graph.constant(np.array([n], np.int64)) for n in (1, 5, 1)))
    graph.op("Transpose", x, perm=[1, 0])
    graph.nodes[-1].output[0] = result
    return graph.model({given: [2, 3, 4]}, {result: [4, 2]})


def write_models(folder: Path) -> list[Path]:
    """The models, the second one with most weights in a file beside it."""
    paths = []
    for name, model in (("image", image_model()), ("row", row_model())):
        path = folder / f"{name}.onnx"
        beside = name == "row"
        onnx.save(
            model, path, save_as_external_data=beside, location="it's %s.data", size_threshold=100
        ) if beside else onnx.save(model, path)
        paths.append(path)
    return paths


@dataclass(frozen=True)
class Case:
    """A bit to turn over in a model file; None leaves it as it is."""

    model: Path
    bit: int | None

    def damaged(self) -> bytes:
        """The file's content."""
        content = self.model.read_bytes()
        return content if self.bit is None else one_bit(content, self.bit)


def bits(model: Path, count: int, seed: int) -> list[Case]:
    """Single bits, one of ``ONE_OF_WEIGHTS`` among the weights' data."""
    draw, content = random.Random(seed), model.read_bytes()
    data: set[int] = set()
    for tensor in onnx.load(model, load_external_data=False).graph.initializer:
        if len(tensor.raw_data) > 16:
            begin = content.index(tensor.raw_data)
            data.update(range(begin, begin + len(tensor.raw_data)))
    weights = [8 * at + bit for at in sorted(data) for bit in range(8)]
    rest = [8 * at + bit for at in range(len(content)) if at not in data for bit in range(8)]
    few = min(count // ONE_OF_WEIGHTS, len(weights))
    return [Case(model, bit) for bit in draw.sample(weights, few) + draw.sample(rest, count - few)]


def meaning(content: bytes) -> bytes:
    """The same for files that differ in what nobody computes with: texts about the model."""
    try:
        model = onnx.ModelProto.FromString(content)
        model.DiscardUnknownFields()
        for field in ("producer_name", "producer_version", "domain", "doc_string", "model_version"):
            str(getattr(model, field))  # those that cannot be read matter
            model.ClearField(field)
        model.graph.doc_string = ""
        for node in model.graph.node:
            node.doc_string = ""
        return model.SerializeToString(deterministic=True)
    except Exception:  # protobuf's and Python's
        return content


# ---------------------------------------------------------------------- trying them


def try_case(case: Case) -> tuple[str, str]:
    """In a worker: the outcome, and what was said."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory(prefix="byoc_") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        for beside in case.model.parent.glob("*.data"):
            (folder / beside.name).write_bytes(beside.read_bytes())
        path, library = folder / "m.onnx", folder / "m.so"
        path.write_bytes(case.damaged())
        before = sorted(folder.iterdir())
        try:
            byoc.compile(path, library, exact=_has_special_weights(path))
            loaded = byoc.load(library, threads=1)
        except byoc.ByocError as error:
            text = str(error)
            damaged = "no ONNX model" in text  # protobuf's words, which say "Error parsing"
            if not text.isprintable() or (is_internal(error) and not damaged):
                return f"badly refused: {text!r}", text
            left = [at.name for at in sorted(folder.iterdir()) if at not in before]
            return (f"refused, and left {left}" if left else REFUSED), text
        except Exception as error:
            return f"untyped {type(error).__name__}: {str(error)[:200]!r}", ""
        return _compare(path, loaded)


def _has_special_weights(path: Path) -> bool:
    """Whether numbers are such that ``exact`` is documented to be needed."""
    try:
        tensors = onnx.load(path, load_external_data=False).graph.initializer
        arrays = [numpy_helper.to_array(t) for t in tensors if t.HasField("raw_data")]
    except Exception:  # protobuf's, NumPy's and Python's
        return False
    return any(
        not np.isfinite(array).all() or np.abs(array).max(initial=0) > 1e4
        for array in arrays
        if array.dtype.kind == "f"
    )


def _compare(path: Path, loaded: byoc.Model) -> tuple[str, str]:
    draw = np.random.default_rng(0)
    feeds = {
        info.name: draw.standard_normal(info.shape).astype(info.dtype) for info in loaded.inputs
    }
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        names = [output.name for output in session.get_outputs()]
        want = dict(zip(names, session.run(names, feeds), strict=True))
    except Exception as error:  # its classes have no common base
        text = str(error)
        harmless = any(reason in text for reason in HARMLESS)
        return LENIENT if harmless else f"ONNX Runtime refuses: {text}", text
    try:
        got = loaded.run(feeds)
    except Exception as error:
        return f"does not run: {type(error).__name__}: {error}", ""
    if set(got) != set(want):
        return f"outputs {sorted(got)!r} instead of {sorted(want)!r}", ""
    with np.errstate(all="ignore"):
        found = {name: how for name in want if (how := difference(got[name], want[name]))}
    return (f"wrong: {found}", "") if found else (RIGHT, "")


def try_all(
    cases: Iterable[Case], jobs: int = 1, seen: Callable[[Case, str, str], None] | None = None
) -> tuple[Counter[str], list[str]]:
    """How often what became of the cases, and a line for each that should not be.

    Files that mean the same share a result.
    """
    alike: dict[bytes, list[Case]] = {}
    for case in cases:
        alike.setdefault(meaning(case.damaged()), []).append(case)
    groups = {group[0]: group for group in alike.values()}
    counts: Counter[str] = Counter()
    bad: list[str] = []

    def finished(first: Case, result: Any) -> list[Case]:
        outcome, said = (result.text, "") if isinstance(result, Lost) else result
        counts[outcome] += len(groups[first])
        if outcome not in FINE:
            bad.append(f"{first.model.name} bit {first.bit}: {outcome}")
        if seen is not None:
            seen(first, outcome, said)
        return []

    preload = ("tests.hostile.models", "byoc.frontends.onnx", "codegen_cc", "sympy")
    pool = Pool(run=try_case, limit=lambda case: LIMIT, preload=preload, tasks_per_worker=40)
    pool.run_tasks(list(groups), jobs, finished)
    return counts, bad
