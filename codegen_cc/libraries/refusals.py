"""Why a kernel of a table cannot compute a node: what its row does not say, it is not asked for."""

from __future__ import annotations

from collections.abc import Sequence

from codegen_cc.dim import Dim, product, same
from codegen_cc.libraries import vocabulary
from codegen_cc.libraries.arguments import ANY_ORDER, PARAMETERS, indexed, told
from codegen_cc.libraries.builtin import epilogue
from codegen_cc.libraries.builtin.dtype_rules import as_stored
from codegen_cc.libraries.builtin.operands import all_constant, not_constant
from codegen_cc.libraries.kernel import Kernel
from codegen_cc.node import ACTIVATIONS, Node

#: Operands that a node of the operator may lack.
_OPTIONAL = ("mask", "bias", "residual")


def refusal(kernel: Kernel, node: Node) -> str | None:
    """None if the kernel can be told all that it must know of the node, else the reason."""
    rules = (_compute, _dtypes, _ranks, _steps, _operands, _shapes, _attributes, _arguments)
    reasons = (rule(kernel, node) for rule in rules)
    return next((reason for reason in reasons if reason), None) or all_constant(node)


def _compute(kernel: Kernel, node: Node) -> str | None:
    del kernel
    return as_stored(node)


def _dtypes(kernel: Kernel, node: Node) -> str | None:
    found = [(operand.role, operand.dtype) for operand in node.operands]
    for role, dtype in (*found, ("output", node.dtype)):
        wanted = kernel.dtype_of(role)
        if dtype != wanted:
            return f"{role} is {dtype}; need {wanted}"
    return None


def _ranks(kernel: Kernel, node: Node) -> str | None:
    ranks = dict(vocabulary.FACTS[kernel.op].ranks)
    layouts = [(role, len(text)) for role, text in kernel.layouts.items() if text != ANY_ORDER]
    for role, rank in (*ranks.items(), *layouts):
        operand = node.operand(role)
        if role != "output" and operand is None:
            continue
        shape = node.shape if role == "output" else operand.shape
        if len(shape) != rank:
            return f"{role} has rank {len(shape)}; need {rank}"
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
            for name in PARAMETERS.get(step.kind, ()):
                if f"activation.{name}" not in told(kernel):
                    return (
                        f"{step.kind} has a parameter {name}, which {kernel.function} is not told"
                    )
    return epilogue.supports(node)


def _operands(kernel: Kernel, node: Node) -> str | None:
    names = told(kernel)
    for operand in node.operands:
        through = operand.role in ("bias", "residual") and "epilogue" in names
        if operand.role not in names and not through:
            return f"operand {operand.role}, which {kernel.function} is not given"
        packed = operand.role in kernel.pack
        prepared = kernel.prepare is not None and operand.role in kernel.prepare_arguments
        if packed or prepared:
            reason = not_constant(operand)
            if reason is not None:
                return reason
    roles = {operand.role for operand in node.operands}
    for name in names:
        known = name in vocabulary.FACTS[kernel.op].roles or _is_concatenated(kernel, name)
        if known and name not in roles and name not in _OPTIONAL:
            return f"no operand {name}, which {kernel.function} takes"
    return None


def _is_concatenated(kernel: Kernel, name: str) -> bool:
    return kernel.op == "concat" and name.startswith("input") and name[5:].isdecimal()


def _shapes(kernel: Kernel, node: Node) -> str | None:
    if "params" in told(kernel):
        return None
    if node.op == "matmul":
        return _matrices(kernel, node)
    if node.op in ("binary", "compare", "logical", "where"):
        for operand in node.operands:
            if operand.role != "bias" and not _equal(operand.shape, node.shape):
                shape = list(operand.shape)
                return f"{operand.role} {shape} is broadcast; need {list(node.shape)}"
    if node.op == "attention":
        return _heads(node)
    if node.op in ("layer_norm", "rms_norm"):
        return _rows(node)
    if node.op == "reduce":
        axes = sorted(node.attrs["axes"])
        if axes != list(range(axes[0], axes[0] + len(axes))) if axes else False:
            return f"axes {axes}; need neighbours"
    return None


def _matrices(kernel: Kernel, node: Node) -> str | None:
    lhs, rhs = node.operand("lhs").shape, node.operand("rhs").shape
    if len(lhs) < 2 or len(rhs) < 2:
        return f"ranks {len(lhs)} and {len(rhs)}; need at least 2"
    if same(product(rhs[:-2]), 1):
        return None
    if "batch" not in told(kernel):
        return f"rhs {list(rhs)} has batch axes; {kernel.function} is not told 'batch'"
    if not _equal(lhs[:-2], rhs[:-2]):
        return f"lhs {list(lhs)} and rhs {list(rhs)}; need equal batch axes"
    return None


def _heads(node: Node) -> str | None:
    query, key, value = (node.operand(role).shape for role in ("query", "key", "value"))
    mask = node.operand("mask")
    for role, shape in (("key", key), ("value", value)):
        if not _equal(shape[:2], query[:2]):
            return f"{role} {list(shape)} is broadcast; need the batch and heads of {list(query)}"
    scores = (*query[:3], key[2])
    if mask is not None and not _equal(mask.shape, scores):
        return f"mask {list(mask.shape)} is broadcast; need {list(scores)}"
    return None


def _rows(node: Node) -> str | None:
    shape, axes = node.operand("input").shape, list(node.attrs["axes"])
    rank = len(shape)
    if axes != list(range(rank - len(axes), rank)):
        return f"axes {axes} of rank {rank}; need the last ones"
    for operand in node.operands[1:]:
        if not same(product(operand.shape), product(shape[axis] for axis in axes)):
            return f"{operand.role} has shape {list(operand.shape)}; need that of axes {axes}"
    return None


def _equal(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def _attributes(kernel: Kernel, node: Node) -> str | None:
    facts = vocabulary.FACTS[kernel.op]
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
        if stem in _OPTIONAL and node.operand(stem) is None:
            return f"argument {name}: no operand {stem}"
        try:
            indexed(node, name)
        except LookupError as error:
            return f"argument {name}: {error.args[0]}"
    return None
