"""A value that is stored where a mask is true, as a choice between it and the tensor.

    wide = Expand(mask, Shape(x))
    places = Transpose<perm = [1, 0]>(NonZero(wide))
    updates = Reshape(Expand(value, counted), [-1])
    y = ScatterND(x, places, updates)                   becomes     y = Where(mask, value, x)

PyTorch's exporter writes ``x[mask] = value`` so, as of frames beyond a sound's end. How many places
there are is known only when the model runs, and what counts them cuts a region in two. ``value`` is
one for all places: it has one element, or fewer axes than ``counted`` has sizes.
"""

from __future__ import annotations

import onnx
from onnx import helper

from byoc.frontends.onnx.graph_names import FreshNames, all_graphs, makers, replace_nodes
from byoc.frontends.onnx.honoured import ONNX_DOMAINS


def choose_by_masks(graph: onnx.GraphProto) -> None:
    """Write such stores as choices, in place; what only they read is left to ``drop_unused``."""
    fresh: FreshNames | None = None
    for part in all_graphs(graph):
        if all(node.op_type != "ScatterND" for node in part.node):
            continue
        made, extents = makers(part), _known_extents(part)
        nodes: list[onnx.NodeProto] = []
        for node in part.node:
            found = _stored(node, made, extents)
            if found is None:
                nodes.append(node)
                continue
            fresh = fresh or FreshNames(graph)
            mask = fresh.fresh(f"{node.output[0]}_mask")
            # What is not zero counts as true.
            cast = helper.make_node("Cast", [found[0]], [mask], to=onnx.TensorProto.BOOL)
            chosen = helper.make_node("Where", [mask, found[1], node.input[0]], node.output)
            cast.name = chosen.name = node.name
            nodes += [cast, chosen]
        if len(nodes) > len(part.node):
            replace_nodes(part, nodes)


def _stored(
    node: onnx.NodeProto,
    made: dict[str, onnx.NodeProto],
    extents: dict[str, list[int | None]],
) -> tuple[str, str] | None:
    """The mask and the value of a store, by their names; None for other nodes."""
    plain = all(a.name == "reduction" and a.s in (b"", b"none") for a in node.attribute)
    if node.op_type != "ScatterND" or node.domain not in ONNX_DOMAINS or not plain:
        return None
    places = _maker(made, node.input[1], "Transpose")
    counted = _maker(made, places.input[0], "NonZero") if places is not None else None
    wide = _maker(made, counted.input[0], "Expand") if counted is not None else None
    shape = _maker(made, wide.input[1], "Shape") if wide is not None else None
    if places is None or wide is None or shape is None or shape.input[0] != node.input[0]:
        return None
    whole = all(a.name == "start" and a.i == 0 for a in shape.attribute)
    turned = all(list(a.ints) == [1, 0] for a in places.attribute)
    reshaped = _maker(made, node.input[2], "Reshape")
    flat = node.input[2] if reshaped is None else reshaped.input[0]
    updates = _maker(made, flat, "Expand")
    if not whole or not turned or updates is None or not _one_for_all(updates, made, extents):
        return None
    return wide.input[0], updates.input[0]


def _one_for_all(
    updates: onnx.NodeProto,
    made: dict[str, onnx.NodeProto],
    extents: dict[str, list[int | None]],
) -> bool:
    """Whether each place gets the same of what is expanded to the places, and axes behind them."""
    own = extents.get(updates.input[0])
    if own is None:
        return False
    sizes = _maker(made, updates.input[1], "Concat")
    behind = [extents.get(name) for name in sizes.input[1:]] if sizes is not None else []
    lengths = [length[0] for length in behind if length]
    if len(lengths) < len(behind) or any(length is None for length in lengths):
        lengths = []
    return all(extent == 1 for extent in own) or len(own) <= sum(filter(None, lengths))


def _maker(made: dict[str, onnx.NodeProto], name: str, operator: str) -> onnx.NodeProto | None:
    """The node of an operator of ONNX's that gives a value; None if another one does."""
    node = made.get(name)
    found = node is not None and node.op_type == operator and node.domain in ONNX_DOMAINS
    return node if found else None


def _known_extents(graph: onnx.GraphProto) -> dict[str, list[int | None]]:
    """The shapes of a graph's values, as far as it tells their ranks; None for an open extent."""
    found: dict[str, list[int | None]] = {}
    for value in (*graph.input, *graph.value_info):
        if value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            found[value.name] = [d.dim_value if d.HasField("dim_value") else None for d in dims]
    found |= {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        tensors = [a.t for a in node.attribute if node.op_type == "Constant" and a.HasField("t")]
        if tensors:
            found[node.output[0]] = list(tensors[0].dims)
    return found
