"""A Loop whose rounds are the steps of a recurrent layer, as that layer.

    Loop(count, "", 0, h0) {
        row = Gather(x, t)                           y, h = GRU(x, w, r, b, "", h0)
        z = Sigmoid(row wz + h rz + bz)    becomes
        ...
        give h' = z h + (1 - z) n
    }

Keras and tf2onnx leave cells so, all but that of an LSTM without a mask. Which layer it is the
formulas of the new states say (``cell_values``); weights come in any order of the gates, whole or
in pieces. ONNX operator specification: RNN, GRU, LSTM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from byoc.frontends.onnx.around_loop import Around, Constant
from byoc.frontends.onnx.cell_values import Applied, CellReader, Columns, Held, Row, Sum
from byoc.frontends.onnx.graph_names import makers as makers_of
from byoc.frontends.onnx.graph_names import subgraphs
from byoc.frontends.onnx.inferred_shapes import extents_of
from byoc.frontends.onnx.loop_states import goes_on
from byoc.frontends.onnx.unroll import Nodes, Round

#: From this opset on Slice and Unsqueeze, as they are written here, are what they are.
_OLDEST = 11
_BEFORE = 2


@dataclass(frozen=True)
class _Gate:
    """What a function is applied to: columns of two products, and of vectors."""

    row: Columns
    held: Columns
    vectors: tuple[Columns, ...]
    #: Vectors that are added to the product with the state alone.
    inner: tuple[Columns, ...] = ()


@dataclass(frozen=True)
class _Cell:
    """A recurrent layer: gates in ONNX's order, the functions, and the numbers of its states."""

    operator: str
    gates: tuple[_Gate, ...]
    functions: tuple[Applied, ...]
    states: tuple[int, ...]
    reset_last: bool = False


def recurrent_layer(node: onnx.NodeProto, around: Around, write: Round) -> Nodes | None:
    """The layer that such a Loop is, and nodes that give its results; None for other loops."""
    body = next(a.g for a in node.attribute if a.name == "body")
    if write.opset < _OLDEST or not node.input[0] or node.input[1] or not goes_on(body):
        return None
    if any(True for inner in body.node for _ in subgraphs(inner)):
        return None
    inside = makers_of(body)
    constant = _constants(body, inside, around.constant)
    counters = _counters(node, body, inside, constant, around.constant)
    reader = CellReader(around.types, constant, write.opset, _states(node, body, around.types))
    rows = _rows(body, counters, around)
    reader.values |= rows
    for inner in body.node:
        reader.read(inner)
    news = [reader.values.get(value.name) for value in body.output[1:]]
    held = [place for place in range(len(node.input) - _BEFORE) if place not in counters]
    cell = _cell({place: news[place] for place in held})
    if cell is None:
        return None
    source = cell.gates[0].row.factors[0].name
    scans = news[len(node.input) - _BEFORE :]
    whole = around.is_extent(node.input[0], source, 0)
    if not whole or any(new != news[cell.states[0]] for new in scans):
        return None
    return _written(node, cell, counters, around, write)


# ---------------------------------------------------------------------- reading


def _constants(
    body: onnx.GraphProto,
    inside: Mapping[str, onnx.NodeProto],
    outside: Constant,
) -> Constant:
    """What tells the constants that a body sees."""
    own = {tensor.name: tensor for tensor in body.initializer}
    own |= {
        name: a.t
        for name, made in inside.items()
        if made.op_type == "Constant"
        for a in made.attribute
        if a.name == "value"
    }

    def constant(name: str) -> np.ndarray | None:
        if name in own:
            return numpy_helper.to_array(own[name])
        return None if name in inside else outside(name)

    return constant


def _counters(
    node: onnx.NodeProto,
    body: onnx.GraphProto,
    inside: Mapping[str, onnx.NodeProto],
    constant: Constant,
    outside: Constant,
) -> list[int]:
    """The numbers of the states that are the number of the round."""
    found = []
    for place, (state, new) in enumerate(zip(body.input[2:], body.output[1:], strict=False)):
        made = inside.get(new.name)
        while made is not None and made.op_type == "Identity":
            made = inside.get(made.input[0])
        begin = outside(node.input[_BEFORE + place])
        if made is None or made.op_type != "Add" or state.name not in made.input:
            continue
        others = [constant(name) for name in made.input if name != state.name]
        numbers = [*others, begin, None][:2]
        if any(n is None or n.size != 1 or n.dtype.kind not in "iu" for n in numbers):
            continue
        if [n.item() for n in numbers] == [1, 0]:
            found.append(place)
    return found


