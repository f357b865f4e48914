"""What the nodes of a traced program, its inputs and its outputs are called."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import count

import torch
from torch.utils import _pytree as pytree

#: How a strict trace writes the path of a module: ``L['self']._modules['layer1']``.
_QUOTED = re.compile(r"\['?([^\]']*)'?\]")
#: What a graph that is traced once more notes of each node, for what comes of it: its name there,
#: and the path of its module.
NODE, MODULE = "byoc.node", "byoc.module"
_ROOT = re.compile(r"^(L\.self|self|L__self__)\.?")


def node_names(nodes: Iterable[torch.fx.Node]) -> dict[torch.fx.Node, str]:
    """Names of nodes: the path of the module that computes one; with the operator behind it where
    the module computes several, and a number where it does the same more than once."""
    paths = {node: module_path(node) for node in nodes if node.op == "call_function"}
    counts = Counter(paths.values())
    wanted = {
        node: path if path and counts[path] == 1 else f"{path}.{_operator(node)}".lstrip(".")
        for node, path in paths.items()
    }
    seen: Counter[str] = Counter()
    names = {}
    for node, name in wanted.items():
        seen[name] += 1
        names[node] = name if seen[name] == 1 else f"{name}_{seen[name] - 1}"
    return names


def value_name(node: str, place: int | None = None) -> str:
    """What a value is called that the node of this name gives: one of several at this place.

    No output has such a name.
    """
    return f"%{node}" if place is None else f"%{node}[{place}]"


def module_path(node: torch.fx.Node) -> str:
    """Where in the model the innermost module is that a node belongs to; empty for the whole."""
    noted = node.meta.get("custom") or {}
    if MODULE in noted:
        return str(noted[MODULE])
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(stack[-1][0]) if stack else ""
    path = _QUOTED.sub(r".\1", path).replace("._modules.", ".")
    return _ROOT.sub("", path).partition("@")[0]


def source_node(node: torch.fx.Node) -> str | None:
    """The name of the node of the graph that was traced once more, where there was one."""
    return (node.meta.get("custom") or {}).get(NODE)


def operator_name(target: object) -> str:
    """``aten.add.Tensor``, or the name of a function of Python's."""
    return (
        str(target)
        if isinstance(target, torch._ops.OpOverload)
        else getattr(target, "__name__", str(target))
    )


def _operator(node: torch.fx.Node) -> str:
    target = node.target
    name = target._opname if isinstance(target, torch._ops.OpOverload) else node.name
    return name.lstrip("_")


def leaf_names(spec: pytree.TreeSpec, alone: str) -> list[str]:
    """A name for each leaf of a nested value: the keys and places that lead to it, with dots.

    ``alone`` is the name of a value that is not nested, and the beginning of one that would begin
    with a number. Of names alike, those behind the first have a number that no other has.
    """
    numbered = pytree.tree_unflatten(list(range(spec.num_leaves)), _keyed(spec))
    leaves, _ = pytree.tree_flatten_with_path(numbered)
    names = []
    for path, _ in leaves:
        parts = [_key(entry) for entry in path]
        if not parts or parts[0].isdigit():
            parts.insert(0, alone)
        names.append(".".join(parts))
    return _unlike(names)


def _unlike(names: list[str]) -> list[str]:
    taken, unlike = set(names), set[str]()
    found = []
    for name in names:
        free = (other for n in count(1) if (other := f"{name}_{n}") not in taken)
        own = name if name not in unlike else next(free)
        taken.add(own)
        unlike.add(own)
        found.append(own)
    return found


def _keyed(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    """The nesting with a dictionary in place of each class that was registered without keys."""
    if spec.is_leaf():
        return spec
    parts = [_keyed(part) for part in spec.children()]
    known = pytree.SUPPORTED_NODES.get(spec.type)
    if known is None or known.flatten_with_keys_fn is not None:
        return pytree.TreeSpec(spec.type, spec.context, parts)
    named = isinstance(spec.context, (list, tuple)) and len(spec.context) == len(parts)
    keys = spec.context if named else range(len(parts))
    return pytree.TreeSpec(dict, [str(key) for key in keys], parts)


def _key(entry: object) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)
