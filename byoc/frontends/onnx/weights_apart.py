"""Large weights apart from the model that they belong to, read when somebody asks for them.

Reading a model whole takes its size twice, as a file and as a message, and every pass over the
message may copy it again. So large fp32 tensors of the graph stay where they are: in the file, of
which only the rest is parsed, in a file of external data, or in the caller's model. In their place
are tensors of the same name, type and shape without data. Folding BatchNormalization into them is
put off in the same way.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from byoc.deploy.metadata import FixedInput, LabelledOutput
from byoc.errors import ModelError
from byoc.frontends.onnx.dynamic_axes import DynamicAxis
from byoc.frontends.onnx.graph_names import FreshNames, makers, reads

#: Weights from this size on, in bytes, are kept apart.
LARGE_WEIGHT = 1 << 18

#: Most elements of a constant that shape inference looks into: shapes, pads, axes have few.
MAX_SHAPE = 1024

#: Writes the values of a weight into an fp32 array of its shape.
Fetch = Callable[[np.ndarray], None]

# Fields of ONNX's messages by number, and protobuf's kinds of encoding.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5

#: 64 bits, seven in a byte.
_VARINT_BYTES = 10


@dataclass
class ApartModel:
    """A model, and how to get the data of those initializers that have none, by name.

    ``files`` are those that it was read from, its own first; ``axes`` the dynamic ones of its
    inputs that nobody gave a size, with what they got; ``fixed`` inputs that became constants;
    ``labelled`` outputs of maps or texts that became numbers; ``ranks`` of outputs as declared.
    """

    model: onnx.ModelProto
    weights: dict[str, Fetch] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    axes: tuple[DynamicAxis, ...] = ()
    fixed: tuple[FixedInput, ...] = ()
    labelled: tuple[LabelledOutput, ...] = ()
    ranks: dict[str, int] = field(default_factory=dict)

    def restore(self, names: set[str]) -> None:
        """Put the data of these initializers into the model."""
        for tensor in self.model.graph.initializer:
            if tensor.name in names and tensor.name in self.weights:
                values = np.empty(tuple(tensor.dims), "<f4")
                self.weights.pop(tensor.name)(values)
                tensor.raw_data = values.tobytes()

    def whole(self) -> onnx.ModelProto:
        """The model with all of its data."""
        self.restore(set(self.weights))
        return self.model


# ---------------------------------------------------------------------- taking apart


def apart_from(model: onnx.ModelProto) -> ApartModel:
    """A copy of a model in memory, which is not changed and has to stay for its weights."""
    copy, weights = onnx.ModelProto(), {}
    _copy_fields(model, copy, without="graph")
    _copy_fields(model.graph, copy.graph, without="initializer")
    for tensor in model.graph.initializer:
        nbytes = 4 * prod(tensor.dims)
        if tensor.data_type == onnx.TensorProto.FLOAT and nbytes >= LARGE_WEIGHT:
            weights[tensor.name] = partial(_in_memory, tensor)
            copy.graph.initializer.append(_without_data(tensor))
        else:
            copy.graph.initializer.append(tensor)
    return ApartModel(copy, weights)


def outline(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with the data of small initializers alone: enough to infer shapes, and never 2 GB."""
    copy = onnx.ModelProto()
    _copy_fields(model, copy, without="graph")
    _copy_fields(model.graph, copy.graph, without="initializer")
    copy.graph.initializer.extend(
        tensor if prod(tensor.dims) <= MAX_SHAPE else _without_data(tensor)
        for tensor in model.graph.initializer
    )
    return copy


