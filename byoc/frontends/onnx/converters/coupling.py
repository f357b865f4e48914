"""Probabilities of classes from those of their pairs."""

from __future__ import annotations

from tvm import relax

from byoc.frontends.onnx.converters.node import Node
from byoc.ir.coupling import coupling
from codegen_cc.operators.coupling import pairs_of


def pair_coupling(node: Node) -> relax.Expr:
    """One operator; its attribute says how many classes there are."""
    shape, classes = node.shape(), int(node.attrs["classes"])
    if classes < 2 or shape is None or int(shape[-1]) != pairs_of(classes):
        raise ValueError(f"rows {shape} of {classes} classes; need a column for each pair")
    return coupling(node.inputs[0], classes)
