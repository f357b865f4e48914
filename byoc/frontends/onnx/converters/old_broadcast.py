"""Broadcasting before opset 7: the attributes ``broadcast`` and ``axis`` of binary operators.

With ``broadcast`` the second operand has the first one's last axes, which broadcasts as ever. With
``axis`` as well its axes are those that begin there: axes of 1 follow them (Add-6 in ONNX's
operator specification).
"""

from __future__ import annotations

import onnx
from tvm import relax

from byoc.frontends.onnx.converters.node import Node

#: Operators with these attributes, up to opset 6.
OPERATORS = frozenset(
    ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
)


def has_axis(node: onnx.NodeProto) -> bool:
    """Whether a node says at which axis its second operand begins.

    ONNX's reference evaluator does not read that, and gives another result where shapes allow it.
    """
    return node.op_type in OPERATORS and any(a.name == "axis" for a in node.attribute)


def align(node: Node) -> None:
    """Give the second operand axes of 1 at its end, so that it broadcasts as of opset 7.

    Raises ``ValueError`` where it does not fit there.
    """
    broadcast, axis = node.attrs.pop("broadcast", 0), node.attrs.pop("axis", None)
    if not broadcast or axis is None:
        return
    rank, inner = (getattr(expr.ty, "ndim", -1) for expr in node.inputs)
    if rank < 0 or inner < 0:
        raise ValueError(f"axis={axis} with operands of unknown rank; need known ranks")
    if not 0 <= axis <= rank - inner:
        raise ValueError(
            f"axis={axis} with operands of ranks {rank} and {inner}; need 0 to {rank - inner}"
        )
    ones = rank - inner - axis
    value = node.constant(1)
    if value is not None:
        node.inputs[1] = relax.const(value.reshape(value.shape + (1,) * ones))
    elif ones:
        places = list(range(inner, inner + ones))
        node.inputs[1] = node.emit(relax.op.expand_dims(node.inputs[1], places))
