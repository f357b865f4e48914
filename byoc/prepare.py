"""Read an ONNX model, give it static shapes, simplify it, and import it into Relax.

Every error is one line that names what was wrong, on what, and what would work.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import onnx
import tvm
from google.protobuf.message import DecodeError

from .errors import ImportFailure, ModelError, ShapeError
from .fold_onnx import fold_small_constants
from .named_import import import_named

#: Shapes by input name, as users give them: sizes, or names for axes that stay symbolic.
InputShapes = Mapping[str, Sequence[int | str]]

#: Names of nodes and inputs that a message lists before it says how many more there are.
MAX_LISTED = 5

#: Weights from this size on, in bytes, are kept away from the simplifier ...
LARGE_WEIGHT = 1 << 18

#: ... if only these operators, which it leaves alone, read them.
TAKES_MATRICES = ("MatMul", "Gemm", "Gather", "Transpose")


def prepare(
    model: str | Path | onnx.ModelProto, input_shapes: InputShapes | None = None
) -> onnx.ModelProto:
    """Return a model with known input shapes, simplified; the given model is not changed.

    ``model`` is a file, whose external data is looked for beside it, or a model in memory.
    ``input_shapes`` gives the shapes of inputs with dynamic axes; an axis that shares its symbol
    with a given one need not be given again. An extent may be a name, such as ``"n"``: the axis
    then stays symbolic, and one compiled model serves every size of it.

    Raises ``ModelError`` if the file is missing, no ONNX model or without its external data, and
    ``ShapeError`` if shapes are missing, unknown or contradict the model. Warns if the simplifier
    fails, and goes on with the model as it was.
    """
    loaded = _copy(model) if isinstance(model, onnx.ModelProto) else load_model(Path(model))
    set_input_shapes(loaded, input_shapes or {})
    return explicit_padding(fold_small_constants(simplify(loaded)))


# ---------------------------------------------------------------------- reading


def load_model(path: Path) -> onnx.ModelProto:
    """Read a model file and its external data. Raises ``ModelError``."""
    if not path.exists():
        raise ModelError(f"{path}: no such file; give the path of an ONNX model")
    if path.is_dir():
        raise ModelError(f"{path}: is a folder; give the path of an ONNX model in it")
    try:
        model = onnx.load(str(path), load_external_data=False)
    except (DecodeError, ValueError, UnicodeDecodeError) as err:
        raise ModelError(
            f"{path}: no ONNX model ({_first_line(err)}); the file is damaged or of another format"
        ) from err
    except OSError as err:
        raise ModelError(f"{path}: cannot be read ({err.strerror}); check its permissions") from err
    if not model.graph.output or model.ir_version == 0:
        size = path.stat().st_size
        raise ModelError(
            f"{path}: no ONNX model (a graph without outputs in {size} bytes);"
            " the file is empty, damaged or of another format"
        )
    _check_external_data(model, path)
    onnx.load_external_data_for_model(model, str(path.parent))
    return model


def _check_external_data(model: onnx.ModelProto, path: Path) -> None:
    for tensor, entries in _external_tensors(model):
        location = entries.get("location", "")
        file = path.parent / location
        if not location or not file.is_file():
            raise ModelError(
                f"{path}: external data file {location!r} of tensor {tensor.name!r} is missing;"
                f" put it into {path.parent}"
            )
        need = int(entries.get("offset", 0)) + int(entries.get("length", 0))
        if file.stat().st_size < need:
            raise ModelError(
                f"{path}: external data file {location!r} has {file.stat().st_size} bytes and"
                f" tensor {tensor.name!r} needs {need}; the file is damaged, fetch it again"
            )


def _external_tensors(
    model: onnx.ModelProto,
) -> Iterator[tuple[onnx.TensorProto, dict[str, str]]]:
    attributes = (
        tensor
        for node in model.graph.node
        for attribute in node.attribute
        for tensor in (attribute.t, *attribute.tensors)
    )
    for tensor in (*model.graph.initializer, *attributes):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor, {entry.key: entry.value for entry in tensor.external_data}


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    if not model.graph.output:
        raise ModelError("the model has a graph without outputs; mark at least one output")
    for tensor, entries in _external_tensors(model):
        raise ModelError(
            f"tensor {tensor.name!r} has its data in the file {entries.get('location')!r}, which"
            " was not loaded; give the path of the model, or call onnx.load_external_data_for_model"
        )
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


# ---------------------------------------------------------------------- shapes


def model_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Inputs that a caller feeds; old files list the weights among the inputs as well."""
    weights = {tensor.name for tensor in model.graph.initializer}
    weights |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    return [value for value in model.graph.input if value.name not in weights]


