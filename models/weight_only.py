"""Models whose weights alone are quantised: products become MatMulNBits of com.microsoft.

b[i][n] = (q[n][i] - 2^(bits - 1)) scale[n][i / block]      q of 4 or 8 bits, scales float32
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

_MICROSOFT = "com.microsoft"


def weight_only(model: onnx.ModelProto, bits: int, block: int = 32) -> onnx.ModelProto:
    """A model with MatMulNBits for its products with constant matrices, of 4 or 8 bits.

    ``block`` rows of a column share a scale; the number of rows has to be a multiple. Values stay
    float32, and so does a table that is read by rows as well.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph, weights = made.graph, {tensor.name: tensor for tensor in made.graph.initializer}
    turned = {
        node.output[0]: node
        for node in graph.node
        if node.op_type == "Transpose" and node.input[0] in weights
    }
    nodes, new = [], []
    for node in graph.node:
        name = node.input[1] if node.op_type == "MatMul" else ""
        source = turned[name].input[0] if name in turned else name
        if source not in weights or len(weights[source].dims) != 2:
            nodes.append(node)
            continue
        weight = numpy_helper.to_array(weights[source])
        columns = weight if name in turned else weight.T
        packed = [
            numpy_helper.from_array(array, f"{node.name}_{what}")
            for what, array in zip(("b", "scales"), _packed(columns, bits, block), strict=True)
        ]
        new += packed
        sizes = {"K": columns.shape[1], "N": columns.shape[0], "bits": bits, "block_size": block}
        inputs = [node.input[0], *(tensor.name for tensor in packed)]
        nodes.append(
            helper.make_node(
                "MatMulNBits", inputs, node.output, node.name, domain=_MICROSOFT, **sizes
            )
        )
    read = {name for node in nodes for name in node.input}
    nodes = [n for n in nodes if n.op_type != "Transpose" or read.intersection(n.output)]
    read = {name for node in nodes for name in node.input}
    kept = [tensor for name, tensor in weights.items() if name in read]
    for field, values in ((graph.node, nodes), (graph.initializer, [*kept, *new])):
        values = list(values)
        del field[:]
        field.extend(values)
    if _MICROSOFT not in {entry.domain for entry in made.opset_import}:
        made.opset_import.append(helper.make_opsetid(_MICROSOFT, 1))
    return made


def _packed(columns: np.ndarray, bits: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Integers [N, K / block, block bits / 8], two in a byte if of 4, and scales [N, K / block]."""
    count, rows = columns.shape
    if rows % block:
        raise ValueError(f"a weight has {rows} rows; need a multiple of {block}")
    middle = 1 << (bits - 1)
    blocks = columns.reshape(count, rows // block, block)
    scales = np.abs(blocks).max(2) / (middle - 1)
    steps = np.rint(blocks / np.where(scales, scales, 1)[..., None]) + middle
    numbers = steps.astype(np.uint8)
    if bits == 4:
        numbers = numbers[..., 0::2] | numbers[..., 1::2] << 4
    return numbers, scales.astype(np.float32)
