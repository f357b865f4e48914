"""What users may catch.

Every message is one line: what failed, on what, why, and what would work.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from codegen_cc.errors import ByocError, CodegenError, LibraryError, ToolchainError


class OffloadWarning(UserWarning):
    """Less than half of a model's work is offloaded; says why, and what it costs."""


class SuspectWarning(UserWarning):
    """A module has a form that is legal and hardly ever meant, such as BatchNorm in training."""


class FallbackWarning(UserWarning):
    """A graph of ``torch.compile`` that PyTorch itself runs; says why."""


class AxesNote(UserWarning):
    """What dynamic axes got, names or sizes, where nobody gave their inputs a shape."""


class LabelsNote(UserWarning):
    """What outputs of maps or of texts are instead: numbers, with the labels that they mean."""


class ModelError(ByocError):
    """The model cannot be read: missing, damaged, or its weights are not where it says.

    ``sources`` says why, for each node of a traced graph that is in the way, where these are known.
    """

    sources: Mapping[str, str] = MappingProxyType({})


class ShapeError(ByocError):
    """Input shapes are missing, unknown or contradict the model."""


class ImportFailure(ByocError):
    """TVM's importer, or a front end of ours, refuses an operator of the model.

    ``sources`` says why, for each node of a traced graph that is in the way, where these are known.
    """

    sources: Mapping[str, str] = MappingProxyType({})


class UnsupportedForm(ImportFailure):
    """An operator has a form, such as an attribute's value, whose result would be wrong.

    ``entry`` is the row of the front end's table of such forms that says so, if one does.
    """

    def __init__(self, message: str, operator: str = "", entry: Any = None) -> None:
        super().__init__(message)
        self.operator, self.entry = operator, entry


class PartitionError(ByocError):
    """A module has a form that cannot be partitioned."""


class ControlError(ByocError):
    """A rule that a user gave names no operator or node, or a predicate failed."""


class CompileError(ByocError):
    """A stage of a compilation failed, or a tool that it needs is missing."""


class CoverageError(ByocError):
    """Less was offloaded than was demanded; the message lists what is in the way."""


class ExternError(ByocError):
    """A C prototype or its annotation cannot be served; begins with file and line."""


class BenchmarkError(ByocError):
    """A benchmark cannot be run, or an engine could not be started or died."""


class TuningError(ByocError):
    """Candidates cannot be timed, or a tuning database cannot be written."""


class VerifyError(ByocError):
    """A library cannot be compared with its model: no reference can compute it."""


class LoadError(ByocError):
    """A file is not a library that this package compiled, or TVM's runtime is missing."""


class InputError(ByocError):
    """An input does not fit the model: name, rank, shape, dtype or device."""


class RunError(ByocError, RuntimeError):
    """A kernel failed while a model ran, or a library that it needs is missing."""


class IntegrationError(ByocError):
    """An engine that a network shall run in is not installed, or cannot run it as it is set up."""


class RpcError(ByocError):
    """A device cannot be reached, or what was asked of it failed there."""


class RpcRefused(RpcError):
    """A server or tracker is there and says no: a wrong key, or no device of that key."""


class RpcTimeout(RpcError):
    """A device, or an answer of one, did not come in time."""


class RpcLost(RpcError):
    """The connection ended while it was used: the server crashed, was stopped or cut off."""


__all__ = [
    "AxesNote",
    "BenchmarkError",
    "ByocError",
    "CodegenError",
    "CompileError",
    "ControlError",
    "CoverageError",
    "ExternError",
    "FallbackWarning",
    "ImportFailure",
    "InputError",
    "IntegrationError",
    "LabelsNote",
    "LibraryError",
    "LoadError",
    "ModelError",
    "OffloadWarning",
    "PartitionError",
    "RpcError",
    "RpcLost",
    "RpcRefused",
    "RpcTimeout",
    "RunError",
    "ShapeError",
    "SuspectWarning",
    "ToolchainError",
    "TuningError",
    "UnsupportedForm",
    "VerifyError",
]