def set_input_shapes(model: onnx.ModelProto, shapes: InputShapes) -> None:
    """Write shapes into the model's inputs, in place. Raises ``ShapeError``."""
    inputs = {value.name: value for value in model_inputs(model)}
    for value in inputs.values():
        _take_optional(value)
    for name in shapes:
        if name not in inputs:
            known = ", ".join(repr(known) for known in inputs) or "none"
            raise ShapeError(f"input {name!r} is not in the model; its inputs are {known}")
    symbols: dict[str, int | str] = {}
    for name, shape in shapes.items():
        empty = _empty_axes(inputs[name])
        extents = [
            0 if extent == 0 and axis in empty else _extent(name, extent)
            for axis, extent in enumerate(shape)
        ]
        _set_given(inputs[name], extents, symbols)
    for value in inputs.values():
        _set_from_symbols(value, symbols, value.name in shapes)
    if shapes:
        # Shapes inferred for dynamic axes would contradict the static ones.
        del model.graph.value_info[:]
        for value in model.graph.output:
            if any(_fixed(dim) is None for dim in value.type.tensor_type.shape.dim):
                value.type.tensor_type.ClearField("shape")


def _take_optional(value: onnx.ValueInfoProto) -> None:
    """Make an optional tensor a tensor: a compiled model has one number of inputs."""
    inner = value.type.optional_type.elem_type
    if inner.HasField("tensor_type"):
        copy = onnx.TypeProto()
        copy.CopyFrom(inner)
        value.type.CopyFrom(copy)


def _empty_axes(value: onnx.ValueInfoProto) -> set[int]:
    """Axes written as 0: some exporters mean unknown, and a caller who says 0 as well means 0."""
    dims = value.type.tensor_type.shape.dim
    return {i for i, dim in enumerate(dims) if dim.HasField("dim_value") and dim.dim_value == 0}


def _extent(name: str, extent: int | str) -> int | str:
    if isinstance(extent, str) and extent.isidentifier() and extent.isascii():
        return extent
    if isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
        raise ShapeError(
            f"input {name!r}: extent {extent!r} in its shape; need positive integers, or names for"
            " axes that stay symbolic"
        )
    return extent


def _fixed(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    """The extent of an axis; None if it is dynamic (a symbol, missing, 0 or -1)."""
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None


def _set_given(
    value: onnx.ValueInfoProto, shape: list[int | str], symbols: dict[str, int | str]
) -> None:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        raise ShapeError(f"input {value.name!r} is no tensor; its shape cannot be set")
    if not tensor.HasField("shape"):
        tensor.shape.CopyFrom(onnx.TensorShapeProto())
        tensor.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in shape)
    dims = tensor.shape.dim
    if len(dims) != len(shape):
        raise ShapeError(
            f"input {value.name!r}: shape {shape} has rank {len(shape)}, the model's is"
            f" {_shape_text(value)} of rank {len(dims)}; give {len(dims)} extents"
        )
    declared = _shape_text(value)
    for axis, (dim, extent) in enumerate(zip(dims, shape, strict=True)):
        fixed = _fixed(dim)
        if fixed is not None and fixed != extent:
            raise ShapeError(
                f"input {value.name!r}: axis {axis} of shape {shape} is {extent}, the model's is"
                f" fixed to {fixed} in {declared}; give {fixed} there"
            )
        symbol = dim.dim_param if dim.HasField("dim_param") else ""
        if symbol and symbol != "?" and symbols.setdefault(symbol, extent) != extent:
            raise ShapeError(
                f"input {value.name!r}: axis {axis} ({symbol!r}) is {extent}, elsewhere"
                f" {symbols[symbol]}; give the same extent for the same symbol"
            )
        _write(dim, extent)
        if isinstance(extent, str):
            symbols.setdefault(extent, extent)


def _write(dim: onnx.TensorShapeProto.Dimension, extent: int | str) -> None:
    if isinstance(extent, str):
        dim.dim_param = extent
    else:
        dim.dim_value = extent


