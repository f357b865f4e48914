"""What follows a node's root, taken in step by step: bias, activation, residual, quantisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

from tvm import relax

from byoc.canonicalise.dequantised_weights import DEQUANTIZE
from byoc.ir.algebra import drops_digits
from byoc.ir.dataflow import Block, Constant, array_of, dtype_of, shape_of
from byoc.patterns import (
    ACTIVATION,
    BIAS,
    FACTOR,
    REQUANTISE,
    RESIDUAL,
    Candidate,
    Idiom,
    Row,
)
from byoc.patterns.quantised import dequantized_again, quantize_parameters, residual_of
from codegen_cc import supports
from codegen_cc.activations import ACTIVATIONS
from codegen_cc.libraries import Selection
from codegen_cc.node import Node, Operand, Step
from codegen_cc.operator import operator_of

#: A candidate that has grown by a step, and the bindings of that.
Grown = tuple[Candidate, tuple[relax.Var, ...]]


class Epilogues:
    """Extends candidates of one block.

    ``claimed`` are the bindings that other nodes have, ``idioms`` the unary functions by what they
    read, and ``names`` gives the names of the model's nodes that bindings stand for.
    """

    def __init__(
        self,
        block: Block,
        claimed: set[relax.Var],
        idioms: Mapping[relax.Expr, Sequence[Idiom]],
        libraries: Selection,
        names: Callable[[tuple[relax.Var, ...]], tuple[str, ...]],
    ) -> None:
        self.block = block
        self.claimed = claimed
        self.by_source = idioms
        self.libraries = libraries
        self._names = names

    def extend(self, found: Candidate, root: tuple[relax.Var, ...], row: Row) -> Grown:
        """Add the steps that follow the root, as far as the row and the kernels allow."""
        bindings = [*root]
        for step in row.epilogue:
            grown = None
            if step == BIAS:
                grown = self._bias(found, bindings[-1])
            elif step == RESIDUAL:
                grown = self._residual(found, bindings[-1])
            elif step == FACTOR:
                grown = self._joined(found, bindings[-1], step, "relax.multiply")
            elif step == ACTIVATION:
                grown = self._activation(found, bindings[-1])
            elif step == REQUANTISE:
                grown = self._requantise(found, bindings[-1])
            if grown is None or self._belongs_elsewhere(found.node, grown[1]):
                continue
            if supports(grown[0].node) is None:
                found = grown[0]
                bindings += grown[1]
        return found, tuple(bindings)

    def _belongs_elsewhere(self, node: Node, bindings: tuple[relax.Var, ...]) -> bool:
        """Whether the user forces another library for a step than the one that has the root."""
        forced = self.libraries.forced(self._names(bindings))
        return forced is not None and forced.name != node.library

    def _only_reader(self, var: relax.Var, *names: str) -> relax.Var | None:
        """The binding that alone reads a variable, once, by one of these operators."""
        if not self.block.is_private(var):
            return None
        (reader,) = self.block.users(var)
        if reader in self.claimed or self.block.call(reader, *names) is None:
            return None
        return reader if shape_of(reader) == shape_of(var) else None

    def _bias(self, found: Candidate, var: relax.Var) -> Grown | None:
        reader = self._only_reader(var, "relax.add")
        if reader is None:
            return None
        other = _other(self.block.values[reader], var)
        shape = shape_of(other)
        axis = operator_of(found.node.op).channel_axis
        axis -= len(found.node.shape) if axis >= 0 else 0  # the bias may have fewer axes
        if not isinstance(other, Constant) or shape is None or dtype_of(other) != found.node.dtype:
            return None
        if len(shape) < -axis or shape[axis] != prod(shape):
            return None
        if shape[axis] != found.node.shape[axis] or drops_digits(array_of(other), 8):
            return None  # kernels begin their sums with the bias
        return _with_operand(found, Step(BIAS), other), (reader,)

    def _residual(self, found: Candidate, var: relax.Var) -> Grown | None:
        if found.node.operand("y_scale") is not None:
            return self._quantised_residual(found, var)
        return self._joined(found, var, RESIDUAL, "relax.add")

    def _joined(self, found: Candidate, var: relax.Var, step: str, name: str) -> Grown | None:
        """The operator ``name`` of the node's result and another tensor of its shape."""
        reader = self._only_reader(var, name)
        if reader is None:
            return None
        other = _other(self.block.values[reader], var)
        if not isinstance(other, relax.Var) or dtype_of(other) != found.node.dtype:
            return None
        if shape_of(other) != found.node.shape:
            return None
        return _with_operand(found, Step(step), other), (reader,)

    def _quantised_residual(self, found: Candidate, var: relax.Var) -> Grown | None:
        """The sum of two dequantised tensors, of which the node's result is one."""
        whole = self._dequantized(found, var)
        reader = self._only_reader(whole[1], "relax.add") if whole is not None else None
        if reader is None:
            return None
        node, other = whole[0].node, _other(self.block.values[reader], whole[1])
        added = residual_of(self.block, other)
        if added is None or other in self.claimed or not self.block.is_private(other):
            return None
        if shape_of(other) != node.shape or shape_of(reader) != node.shape:
            return None
        node = replace(
            node,
            operands=(*node.operands, *added[0]),
            epilogue=(*node.epilogue, Step(RESIDUAL)),
        )
        candidate = Candidate(node, (*whole[0].arguments, *added[1]))
        return candidate, (other, whole[1], reader)

    def _dequantized(self, found: Candidate, var: relax.Var) -> tuple[Candidate, relax.Var] | None:
        """The node with the binding that alone reads its integers, and dequantises them."""
        reader = self._only_reader(var, DEQUANTIZE)
        if reader is None:
            return None
        candidate = dequantized_again(found, self.block.values[reader])
        return None if candidate is None else (candidate, reader)

    def _activation(self, found: Candidate, var: relax.Var) -> Grown | None:
        if self.block.is_fixed(var):
            return None
        readers = set(self.block.users(var))
        for idiom in self.by_source.get(var, ()):
            inside = set(idiom.bindings)
            if not ACTIVATIONS[idiom.kind].fused or inside & self.claimed:
                continue
            if readers and readers <= inside:
                step = Step(idiom.kind, idiom.alpha, idiom.beta)
                node = replace(found.node, epilogue=(*found.node.epilogue, step))
                return Candidate(node, found.arguments), idiom.bindings
        return None

    def _requantise(self, found: Candidate, var: relax.Var) -> Grown | None:
        inside: tuple[relax.Var, ...] = ()
        if found.node.operand("y_scale") is not None:  # its integers become others
            whole = self._dequantized(found, var)
            if whole is None or found.node.operand("inner_scale") is not None:
                return None
            found, var = whole
            inside = (var,)
        reader = self._only_reader(var, "relax.quantize")
        numbers = quantize_parameters(self.block.values[reader]) if reader is not None else None
        if numbers is None:
            return None
        node = replace(
            found.node,
            operands=(*found.node.operands, *numbers[0]),
            epilogue=(*found.node.epilogue, Step(REQUANTISE)),
            dtype=dtype_of(reader),
        )
        return Candidate(node, (*found.arguments, *numbers[1])), (*inside, reader)


def _other(call: relax.Call, var: relax.Var) -> relax.Expr:
    """The operand of a binary call that is not ``var``."""
    return call.args[1] if call.args[0] == var else call.args[0]


def _with_operand(found: Candidate, step: Step, expr: relax.Expr) -> Candidate:
    operand = Operand(step.kind, shape_of(expr), dtype_of(expr), isinstance(expr, Constant))
    node = replace(
        found.node,
        operands=(*found.node.operands, operand),
        epilogue=(*found.node.epilogue, step),
    )
    return Candidate(node, (*found.arguments, expr))
