"""Products with sparse matrices: rows are taken at their columns, scaled, and added up.

A sparse matrix is made in ``forward`` of places and values (``torch.sparse_coo_tensor``), or is a
buffer, whose places and values are known. No kernel reads one, and none has to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.fx.node import map_arg

_aten = torch.ops.aten

_MADE = _aten._sparse_coo_tensor_with_dims_and_tensors.default
_TURNS = (_aten.t.default, _aten.transpose.int, _aten.permute.default)
_PRODUCTS = (_aten.matmul.default, _aten.mm.default)
#: What is read of a sparse matrix that is known.
PARTS = (_aten._indices.default, _aten._values.default)


class _Matrix(NamedTuple):
    """The rows, columns and values of a sparse matrix, and its extents."""

    rows: torch.fx.Node
    columns: torch.fx.Node
    values: torch.fx.Node
    size: tuple[Any, Any]


def gathered_products(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Write products with dense tensors without sparse ones; the program's graph is changed. What
    else is done with these is left, and so are they."""
    graph = program.graph
    if not any(_is_sparse(node) for node in graph.nodes):
        return program
    for node in list(graph.nodes):
        if node.op == "call_function" and any(map(_is_sparse, node.all_input_nodes)):
            with graph.inserting_before(node):
                made = _without(_Writer(program, node), node)
            if made is not None:
                made.meta = {**node.meta, "val": node.meta["val"]}
                node.replace_all_uses_with(made)
    for node in reversed(list(graph.nodes)):
        sparse = _is_sparse(node) or any(map(_is_sparse, node.all_input_nodes))
        if node.op == "call_function" and not node.users and sparse:
            graph.erase_node(node)
    return program


def _is_sparse(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return isinstance(value, torch.Tensor) and value.layout is torch.sparse_coo


class _Writer:
    """Adds nodes before one that they replace."""

    def __init__(self, program: torch.export.ExportedProgram, origin: torch.fx.Node) -> None:
        self._program, self._graph, self._origin = program, program.graph, origin

    def __call__(self, target: Callable[..., Any], *args: Any) -> torch.fx.Node:
        node = self._graph.call_function(target, args)
        given = map_arg(args, lambda argument: argument.meta["val"])
        node.meta = {**self._origin.meta, "val": target(*given)}
        return node

    def parts(self, matrix: torch.fx.Node) -> tuple[torch.fx.Node, torch.fx.Node] | None:
        """Places and values of a matrix that is known; the tracer knows not how many there are."""
        signature = self._program.graph_signature
        names = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
        stored = {**self._program.state_dict, **self._program.constants}
        if (known := stored.get(names.get(matrix.name))) is None or known.sparse_dim() != 2:
            return None
        places, values = (self(part, matrix) for part in PARTS)
        mode = matrix.meta["val"].fake_mode
        places.meta["val"] = mode.from_tensor(known._indices(), static_shapes=True)
        values.meta["val"] = mode.from_tensor(known._values(), static_shapes=True)
        return places, values

    def extent(self, node: torch.fx.Node, axis: int) -> Any:
        extent = node.meta["val"].shape[axis]
        return extent if isinstance(extent, int) else self(_aten.sym_size.int, node, axis)


def _without(write: _Writer, node: torch.fx.Node) -> torch.fx.Node | None:
    """What a node gives, without sparse tensors; None where that is not known."""
    target, args = node.target, node.args
    if target is _aten._to_dense.default and len(args) == 1:
        return _dense(write, args[0])
    if target in _PRODUCTS:
        return _product(write, *args)
    if target is _aten._sparse_addmm.default and node.kwargs == {"beta": 0}:
        return _product(write, *args[1:3])
    if target is _aten.addmm.default and not node.kwargs and not _is_sparse(args[0]):
        made = _product(write, *args[1:])
        return None if made is None else write(_aten.add.Tensor, made, args[0])
    return None


def _matrix(write: _Writer, node: torch.fx.Node) -> _Matrix | None:
    """What is known of a sparse matrix of numbers."""
    if node.target is _MADE:
        axes, beside, size, places, values = node.args
        if (axes, beside) != (2, 0):
            return None
    elif node.op == "placeholder":
        if (known := write.parts(node)) is None or node.meta["val"].dim() != 2:
            return None
        size = list(node.meta["val"].shape)
        places, values = known
    elif node.target is _aten._coalesce.default:  # equal places add up here as well
        return _matrix(write, node.args[0])
    elif node.target in _TURNS:
        if (given := _matrix(write, node.args[0])) is None:
            return None
        same = node.target is _aten.permute.default and [a % 2 for a in node.args[1]] == [0, 1]
        same |= node.target is _aten.transpose.int and (node.args[1] - node.args[2]) % 2 == 0
        return given if same else _Matrix(given.columns, given.rows, given.values, given.size[::-1])
    else:
        return None
    rows, columns = (write(_aten.select.int, places, 0, axis) for axis in (0, 1))
    return _Matrix(rows, columns, values, tuple(size))


def _dense(write: _Writer, node: torch.fx.Node) -> torch.fx.Node | None:
    if (given := _matrix(write, node)) is None:
        return None
    zeros = write(_aten.new_zeros.default, given.values, list(given.size))
    places = [given.rows, given.columns]
    return write(_aten.index_put.default, zeros, places, given.values, True)


def _product(write: _Writer, left: torch.fx.Node, right: torch.fx.Node) -> torch.fx.Node | None:
    """The product of a sparse matrix and a dense matrix or vector, in either order."""
    if _is_sparse(left) and _is_sparse(right):
        return None
    sparse, dense, axis = (left, right, 0) if _is_sparse(left) else (right, left, -1)
    if (given := _matrix(write, sparse)) is None:
        return None
    read, added, extent = given.columns, given.rows, given.size[0]
    if axis:
        read, added, extent = given.rows, given.columns, given.size[1]
    rank = dense.meta["val"].dim()
    values = given.values
    if axis == 0 and rank == 2:
        values = write(_aten.unsqueeze.default, values, 1)
    parts = write(_aten.mul.Tensor, write(_aten.index_select.default, dense, axis, read), values)
    size = [write.extent(dense, a) for a in range(rank)]
    size[axis] = extent
    zeros = write(_aten.new_zeros.default, dense, size)
    places = [added] if axis == 0 else [*[None] * (rank - 1), added]
    return write(_aten.index_put.default, zeros, places, parts, True)
