"""A model in, the errors of its layers out: compiled so that it tells them, beside a judge."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from typing_extensions import Unpack

from byoc.accuracy import Errors, errors_of, histogram_of
from byoc.arguments import as_whole
from byoc.compiler.compile import compile_partitioned
from byoc.compiler.keywords import CompileKeywords, takes
from byoc.compiler.partitioned import Partitioned, partition_imported
from byoc.compiler.request import Request
from byoc.deploy.loader import load
from byoc.deploy.metadata import TensorInfo
from byoc.drawn_inputs import draw_input
from byoc.errors import InputError, VerifyError
from byoc.frontends import GivenModel, Imported, import_model
from byoc.frontends.onnx.judge import Judge, require_judge
from byoc.frontends.onnx.references import Arrays
from byoc.frontends.onnx.unquantised_judge import UnquantisedJudge
from byoc.layer_errors.comparison import Comparison, Layer
from byoc.partition.expose import INPUT, OUTPUT, Expose, Exposed, Judged, node_results
from byoc.report.graph import TVM
from byoc.report.kernels import kernel_of
from byoc.stages import Stages
from byoc.verification import given_inputs
from codegen_cc import dtypes

#: Values that are compared at once: more are compared in groups, each compiled for itself. There
#: are up to five copies of them: the judge's, two of the library's, and what it computes on.
GROUP_BYTES = 2**29


@takes(CompileKeywords)
def compare(
    model: GivenModel,
    inputs: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    *,
    reference: GivenModel | None = None,
    seed: int = 0,
    **keywords: Unpack[CompileKeywords],
) -> Comparison:
    """Tell how far the result of every node of a network is from ONNX Runtime's.

    ``model`` is a path, an ``onnx.ModelProto`` or its serialised bytes; ONNX Runtime, without its
    fusions, computes it as it is written. ``inputs`` are arrays by name, or an .npz file of them;
    what they lack is drawn with ``seed``. Every axis needs a size, by ``input_shapes`` or by
    ``inputs``. The network is compiled with the keywords of ``compile`` and with more outputs;
    operators are fused, and libraries chosen, as without these.

    ``reference`` is the network that ``model`` was quantised from: it is the judge then, of what
    integers stand for, and errors are those of quantisation as well. Values are known by their
    names, else by those of the nodes.

    Raises ``VerifyError`` where ONNX Runtime is missing or cannot run the model, ``ByocError`` for
    what ``compile`` refuses.
    """
    if isinstance(model, tvm.IRModule):
        raise VerifyError(
            "the model is a Relax module, which ONNX Runtime, the judge, cannot run; give the ONNX "
            "model that it came from"
        )
    given, seed = given_inputs(inputs), as_whole(seed, "seed", VerifyError, 0, 2**63 - 1)
    request, stages = Request.of(keywords), Stages(keywords["progress"])
    if request.target.is_foreign:
        raise VerifyError(
            f"compare runs the network here; {request.target.name} is another machine"
        )
    require_judge()
    if input_shapes is None and given:
        input_shapes = {name: list(array.shape) for name, array in given.items()}
    imported = import_model(model, input_shapes, request.allow_wrong, stages)
    drawn = _drawn(imported, given, seed)
    judge = Judge(model) if reference is None else UnquantisedJudge(model, reference)
    return Network(imported, request, stages).compared(judge, drawn)


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
        info.name: given.get(info.name, draw_input(info, info.shape, random))
        for info in imported.inputs
    }


@dataclass
class Network:
    """An imported network and how it is to be compiled."""

    imported: Imported
    request: Request
    stages: Stages

    def compared(self, judge: Judge, inputs: Arrays) -> Comparison:
        """The errors of all nodes that the judge knows, in groups of ``GROUP_BYTES``."""
        values = {name: value for name, value in self.imported.results.items() if judge.has(value)}
        found = {v: n for v, n in node_results(self.imported.module).items() if n in values}
        plain = Expose(found, Exposed.NOTHING)
        report = self._partitioned(plain).report
        layers: list[Layer] = []
        outputs: dict[str, Errors] = {}
        # A network without a judged node has outputs all the same.
        for number, group in enumerate(list(_groups(plain.judged)) or [[]]):
            names = {judged.name for judged in group}
            own, total = (Expose(found, how, names) for how in (Exposed.OWN, Exposed.TOTAL))
            with tempfile.TemporaryDirectory(prefix="byoc-compare-") as folder:
                apart = self._library(own, Path(folder, "own.so")) if group else None
                whole = self._library(total, Path(folder, "total.so"))
                read = {info.name: info.name.removeprefix(INPUT) for info in own.inputs}
                wanted = {values[name] for name in (*names, *read.values())}
                self.stages.announce("ask ONNX Runtime")
                right = judge.values([*judge.outputs, *wanted], inputs)
                self.stages.announce("run")
                results = _run(whole, inputs)
                if not number:
                    outputs = {
                        n: errors_of(judge.told(n, results[n]), right[n]) for n in judge.outputs
                    }
                fed = {
                    info.name: _given(judge, values[read[info.name]], info, right)
                    for info in own.inputs
                }
                alone = _run(apart, inputs | fed) if apart else {}
            for judged in group:
                value, name = values[judged.name], OUTPUT + judged.name
                pair = (judge.told(value, found[name]) for found in (alone, results))
                layers.append(_layer(judged, value, *pair, right[value]))
        return Comparison(judge.name, tuple(layers), outputs, plain.unknown, report)

    def _partitioned(self, expose: Expose) -> Partitioned:
        with warnings.catch_warnings():
            if expose.how is not Exposed.NOTHING:
                warnings.simplefilter("ignore")  # said once
            return partition_imported(self.imported, self.request, self.stages, expose)

    def _library(self, expose: Expose, path: Path) -> Path:
        compile_partitioned(self._partitioned(expose), self.request.target, path, self.stages)
        return path


def _groups(judged: Sequence[Judged]) -> Iterator[list[Judged]]:
    """Neighbours of at most ``GROUP_BYTES`` together, or one."""
    group: list[Judged] = []
    held = 0
    for each in judged:
        size = prod(map(int, each.info.shape)) * dtypes.of(each.info.dtype).bytes
        if group and held + size > GROUP_BYTES:
            yield group
            group, held = [], 0
        group.append(each)
        held += size
    if group:
        yield group


def _run(library: Path, inputs: Arrays) -> Arrays:
    with load(library) as model:
        return model.run(inputs)


def _given(judge: Judge, value: str, info: TensorInfo, right: Arrays) -> np.ndarray:
    """What the library computes on in place of a value. Raises ``VerifyError``."""
    array = right[value]
    if array.shape != info.shape:
        raise VerifyError(
            f"{value!r} has shape {list(array.shape)} in {judge.name}; need {list(info.shape)}"
        )
    return judge.given(value, array, info.dtype)


def _layer(
    judged: Judged, value: str, alone: np.ndarray, whole: np.ndarray, right: np.ndarray
) -> Layer:
    """The errors of a node alone and in the whole network."""
    node = judged.node
    return Layer(
        judged.names,
        value,
        judged.operator,
        TVM if node is None else kernel_of(node),
        (node.compute or node.operands[0].dtype) if node else judged.info.dtype,
        judged.info.dtype,
        tuple(map(int, judged.info.shape)),
        errors_of(alone, right),
        errors_of(whole, right),
        histogram_of(alone, right),
    )
