"""Weights that a file stores by their elements other than 0, made plain ones."""

from __future__ import annotations

from math import prod
from typing import NoReturn

import numpy as np
import onnx
from onnx import external_data_helper, helper, numpy_helper

from byoc.errors import ModelError
from byoc.frontends.onnx.graph_names import all_graphs

#: What protobuf can hold of one message.
_MOST_BYTES = (1 << 31) - 1


def dense_weights(model: onnx.ModelProto) -> None:
    """Replace the sparse initializers and constants of all graphs, in place.

    Raises ``ModelError`` for one whose places do not fit it.
    """
    for graph in all_graphs(model.graph):
        graph.initializer.extend(map(_dense, graph.sparse_initializer))
        del graph.sparse_initializer[:]
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.name == "sparse_value" and node.op_type == "Constant":
                    value = _dense(attribute.sparse_tensor)
                    attribute.CopyFrom(helper.make_attribute("value", value))


def _dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    name, dims = sparse.values.name, tuple(sparse.dims)
    for part in (sparse.values, sparse.indices):
        if external_data_helper.uses_external_data(part):
            _refuse(name, "its data lie in another file, which is read for plain weights alone")
    values, places = map(numpy_helper.to_array, (sparse.values, sparse.indices))
    count, rank = values.size, len(dims)
    if min(dims, default=-1) < 0 or values.ndim != 1 or places.dtype != np.int64:
        _refuse(name, f"{list(dims)} with values {list(values.shape)}; need a vector for axes")
    if prod(dims) * values.itemsize > _MOST_BYTES:
        _refuse(name, f"{list(dims)} has more than 2 GiB; store it as a plain weight")
    if places.shape == (count, rank):
        inside = bool(((places >= 0) & (places < np.array(dims, np.int64))).all())
        where = np.ravel_multi_index(tuple(places.T), dims) if inside and count else places[:, 0]
    elif places.shape == (count,):
        inside, where = bool(((places >= 0) & (places < prod(dims))).all()), places
    else:
        _refuse(name, f"places {list(places.shape)} of {count} values; need one for each")
    if not inside:
        _refuse(name, f"a place lies outside of {list(dims)}")
    whole = np.zeros(prod(dims), values.dtype)
    whole[where] = values
    return numpy_helper.from_array(whole.reshape(dims), name)


def _refuse(name: str, reason: str) -> NoReturn:
    raise ModelError(f"sparse weight {name!r}: {reason}")
