"""A network compiled so that it tells what its nodes computed, beside a judge."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from byoc.accuracy import Errors, errors_of, histogram_of
from byoc.compiler.compile import compile_partitioned
from byoc.compiler.partitioned import Partitioned, partition_imported
from byoc.compiler.request import Request
from byoc.deploy.loader import load
from byoc.deploy.metadata import TensorInfo
from byoc.errors import VerifyError
from byoc.frontends import Imported
from byoc.frontends.reference import Arrays, Judge
from byoc.layer_errors.comparison import Comparison
from byoc.layer_errors.layer import Layer
from byoc.partition.expose import INPUT, OUTPUT, Expose, Exposed, Judged
from byoc.report import Report
from byoc.report.graph import TVM
from byoc.report.kernels import kernel_of
from byoc.stages import Stages
from codegen_cc import dtypes

#: Values that are compared at once: more are compared in groups, each compiled for itself. There
#: are up to four copies of them: the judge's, two of the library's, and what it computes on.
GROUP_BYTES = 2**29


@dataclass
class Network:
    """An imported network, how it is to be compiled, its judge, and what it is run on."""

    imported: Imported
    request: Request
    judge: Judge
    inputs: Arrays
    stages: Stages

    def compared(self) -> Comparison:
        """The errors of all nodes that the judge knows, and of the outputs."""
        plain = Expose(self.judge.has, Exposed.NOTHING)
        report, outputs = self._outputs(plain)
        layers: list[Layer] = []
        for group in _groups(plain.judged):
            layers += self._layers(group)
        return Comparison(self.judge.name, tuple(layers), outputs, plain.unknown, report)

    def output_errors(self) -> dict[str, Errors]:
        """The errors of the outputs of the library that ``compile`` writes."""
        return self._outputs(Expose(how=Exposed.NOTHING))[1]

    def _outputs(self, plain: Expose) -> tuple[Report, dict[str, Errors]]:
        with tempfile.TemporaryDirectory(prefix="byoc-compare-") as folder:
            done = self._partitioned(plain)
            results = self._run(done, Path(folder, "plain.so"), {})
        judge, right = self.judge, self.judge.values(self.judge.outputs, self.inputs)
        errors = {n: errors_of(judge.told(n, results[n]), right[n]) for n in judge.outputs}
        return done.report, errors

    def _layers(self, group: Sequence[Judged]) -> Iterator[Layer]:
        """The errors of some judged values."""
        names = {judged.name for judged in group}
        own, total = (Expose(self.judge.has, how, names) for how in (Exposed.OWN, Exposed.TOTAL))
        with tempfile.TemporaryDirectory(prefix="byoc-compare-") as folder:
            done = self._partitioned(own)  # only now it is known what it reads
            read = {info.name: info.name.removeprefix(INPUT) for info in own.inputs}
            self.stages.announce(f"ask {self.judge.name}")
            right = self.judge.values({*names, *read.values()}, self.inputs)
            fed = {info.name: self._given(read[info.name], info, right) for info in own.inputs}
            alone = self._run(done, Path(folder, "own.so"), fed)
            whole = self._run(self._partitioned(total), Path(folder, "total.so"), {})
        for judged in group:
            value = judged.name
            arrays = (self.judge.told(value, results[OUTPUT + value]) for results in (alone, whole))
            yield _layer(judged, *arrays, right[value])

    def _partitioned(self, expose: Expose) -> Partitioned:
        with warnings.catch_warnings():
            if expose.how is not Exposed.NOTHING:
                warnings.simplefilter("ignore")  # said once
            return partition_imported(self.imported, self.request, self.stages, expose)

    def _run(self, done: Partitioned, path: Path, fed: Arrays) -> Arrays:
        compile_partitioned(done, self.request.target, path, self.stages)
        self.stages.announce("run")
        with load(path) as model:
            return model.run(self.inputs | fed)

    def _given(self, value: str, info: TensorInfo, right: Arrays) -> np.ndarray:
        """What the library computes on in place of a value. Raises ``VerifyError``."""
        array = right[value]
        if array.shape != info.shape:
            found, need = list(array.shape), list(info.shape)
            raise VerifyError(f"{value!r} has shape {found} in {self.judge.name}; need {need}")
        return self.judge.given(value, array, info.dtype)


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


def _layer(judged: Judged, alone: np.ndarray, whole: np.ndarray, right: np.ndarray) -> Layer:
    """The errors of a node alone and in the whole network."""
    node = judged.node
    stored = judged.info.dtype if node is None else node.operands[0].dtype
    computes = stored if node is None else node.compute or stored
    return Layer(
        judged.names,
        judged.name,
        judged.operator,
        TVM if node is None else kernel_of(node),
        computes,
        judged.info.dtype,
        tuple(map(int, judged.info.shape)),
        errors_of(alone, right),
        errors_of(whole, right),
        histogram_of(alone, right),
        judged.is_one_of_several,
        computes != stored,
    )