def _set_from_symbols(
    value: onnx.ValueInfoProto, symbols: dict[str, int | str], given: bool
) -> None:
    if not value.type.HasField("tensor_type"):
        raise ShapeError(f"input {value.name!r} is no tensor; only tensors can be compiled")
    if not value.type.tensor_type.HasField("shape"):
        raise ShapeError(
            f"input {value.name!r} has no shape in the model;"
            f" give one with --input-shapes {value.name}:[1,3,224,224]"
        )
    dims = value.type.tensor_type.shape.dim
    dynamic = []
    for axis, dim in enumerate(dims):
        if _fixed(dim) is None and not (given and dim.HasField("dim_value")):
            extent = symbols.get(dim.dim_param) if dim.dim_param else None
            if extent is None:
                dynamic.append(f"{axis} ({dim.dim_param})" if dim.dim_param else str(axis))
            else:
                _write(dim, extent)
    if dynamic:
        axes = f"ax{'i' if len(dynamic) == 1 else 'e'}s {', '.join(dynamic)}"
        raise ShapeError(
            f"input {value.name!r} has dynamic {axes}; give its shape, such as"
            f" --input-shapes {value.name}:[{','.join(map(str, _suggestion(value)))}]"
        )


def _suggestion(value: onnx.ValueInfoProto) -> list[int]:
    """A shape that one might mean: batch 1, images of 224 pixels, sequences of 128."""
    dims = value.type.tensor_type.shape.dim
    usual = {4: (1, 3, 224, 224), 3: (1, 128, 128), 2: (1, 128)}.get(len(dims), (1,) * len(dims))
    return [_fixed(dim) or extent for dim, extent in zip(dims, usual, strict=True)]


def _shape_text(value: onnx.ValueInfoProto) -> str:
    dims = value.type.tensor_type.shape.dim
    return "[" + ", ".join(str(_fixed(dim) or dim.dim_param or "?") for dim in dims) + "]"


# ---------------------------------------------------------------------- simplifying


def simplify(model: onnx.ModelProto) -> onnx.ModelProto:
    """Fold constants and shape arithmetic; on failure warn and return the model as it is."""
    import onnxslim  # slow to import, and not needed to read a report

    stash = take_large_weights(model)
    untouched = onnx.ModelProto()
    untouched.CopyFrom(model)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            simplified = onnxslim.slim(model)
        keep_interface(simplified, untouched)
        return put_weights_back(simplified, stash)
    except Exception as err:  # the simplifier has no error class of its own
        warnings.warn(
            f"the model could not be simplified ({type(err).__name__}: {_first_line(err)});"
            " going on without, operators on shapes may stay with TVM",
            stacklevel=3,
        )
        return put_weights_back(untouched, stash)


def take_large_weights(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Make inputs of large matrices, in place, and return them by name.

    The simplifier serialises the whole model dozens of times (15 of 17 seconds for BERT-base), and
    a model above 2 GB cannot be serialised at all. What it would do with a matrix,
    ``byoc.canonicalise`` does as well.
    """
    needed = {value.name for value in (*model.graph.input, *model.graph.output)}
    for node in model.graph.node:
        if node.op_type not in TAKES_MATRICES:
            needed.update(node.input)
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                needed.update(name for inner in graph.node for name in inner.input)
    stash = {
        tensor.name: tensor
        for tensor in model.graph.initializer
        if tensor.name not in needed
        and tensor.ByteSize() >= LARGE_WEIGHT
        and tensor.data_type == onnx.TensorProto.FLOAT
    }
    if stash:
        rest = [tensor for tensor in model.graph.initializer if tensor.name not in stash]
        stash = {name: _detached(tensor) for name, tensor in stash.items()}
        kept = [_detached(tensor) for tensor in rest]
        del model.graph.initializer[:]
        model.graph.initializer.extend(kept)
        for name, tensor in stash.items():
            value = onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims)
            model.graph.input.append(value)
    return stash


def _detached(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """A copy that survives the removal of the original from its model."""
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    return copy


def keep_interface(model: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Restore inputs that the simplifier dropped because nothing reads them, in their order.

    Raises ``ValueError`` if it changed the outputs.
    """
    names = [value.name for value in original.graph.output]
    if [value.name for value in model.graph.output] != names:
        raise ValueError(f"the outputs are no longer {', '.join(names)}")
    inputs = model_inputs(original)
    if [value.name for value in model_inputs(model)] != [value.name for value in inputs]:
        del model.graph.input[:]
        model.graph.input.extend(inputs)


def put_weights_back(model: onnx.ModelProto, stash: dict[str, onnx.TensorProto]) -> onnx.ModelProto:
    """Undo ``take_large_weights``, for the weights that are still used."""
    if stash:
        used = {name for node in model.graph.node for name in node.input}
        inputs = [value for value in model.graph.input if value.name not in stash]
        kept = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in inputs]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        model.graph.initializer.extend(t for name, t in stash.items() if name in used)
    return model


