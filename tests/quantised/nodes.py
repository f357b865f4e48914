"""Single operators on quantised tensors, all of a test in one model, and their formulas in NumPy.

The formulas compute in float64, from integers that float64 holds exactly. ONNX Runtime is a second
reference where it is exact: without VNNI it adds 8-bit products in 16 bits, and saturates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import byoc.frontends.onnx.backend as backend
from byoc.frontends.onnx.exact_reference import exact_session

OPSET = 21


@dataclass
class One:
    """A node: its input of run time, its constants (None for one left out), the result wanted.

    ``exact`` says whether ONNX Runtime computes this node exactly.
    """

    operator: str
    data: np.ndarray
    constants: Sequence[np.ndarray | None]
    wanted: Sequence[np.ndarray]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    exact: bool = True


def check(ones: list[One], opset: int = OPSET, left: Collection[str] = ()) -> None:
    """Our results, of one model, against the formulas and ONNX Runtime.

    ``left`` names the operators that stay with TVM, all of them.
    """
    compiled = backend.prepare(model_of(ones, opset), min_bytes=0)
    assert {entry.op for entry in compiled.report.left} == set(left)
    found = iter(compiled.run([one.data for one in ones]))
    for one in ones:
        results = [next(found) for _ in one.wanted]
        for got, want in zip(results, one.wanted, strict=True):
            assert_alike(got, want, f"{one.operator} {dict(one.attributes)}")
        if one.exact:
            others = onnxruntime_of(model_of([one], opset), one.data)
            for got, want in zip(results, others, strict=True):
                assert_alike(got, want, f"{one.operator} of ONNX Runtime")


def model_of(ones: list[One], opset: int = OPSET) -> onnx.ModelProto:
    nodes, inputs, stored, outputs = [], [], [], []
    for i, one in enumerate(ones):
        names = [f"c{i}_{j}" if c is not None else "" for j, c in enumerate(one.constants)]
        results = [f"y{i}_{j}" for j in range(len(one.wanted))]
        node = helper.make_node(one.operator, [f"x{i}", *names], results, f"node{i}")
        node.domain = one.domain
        attributes = one.attributes.items()
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes)
        nodes.append(node)
        dtype = helper.np_dtype_to_tensor_dtype(one.data.dtype)
        inputs.append(helper.make_tensor_value_info(f"x{i}", dtype, one.data.shape))
        pairs = zip(names, one.constants, strict=True)
        stored += [numpy_helper.from_array(np.asarray(c), name) for name, c in pairs if name]
        outputs += map(helper.make_empty_tensor_value_info, results)
    graph = helper.make_graph(nodes, "nodes", inputs, outputs, stored)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def unfused(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """ONNX Runtime's session that computes node by node."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return exact_session(model, options)


def onnxruntime_of(model: onnx.ModelProto, data: np.ndarray) -> list[np.ndarray]:
    session = unfused(model)
    return session.run(None, {session.get_inputs()[0].name: data})


def assert_alike(found: np.ndarray, wanted: np.ndarray, what: str = "") -> None:
    """Integers of 8 bits are equal, or one step off in at most 0.1 % of the elements; floats close.

    One element may be off in any tensor: a tie, which float32 may see on either side. Integers of
    32 bits are sums, and equal.
    """
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), what
    if wanted.dtype == np.float32:
        limit = 1e-5 * float(np.abs(wanted).max(initial=1e-3))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=limit, err_msg=what)
        return
    if wanted.dtype == np.int32:
        np.testing.assert_array_equal(found, wanted, err_msg=what)
        return
    apart = np.abs(found.astype(np.int64) - wanted.astype(np.int64))
    assert apart.max(initial=0) <= 1, f"{what}: {apart.max()} steps"
    assert (apart > 0).sum() <= max(1, 0.001 * apart.size), f"{what}: {(apart > 0).mean():%}"


# ---------------------------------------------------------------------- formulas


def reals(x: np.ndarray, scale: Any, zero_point: Any = 0, axis: int = 0) -> np.ndarray:
    """What a quantised tensor stands for, in float64."""
    along = [1] * x.ndim
    along[axis] = -1
    factors, zeros = (
        n if n.size == 1 else n.reshape(along) for n in map(np.asarray, (scale, zero_point))
    )
    return (x.astype(np.int64) - zeros.astype(np.int64)) * factors.astype(np.float64)


def integers(values: np.ndarray, scale: Any, zero_point: np.generic) -> np.ndarray:
    """The integers nearest to float64 values."""
    bounds = np.iinfo(zero_point.dtype)
    steps = np.rint(values / np.float64(scale)) + int(zero_point)
    return np.clip(steps, bounds.min, bounds.max).astype(zero_point.dtype)


def by_reference(operator: str, *arrays: np.ndarray, opset: int = 17, **attributes) -> np.ndarray:
    """ONNX's reference evaluator on one node."""
    names = [f"a{i}" for i in range(len(arrays))]
    node = helper.make_node(operator, names, ["y"], **attributes)
    empty = helper.make_empty_tensor_value_info
    graph = helper.make_graph([node], "one", [empty(n) for n in names], [empty("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))[0]


class Draw:
    """Seeded integers."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def bytes(self, *shape: int, dtype: type = np.uint8, most: int | None = None) -> np.ndarray:
        """Integers of the whole range of a dtype, or of ``most`` steps on either side of 0."""
        bounds = np.iinfo(dtype)
        low, high = bounds.min, bounds.max
        if most is not None:
            low, high = max(low, -most), most
        return self.random.integers(low, high, shape, dtype, endpoint=True)

    def scales(self, count: int) -> np.ndarray:
        return self.random.uniform(0.005, 0.02, count).astype(np.float32)
