"""Loops as exporters write them that know ``while`` alone, as loops that tell more.

Where a loop sees nothing but its states, weights and limits are states that the body hands on as
they are. Read from around they are the constants that they are, which kernels have in an order of
their own, and what is cut out of them is cut once, before the loop. A number that counts up to a
limit is the number of the round, and the limit how many there are, which is an extent of what the
rounds give. What each round multiplies by a weight of its own row of a tensor is then one product
of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from byoc.frontends.onnx.graph_names import definitions, rename_reads, replace_nodes
from byoc.frontends.onnx.unroll import Round

#: Inputs of a Loop, and of its body, before the states; outputs of the body before them.
_BEFORE, _BEFORE_OUTPUTS = 2, 1

#: Floats know all whole numbers below this one.
_MOST_COUNTED = 2**24

#: What is moved out of a loop.
_MOVED = ("Cast", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")


def without_invariants(node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """A Loop without states that stay, and nodes that give its results; None without such."""
    body = next(a.g for a in node.attribute if a.name == "body")
    handed = {n.output[0]: n.input[0] for n in body.node if n.op_type == "Identity"}
    own = definitions(body)

    def origin(name: str) -> str:
        while name in handed:
            name = handed[name]
        return name

    states = range(len(node.input) - _BEFORE)
    still = [
        i
        for i in states
        if origin(body.output[_BEFORE_OUTPUTS + i].name) == body.input[_BEFORE + i].name
        and node.input[_BEFORE + i] not in own
    ]
    if not still:
        return None
    loop = onnx.NodeProto()
    loop.CopyFrom(node)
    inner = next(a.g for a in loop.attribute if a.name == "body")
    around = {body.input[_BEFORE + i].name: node.input[_BEFORE + i] for i in still}
    rename_reads(inner.node, around)
    results = [(node.input[_BEFORE + i], node.output[i]) for i in still if node.output[i]]
    for i in reversed(still):
        del loop.input[_BEFORE + i], loop.output[i]
        del inner.input[_BEFORE + i], inner.output[_BEFORE_OUTPUTS + i]
    for value in inner.output:  # another result of the same value
        value.name = around.get(value.name, value.name)
    passed = [onnx.helper.make_node("Identity", [a], [b]) for a, b in results]
    return [loop, *passed] if loop.output else passed


def moved_out(node: onnx.NodeProto, write: Round) -> list[onnx.NodeProto] | None:
    """A Loop behind what it would move in each round anew of values around it; None without such.

    Of constants, and of operators that take next to no memory.
    """
    body = next(a.g for a in node.attribute if a.name == "body")
    own = {value.name for value in body.input} | {n for i in body.node for n in i.output}
    tensors = {tensor.name: tensor for tensor in body.initializer}
    constants = {
        inner.output[0]: inner
        for inner in body.node
        if inner.op_type == "Constant" and not inner.domain
    }
    names: dict[str, str] = {}
    kept: list[onnx.NodeProto] = []
    for inner in body.node:
        moves = inner.op_type in _MOVED and not inner.domain
        known = names.keys() | tensors.keys() | constants.keys()
        if not moves or any(name in own and name not in known for name in inner.input):
            kept.append(inner)
            continue
        for name in inner.input:
            if name in tensors and name not in names:
                names[name] = write.op("Constant", [], name, value=tensors[name])
            elif name in constants and name not in names:
                copy = onnx.NodeProto.FromString(constants[name].SerializeToString())
                copy.output[0] = names[name] = write.fresh(name)
                write.nodes.append(copy)
        copy = onnx.NodeProto.FromString(inner.SerializeToString())
        rename_reads([copy], names)
        names |= {name: write.fresh(name) for name in copy.output if name}
        copy.output[:] = [names.get(name, name) for name in copy.output]
        write.nodes.append(copy)
    if len(kept) == len(body.node):
        return None
    loop = onnx.NodeProto()
    loop.CopyFrom(node)
    inner = next(a.g for a in loop.attribute if a.name == "body")
    replace_nodes(inner, kept)
    moved = {name: names[name] for name in names if name not in tensors and name not in constants}
    rename_reads(inner.node, moved)
    for value in inner.output:
        value.name = moved.get(value.name, value.name)
    return [*write.nodes, loop]


def counted(
    node: onnx.NodeProto,
    constant: Callable[[str], np.ndarray | None],
    makers: Mapping[str, onnx.NodeProto],
    write: Round,
) -> list[onnx.NodeProto] | None:
    """A Loop that goes on while a number is below a limit, with the limit as its count.

    The number is a state that begins at 0 and grows by 1 in each round; the limit stands outside.
    It is also what decides whether there is a first round, and the count, if one is given. The
    number of the round, which keeps below it by itself, may be compared too. ``constant`` and
    ``makers`` tell of the values around. Both numbers may be cast to floats, which know all counts
    of rounds exactly. None for other loops.
    """
    body = next(a.g for a in node.attribute if a.name == "body")
    inside = {name: inner for inner in body.node for name in inner.output}
    own = {tensor.name: numpy_helper.to_array(tensor) for tensor in body.initializer}

    def number(name: str) -> np.ndarray | None:
        if name in own or name not in inside:
            return own[name] if name in own else constant(name)
        if inside[name].op_type in ("Cast", "CastLike", "Identity"):
            return number(inside[name].input[0])
        tensors = [a.t for a in inside[name].attribute if a.name == "value"]
        return numpy_helper.to_array(tensors[0]) if inside[name].op_type == "Constant" else None

    comparisons = _comparisons(body.output[0].name, inside)
    known = _known_limit([number(right) for _, right in comparisons])
    most = write.constant(known, "int64", "limit") if known is not None else None
    most = most or _limit(comparisons, inside, makers)

    def is_limit(name: str) -> bool:
        return _uncast(name, makers) == most if known is None else _is(constant(name), known)

    given = node.input[0]
    if most is None or (given and not is_limit(given)):
        return None
    limit = constant(most) if known is None else np.array(known)
    if not _begins_below(node.input[1], is_limit, limit, constant, makers):
        return None
    results = [_uncast(value.name, inside, ("Identity",)) for value in body.output[1:]]
    counters = {body.input[0].name} if given else set()
    for place, value in enumerate(body.input[_BEFORE:]):
        added = inside.get(results[place])
        if added is None or added.op_type != "Add" or value.name not in added.input:
            continue
        (step,) = [name for name in added.input if name != value.name] or [""]
        if _is(number(step), 1) and _is(constant(node.input[_BEFORE + place]), 0):
            counters.add(results[place])
    compared = {_uncast(left, inside) for left, _ in comparisons}
    return _with_count(node, most, write) if compared <= counters else None


def _known_limit(limits: Sequence[np.ndarray | None]) -> int | None:
    """The count that all comparisons have as the greater, where it is a constant."""
    values = {value.item() for value in limits if value is not None and value.size == 1}
    if len(values) != 1 or any(value is None for value in limits):
        return None
    (value,) = values
    return int(value) if 0 <= value < _MOST_COUNTED and value == int(value) else None


def _limit(
    comparisons: Sequence[tuple[str, str]],
    inside: Mapping[str, onnx.NodeProto],
    makers: Mapping[str, onnx.NodeProto],
) -> str | None:
    """What stands outside of a body and all comparisons have as the greater."""
    limits = {_uncast(right, inside) for _, right in comparisons}
    outside = {_uncast(limit, makers) for limit in limits - set(inside)}
    return outside.pop() if len(outside) == 1 and not limits & set(inside) else None


def _begins_below(
    flag: str,
    is_limit: Callable[[str], bool],
    limit: np.ndarray | None,
    constant: Callable[[str], np.ndarray | None],
    makers: Mapping[str, onnx.NodeProto],
) -> bool:
    """Whether a first condition says that 0 is below a limit; of constants it may be folded."""
    begins = _comparisons(flag, makers)
    if begins:
        return all(is_limit(b) and _is(constant(a), 0) for a, b in begins)
    known = constant(flag)
    return known is not None and limit is not None and _is(known, bool(limit.item() > 0))


def _with_count(node: onnx.NodeProto, limit: str, write: Round) -> list[onnx.NodeProto]:
    loop = onnx.NodeProto()
    loop.CopyFrom(node)
    loop.input[0] = write.op("Cast", [limit], limit, to=onnx.TensorProto.INT64)
    loop.input[1] = ""
    inner = next(a.g for a in loop.attribute if a.name == "body")
    inner.output[0].name = inner.input[1].name
    return [*write.nodes, loop]


def _comparisons(name: str, makers: Mapping[str, onnx.NodeProto]) -> list[tuple[str, str]]:
    """The lesser and the greater value of each comparison that is to hold; none of others."""
    made = makers.get(_uncast(name, makers, ("Identity",)))
    if made is None or made.op_type not in ("And", "Less"):
        return []
    if made.op_type == "Less":
        return [(made.input[0], made.input[1])]
    parts = [_comparisons(part, makers) for part in made.input]
    return [pair for part in parts for pair in part] if all(parts) else []


def _uncast(
    name: str, makers: Mapping[str, onnx.NodeProto], operators: Sequence[str] = ("Identity", "Cast")
) -> str:
    while name in makers and makers[name].op_type in operators:
        name = makers[name].input[0]
    return name


def _is(value: np.ndarray | None, number: int) -> bool:
    return value is not None and value.size == 1 and value.item() == number


def products_of_all_rounds(
    node: onnx.NodeProto, shape: Callable[[str], list[int | None] | None], write: Round
) -> list[onnx.NodeProto] | None:
    """A Loop of a known count whose rounds multiply the rows of a matrix, with one product before.

    x[i] w is (x w)[i]: of products with w [K, N] each round takes one. None where there are none.
    """
    body = next(a.g for a in node.attribute if a.name == "body")
    own = definitions(body)
    taken = {inner.output[0]: inner for inner in body.node if inner.op_type == "Gather"}
    found: list[int] = []
    for place, inner in enumerate(body.node):
        if inner.op_type != "MatMul" or inner.input[0] not in taken or inner.input[1] in own:
            continue
        gather = taken[inner.input[0]]
        rows, weight = shape(gather.input[0]), shape(inner.input[1])
        along = all(a.i == 0 for a in gather.attribute if a.name == "axis")
        single = any(value.name == gather.input[1] for value in body.input)
        if along and single and gather.input[0] not in own and rows and weight:
            found += [place] if len(rows) > 1 and len(weight) == 2 else []
    if not found or not node.input[0] or node.input[1]:
        return None
    loop = onnx.NodeProto()
    loop.CopyFrom(node)
    inner = next(a.g for a in loop.attribute if a.name == "body")
    for place in found:
        product = inner.node[place]
        gather = taken[product.input[0]]
        whole = write.op("MatMul", [gather.input[0], product.input[1]], product.output[0])
        product.op_type = "Gather"
        product.input[:] = [whole, gather.input[1]]
    return [*write.nodes, loop]
