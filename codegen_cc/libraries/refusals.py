"""Why a kernel of a table cannot compute a node: what its row does not say, it is not asked for."""

from __future__ import annotations

from collections.abc import Sequence

from codegen_cc.activations import ACTIVATIONS, parameters_of
from codegen_cc.libraries.arguments import ANY_ORDER, indexed, told
from codegen_cc.libraries.kernel import Kernel
from codegen_cc.node import STEP_OPERANDS, Node
from codegen_cc.operator import operator_of
from codegen_cc.operators import epilogue
from codegen_cc.operators.dtype_rules import as_stored
from codegen_cc.operators.operands import all_constant, not_constant


def refusal(kernel: Kernel, node: Node) -> str | None:
    """None if the kernel can be told all that it must know of the node, else the reason."""
    rules = (_compute, _results, _dtypes, _ranks, _steps, _operands)
    rules += (_shapes, _attributes, _arguments)
    reasons = (rule(kernel, node) for rule in rules)
    return next((reason for reason in reasons if reason), None) or all_constant(node)


def _compute(kernel: Kernel, node: Node) -> str | None:
    del kernel
    return as_stored(node)


def _results(kernel: Kernel, node: Node) -> str | None:
    """A kernel writes all results of its operator."""
    names = operator_of(kernel.op).results
    if len(node.results) == len(names):
        return None
    return f"{len(node.results)} of the results {', '.join(names)}; need all"


def _dtypes(kernel: Kernel, node: Node) -> str | None:
    found = [(operand.role, operand.dtype) for operand in node.operands]
    found += [(name, result.dtype) for name, result in node.named_results.items()]
    for role, dtype in found:
        wanted = kernel.dtype_of(role)
        if dtype != wanted:
            return f"{role} is {dtype}; need {wanted}"
    return None


def _ranks(kernel: Kernel, node: Node) -> str | None:
    ranks = dict(operator_of(kernel.op).facts.ranks)
    layouts = [(role, len(text)) for role, text in kernel.layouts.items() if text != ANY_ORDER]
    for role, rank in (*ranks.items(), *layouts):
        tensor = node.named_results.get(role) or node.operand(role)
        if tensor is not None and len(tensor.shape) != rank:
            return f"{role} has rank {len(tensor.shape)}; need {rank}"
    return None


def _steps(kernel: Kernel, node: Node) -> str | None:
    """The node's steps must be some of the kernel's, in its order."""
    left = list(kernel.epilogue)
    for step in node.epilogue:
        names = (step.kind, "activation") if step.kind in ACTIVATIONS else (step.kind,)
        slot = next((name for name in left if name in names), None)
        if slot is None:
            chain = " ".join(s.kind for s in node.epilogue)
            return f"epilogue '{chain}'; {kernel.function} has '{' '.join(kernel.epilogue)}'"
        del left[: left.index(slot) + 1]
        if slot == "activation" and not {"epilogue", "params"} & told(kernel):
            for name in parameters_of(step.kind):
                if f"activation.{name}" not in told(kernel):
                    return (
                        f"{step.kind} has a parameter {name}, which {kernel.function} is not told"
                    )
    return epilogue.supports(node)


def _operands(kernel: Kernel, node: Node) -> str | None:
    names = told(kernel)
    for operand in node.operands:
        through = operand.role in STEP_OPERANDS and "epilogue" in names
        if operand.role not in names and not through:
            return f"operand {operand.role}, which {kernel.function} is not given"
        packed = operand.role in kernel.pack
        prepared = kernel.prepare is not None and operand.role in kernel.prepare_arguments
        if packed or prepared:
            reason = not_constant(operand)
            if reason is not None:
                return reason
    roles = {operand.role for operand in node.operands}
    operator = operator_of(kernel.op)
    for name in names:
        if operator.is_role(name) and name not in (*roles, *operator.optional):
            return f"no operand {name}, which {kernel.function} takes"
    return None


def _shapes(kernel: Kernel, node: Node) -> str | None:
    if "params" in told(kernel):
        return None
    return operator_of(kernel.op).facts.unfit(node, told(kernel), kernel.function)


def _attributes(kernel: Kernel, node: Node) -> str | None:
    facts = operator_of(kernel.op).facts
    for name, wanted in kernel.attributes.items():
        found = node.shape[0] if name == "batch" else node.attrs.get(name)
        if wanted is not ... and _plain(found) != _plain(wanted):
            return f"{name} is {found}; need {wanted}"
    if "params" in told(kernel):
        return None
    for name, groups in facts.told_by.items():
        if name in kernel.attributes or _is_told(kernel, node, name, groups):
            continue
        neutral = facts.neutral.get(name)
        if neutral is None or not neutral(node, told(kernel)):
            found = node.shape[0] if name == "batch" else node.attrs.get(name)
            return f"{name} is {found}, which {kernel.function} is not told"
    return None


def _is_told(kernel: Kernel, node: Node, attribute: str, groups: Sequence[str]) -> bool:
    names = told(kernel)
    if any(set(group.split()) <= names for group in groups) or f"attr.{attribute}" in names:
        return True
    value = node.attrs.get(attribute)
    elements = [f"attr.{attribute}.{i}" for i in range(len(value))] if _is_list(value) else []
    return bool(elements) and set(elements) <= names


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _arguments(kernel: Kernel, node: Node) -> str | None:
    """Extents and elements of attributes that this node does not have."""
    for name in sorted(told(kernel)):
        stem, dot, index = name.rpartition(".")
        if not (name.startswith("attr.") or (dot and index.isdecimal())):
            continue
        optional = (*STEP_OPERANDS, *operator_of(kernel.op).optional)
        if stem in optional and node.operand(stem) is None:
            return f"argument {name}: no operand {stem}"
        try:
            indexed(node, name)
        except LookupError as error:
            return f"argument {name}: {error.args[0]}"
    return None