def _states(
    node: onnx.NodeProto, body: onnx.GraphProto, types: Mapping[str, onnx.TypeProto]
) -> dict[str, Sum]:
    """The states that are matrices of a known number of columns, by name."""
    found = {}
    for place, (name, state) in enumerate(
        zip(node.input[_BEFORE:], body.input[_BEFORE:], strict=True)
    ):
        type_ = types.get(name)
        shape = extents_of(type_)
        is_float = type_ is not None and type_.tensor_type.elem_type == onnx.TensorProto.FLOAT
        if is_float and shape is not None and len(shape) == 2 and shape[1]:
            found[state.name] = Sum.single(Held(place, shape[1]))
    return found


def _rows(body: onnx.GraphProto, counters: Sequence[int], around: Around) -> dict[str, Sum]:
    """What a body takes of a tensor by the number of the round."""
    own = {value.name for value in body.input} | set(makers_of(body))
    numbers = {body.input[0].name, *(body.input[_BEFORE + place].name for place in counters)}
    found = {}
    for inner in body.node:
        if inner.op_type != "Gather" or inner.input[0] in own or inner.input[1] not in numbers:
            continue
        shape = extents_of(around.types.get(inner.input[0]))
        if any(a.i for a in inner.attribute) or shape is None or len(shape) != 3 or not shape[2]:
            continue
        found[inner.output[0]] = Sum.single(Row(inner.input[0], shape[2]))
    return found


# ---------------------------------------------------------------------- what layer it is


def _cell(news: Mapping[int, Sum | None]) -> _Cell | None:
    """The layer whose states become these, by their numbers."""
    if None in news.values():
        return None
    if len(news) == 1:
        ((place, new),) = news.items()
        return _rnn(place, new) or _gru(place, new)
    if len(news) == 2:
        one, other = news
        return _lstm(one, other, news) or _lstm(other, one, news)
    return None


def _rnn(place: int, new: Sum) -> _Cell | None:
    function = _only_function(new)
    gate = None if function is None else _gate(function.of, (place,))
    return None if gate is None else _one_row(_Cell("RNN", (gate,), (function,), (place,)))


def _gru(place: int, new: Sum) -> _Cell | None:
    """h' = z h + n - z n, n of r h or of r times what is made of h."""
    counts = new.counts
    alone = [factors[0] for factors in counts if len(factors) == 1]
    if len(counts) != 3 or len(alone) != 1 or not isinstance(alone[0], Applied):
        return None
    new_h, state = alone[0], Held(place, alone[0].width)
    gates = [factors for factors in counts if len(factors) == 2 and state in factors]
    gates = [factor for factors in gates for factor in factors if factor != state]
    if len(gates) != 1 or not isinstance(gates[0], Applied):
        return None
    update = gates[0]
    whole = Sum.single(update).times(Sum.single(state).plus(Sum.single(new_h), -1.0))
    if new != Sum.single(new_h).plus(whole):
        return None
    z = _gate(update.of, (place,))
    for reset in _factors(new_h.of):
        r = _gate(reset.of, (place,))
        if r is None or z is None or not _alike(update, reset):
            continue
        for last in (False, True):
            n = _gate_of_last(new_h.of, reset, place) if last else None
            n = n if last else _gate(new_h.of, tuple(sorted((reset, state), key=repr)), place)
            if n is not None:
                functions = (update, new_h)
                return _one_row(_Cell("GRU", (z, r, n), functions, (place,), last))
    return None


def _factors(of: Sum) -> list[Applied]:
    """Functions among the factors of a sum, and of what it multiplies by matrices."""
    found: dict[Applied, None] = {}
    for factors, _ in of.products:
        inner = [f for factor in factors if isinstance(factor, Columns) for f in factor.factors]
        found |= dict.fromkeys(f for f in (*factors, *inner) if isinstance(f, Applied))
    return list(found)