def explicit_padding(model: onnx.ModelProto) -> onnx.ModelProto:
    """Write ``auto_pad`` of convolutions and pools as pads, which TVM's importer keeps in them.

    SAME_UPPER and SAME_LOWER give ceil(extent / stride) outputs and put an odd pixel of padding
    at the end or at the beginning (ONNX operator specification, Conv). With stride 1 that does not
    depend on the extent, which may then be symbolic.
    """
    same = [node for node in model.graph.node if _auto_pad(node).startswith("SAME")]
    if not same:
        return model
    inferred = onnx.shape_inference.infer_shapes(model)
    known = {
        value.name: [_fixed(dim) for dim in value.type.tensor_type.shape.dim]
        for value in (*inferred.graph.value_info, *inferred.graph.input)
    }
    weights = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    for node in same:
        image, kernel = known.get(node.input[0], []), _kernel(node, weights)
        if kernel is None or len(image) != len(kernel) + 2:
            continue
        strides = _integers(node, "strides", [1] * len(kernel))
        extents = [e if s != 1 else e or 1 for e, s in zip(image[2:], strides, strict=True)]
        if None not in extents:
            _write_pads(node, extents, kernel)
    return model


def _kernel(node: onnx.NodeProto, weights: dict[str, list[int]]) -> list[int] | None:
    """Extents of the window, of a convolution from its weight if that is stored."""
    if node.op_type == "Conv" and node.input[1] in weights:
        return weights[node.input[1]][2:]
    return _integers(node, "kernel_shape", None)


def _integers(node: onnx.NodeProto, name: str, default: list[int] | None) -> list[int] | None:
    return next((list(a.ints) for a in node.attribute if a.name == name and a.ints), default)


def _auto_pad(node: onnx.NodeProto) -> str:
    if node.op_type not in ("Conv", "MaxPool", "AveragePool"):
        return ""
    return next((a.s.decode() for a in node.attribute if a.name == "auto_pad"), "")


def _write_pads(node: onnx.NodeProto, image: list[int], kernel: list[int]) -> None:
    strides = _integers(node, "strides", [1] * len(kernel))
    dilations = _integers(node, "dilations", [1] * len(kernel))
    lower = _auto_pad(node) == "SAME_LOWER"
    begin, end = [], []
    for size, taps, stride, dilation in zip(image, kernel, strides, dilations, strict=True):
        reach = (-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1
        total = max(0, reach - size)
        small, large = total // 2, total - total // 2
        begin.append(large if lower else small)
        end.append(small if lower else large)
    kept = [a for a in node.attribute if a.name not in ("auto_pad", "pads")]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute("pads", [*begin, *end])])


# ---------------------------------------------------------------------- importing


def import_onnx(model: onnx.ModelProto) -> tvm.IRModule:
    """Import a prepared model into Relax, weights as constants, with the names of the nodes.

    Raises ``ImportFailure`` that names the operators, and the nodes, that the importer refuses.
    """
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return import_named(model)
    except tvm.error.OpNotImplemented as err:
        raise ImportFailure(_unsupported(model, str(err))) from err
    except Exception as err:  # converters raise whatever their code runs into
        node = _node_in_traceback(err.__traceback__)
        where = f"operator {node.op_type} (node {_name(node)})" if node is not None else "the model"
        raise ImportFailure(
            f"TVM's importer cannot convert {where}: {type(err).__name__}: {_first_line(err)};"
            " try another opset or replace that operator"
        ) from err


def _unsupported(model: onnx.ModelProto, message: str) -> str:
    listed = {name.strip() for name in message.rpartition(":")[2].split(",")}
    parts = []
    for op in sorted(listed):
        names = [_name(node) for node in model.graph.node if node.op_type == op]
        more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
        parts.append(f"{op} (node {', '.join(names[:MAX_LISTED])}{more})" if names else op)
    plural = "s" if len(parts) > 1 else ""
    return (
        f"TVM's importer has no converter for operator{plural} {', '.join(parts)};"
        " export the model without them"
    )


def _name(node: onnx.NodeProto) -> str:
    """A node's name; nodes without one are known by their first output."""
    return repr(node.name) if node.name else f"with output {node.output[0]!r}"


def _node_in_traceback(traceback: TracebackType | None) -> onnx.NodeProto | None:
    """The ONNX node that the importer was at: its loop over nodes is among the frames."""
    found = None
    while traceback is not None:
        node = traceback.tb_frame.f_locals.get("node")
        if isinstance(node, onnx.NodeProto):
            found = node
        traceback = traceback.tb_next
    return found


def _first_line(err: BaseException) -> str:
    lines = str(err).strip().splitlines()
    return lines[0] if lines else type(err).__name__
