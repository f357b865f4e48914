"""Candidates compiled: a region for each, and all regions of some layers in one shared library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from byoc.link_shared import link_shared
from byoc.tuning.layers import (
    TO_CHANNELS_FIRST,
    TO_CHANNELS_LAST,
    Answer,
    Layer,
    TunableLayer,
)
from codegen_cc.emit.source import emit_source
from codegen_cc.errors import CodegenError
from codegen_cc.libraries import library
from codegen_cc.libraries.measured_choice import algorithms_of
from codegen_cc.link.toolchain import build_object
from codegen_cc.link.weights import WeightBlob
from codegen_cc.lowering import plan_region
from codegen_cc.node import Node, Operand
from codegen_cc.plan.builder import Plan
from codegen_cc.region.graph import Region, RegionNode, Value
from codegen_cc.target import HOST, Target

#: Library and algorithm.
Pair = tuple[str, str]


@dataclass
class BuiltLayer:
    """One layer, ready to run: its arrays' file, and the packed function of each candidate.

    The first of ``symbols`` is that of the built-in kernels where they can compute it.

    ``arrays`` is an npz with the inputs ``input0``, ``input1`` ... in the regions' order and, where
    something else could compute the layer, its answer ``expected``. ``failed`` are candidates that
    could not be compiled, with the reason.
    """

    layer: TunableLayer
    arrays: Path
    checked_by: str
    symbols: dict[Pair, str] = field(default_factory=dict)
    failed: dict[Pair, str] = field(default_factory=dict)


def build(
    layers: Sequence[TunableLayer],
    folder: Path,
    answer: Answer,
    extra: str = "",
    target: Target = HOST,
) -> tuple[Path, list[BuiltLayer]]:
    """Compile every candidate of some layers into one library in a folder.

    ``answer`` computes what candidates must give.  ``extra`` is C text to have in the library as
    well, ``target`` the machine that it is for.  Raises ``CodegenError`` where the tool chain
    fails, or a library lacks files or functions.
    """
    weights = WeightBlob("tune", folder / "weights.o")
    plans: list[Plan] = []
    built = []
    for number, tunable in enumerate(layers):
        layer = tunable.draw()
        done = _arrays(tunable, layer, folder / f"layer{number}.npz", answer)
        # The built-in kernels come first: others are held against them, candidates or not.
        for index, pair in enumerate(dict.fromkeys([*_reference(tunable.node), *tunable.pairs])):
            symbol = f"layer{number}_{index}"
            try:
                plans.append(plan_region(region_of(layer, pair, symbol), weights))
            except CodegenError as error:
                done.failed[pair] = str(error)
            else:
                done.symbols[pair] = symbol
        built.append(done)
    return _link(plans, weights, folder, extra, target), built


def _reference(node: Node) -> list[Pair]:
    builtin = library("builtin")
    able = builtin.supports(node) is None
    return [("builtin", algorithms_of(builtin, node)[0])] if able else []


def region_of(layer: Layer, pair: Pair, symbol: str) -> Region:
    """A region of one layer; images come and go channels-last, which costs a region nothing."""
    chosen = replace(layer.node, library=pair[0], algorithm=pair[1])
    region = Region(symbol, [])
    values = []
    for operand in chosen.operands:
        data = layer.constants.get(operand.role)
        if data is not None:
            values.append(Value(operand.role, operand.shape, operand.dtype, data))
            continue
        shape = laid_out_shape(chosen, operand.shape)
        value = Value(operand.role, shape, operand.dtype)
        region.inputs.append(value)
        turned = _is_image(chosen, shape)
        values.append(_permute(region, value, TO_CHANNELS_FIRST) if turned else value)
    # Layers that can be tuned have one result.
    result = Value("result", chosen.shape, chosen.dtype)
    region.nodes.append(RegionNode(chosen, values, [result]))
    if _is_image(chosen, chosen.shape):
        result = _permute(region, result, TO_CHANNELS_LAST)
    region.outputs = [result]
    return region


def laid_out_shape(node: Node, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an operand or the result in a region's signature: images channels-last."""
    return _permuted(shape, TO_CHANNELS_LAST) if _is_image(node, shape) else shape


def _is_image(node: Node, shape: Sequence[int]) -> bool:
    return node.op != "matmul" and len(shape) == 4


def _permuted(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape[axis] for axis in axes)


def _permute(region: Region, value: Value, axes: tuple[int, ...]) -> Value:
    shape = _permuted(value.shape, axes)
    operand = Operand("input", value.shape, value.dtype)
    node = Node("permute", (operand,), shape, value.dtype, {"axes": list(axes)})
    result = Value(f"{value.name}_turned", shape, value.dtype)
    region.nodes.append(RegionNode(node, [value], [result]))
    return result


def _arrays(tunable: TunableLayer, layer: Layer, file: Path, answer: Answer) -> BuiltLayer:
    inputs = layer.draw_inputs()
    arrays = {
        f"input{number}": _laid_out(layer.node, array)
        for number, array in enumerate(inputs.values())
    }
    expected, checked_by = answer(layer, inputs)
    if expected is not None:
        arrays["expected"] = _laid_out(layer.node, expected)
    np.savez(file, **arrays)
    return BuiltLayer(tunable, file, checked_by)


def _laid_out(node: Node, array: np.ndarray) -> np.ndarray:
    turned = _is_image(node, array.shape)
    return np.ascontiguousarray(array.transpose(TO_CHANNELS_LAST)) if turned else array


def _link(
    plans: Sequence[Plan], weights: WeightBlob, folder: Path, extra: str, target: Target
) -> Path:
    names = dict.fromkeys(name for plan in plans for name in plan.libraries)
    callers = {
        call.function: f"library {call.library}, {call.composite}"
        for plan in plans
        for call in plan.calls
    }
    libraries = [library(name) for name in names]
    stored = [weight.symbol for weight in weights.weights]
    source = emit_source(list(plans)) + extra
    objects = [build_object(source, folder, libraries, callers, stored, target)]
    if (constants := weights.finish(objects[0])) is not None:
        objects.append(constants)
    return link_shared(objects, folder / "candidates.so", target)
