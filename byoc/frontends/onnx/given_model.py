"""A model as users give it: a path, its serialised bytes, or an object in memory."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from byoc.arguments import as_path
from byoc.errors import ModelError

GivenModel = str | os.PathLike[str] | bytes | onnx.ModelProto

#: A file, or a model in memory.
ReadModel = Path | onnx.ModelProto


def given_model(model: GivenModel) -> ReadModel:
    """The path of a model, or the model in memory; bytes are parsed. Raises ``ModelError``."""
    if isinstance(model, onnx.ModelProto):
        return model
    if not isinstance(model, bytes | bytearray | memoryview):
        if not isinstance(model, str | os.PathLike):
            raise ModelError(
                f"the model is of type {type(model).__name__}; need a path, serialised bytes or an "
                "onnx.ModelProto"
            )
        return as_path(model, "the model", ModelError)
    content = bytes(model)
    try:
        parsed = onnx.load_model_from_string(content)
    except (DecodeError, ValueError) as error:
        raise ModelError(
            f"{len(content)} bytes are no ONNX model; a path must be text or pathlib.Path"
        ) from error
    if not parsed.graph.output or parsed.ir_version == 0:
        raise ModelError(
            f"{len(content)} bytes are no ONNX model (a graph without outputs); a path must be "
            "text or pathlib.Path"
        )
    return parsed
