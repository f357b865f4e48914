"""Refuses nodes by name, but for operators that the user insists on (``allow_wrong``)."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from byoc.errors import ControlError, UnsupportedForm
from byoc.frontends.onnx.converters import CONVERTERS
from byoc.frontends.onnx.honoured import OTHER_DOMAINS
from byoc.frontends.onnx.wrong_forms import WrongForm
from byoc.ir.names import suggestion


class Refusals:
    """What becomes of nodes whose results would be wrong.

    Raises ``ControlError`` if ``allowed`` names what is no operator.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self.allowed = frozenset(allowed)
        #: Messages of what would have been refused.
        self.tolerated: list[str] = []
        known = _operators() if self.allowed else frozenset()
        for name in sorted(self.allowed - known):
            raise ControlError(
                f"allow_wrong: {name!r} is no ONNX operator{suggestion(name, sorted(known))}"
            )

    def refuse(self, node: onnx.NodeProto, reason: str, entry: WrongForm | None = None) -> None:
        """Raise ``UnsupportedForm``, or note the message where the operator is allowed."""
        message = f"operator {node.op_type} (node {node_name(node)}): {reason}"
        if node.op_type in self.allowed:
            self.tolerated.append(message)
            return
        raise UnsupportedForm(
            f"{message}; export the model without it, or accept a result that may be wrong"
            f" (byoc compile --allow-wrong {node.op_type})",
            node.op_type,
            entry,
        )


def node_name(node: onnx.NodeProto) -> str:
    """A node's name; nodes without one are known by their first output."""
    return repr(node.name) if node.name else f"with output {node.output[0]!r}"


def _operators() -> frozenset[str]:
    """ONNX's operators, those of other domains that are taken, and our own forms of some."""
    ours = (name for names in OTHER_DOMAINS.values() for name in names)
    return frozenset((*(schema.name for schema in onnx.defs.get_all_schemas()), *ours, *CONVERTERS))
