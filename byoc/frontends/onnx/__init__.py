"""Read an ONNX model, give it static shapes, simplify it, and import it into Relax.

Every error is one line that names what was wrong, on what, and what would work.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType

import onnx
import tvm

from byoc.deploy.metadata import SourceFile
from byoc.errors import AxesNote, ImportFailure, LabelsNote, ModelError, UnsupportedForm
from byoc.frontends.imported import Imported
from byoc.frontends.onnx.batch_statistics import write_batch_statistics
from byoc.frontends.onnx.collected_sequences import collect_sequences
from byoc.frontends.onnx.counted_once import count_once
from byoc.frontends.onnx.counted_slices import index_by_rounds
from byoc.frontends.onnx.custom_operators import declare_custom
from byoc.frontends.onnx.dynamic_axes import DynamicAxis, note, set_shapes
from byoc.frontends.onnx.explain import failed_node, unsupported, unsupported_input
from byoc.frontends.onnx.fixed_inputs import FixedInputs, fix_inputs, given_values
from byoc.frontends.onnx.fold_onnx import drop_unused, fold_constants
from byoc.frontends.onnx.given_model import GivenModel, given_model
from byoc.frontends.onnx.input_shapes import (
    InputShapes,
    given_shapes,
    model_inputs,
    require_countable,
    shape_text,
)
from byoc.frontends.onnx.integer_products import products_of_floats
from byoc.frontends.onnx.learned_axes import Unequal
from byoc.frontends.onnx.masked_stores import choose_by_masks
from byoc.frontends.onnx.named_import import import_named, ranges_of
from byoc.frontends.onnx.narrow_constants import widen_narrow_constants
from byoc.frontends.onnx.open_squeeze import declared_ranks, squeeze_as_declared
from byoc.frontends.onnx.read_model import read
from byoc.frontends.onnx.refusals import Refusals
from byoc.frontends.onnx.same_padding import explicit_padding
from byoc.frontends.onnx.scaled_images import separate_scales
from byoc.frontends.onnx.settle_axes import settle_axes, with_sizes
from byoc.frontends.onnx.signature import signature
from byoc.frontends.onnx.sparse_weights import dense_weights
from byoc.frontends.onnx.suggest_multiples import all_outputs_known, working_multiples
from byoc.frontends.onnx.weights_apart import (
    ApartModel,
    Fetch,
    fold_batch_norm,
)
from byoc.frontends.source_files import hash_content, hash_files
from byoc.stages import Stages
from codegen_cc.errors import foreign_errors_as, one_line


def prepare(model: GivenModel, input_shapes: InputShapes | None = None) -> onnx.ModelProto:
    """Return a model with known input shapes, simplified; the given model is not changed.

    ``model`` is a file, whose external data is looked for beside it, or a model in memory, or its
    serialised bytes.
    ``input_shapes`` gives the shapes of inputs with dynamic axes; an axis that shares its symbol
    with a given one need not be given again, and others stay symbolic. An extent may be a name,
    such as ``"n"``: the axis then stays symbolic, and one compiled model serves every size of it.
    ``"32*h"`` serves every multiple of 32, which networks need that halve an image and add the
    parts up again.

    Raises ``ModelError`` if the file is missing, no ONNX model or without its external data, and
    ``ShapeError`` if shapes are missing, unknown or contradict the model.
    """
    return prepare_apart(model, input_shapes).whole()


@foreign_errors_as(ModelError, "preparing the model")
def prepare_apart(
    model: GivenModel,
    input_shapes: InputShapes | None = None,
    fixed_inputs: FixedInputs | None = None,
) -> ApartModel:
    """Prepare as ``prepare`` does, with the data of large weights left where they are.

    A file must not change, a model in memory must stay, until the result was imported.
    """
    shapes, fixed = given_shapes(input_shapes), given_values(fixed_inputs)
    declare_custom()
    loaded = read(model)
    dense_weights(loaded.model)
    widen_narrow_constants(loaded.model)
    loaded.fixed = fix_inputs(loaded.model, fixed, shapes)
    shapes = {name: shape for name, shape in shapes.items() if name not in fixed}
    loaded.ranks = declared_ranks(loaded.model)
    squeeze_as_declared(loaded.model)
    loaded.axes = set_shapes(loaded.model, shapes)
    require_countable(loaded.model)
    simplify(loaded)
    explicit_padding(loaded.model)
    separate_scales(loaded.model)
    products_of_floats(loaded.model)
    return loaded


def import_model(
    model: GivenModel,
    input_shapes: InputShapes | None = None,
    allow_wrong: Iterable[str] = (),
    stages: Stages | None = None,
    sized: bool = False,
    fixed_inputs: FixedInputs | None = None,
) -> Imported:
    """Read a model into a Relax module: ``prepare``, then ``import_onnx``, with names and source.

    Dynamic axes that ``input_shapes`` leaves open get symbols (``settle_axes``), or usual sizes
    where they are to be ``sized``; an ``AxesNote`` says which. ``fixed_inputs`` become constants
    (``fix_inputs``). ``stages`` are announced and timed.
    Raises as these two do, and ``CompileError`` for a result
    of no known rank.
    """
    stages = stages or Stages(None)
    with stages("prepare the model", ModelError):
        given = given_model(model)
        prepared = prepare_apart(given, input_shapes, fixed_inputs)
        in_memory = isinstance(given, onnx.ModelProto)
        source = _content_of(given) if in_memory else hash_files(prepared.files)
    if prepared.labelled:
        warnings.warn("; ".join(map(str, prepared.labelled)), LabelsNote, stacklevel=2)
    with stages("import into TVM", ImportFailure):
        if not prepared.axes:
            return _imported(prepared, import_onnx(prepared, allow_wrong), source)
        again = partial(_prepared_again, given, given_shapes(input_shapes), fixed_inputs)

        def settled(failed: tuple[tuple[DynamicAxis, ...], ...] = ()) -> Imported:
            found, module, chosen = _settled(prepared, again, tuple(allow_wrong), sized, failed)
            imported = _imported(found, module, source, chosen)
            if all(isinstance(axis.extent, int) for axis in found.axes):
                return imported
            return replace(imported, less_general=partial(settled, (*failed, found.axes)))

        return settled()


def _imported(
    prepared: ApartModel, module: tvm.IRModule, source: tuple[SourceFile, ...], chosen: str = ""
) -> Imported:
    known = signature(prepared.model, module)
    ranges = ranges_of(module)
    return Imported(
        module,
        *known,
        source,
        chosen,
        ranges,
        fixed=prepared.fixed,
        labelled=prepared.labelled,
    )


def _prepared_again(
    given: Path | onnx.ModelProto,
    input_shapes: InputShapes,
    fixed_inputs: FixedInputs | None,
    others: InputShapes,
) -> ApartModel:
    return prepare_apart(given, {**input_shapes, **others}, fixed_inputs)


def _settled(
    prepared: ApartModel,
    again: Callable[[InputShapes], ApartModel],
    allow_wrong: Iterable[str],
    sized: bool,
    failed: Collection[tuple[DynamicAxis, ...]],
) -> tuple[ApartModel, tvm.IRModule, str]:
    """A model whose dynamic axes have extents, its module, and a line that says which.

    Extents that ``failed`` later are none of them.
    """
    allowed, refusals = tuple(allow_wrong), Refusals()

    def convert(model: ApartModel, unequal: Unequal) -> tvm.IRModule:
        nonlocal refusals
        refusals = Refusals(allowed)
        return _import_quietly(model.model, model.weights, refusals, unequal)

    found = with_sizes(prepared, again) if sized else settle_axes(prepared, again, convert, failed)
    module = found.module
    if module is None:  # with sizes alone; says what is wrong
        module = import_onnx(found.prepared, allowed)
    else:
        _warn_of(refusals)
    chosen = note(found.prepared.model, found.prepared.axes)
    warnings.warn(chosen, AxesNote, stacklevel=3)
    return found.prepared, module, chosen


def _content_of(model: onnx.ModelProto) -> tuple[SourceFile, ...]:
    """A model in memory by its serialised form; nothing above the 2 GiB that protobuf can write."""
    try:
        return (hash_content(model.SerializeToString(deterministic=True)),)
    except ValueError:
        return ()


# ---------------------------------------------------------------------- simplifying


def simplify(apart: ApartModel) -> None:
    """Fold constants and shape arithmetic, in place; inputs and outputs stay."""
    graph = apart.model.graph
    inputs = model_inputs(apart.model)
    if len(inputs) < len(graph.input):  # old files list the weights as well
        kept = onnx.GraphProto(input=inputs)
        del graph.input[:]
        graph.input.extend(kept.input)
        apart.model.ir_version = max(apart.model.ir_version, 4)
    index_by_rounds(graph)
    collect_sequences(apart.model)
    choose_by_masks(graph)
    fold_constants(apart.model, apart.weights)
    write_batch_statistics(apart.model)
    fold_batch_norm(apart)
    count_once(graph)
    drop_unused(graph)
    stored = {tensor.name for tensor in graph.initializer}
    apart.weights = {name: fetch for name, fetch in apart.weights.items() if name in stored}


# ---------------------------------------------------------------------- importing


def import_onnx(
    model: onnx.ModelProto | ApartModel, allow_wrong: Iterable[str] = ()
) -> tvm.IRModule:
    """Import a prepared model into Relax, weights as constants, with the names of the nodes.

    ``allow_wrong`` names operators whose forms are taken even where the result is known to be
    wrong; each one is then a warning.

    Raises ``ImportFailure`` that names the operators, and the nodes, that the importer refuses, or
    the multiples that symbolic extents must be, and ``UnsupportedForm`` for a node whose
    attributes, inputs or form would give a wrong result.
    """
    apart = model if isinstance(model, ApartModel) else ApartModel(model)
    refusals = Refusals(allow_wrong)
    model = apart.model
    again = partial(_import_quietly, weights=apart.weights, refusals=refusals)
    if (problem := unsupported_input(model)) is not None:
        raise ImportFailure(problem)
    try:
        module = again(model)
    except UnsupportedForm:
        raise
    except tvm.error.OpNotImplemented as err:
        listed = str(err).rpartition(":")[2].split(",")
        raise ImportFailure(unsupported(model, (name.strip() for name in listed))) from err
    except Exception as err:  # converters raise whatever their code runs into
        shapes = working_multiples(model, again)
        if shapes is not None:
            raise ImportFailure(_not_every_size(model, shapes)) from err
        node = _node_in_traceback(err.__traceback__)
        if node is not None:
            raise ImportFailure(failed_node(model, node, err)) from err
        raise ImportFailure(f"cannot import the model: {one_line(err)}") from err
    if not all_outputs_known(module):
        shapes = working_multiples(model, again)
        if shapes is not None:
            raise ImportFailure(_not_every_size(model, shapes))
    _warn_of(refusals)
    return module


def _warn_of(refusals: Refusals) -> None:
    for message in dict.fromkeys(refusals.tolerated):
        warnings.warn(f"{message}; taken all the same", stacklevel=3)


def _import_quietly(
    model: onnx.ModelProto,
    weights: dict[str, Fetch],
    refusals: Refusals,
    unequal: Unequal | None = None,
) -> tvm.IRModule:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return import_named(model, weights, refusals, unequal)


def _not_every_size(model: onnx.ModelProto, shapes: str) -> str:
    given = " ".join(shape_text(value) for value in model_inputs(model))
    return (
        f"sizes inside the network depend on whether those of {given} divide evenly;"
        f' give multiples: --input-shapes "{shapes}"'
    )


def _node_in_traceback(traceback: TracebackType | None) -> onnx.NodeProto | None:
    """The ONNX node that the importer was at: its loop over nodes is among the frames."""
    found = None
    while traceback is not None:
        node = traceback.tb_frame.f_locals.get("node")
        if isinstance(node, onnx.NodeProto):
            found = node
        traceback = traceback.tb_next
    return found