def read_apart(path: Path, read: Callable[[], onnx.ModelProto]) -> ApartModel:
    """Read a model file, its external data left out; ``read()`` does so if it is no plain file.

    Raises what ``read`` raises.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found = _Cut(data)
            model = onnx.ModelProto.FromString(found.rest) if found.places else None
    except (OSError, ValueError, IndexError, DecodeError):
        model = None  # whatever is wrong with the file, the ordinary reader will say
    if model is None:
        return ApartModel(read())
    apart = ApartModel(model)
    for tensor in model.graph.initializer:
        if (place := found.places.get(tensor.name)) is not None:
            apart.weights[tensor.name] = partial(_in_file, path, place)
    return apart


def leave_external(apart: ApartModel, folder: Path) -> None:
    """Take large weights in files of external data for weights that are apart."""
    for index, tensor in enumerate(apart.model.graph.initializer):
        external = tensor.data_location == onnx.TensorProto.EXTERNAL
        nbytes = 4 * prod(tensor.dims)
        if external and tensor.data_type == onnx.TensorProto.FLOAT and nbytes >= LARGE_WEIGHT:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            file, offset = folder / entries["location"], int(entries.get("offset", 0))
            apart.weights[tensor.name] = partial(_in_file, file, offset)
            apart.model.graph.initializer[index].CopyFrom(_without_data(tensor))


def _in_file(path: Path, offset: int, values: np.ndarray) -> None:
    """Read little-endian numbers."""
    with path.open("rb") as file:
        file.seek(offset)
        if file.readinto(values.reshape(-1).view(np.uint8).data) != values.nbytes:
            raise ModelError(f"{path}: the file was changed while it was read; compile it again")
    if sys.byteorder == "big":
        values.byteswap(inplace=True)


def _in_memory(tensor: onnx.TensorProto, values: np.ndarray) -> None:
    np.copyto(values, numpy_helper.to_array(tensor))


def _without_data(tensor: onnx.TensorProto) -> onnx.TensorProto:
    return onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)


def _copy_fields(source: object, target: object, without: str) -> None:
    """Copy every field of a message but one into an empty message of its kind."""
    for description, value in source.ListFields():
        name = description.name
        if name == without:
            continue
        if hasattr(value, "extend"):  # a repeated field
            getattr(target, name).extend(value)
        elif description.message_type is not None:
            getattr(target, name).CopyFrom(value)
        else:
            setattr(target, name, value)


class _Cut:
    """A serialised model without the data of large tensors, and where these are in the file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.places: dict[str, int] = {}
        pieces = []
        for number, kind, start, begin, end in _fields(data, 0, len(data)):
            if (number, kind) == (_GRAPH, _LENGTH):
                pieces.append(_message(_GRAPH, self._graph(data, begin, end)))
            else:
                pieces.append(data[start:end])
        self.rest = b"".join(pieces)

    def _graph(self, data: mmap.mmap, begin: int, end: int) -> bytes:
        pieces = []
        for number, kind, start, inner, stop in _fields(data, begin, end):
            large = stop - inner >= LARGE_WEIGHT and (number, kind) == (_INITIALIZER, _LENGTH)
            tensor = self._tensor(data, inner, stop) if large else None
            pieces.append(data[start:stop] if tensor is None else _message(_INITIALIZER, tensor))
        return b"".join(pieces)

    def _tensor(self, data: mmap.mmap, begin: int, end: int) -> bytes | None:
        """A tensor without its data, whose place is noted; None where it has to stay whole."""
        pieces, place = [], None
        for number, kind, start, inner, stop in _fields(data, begin, end):
            if (number, kind) == (_RAW_DATA, _LENGTH):
                place = (inner, stop - inner)
            else:
                pieces.append((start, stop))
        if place is None or sum(stop - start for start, stop in pieces) >= LARGE_WEIGHT:
            return None  # the data are in another field
        rest = b"".join(data[start:stop] for start, stop in pieces)
        tensor = onnx.TensorProto.FromString(rest)
        if tensor.data_type != onnx.TensorProto.FLOAT or place[1] != 4 * prod(tensor.dims):
            return None
        self.places[tensor.name] = place[0]
        return rest