def _lstm(h: int, c: int, news: Mapping[int, Sum]) -> _Cell | None:
    """c' = f c + i g, h' = o tanh(c')."""
    terms = [factors for factors, count in news[c].products if count == 1 and len(factors) == 2]
    if len(terms) != 2 or len(news[c].products) != 2:
        return None
    forget = [[x for x in term if not (isinstance(x, Held) and x.place == c)] for term in terms]
    if sorted(map(len, forget)) != [1, 2]:
        return None
    ((f,), pair) = sorted(forget, key=len)
    outer = news[h].factors
    if outer is None or len(outer) != 2:
        return None
    for i, g in (pair, pair[::-1]):
        for o, last in (outer, outer[::-1]):
            values = (i, o, f, g, last)
            if not all(isinstance(value, Applied) for value in values) or last.of != news[c]:
                continue
            gates = tuple(_gate(value.of, (h,)) for value in (i, o, f, g))
            if None not in gates and _alike(i, o) and _alike(i, f):
                return _one_row(_Cell("LSTM", gates, (i, g, last), (h, c)))
    return None


def _alike(one: Applied, other: Applied) -> bool:
    return (one.function, one.numbers) == (other.function, other.numbers)


def _only_function(value: Sum) -> Applied | None:
    factors = value.factors
    if factors is None or len(factors) != 1 or not isinstance(factors[0], Applied):
        return None
    return factors[0]


def _gate(of: Sum, factors: tuple[Any, ...], place: int | None = None) -> _Gate | None:
    """A sum of a product with the row, one with the state or ``factors``, and vectors."""
    if any(count != 1 or len(product) != 1 for product, count in of.products):
        return None
    parts = [product[0] for product, _ in of.products]
    if not all(isinstance(part, Columns) for part in parts):
        return None
    rows = [p for p in parts if len(p.factors) == 1 and isinstance(p.factors[0], Row)]
    vectors = tuple(sorted((p for p in parts if not p.factors), key=repr))
    states = [p for p in parts if p.factors and p not in rows]
    if len(rows) != 1 or len(states) != 1:
        return None
    found = states[0].factors
    if place is None:
        (place,) = factors
        is_state = len(found) == 1 and isinstance(found[0], Held) and found[0].place == place
    else:
        is_state = found == factors
    return _Gate(rows[0], states[0], vectors) if is_state else None


def _gate_of_last(of: Sum, reset: Applied, place: int) -> _Gate | None:
    """row w + b + reset (state r + c)."""
    inner = {
        tuple(f for f in product if f != reset): count
        for product, count in of.products
        if reset in product
    }
    outer = {product: count for product, count in of.products if reset not in product}
    if any(len(product) != 1 for product in inner):
        return None
    vectors = [p for (p,) in inner if isinstance(p, Columns) and not p.factors]
    products = {product: count for product, count in inner.items() if product[0] not in vectors}
    if any(inner[(vector,)] != 1 for vector in vectors) or len(products) != 1:
        return None
    gate = _gate(Sum.of({**outer, **products}), (place,))
    inside = tuple(sorted(vectors, key=repr))
    return None if gate is None else _Gate(gate.row, gate.held, gate.vectors, inside)


def _one_row(cell: _Cell) -> _Cell | None:
    """The cell, if all gates read the same row and are as wide as the state."""
    rows = {gate.row.factors for gate in cell.gates}
    widths = {gate.row.width for gate in cell.gates} | {gate.held.width for gate in cell.gates}
    state = {f.width for gate in cell.gates for f in gate.held.factors}
    return cell if len(rows) == 1 and len(widths) == 1 and widths == state else None


# ---------------------------------------------------------------------- writing


