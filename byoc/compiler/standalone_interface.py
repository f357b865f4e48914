"""What the C functions of a standalone model take, give and keep."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from byoc.compiler.single_region import SingleRegion
from byoc.deploy.metadata import Metadata, StateInfo, SymbolRange, TensorInfo
from byoc.errors import CompileError
from codegen_cc.dim import Dim, normal, parse_dim, same, symbols
from codegen_cc.region.graph import Region, Value
from codegen_cc.standalone import Axis, Interface, Rows, TensorSpec
from codegen_cc.standalone.interface import MOST


def standalone_interface(
    name: str, metadata: Metadata, entry: SingleRegion, region: Region
) -> Interface:
    """The C interface of a network that is one region.

    Shapes are the region's; a state that grows has the growing axis first, as its memory has.
    Raises ``CompileError`` where states grow in different ways, and for conditions on sizes.
    """
    if metadata.conditions:
        raise CompileError(
            f"the standalone form looks at no condition on sizes, and the model needs "
            f"{metadata.conditions[0]}; give these axes fixed sizes, or use --emit tvm"
        )
    first = len(metadata.inputs)
    values = dict(zip(entry.inputs, region.inputs, strict=True))
    inputs = [_spec(info, values.get(place)) for place, info in enumerate(metadata.inputs)]
    results = {model: region.outputs[place] for model, place in enumerate(entry.outputs)}
    outputs = [_spec(info, results[place]) for place, info in enumerate(metadata.outputs)]
    states = [
        _state_spec(state, values.get(first + place)) for place, state in enumerate(metadata.states)
    ]
    rows = _rows(metadata, states, values)
    dims = [dim for spec in (*inputs, *states) for dim in spec.shape]
    known = None if rows is None else rows.axis.symbol
    axes = [_axis(found, metadata) for found in symbols(dims) if found != known]
    return Interface(
        name,
        tuple(inputs),
        tuple(outputs),
        entry.inputs,
        entry.outputs,
        metadata.threads or 0,
        tuple(states),
        tuple(axes),
        rows,
    )


def _spec(info: TensorInfo, value: Value | None) -> TensorSpec:
    """A tensor as the region has it, or as the network declares one that the region does not."""
    shape = tuple(map(parse_dim, info.shape)) if value is None else value.shape
    return TensorSpec(info.name, info.dtype, shape)


def _state_spec(state: StateInfo, value: Value | None) -> TensorSpec:
    shape = tuple(map(parse_dim, state.input.shape))
    if state.axis is None:
        return _spec(state.input, value)
    rest = shape[: state.axis] + shape[state.axis + 1 :]
    return TensorSpec(state.input.name, state.input.dtype, (shape[state.axis], *rest))


def _rows(metadata: Metadata, specs: Sequence[TensorSpec], values: dict[int, Value]) -> Rows | None:
    """How the states grow that do."""
    growing = [place for place, state in enumerate(metadata.states) if state.axis is not None]
    if not growing:
        return None
    ways: set[tuple[Dim, Dim]] = set()
    for place in growing:
        length, whole = specs[place].shape[0], values[len(metadata.inputs) + place].shape[0]
        step, told = normal(whole - length), parse_dim(metadata.states[place].step)
        if not isinstance(length, sympy.Symbol) or not same(step, told):
            raise CompileError(
                f"the standalone form needs states whose length is a symbol of its own; that of "
                f"{specs[place].name!r} is {length}, and {whole} after a call"
            )
        ways.add((length, step))
    if len(ways) > 1:
        pairs = " and ".join(sorted(f"{length} by {step}" for length, step in ways))
        raise CompileError(
            f"the standalone form needs all states to grow alike; here {pairs}; use --emit tvm"
        )
    ((length, step),) = ways
    return Rows(_axis(length, metadata), step, frozenset(growing))


def _axis(symbol: sympy.Symbol, metadata: Metadata) -> Axis:
    found = next((r for r in metadata.ranges if r.name == symbol.name), SymbolRange(symbol.name))
    return Axis(
        symbol,
        max(found.least, metadata.least_size),
        MOST if found.most is None else min(found.most, MOST),
    )
