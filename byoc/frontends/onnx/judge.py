"""ONNX Runtime as the judge of every value of a network, and not of its outputs alone.

It runs the model as it is written, without its own fusions, and gives any value by name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import onnx

from byoc.deploy.exchange import numpy_dtype
from byoc.errors import VerifyError
from byoc.frontends.onnx.exact_reference import exact_session
from byoc.frontends.onnx.given_model import GivenModel, given_model
from byoc.frontends.onnx.input_shapes import model_inputs
from byoc.frontends.onnx.read_model import read_graph
from byoc.frontends.reference import Arrays
from codegen_cc.errors import foreign_errors_as


def require_judge() -> None:
    """Raise ``VerifyError`` where ONNX Runtime is missing."""
    try:
        import onnxruntime  # noqa: F401 (only whether it can be)
    except ImportError as error:
        raise VerifyError(
            "ONNX Runtime is not installed, which judges every node; pip install onnxruntime"
        ) from error


class Judge:
    """A model that tells its values; one that was read before, and is sound."""

    def __init__(self, model: GivenModel) -> None:
        import onnxruntime

        given = given_model(model)
        self.folder = given.parent if isinstance(given, Path) else None
        self.model = read_graph(given)
        self.name = f"ONNX Runtime {onnxruntime.__version__} without fusions"
        self.outputs = [value.name for value in self.model.graph.output]
        self.inputs = [value.name for value in model_inputs(self.model)]
        self._known = {name for node in self.model.graph.node for name in node.output}

    def has(self, value: str) -> bool:
        """Whether the model has a value of this name that a node gives."""
        return value in self._known

    def values(self, names: Collection[str], inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Values by name, for inputs by name. Raises ``VerifyError``."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what goes wrong is raised as well
        off = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = off
        wanted = list(dict.fromkeys(names))
        with (
            foreign_errors_as(VerifyError, "ONNX Runtime, which judges the nodes,"),
            contextlib.redirect_stderr(None),
        ):
            session = exact_session(self._telling(wanted), options, self.folder)
            return dict(zip(wanted, session.run(wanted, dict(inputs)), strict=True))

    def told(self, value: str, array: np.ndarray) -> np.ndarray:
        """What a library's array of a value is compared as."""
        return array

    def given(self, value: str, array: np.ndarray, dtype: str) -> np.ndarray:
        """What a library is given that is to compute on an array of the judge's."""
        return array.astype(numpy_dtype(dtype))

    def _telling(self, names: Collection[str]) -> onnx.ModelProto:
        """The model with more outputs, as ONNX Runtime reads it: these need no type."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        more = [name for name in names if name not in self.outputs]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in more)
        return model
