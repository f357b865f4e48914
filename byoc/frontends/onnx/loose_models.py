"""What ONNX Runtime takes although the standard has it otherwise, as the standard has it.

A model with operators of other domains alone names no opset of ONNX's: it gets the newest one. An
output that is listed twice is one: results have names, and its value is the same.
"""

from __future__ import annotations

import onnx

from byoc.frontends.onnx.honoured import ONNX_DOMAINS


def as_standard(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model itself where there is nothing to mend, else a copy."""
    names = [entry.name for entry in model.graph.output]
    # A model that names no opset at all is refused later, as ONNX Runtime does.
    no_opset = model.opset_import and not opsets_of(model)
    if len({*names}) == len(names) and not no_opset:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if no_opset:
        newest = onnx.defs.onnx_opset_version()
        copy.opset_import.append(onnx.helper.make_opsetid("", newest))
    first = {entry.name: entry for entry in reversed(model.graph.output)}
    del copy.graph.output[:]
    copy.graph.output.extend(first[name] for name in dict.fromkeys(names))
    return copy


def opsets_of(model: onnx.ModelProto) -> list[int]:
    """The versions of ONNX's operators that a model names; one, if it is sound."""
    return [entry.version for entry in model.opset_import if entry.domain in ONNX_DOMAINS]
