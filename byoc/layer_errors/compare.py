"""A model in, the errors of its layers out: compiled so that it tells them, beside a judge."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from typing_extensions import Unpack

from byoc.arguments import as_error, as_whole
from byoc.compiler.keywords import CompileKeywords, takes
from byoc.compiler.request import Request
from byoc.deploy.input_tensors import as_array
from byoc.drawn_inputs import draw_input
from byoc.errors import InputError, VerifyError
from byoc.frontends import GivenModel, Imported, given_model, import_model
from byoc.frontends.onnx.fixed_inputs import with_fixed_inputs
from byoc.frontends.onnx.input_shapes import InputShapes
from byoc.frontends.onnx.judge import Judge as OnnxJudge
from byoc.frontends.onnx.judge import require_judge
from byoc.frontends.onnx.partly_quantised import PartlyQuantised
from byoc.frontends.onnx.unquantised_judge import UnquantisedJudge
from byoc.frontends.reference import Arrays, Judge
from byoc.frontends.torch import given_program, is_of_torch, torch_judge
from byoc.layer_errors.comparison import Comparison, greatest
from byoc.layer_errors.keep import Remedy, fewest, remedies_of, with_remedies
from byoc.layer_errors.network import Network
from byoc.stages import Stages
from byoc.verification import given_inputs


@takes(CompileKeywords)
def compare(
    model: GivenModel,
    inputs: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    *,
    reference: GivenModel | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    seed: int = 0,
    max_error: float | None = None,
    **keywords: Unpack[CompileKeywords],
) -> Comparison:
    """Tell how far the result of every node of a network is from ONNX Runtime's, or PyTorch's.

    ``model`` is a path, an ``onnx.ModelProto`` or its serialised bytes; ONNX Runtime, without its
    fusions, computes it as it is written. A model of PyTorch, as ``compile`` takes it, is computed
    by PyTorch, operator by operator. ``inputs`` are arrays by name, or an .npz file of them; what
    they lack are PyTorch's example inputs, or is drawn with ``seed``. Dynamic axes get sizes by
    ``input_shapes`` or by ``inputs``, else usual ones, which an ``AxesNote`` says. The network is
    compiled with the keywords of ``compile`` and with more outputs; operators are fused, and
    libraries chosen, as without these.

    ``reference`` is the network that ``model`` was quantised from: it is the judge then, of what
    integers stand for, and errors are those of quantisation as well. Values are known by their
    names, else by those of the nodes.

    With ``max_error``, a share of an output's range, the result says which nodes to keep in
    fp32, or in the built-in library, so that no output is off by more: those that lose most are
    tried first, and each choice is compiled and run. With ``reference`` as well, these are nodes
    that the quantiser is to leave as they are.

    Raises ``VerifyError`` where the judge cannot run the model, ``ByocError`` as ``compile`` does.
    """
    given, seed = given_inputs(inputs), as_whole(seed, "seed", VerifyError, 0, 2**63 - 1)
    limit = None if max_error is None else as_error(max_error, "max_error", VerifyError)
    request, stages = Request.of(keywords), Stages(keywords["progress"])
    model = _usable(given_model(model, example_inputs), request, reference, input_shapes)
    if is_of_torch(model):
        given = given_program(model).examples() | given
    elif input_shapes is None and given:
        input_shapes = {name: list(array.shape) for name, array in given.items()}
    judge = _judge(model, reference)
    imported = import_model(model, input_shapes, request.allow_wrong, stages, sized=True)
    network = Network(imported, request, judge, _drawn(imported, given, seed), stages)
    found = network.compared()
    if limit is None:
        return found
    partly = None if reference is None else PartlyQuantised(model, reference)

    def measure(remedies: Sequence[Remedy]) -> float:
        other = replace(network, request=Request.of(with_remedies(keywords, remedies)))
        excluded = [remedy.name for remedy in remedies if remedy.is_excluded]
        if partly is not None and excluded:
            edited = partly.with_float(excluded)
            shapes = {info.name: list(info.shape) for info in imported.inputs}
            read = import_model(edited, shapes, request.allow_wrong, stages)
            other = replace(other, imported=read)
        return greatest(other.output_errors())

    remedies = remedies_of(found.worst, () if partly is None else partly.nodes)
    return replace(found, kept=fewest(remedies, found.error, limit, measure))


def _judge(model: Any, reference: GivenModel | None) -> Judge:
    if is_of_torch(model):
        return torch_judge(model)
    return OnnxJudge(model) if reference is None else UnquantisedJudge(model, reference)


def _usable(
    model: Any, request: Request, reference: GivenModel | None, input_shapes: InputShapes | None
) -> Any:
    """The model with its fixed inputs. Raises ``VerifyError`` for what cannot be compared here."""
    if isinstance(model, tvm.IRModule):
        raise VerifyError(
            "the model is a Relax module, which ONNX Runtime, the judge, cannot run; give the ONNX "
            "model that it came from"
        )
    if request.target.is_foreign:
        raise VerifyError(
            f"compare runs the network here; {request.target.name} is another machine"
        )
    if is_of_torch(model):
        if reference is not None:
            raise VerifyError("reference is for ONNX models, whose quantisers keep names")
        return model
    require_judge()
    return with_fixed_inputs(model, request.fixed_inputs, input_shapes)


def _drawn(imported: Imported, given: Arrays, seed: int) -> Arrays:
    """An array for each input. Raises ``InputError`` and ``VerifyError``."""
    known = [info.name for info in imported.inputs]
    if unknown := [name for name in given if name not in known]:
        raise InputError(f"unknown input {unknown[0]!r}; the model has {', '.join(known)}")
    random = np.random.default_rng(seed)
    for info in imported.inputs:
        if any(isinstance(extent, str) for extent in info.shape):
            raise VerifyError(f"input {info} has axes without a size; give --input-shapes numbers")
    return {
        info.name: as_array(info, given[info.name])
        if info.name in given
        else draw_input(info, info.shape, random)
        for info in imported.inputs
    }