def _fields(data: mmap.mmap, begin: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Number, kind, start, first and last byte (exclusive) of the content of each field."""
    position = begin
    while position < end:
        start = position
        key, position = _varint(data, position)
        kind = key & 7
        if kind == _LENGTH:
            length, position = _varint(data, position)
        elif kind == _VARINT:
            length = _varint(data, position)[1] - position
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            length = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"encoding {kind}; need 0, 1, 2 or 5")
        if position + length > end:
            raise ValueError("a field is longer than what it is in")
        yield key >> 3, kind, start, position, position + length
        position += length


def _varint(data: mmap.mmap, position: int) -> tuple[int, int]:
    value = 0
    for place in range(_VARINT_BYTES):
        byte = data[position + place]
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, position + place + 1
    raise ValueError(f"a number is longer than {_VARINT_BYTES} bytes")


def _message(number: int, content: bytes) -> bytes:
    """A field that is a message: its key, its length, its content."""
    head, length = bytearray([number << 3 | _LENGTH]), len(content)
    while length > 127:
        head.append(length & 127 | 128)
        length >>= 7
    head.append(length)
    return bytes(head) + content


# ---------------------------------------------------------------------- folding


def fold_batch_norm(apart: ApartModel) -> None:
    """Multiply BatchNormalization behind a convolution into its weights, if these are apart.

    y = (conv(x, w) + b - mean) * s + beta, where s = scale / sqrt(variance + epsilon), is
    conv(x, w * s) + (b - mean) * s + beta.
    """
    graph = apart.model.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for value in graph.input:  # one that the caller may replace
        stored.pop(value.name, None)
    uses, names = reads(graph), FreshNames(graph)
    producers = makers(graph)
    gone: set[int] = set()
    for index, norm in enumerate(graph.node):
        conv = producers.get(norm.input[0]) if norm.op_type == "BatchNormalization" else None
        if conv is None or conv.op_type != "Conv" or uses[conv.output[0]] != 1:
            continue
        constants = [*conv.input[1:], *norm.input[1:]]
        outputs = [name for name in norm.output if name]
        if (
            len(outputs) != 1
            or not all(name in stored for name in constants)
            or conv.input[1] not in apart.weights
            or any(name in apart.weights for name in constants if name != conv.input[1])
            or _attribute(norm, "training_mode", 0)
            or not _attribute(norm, "spatial", 1)
        ):
            continue
        _fold(apart, conv, norm, stored, names)
        gone.add(index)
    for index in sorted(gone, reverse=True):
        del graph.node[index]


def _fold(
    apart: ApartModel,
    conv: onnx.NodeProto,
    norm: onnx.NodeProto,
    stored: dict[str, onnx.TensorProto],
    names: FreshNames,
) -> None:
    scale, beta, mean, variance = (
        numpy_helper.to_array(stored[name]).astype(np.float64) for name in norm.input[1:]
    )
    scales = scale / np.sqrt(variance + _attribute(norm, "epsilon", 1e-5))
    bias = numpy_helper.to_array(stored[conv.input[2]]) if len(conv.input) > 2 else 0.0
    shifted = ((bias - mean) * scales + beta).astype(np.float32)
    name, fetch = norm.output[0], apart.weights[conv.input[1]]

    def scaled(values: np.ndarray) -> None:
        fetch(values)
        values *= scales.astype(np.float32).reshape(-1, *[1] * (values.ndim - 1))

    weight = _without_data(stored[conv.input[1]])
    weight.name = names.fresh(f"{name}_weight")
    apart.weights[weight.name] = scaled
    sums = numpy_helper.from_array(shifted, names.fresh(f"{name}_bias"))
    apart.model.graph.initializer.extend([weight, sums])
    operands = [conv.input[0], weight.name, sums.name]
    del conv.input[:]
    conv.input.extend(operands)
    conv.output[0] = name


def _attribute(node: onnx.NodeProto, name: str, default: float) -> float:
    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else onnx.helper.get_attribute_value(found)
