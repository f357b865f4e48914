"""Sample nodes of operators: what a table of "who supports what" asks the libraries about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from codegen_cc.activations import ACTIVATIONS
from codegen_cc.dim import Dim
from codegen_cc.node import JOINED, Node, Operand, Step
from codegen_cc.operator import operator_of

Shape = tuple[Dim, ...]

#: Stands for the dtype of the floating-point numbers that libraries are asked about.
REAL = "real"


@dataclass(frozen=True)
class Sample:
    """A node, and in which way it differs from the plainest of its operator (empty for that)."""

    variant: str
    node: Node

    def of(self, dtype: str) -> Sample:
        """The sample with floating-point numbers of a dtype."""

        def named(text: str) -> str:
            return dtype if text == REAL else text

        node = self.node
        operands = tuple(replace(o, dtype=named(o.dtype)) for o in node.operands)
        further = tuple(replace(result, dtype=named(result.dtype)) for result in node.further)
        typed = replace(node, operands=operands, dtype=named(node.dtype), further=further)
        return Sample(named(self.variant), typed)


def sample_node(
    op: str, operands: dict[str, tuple], shape: Shape, dtype: str = REAL, **attrs: object
) -> Node:
    """Operands are (shape, dtype or "constant dtype"); constants are real without one."""
    described = tuple(
        Operand(role, s, kind.removeprefix("constant").strip() or REAL, kind.startswith("constant"))
        for role, (s, kind) in operands.items()
    )
    return Node(op, described, shape, dtype, attrs)


def fused(node: Node) -> Iterator[Sample]:
    """The node with each kind of epilogue."""
    yield Sample("bias", with_steps(node, "bias"))
    for step in ("relu", "clip", "gelu"):
        yield Sample(step, with_steps(node, step))
    yield Sample("residual", with_steps(node, "bias", "residual", "relu"))
    yield Sample("activation before residual", with_steps(node, "relu", "residual"))


def with_steps(node: Node, *steps: str) -> Node:
    """The node with an epilogue, and the operands that it needs."""
    channels = node.shape[operator_of(node.op).channel_axis]
    shapes = {"bias": (channels,), **dict.fromkeys(JOINED, node.shape)}
    operands = tuple(
        Operand(step, shapes[step], REAL, step == "bias") for step in steps if step in shapes
    )
    kinds = tuple(
        Step(step, *(ACTIVATIONS[step].usual if step in ACTIVATIONS else ())) for step in steps
    )
    return replace(node, operands=(*node.operands, *operands), epilogue=kinds)
