"""The distinct convolutions and matrix products of a network, as the partitioner sees them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from byoc.bench.subjects import load_subject
from byoc.errors import ByocError
from byoc.tuning import layers as tuning
from codegen_cc.dim import is_static
from codegen_cc.node import Node
from codegen_cc.region.graph import RegionNode

#: Operators that make a layer.
OPERATORS = ("conv2d", "matmul")


@dataclass(frozen=True)
class Layer(tuning.Layer):
    """One kind of layer: the first one of it, and how often the network has it."""

    count: int = 1

    @property
    def gflop(self) -> float:
        """Floating-point operations of one run by the definition, in 10^9."""
        return 2e-9 * float(self.node.macs)

    @property
    def label(self) -> str:
        """Kernel, stride, image and channels; or the shapes of a product."""
        return _conv2d_label(self.node) if self.node.op == "conv2d" else _matmul_label(self.node)

    @property
    def epilogue(self) -> str:
        """What is computed with the result before it is written."""
        return ", ".join(step.kind for step in self.node.epilogue)


@dataclass(frozen=True)
class Network:
    """The layers of a network, convolutions first; other contractions by operator, with counts."""

    title: str
    layers: tuple[Layer, ...]
    others: Mapping[str, int]


def read_network(
    name: str, input_shapes: Mapping[str, Sequence[int | str]] | None = None
) -> Network:
    """The layers of an ONNX file, or of a network of the zoo.

    Raises ``ByocError`` where there is no such model, or one of its layers has no fixed shape.
    """
    subject = load_subject(name, input_shapes)
    return layers_of(subject.model, subject.title)


def layers_of(model: onnx.ModelProto, title: str) -> Network:
    """Partition a model for the built-in kernels, and read the layers of its regions.

    Convolutions come first. What the kernels refuse is among the ``others``, as are other operators
    that multiply and accumulate.
    """
    from byoc.compiler.partition import partition_with_report
    from byoc.frontends.onnx import import_onnx, prepare
    from codegen_cc.region.read_relax import read_region

    module = import_onnx(prepare(model))
    module, report = partition_with_report(module)
    nodes = [
        node
        for function in module.functions.values()
        if (function.attrs or {}).get("Codegen") == "ext"
        for node in read_region(function).nodes
    ]
    found: dict[str, Layer] = {}
    others = Counter(f"{entry.op} (left to TVM)" for entry in report.left if entry.macs)
    for node in nodes:
        if node.node.op in OPERATORS and node.node.dtype == "float32":
            key = replace(node.node, source=(), library="")
            known = found.get(key.to_json())
            found[key.to_json()] = (
                replace(known, count=known.count + 1) if known else _layer(node, key)
            )
        elif node.node.macs:
            others[node.node.op] += 1
    layers = sorted(found.values(), key=lambda layer: OPERATORS.index(layer.node.op))
    if not layers:
        raise ByocError(f"{title} has no convolution and no matrix product")
    return Network(title, tuple(layers), dict(others))


def _layer(node: RegionNode, key: Node) -> Layer:
    name = node.node.source[0] if node.node.source else node.node.composite
    for operand in node.node.operands:
        if not is_static(operand.shape):
            raise ByocError(
                f"layer {name} has {operand.role} {list(map(str, operand.shape))}, which is not"
                " fixed; give every input a shape with --input-shapes"
            )
    pairs = zip(node.node.operands, node.inputs, strict=True)
    constants = {operand.role: value.data for operand, value in pairs if value.data is not None}
    return Layer(key, name, constants)


def _conv2d_label(node: Node) -> str:
    batch, inputs, height, width = node.operand("input").shape
    outputs, _, *kernel = node.operand("weight").shape
    attrs = node.attrs
    strides, dilation, pads = attrs["strides"], attrs["dilation"], attrs["padding"]
    stride = strides[0] if strides[0] == strides[1] else f"({strides[0]},{strides[1]})"
    parts = [f"{kernel[0]}x{kernel[1]}/{stride}", f"{height}x{width}", f"{inputs}->{outputs}"]
    if batch != 1:
        parts.insert(1, f"{batch} x")
    if attrs["groups"] != 1:
        parts.append(f"groups {attrs['groups']}")
    if set(dilation) != {1}:
        parts.append(f"dilation {','.join(map(str, dilation))}")
    usual = [(k - 1) * d // 2 for k, d in zip(kernel, dilation, strict=True)] * 2
    if list(pads) != usual:
        texts = list(map(str, pads))
        parts.append(f"pads {texts[0] if len(set(texts)) == 1 else ','.join(texts)}")
    return " ".join(parts)


def _matmul_label(node: Node) -> str:
    lhs, rhs = node.operand("lhs"), node.operand("rhs")
    shapes = ("x".join(map(str, operand.shape)) for operand in (lhs, rhs))
    return " * ".join(shapes) + ("" if rhs.constant else " (not constant)")
