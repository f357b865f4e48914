"""Epilogues: y = after(before(acc + bias) + residual), applied while a result is in registers.

Products of matrices may have ``* factor`` in the place of ``+ residual``, as gated layers do.
"""

from __future__ import annotations

from codegen_cc.activations import ACTIVATIONS, parameters_of
from codegen_cc.dim import product
from codegen_cc.node import JOINED, Node, Step
from codegen_cc.operator import operator_of
from codegen_cc.operators.operands import not_constant
from codegen_cc.operators.packing import pad_channels
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import Tensor
from codegen_cc.region.graph import RegionNode

#: The steps of contractions, in order.
FULL_EPILOGUE = ("bias", "activation", "residual", "activation")

#: Those of products that have a form on integers, which may be rounded before a residual is added.
QUANTISED_EPILOGUE = (*FULL_EPILOGUE[:2], "requantise", *FULL_EPILOGUE[2:], "requantise")

#: Those of products of matrices, one of residual and factor.
PRODUCT_EPILOGUE = (*QUANTISED_EPILOGUE[:4], "factor", *QUANTISED_EPILOGUE[4:])


def supports(node: Node) -> str | None:
    """None if the epilogue's steps come in the order that the kernels apply, else the reason."""
    record = operator_of(node.op)
    allowed = list(record.epilogue)
    for step in node.epilogue:
        slot = "activation" if step.kind in ACTIVATIONS else step.kind
        if slot not in allowed:
            chain = " ".join(s.kind for s in node.epilogue)
            steps = " ".join(record.epilogue or FULL_EPILOGUE)
            return f"epilogue '{chain}' of {node.op}; need {steps} in this order"
        del allowed[: allowed.index(slot) + 1]
        if step.kind == "bias":
            bias = node.operand("bias")
            channels = node.shape[record.channel_axis]
            if bias is None or not bias.constant:
                return "no bias; need one" if bias is None else not_constant(bias)
            if product(bias.shape) != channels:
                return f"bias has {product(bias.shape)} elements; need {channels}"
        elif step.kind in JOINED:
            other = node.operand(step.kind)
            if other is None or other.shape != node.shape:
                found = "none" if other is None else list(other.shape)
                return f"{step.kind} has shape {found}; need {list(node.shape)}"
    if all(node.operand(kind) is not None for kind in JOINED):
        return "both a residual and a factor; need one of them"
    return None


def joined_role(node: RegionNode) -> str | None:
    """The role of the tensor that a node's result is added to, or multiplied by."""
    return next((kind for kind in JOINED if node.role(kind) is not None), None)


def activation_struct(step: Step | None) -> Struct | None:
    """An ``ext_activation``, or None for the identity."""
    if step is None:
        return None
    fields: dict[str, object] = {"kind": f"EXT_{step.kind.upper()}"}
    fields |= {name: float(getattr(step, name)) for name in parameters_of(step.kind)}
    return Struct("ext_activation", fields)


def epilogue_struct(
    node: RegionNode, builder: PlanBuilder, residual: Tensor | None, residual_stride: int
) -> Struct | None:
    """The ``ext_epilogue`` of a node, or None; its bias is stored padded to the panel width.

    ``residual`` is what the node has of ``JOINED``.
    """
    fields: dict[str, object] = {}
    slot = "before"
    for step in node.node.epilogue:
        if step.kind == "bias":
            fields["bias"] = builder.constant(pad_channels(node.role("bias").data))
        elif step.kind in JOINED:
            fields["residual"] = residual
            fields["residual_stride"] = residual_stride
            if step.kind == "factor":
                fields["residual_is_factor"] = 1
            slot = "after"
        elif "before" in fields:  # two activations in a row: the second follows an absent residual
            fields["after"] = activation_struct(step)
        else:
            fields[slot] = activation_struct(step)
    return Struct("ext_epilogue", fields) if fields else None
