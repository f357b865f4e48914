"""One case through one engine, in this process: this backend, TVM alone, this backend with the
operators allowed that the table of wrong forms refuses, or ONNX Runtime."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnxruntime
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from byoc.errors import ByocError, CompileError, RunError, UnsupportedForm
from byoc.frontends.onnx.backend import ExtBackend, run_machine
from codegen_cc import codegen  # noqa: F401
from tests.conformance.cases import Case
from tests.reference import assert_agrees

ENGINES = ("ours", "tvm", "allowed", "onnxruntime")
PASSED, WRONG, FAILED = "passed", "wrong", "failed"
REFUSED, REFUSED_FORM = "refused", "refused form"
AS_RUNTIME = "as ONNX Runtime"

#: What comparisons say, and what the table says.
DIFFERENCES = {
    "incorrect shape": "another shape",
    "nan location": "NaN at other places",
    "inf location": "infinities at other places",
    "Mismatched elements": "other values",
    "|error|": "other values",
    "dtype(": "another dtype",
    "Items are not equal": "another number of outputs",
}

#: Longest message in the table.
MAX_MESSAGE = 110


@dataclass(frozen=True)
class Result:
    """What became of a case, and how many operators were offloaded.

    ``PASSED``, ``WRONG`` numbers, ``REFUSED`` by the importer, ``REFUSED_FORM`` by us before a
    wrong result, or ``FAILED`` (an error, a crash or too slow). ``AS_RUNTIME``: not what
    the test expects, but what ONNX Runtime gives. ``listed`` says that an entry of
    the table of wrong forms refused it; the message is then the operator and the entry's reason.
    """

    status: str
    message: str = ""
    offloaded: int = 0
    operators: int = 0
    listed: bool = False


def run_case(case: Case, engine: str) -> Result:
    """Compile the case's model, run every data set, compare."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engines = {"ours": _ours, "tvm": _tvm, "allowed": _allowed, "onnxruntime": _onnxruntime}
        return engines[engine](case)


def _ours(case: Case, allow_wrong: Sequence[str] = ()) -> Result:
    try:
        # Tensors of these tests are tiny: no region is too small here, or few kernels would run.
        rep = ExtBackend.prepare(case.model(), min_bytes=0, allow_wrong=allow_wrong)
        runs = [(list(rep.run(inputs)), expected) for inputs, expected in case.data()]
    except UnsupportedForm as error:
        if error.entry is None:
            return Result(REFUSED_FORM, short(error))
        return Result(REFUSED_FORM, f"{error.operator}: {error.entry.reason}", listed=True)
    except (CompileError, RunError) as error:
        return Result(FAILED, short(error))
    except ByocError as error:
        return Result(REFUSED, short(error))
    except Exception as error:  # any failure is a result
        return Result(FAILED, short(error))
    report = rep.report
    verdict = _verdict(case, runs)
    if verdict.status == WRONG and _is_as_runtime(case, runs):
        verdict = Result(AS_RUNTIME, verdict.message)
    return Result(verdict.status, verdict.message, report.offloaded, report.operators)


def _allowed(case: Case) -> Result:
    """As if the table of wrong forms had no entry for the case's operators."""
    allowed: list[str] = []
    while True:
        result = _ours(case, allowed)
        if not result.listed:
            return result
        allowed.append(result.message.partition(":")[0])


def _tvm(case: Case) -> Result:
    """TVM's own way, with nothing of ours: import, compile, run."""
    model = case.model()
    runs = []
    for inputs, expected in case.data():
        try:
            shapes = _shapes(model, inputs)
            module = from_onnx(model, shape_dict=shapes, keep_params_in_input=False)
        except Exception as error:
            return Result(REFUSED, short(error))
        try:
            machine = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
            runs.append((run_machine(machine, inputs), expected))
        except Exception as error:
            return Result(FAILED, short(error))
    return _verdict(case, runs)


def _onnxruntime(case: Case) -> Result:
    """ONNX Runtime's CPU provider, as it comes."""
    try:
        outputs = _runtime_outputs(case)
    except Exception as error:
        return Result(FAILED, short(error))
    expected = [wanted for _, wanted in case.data()]
    return _verdict(case, list(zip(outputs, expected, strict=True)))


def _runtime_outputs(case: Case) -> list[list[Any]]:
    """What ONNX Runtime gives for each data set; raises whatever it raises."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what goes wrong is raised as well
    session = onnxruntime.InferenceSession(
        case.model().SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_inputs()]
    return [session.run(None, dict(zip(names, inputs, strict=True))) for inputs, _ in case.data()]


def _is_as_runtime(case: Case, runs: list[tuple[list[Any], list[Any]]]) -> bool:
    """Whether ONNX Runtime gives the same, but for 1e-4 of the range."""
    try:
        for (actual, _), outputs in zip(runs, _runtime_outputs(case), strict=True):
            names = [str(index) for index in range(len(outputs))]
            ours, theirs = (dict(zip(names, side, strict=True)) for side in (actual, outputs))
            if any(ours[name].dtype != theirs[name].dtype for name in names):
                return False
            assert_agrees(ours, theirs)
    except Exception:  # it does not run there, or differs
        return False
    return True


def _shapes(model: Any, inputs: list[Any]) -> dict[str, list[int]] | None:
    stored = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in stored]
    return {name: list(x.shape) for name, x in zip(names, inputs, strict=True)}


def _verdict(case: Case, runs: list[tuple[list[Any], list[Any]]]) -> Result:
    for actual, expected in runs:
        try:
            case.compare(actual, expected)
        except Exception as error:  # numpy cannot even compare some dtypes
            return Result(WRONG, difference(error))
    return Result(PASSED)


def difference(error: BaseException) -> str:
    """What differs, in words that do not depend on the values, which may be uninitialised."""
    text = str(error)
    for mark, words in DIFFERENCES.items():
        if mark in text:
            return words
    return short(error)


def short(error: BaseException) -> str:
    """The first telling line of an error, without remedies, addresses and paths."""
    lines = [line.strip() for line in str(error).splitlines()]
    text = next((line for line in lines if line), type(error).__name__)
    text = text.partition(";")[0]
    text = re.sub(r"\(node [^)]*\)", "", text)
    text = re.sub(r"0x[0-9a-f]+", "0x...", text)
    text = re.sub(r"(/[\w.+-]+){2,}", "...", text)
    text = re.sub(r"\s+", " ", text).replace("|", "/").replace("`", "'").strip(" .:,")
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 3].rstrip() + "..."
