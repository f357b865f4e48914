"""In which precision nodes are computed: one for all, others for operators and for named nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from byoc.arguments import as_texts
from byoc.errors import ControlError
from codegen_cc.dtypes import KERNEL_HALVES, SINGLE
from codegen_cc.libraries import library_for
from codegen_cc.libraries.assignment import assigned, parse, split_text, unknown_pattern
from codegen_cc.node import Node
from codegen_cc.operator import is_operator

#: ``Node.compute`` by what users call a precision.
COMPUTE: Mapping[str, str] = MappingProxyType(
    {"fp32": "", "bf16": "bfloat16", "bf16x3": "bfloat16x3", "int8-data": "int8"}
)

#: What stands for the fewest bits within an error, which has to be measured first.
AUTO = "auto"

#: What users give: ``bf16``, ``softmax=fp32``, ``head/*=fp32``, in one text or several.
PrecisionSpecs = str | Iterable[str]


@dataclass(frozen=True)
class Precision:
    """The precision of nodes of floating-point numbers, as a name of ``COMPUTE``.

    ``by_name`` are shell patterns of node names, of which the first that fits counts; it goes
    before ``by_operator``, and this before ``default``.
    """

    default: str = "fp32"
    by_operator: tuple[tuple[str, str], ...] = ()
    by_name: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, specs: PrecisionSpecs = ()) -> Precision:
        """Read what a user gives. Raises ``ControlError``."""
        default: str | None = None
        by_operator: list[tuple[str, str]] = []
        by_name: list[tuple[str, str]] = []
        for spec in _parts(specs):
            pair = parse(spec)
            if spec == AUTO:
                raise ControlError(
                    "precision auto has to be measured: give what byoc.choose_precision returns, as"
                    " byoc compile --precision auto does"
                )
            if pair is None or pair[1] not in COMPUTE:
                known = ", ".join(COMPUTE)
                raise ControlError(
                    f"cannot read precision {spec!r}; need one of {known}, OPERATOR=PRECISION or"
                    " NODE_PATTERN=PRECISION"
                )
            what, name = pair
            if what:
                (by_operator if is_operator(what) else by_name).append(pair)
            elif default is None or default == name:
                default = name
            else:
                raise ControlError(
                    f"precisions {default} and {name} for the whole network; need one, and others"
                    " for operators or nodes, such as softmax=fp32"
                )
        return cls(default or "fp32", tuple(by_operator), tuple(by_name))

    @property
    def is_full(self) -> bool:
        """Whether all nodes are computed as they are stored."""
        given = (self.default, *(name for _, name in (*self.by_operator, *self.by_name)))
        return not any(COMPUTE[name] for name in given)

    def check_names(self, names: Iterable[str]) -> None:
        """Raise ``ControlError`` for a pattern that fits no operator and none of these nodes."""
        if (problem := unknown_pattern(self.by_name, names)) is not None:
            raise ControlError(problem)

    def wanted(self, node: Node, names: Iterable[str]) -> str:
        """The precision that the user wants for a node of these names."""
        return assigned(self.by_name, names) or dict(self.by_operator).get(node.op, self.default)

    def apply(self, node: Node, names: Iterable[str]) -> Node:
        """A node that has its library, to be computed as wanted where the library gains by it.

        Where it does not, the node stays as it is; ``kept`` says why of one that multiplies.
        """
        compute = COMPUTE[self.wanted(node, names)]
        if not compute or node.dtype != SINGLE:
            return node
        if compute in KERNEL_HALVES:
            node = replace(node, storage=compute)
        trial = replace(node, compute=compute)
        reason = library_for(node).supports(trial)
        if reason is None:
            return trial
        return replace(node, kept=reason) if node.macs != 0 else node


def without_auto(specs: PrecisionSpecs) -> tuple[str, ...]:
    """What a user gives besides ``auto``. Raises ``ControlError``."""
    return tuple(part for part in _parts(specs) if part != AUTO)


def wants_auto(specs: PrecisionSpecs) -> bool:
    """Whether ``auto`` is among what a user gives. Raises ``ControlError``."""
    return AUTO in _parts(specs)


def _parts(specs: PrecisionSpecs) -> list[str]:
    texts = as_texts(specs, "precision", ControlError)
    return [part for text in texts for part in split_text(text)]