def _written(
    node: onnx.NodeProto, cell: _Cell, counters: Sequence[int], around: Around, write: Round
) -> Nodes | None:
    """The layer, and its results as those of the loop."""
    source = cell.gates[0].row.factors[0].name
    begins = _begins(node, cell, source, around, write)
    if begins is None:
        return None
    bias = _bias(cell, around, write)
    w = _weight([gate.row for gate in cell.gates], around, write)
    r = _weight([gate.held for gate in cell.gates], around, write)
    attributes: dict[str, object] = {
        "hidden_size": cell.gates[0].row.width,
        "activations": [function.function for function in cell.functions],
    }
    for place, name in enumerate(("activation_alpha", "activation_beta")):
        numbers = [f.numbers[place] for f in cell.functions if len(f.numbers) > place]
        attributes |= {name: numbers} if numbers else {}
    if cell.reset_last:
        attributes["linear_before_reset"] = 1
    names = ["steps", *("last" for _ in cell.states)]
    outputs = [write.fresh(f"{node.output[0] or 'layer'}_{name}") for name in names]
    inputs = [source, w, r, bias, "", *begins]
    while not inputs[-1]:
        inputs.pop()
    layer = helper.make_node(cell.operator, inputs, outputs, node.name, **attributes)
    write.nodes.append(layer)
    results = list(node.output)
    for place in counters:
        if results[place]:
            kind = around.types[node.input[_BEFORE + place]].tensor_type.elem_type
            write.nodes.append(helper.make_node("Cast", [node.input[0]], [results[place]], to=kind))
    for place, last in zip(cell.states, outputs[1:], strict=True):
        if results[place]:
            write.squeezed(last, 0, results[place])
    for name in results[len(node.input) - _BEFORE :]:
        if name:
            write.squeezed(outputs[0], 1, name)
    return write.nodes


def _begins(
    node: onnx.NodeProto, cell: _Cell, source: str, around: Around, write: Round
) -> list[str] | None:
    """States before the first step; none where all are 0. None where their batch is not known."""
    names = [node.input[_BEFORE + place] for place in cell.states]
    if all(_is_zero(name, around) for name in names):
        return []
    batch = around.types[source].tensor_type.shape.dim[1]
    for name in names:
        rows = around.types[name].tensor_type.shape.dim[0]
        if rows.WhichOneof("value") is None or rows != batch:
            return None
    return [write.unsqueezed(name, 0) for name in names]


def _is_zero(name: str, around: Around) -> bool:
    known, made = around.constant(name), around.makers.get(name)
    if known is None and made is not None and made.op_type == "Expand":
        known = around.constant(made.input[0])
    if made is not None and made.op_type == "ConstantOfShape":
        known = next((numpy_helper.to_array(a.t) for a in made.attribute), np.zeros(1))
    return known is not None and not known.any()


def _weight(gates: Sequence[Columns], around: Around, write: Round) -> str:
    """The columns of gates as rows, [1, gates, ...]."""
    parts = [_part(gate, 1, around, write) for gate in gates]
    whole = write.op("Concat", parts, "weights", axis=1) if len(parts) > 1 else parts[0]
    turned = write.op("Transpose", [whole], "weights", perm=[1, 0])
    return write.unsqueezed(turned, 0)


def _part(columns: Columns, axis: int, around: Around, write: Round) -> str:
    """Columns of a matrix or, along axis 0, of a vector."""
    name = columns.name
    if axis == 0:
        name = write.op("Reshape", [name, write.constant([-1], "int64", "flat")], "vector")
    elif extents_of(around.types[name])[1] == columns.width:
        return name
    bounds = (columns.begin, columns.end, axis)
    numbers = [write.constant([bound], "int64", "bound") for bound in bounds]
    return write.op("Slice", [name, *numbers], "part")


def _bias(cell: _Cell, around: Around, write: Round) -> str:
    """What is added to the gates, and within them to the products with the state; "" for nothing.

    [1, both, gates]
    """
    if not any(gate.vectors or gate.inner for gate in cell.gates):
        return ""
    parts = []
    for inner in (False, True):
        for gate in cell.gates:
            vectors = gate.inner if inner else gate.vectors
            terms = [_part(vector, 0, around, write) for vector in vectors]
            total = terms[0] if terms else ""
            for term in terms[1:]:
                total = write.op("Add", [total, term], "bias")
            zeros = np.zeros(gate.row.width)
            parts.append(total or write.constant(zeros, "float32", "zeros"))
    return write.unsqueezed(write.op("Concat", parts, "biases", axis=0), 0)
