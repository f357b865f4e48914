"""Random small ONNX graphs against ONNX Runtime: what single operators' tests cannot combine.

Extents of 0 and 1, broadcasting, permutes, reshapes, slices and concatenations of views, residuals
and activations in any order, values that are outputs and read inside as well, inputs that are
outputs, one operand twice. Seeds are fixed. Several graphs of one seed are one model, because the
C compiler takes longer than a graph does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from byoc.onnx_backend import ExtBackendRep
from tests.reference import onnxruntime_outputs

#: Seeds of models, and graphs in each: less than a second per model.
SEEDS = range(36)
GRAPHS = 6
STEPS = 9
TOLERANCE = 1e-4

UNARY = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Exp", "Erf", "Softplus", "Identity")
BINARY = ("Add", "Sub", "Mul", "Max", "Min", "Div")


@dataclass
class Fuzzer:
    """Builds one model of random operators; values are kept with their shapes and results."""

    seed: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    values: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng(self.seed)

    # ------------------------------------------------------------------ pieces

    def array(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.draw.uniform(-1.5, 1.5, shape).astype("float32")

    def weight(self, values: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = values
        return name

    def input(self, shape: tuple[int, ...]) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.array(shape)
        self.values[name] = shape
        return name

    def op(self, kind: str, shape: tuple[int, ...], *names: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [name], **attributes))
        self.values[name] = tuple(int(extent) for extent in shape)
        return name

    def chance(self, share: float) -> bool:
        return bool(self.draw.random() < share)

    def choice(self, items: list | tuple) -> object:
        return items[int(self.draw.integers(len(items)))]

    # ------------------------------------------------------------------ steps

    def unary(self, x: str) -> str:
        kind = self.choice((*UNARY, "LeakyRelu", "Elu", "HardSigmoid", "Clip", "Silu"))
        shape = self.values[x]
        if kind == "Clip":
            low, high = sorted(self.draw.uniform(-1, 1, 2))
            bounds = [self.weight(np.float32(bound)) for bound in (low, high)]
            return self.op("Clip", shape, x, *bounds)
        if kind == "Silu":
            return self.op("Mul", shape, x, self.op("Sigmoid", shape, x))
        if kind == "Exp":  # bounded, so that errors keep a scale
            x = self.op("Tanh", shape, x)
        return self.op(str(kind), shape, x)

    def binary(self, x: str) -> str:
        shape = self.values[x]
        kinds = [kind for kind in BINARY if 0 not in shape or kind not in ("Max", "Min")]
        kind = str(self.choice(kinds))  # the importer cannot broadcast empty ones of a maximum
        same = [name for name, other in self.values.items() if other == shape]
        if kind == "Div":
            other = self.op("Exp", shape, self.op("Tanh", shape, str(self.choice(same))))
        elif self.chance(0.5):
            other = str(self.choice(same))  # perhaps x itself
        else:
            part = tuple(1 if self.chance(0.4) else extent for extent in shape)
            part = part[int(self.draw.integers(len(part) + 1)) :]
            constant = self.chance(0.5)
            other = self.weight(self.array(part)) if constant else self.input(part)
        first, second = (x, other) if self.chance(0.5) else (other, x)
        wide = np.broadcast_shapes(shape, self.values.get(other, shape))
        return self.op(kind, wide, first, second)

    def permute(self, x: str) -> str:
        shape = self.values[x]
        if not shape:
            return x
        axes = [int(axis) for axis in self.draw.permutation(len(shape))]
        return self.op("Transpose", tuple(shape[a] for a in axes), x, perm=axes)

    def reshape(self, x: str) -> str:
        shape = list(self.values[x])
        if self.chance(0.4):
            shape.insert(int(self.draw.integers(len(shape) + 1)), 1)
        if len(shape) > 1 and self.chance(0.6):
            axis = int(self.draw.integers(len(shape) - 1))
            shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
        if shape and shape[-1] % 2 == 0 and shape[-1] > 0 and self.chance(0.5):
            shape[-1:] = [2, shape[-1] // 2]
        shape = shape[:6] if np.prod(shape[:6]) == np.prod(self.values[x]) else self.values[x]
        if 0 in shape:  # the importer gives such a reshape a symbolic result
            return x
        return self.op("Reshape", tuple(shape), x, self.weight(np.array(shape, "int64")))

    def slice(self, x: str) -> str:
        shape = self.values[x]
        if not shape:
            return x
        axis = int(self.draw.integers(len(shape)))
        begin = int(self.draw.integers(shape[axis] + 1)) if self.chance(0.1) else 0
        begin = min(begin, max(shape[axis] - 1, 0)) if self.chance(0.9) else begin
        end = int(self.draw.integers(begin, shape[axis] + 1)) if self.chance(0.5) else shape[axis]
        end = max(end, min(begin + 1, shape[axis]))
        step = int(self.draw.integers(1, 3))
        fields = [self.weight(np.array([v], "int64")) for v in (begin, end, axis, step)]
        extent = len(range(begin, end, step))
        return self.op("Slice", (*shape[:axis], extent, *shape[axis + 1 :]), x, *fields)

    def concat(self, x: str) -> str:
        shape = self.values[x]
        if not shape:
            return x
        axis = int(self.draw.integers(len(shape)))
        fits = [
            name
            for name, other in self.values.items()
            if len(other) == len(shape)
            and all(a == b for i, (a, b) in enumerate(zip(other, shape, strict=True)) if i != axis)
        ]
        parts = [x, *(str(self.choice(fits)) for _ in range(int(self.draw.integers(1, 3))))]
        extent = sum(self.values[part][axis] for part in parts)
        return self.op("Concat", (*shape[:axis], extent, *shape[axis + 1 :]), *parts, axis=axis)

    def matmul(self, x: str) -> str:
        shape = self.values[x]
        if len(shape) < 2 or 0 in shape:
            return x
        n = int(self.draw.integers(1, 20))
        y = self.op(
            "MatMul", (*shape[:-1], n), x, self.weight(self.array((shape[-1], n)) / shape[-1])
        )
        return self.epilogue(y, -1)

    def product(self, x: str) -> str:
        """x times its own transpose: a computed right side that is a view."""
        shape = self.values[x]
        if len(shape) < 2 or 0 in shape:
            return x
        axes = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        turned = self.op("Transpose", tuple(shape[a] for a in axes), x, perm=axes)
        y = self.op("MatMul", (*shape[:-1], shape[-2]), x, turned)
        return self.op("Softmax", self.values[y], y, axis=int(self.draw.integers(len(shape))))

    def convolution(self, x: str) -> str:
        shape = self.values[x]
        if len(shape) != 4 or 0 in shape:
            return x
        channels = shape[1]
        groups = channels if self.chance(0.3) else 1
        outputs = groups * int(self.draw.integers(1, 4))
        size = 1 if min(shape[2:]) < 2 or self.chance(0.3) else int(self.choice((2, 3)))
        stride, pad = int(self.choice((1, 1, 2))), int(self.draw.integers(0, size))
        pads = [pad, max(0, pad - 1), pad, pad]
        space = [
            (extent + pads[i] + pads[i + 2] - size) // stride + 1
            for i, extent in enumerate(shape[2:])
        ]
        if min(space) < 1:
            return x
        weight = self.weight(self.array((outputs, channels // groups, size, size)) / size)
        y = self.op(
            "Conv",
            (shape[0], outputs, *space),
            x,
            weight,
            strides=[stride, stride],
            pads=pads,
            group=groups,
        )
        return self.epilogue(y, 1)

    def epilogue(self, y: str, axis: int) -> str:
        """Bias, activations and residuals, in any order and any number."""
        shape = self.values[y]
        for _ in range(int(self.draw.integers(0, 4))):
            kind = self.choice(("bias", "activation", "residual"))
            if kind == "bias":
                form = [1] * len(shape)
                form[axis] = shape[axis]
                y = self.op("Add", shape, y, self.weight(self.array(tuple(form))))
            elif kind == "activation":
                y = self.unary(y)
            else:
                same = [name for name, other in self.values.items() if other == shape]
                operands = [y, str(self.choice(same))]
                y = self.op("Add", shape, *(operands if self.chance(0.5) else operands[::-1]))
        return y

    def reduction(self, x: str) -> str:
        shape = self.values[x]
        if not shape or 0 in shape:
            return x
        kind = str(self.choice(("ReduceMean", "ReduceMax", "ReduceMin")))
        axis, keep = int(self.draw.integers(len(shape))), self.chance(0.7)
        left = (*shape[:axis], *([1] if keep else []), *shape[axis + 1 :])
        return self.op(kind, left, x, axes=[axis], keepdims=int(keep))

    def pooling(self, x: str) -> str:
        shape = self.values[x]
        if len(shape) != 4 or min(shape) < 1 or min(shape[2:]) < 2:
            return x
        kind = str(self.choice(("MaxPool", "AveragePool")))
        space = tuple(extent - 1 for extent in shape[2:])
        return self.op(kind, (*shape[:2], *space), x, kernel_shape=[2, 2])

    def enlarge(self, x: str) -> str:
        shape = self.values[x]
        if len(shape) != 4 or 0 in shape or max(shape) > 20:
            return x
        scales = self.weight(np.array([1, 1, 2, 2], "float32"))
        modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        wide = (*shape[:2], 2 * shape[2], 2 * shape[3])
        return self.op("Resize", wide, x, "", scales, mode="nearest", **modes)

    def shuffle(self, x: str) -> str:
        """Channels of two groups, in turns."""
        shape = self.values[x]
        if len(shape) != 4 or 0 in shape or shape[1] % 2:
            return x
        groups = (shape[0], 2, shape[1] // 2, *shape[2:])
        split = self.op("Reshape", groups, x, self.weight(np.array(groups, "int64")))
        turned = tuple(groups[axis] for axis in (0, 2, 1, 3, 4))
        mixed = self.op("Transpose", turned, split, perm=[0, 2, 1, 3, 4])
        return self.op("Reshape", shape, mixed, self.weight(np.array(shape, "int64")))

    # ------------------------------------------------------------------ graphs

    def graph(self) -> None:
        """Some steps on new inputs; later graphs of the model do not read them."""
        self.values = {}
        rank = int(self.choice((0, 1, 2, 3, 4, 4, 4)))
        sizes = (1, 1, 2, 3, 4, 6, 17) if rank < 4 else (1, 2, 3, 4, 5)
        shape = tuple(int(self.choice(sizes)) for _ in range(rank))
        if rank and self.chance(0.08):
            shape = (*shape[:-1], 0)
        newest = self.input(shape)
        steps = (
            *(self.unary, self.binary, self.binary, self.permute, self.reshape, self.slice),
            *(self.concat, self.matmul, self.product, self.convolution, self.convolution),
            *(self.reduction, self.pooling, self.enlarge, self.shuffle),
        )
        for _ in range(STEPS):
            source = newest if self.chance(0.7) else str(self.choice(list(self.values)))
            newest = self.choice(steps)(source)
            if np.prod(self.values[newest]) > 4000:
                newest = self.slice(newest)
        computed = [name for name in self.values if name not in self.inputs]
        self.outputs.append(newest)
        for _ in range(int(self.draw.integers(0, 3))):
            if computed:
                self.outputs.append(str(self.choice(computed)))

    def model(self) -> onnx.ModelProto:
        """The graphs so far as one model; sometimes an input is an output as well."""
        for _ in range(GRAPHS):
            self.graph()
        outputs = list(dict.fromkeys(self.outputs))
        if self.chance(0.2):
            outputs.append(str(self.choice(list(self.inputs))))
        outputs = list(dict.fromkeys(outputs))
        graph = helper.make_graph(
            self.nodes,
            f"fuzz_{self.seed}",
            [
                helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, x.shape)
                for name, x in self.inputs.items()
            ],
            [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in outputs],
            [numpy_helper.from_array(np.asarray(w), n) for n, w in self.weights.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        return model


def difference(got: np.ndarray, want: np.ndarray) -> str | None:
    """None if two results agree, else how they differ."""
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if want.size == 0:
        return None
    finite = np.isfinite(want)
    if not np.array_equal(np.isnan(got), np.isnan(want)):
        return "NaN at other places"
    limit = TOLERANCE * max(1.0, float(np.abs(want[finite]).max(initial=0.0)))
    error = float(np.abs(got - want)[finite].max(initial=0.0))
    return f"error {error:.3g}, limit {limit:.3g}" if error > limit else None


@pytest.mark.parametrize("seed", SEEDS)
def test_random_graphs(seed: int) -> None:
    fuzzer = Fuzzer(seed)
    model = fuzzer.model()
    want = onnxruntime_outputs(model, fuzzer.inputs)
    rep = ExtBackendRep(model, min_bytes=0)
    got = dict(zip(want, rep.run(fuzzer.inputs), strict=True))
    assert rep.report.offloaded > 0.5 * rep.report.operators
    found = {name: difference(got[name], want[name]) for name in want}
    assert not any(found.values()), {name: text for name, text in found.items() if text}
