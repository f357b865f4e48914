"""States: values that a compiled library keeps from one call to the next.

A state is an input that the next call is given what an output was. One kind has the output's shape,
as that of a recurrent layer: whoever runs the library hands the result on. Where the output is the
input with some rows stored, as a decoder's cache of fixed length, and nothing reads what the input
was later, both may have one memory, and nothing is copied. The plan of the region finds that out,
so such states are marked after code is generated.

The last kind grows along one axis, as a decoder's keys and values:

    present[B, H, P + S, D] = concat(past[B, H, P, D], new[B, H, S, D], axis=2)

Its memory has that axis first, so that rows are added at the end and nothing that is there moves.
``main`` takes it with the room for the new rows, and gives no result for it:

    main(state[P + S, B, H, D]):  past    = permute(slice(state, 0, P))
                                  present = permute(concat(slice(state, 0, P), permute(new)))

Regions write the new rows where they belong (``codegen_cc.node.STATES_ATTRIBUTE``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import tvm
from tvm import relax
from tvm.ir import GenericConst

from byoc.compiler.rows_first import Growing, rows_first, scattered
from byoc.deploy.metadata import Metadata, StateInfo, TensorInfo
from byoc.errors import CompileError, ControlError
from byoc.frontends import Imported
from byoc.frontends.relax_functions import FLOW
from byoc.ir.dataflow import describe, dtype_of, is_region, shape_of
from byoc.ir.define_symbols import define_symbols, without_definitions
from byoc.partition.sizes_of_nothing import needs_rows
from codegen_cc.dim import is_static, normal, same, symbols
from codegen_cc.node import REPLACED_ATTRIBUTE

#: What a user says of states: which output is which input's, by name; or that names tell.
States = Mapping[str, str] | bool

#: How exporters call an input that is a state, and the output that it becomes.
_USUAL = (("past_key_values", "present"), ("past", "present"))


def as_states(given: object) -> States | None:
    """What a user gives as ``states``, checked. Raises ``ControlError``."""
    if given is None or isinstance(given, bool):
        return given or None
    fits = isinstance(given, Mapping) and all(
        isinstance(x, str) for pair in given.items() for x in pair
    )
    if not fits or not given:
        raise ControlError(
            f"states is {given!r:.60}; need names of outputs by those of inputs, as in "
            "{'past': 'present'}, or True where names tell"
        )
    return dict(given)


def keep_states(imported: Imported, wanted: States | None) -> Imported:
    """The network with these states kept; as it is where none are wanted.

    Parameters of ``main`` that are states stand behind the others, in the order of ``states``, and
    so do the results of those that are replaced. Raises ``ControlError`` for a name that is none,
    and ``CompileError`` for an output that is no state's.
    """
    if not wanted:
        return imported
    main = without_definitions(imported.module["main"])
    results = _results(main)
    pairs = _pairs(imported, wanted, results)
    branches = any(FLOW in (f.attrs or {}) for f in imported.module.functions.values())
    states = [
        _state(imported.inputs[i], imported.outputs[o].name, main.params[i], results[o], branches)
        for i, o in pairs
    ]
    kept = [place for place in range(len(imported.inputs)) if place not in dict(pairs)]
    given = {place for _, place in pairs}
    left = [place for place in range(len(imported.outputs)) if place not in given]
    if not left:
        raise ControlError("every output is a state; need one that the caller gets")
    last = [o for (_, o), state in zip(pairs, states, strict=True) if state.axis is None]
    growing = [
        Growing(main.params[i], state.axis, results[o], f"state {state.input.name!r}")
        for (i, o), state in zip(pairs, states, strict=True)
        if state.axis is not None
    ]
    module = imported.module.clone()
    params = [main.params[i] for i in (*kept, *(i for i, _ in pairs))]
    module["main"] = rows_first(main, params, growing, [results[o] for o in (*left, *last)])
    return replace(
        imported,
        module=define_symbols(module),
        inputs=tuple(imported.inputs[place] for place in kept),
        outputs=tuple(imported.outputs[place] for place in left),
        states=tuple(states),
    )


def _pairs(
    imported: Imported, wanted: States, results: Sequence[relax.Expr]
) -> list[tuple[int, int]]:
    """Numbers of the inputs that are states, in order, each with its output's.

    A step of a merged decoder gives constants without rows in place of the encoder's keys, which
    stay as the prompt gave them: names alone do not make these states.
    """
    inputs = {info.name: place for place, info in enumerate(imported.inputs)}
    outputs = {info.name: place for place, info in enumerate(imported.outputs)}
    computed = {n: o for n, o in outputs.items() if not isinstance(results[o], GenericConst)}
    named = _usual(inputs, computed) if wanted is True else dict(wanted)
    if twice := sorted(named.keys() & imported.mutated):
        raise ControlError(f"the model changes {twice[0]!r} itself; name no output that it becomes")
    named |= {name: name for name in imported.mutated}
    if not named:
        raise ControlError(
            "no input has a state's name, such as past_key_values.0.key beside the output "
            "present.0.key; name them, as in past=present"
        )
    for what, names, known in (("input", named, inputs), ("output", named.values(), outputs)):
        for name in names:
            if name not in known:
                raise ControlError(
                    f"state {name!r} is no {what} of the model; it has {', '.join(known)}"
                )
    if twice := [name for name in named.values() if list(named.values()).count(name) > 1]:
        raise ControlError(f"output {twice[0]!r} is named for two states; each has its own")
    return sorted((inputs[name], outputs[result]) for name, result in named.items())


def _usual(inputs: Mapping[str, int], outputs: Mapping[str, int]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in inputs:
        for before, after in _USUAL:
            if before in name and (result := name.replace(before, after)) in outputs:
                found.setdefault(name, result)
    return found


def _state(
    info: TensorInfo, output: str, param: relax.Var, result: relax.Expr, branches: bool
) -> StateInfo:
    """What a state is like. Raises ``CompileError`` where a result cannot become the input."""
    before, after = shape_of(param), shape_of(result)
    what = f"state {info.name!r} ({describe(param)}) cannot become output {output!r}"
    if before is None or after is None or dtype_of(param) != dtype_of(result):
        raise CompileError(f"{what} ({describe(result)}); need one dtype and known shapes")
    if len(before) != len(after):
        raise CompileError(f"{what} ({describe(result)}); need as many axes")
    grown = [a for a, (x, y) in enumerate(zip(before, after, strict=True)) if not same(x, y)]
    if not grown:
        return StateInfo(info, output, None, 0)
    axis = grown[0]
    length, step = before[axis], normal(after[axis] - before[axis])
    if len(grown) > 1 or is_static([length]) or set(symbols([length])) & set(symbols([step])):
        hint = (
            "; a branch decides its length here: choose it with --fix-input (fixed_inputs in"
            " Python), as in use_cache_branch=true, or compile the file of the step alone, such as"
            " decoder_with_past_model.onnx beside decoder_model_merged.onnx"
        )
        raise CompileError(
            f"{what} ({describe(result)}); need the same shape, or one axis, symbolic, that grows"
            + hint * branches
        )
    return StateInfo(info, output, axis, step if is_static([step]) else str(step))


def _results(main: relax.Function) -> list[relax.Expr]:
    """The results of a function, through variables bound to a tuple of them, or to constants."""
    values = {b.var: b.value for block in main.body.blocks for b in block.bindings}
    body = main.body.body
    while isinstance(body, relax.Var) and isinstance(values.get(body), relax.Var | relax.Tuple):
        body = values[body]
    found = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    return [
        value if isinstance(value := values.get(result), GenericConst) else result
        for result in found
    ]


def growing_states(imported: Imported) -> dict[int, str]:
    """The states that grow: numbers of parameters of ``main``, with the inputs' names."""
    first = len(imported.inputs)
    return {
        first + place: state.input.name
        for place, state in enumerate(imported.states)
        if state.axis is not None
    }


def placed_states(imported: Imported) -> list[int]:
    """Those of ``growing_states`` whose new rows have places of their own."""
    main = imported.module["main"]
    found = scattered(main) if imported.states else ()
    return [place for place, param in enumerate(main.params) if param in found]


def mark_replaced(module: tvm.IRModule, metadata: Metadata) -> tvm.IRModule:
    """Tell the region that is the whole network which of its outputs are states, of which input.

    It may then write rows of a state in place (``codegen_cc.plan.rows_in_place``). The module is
    not changed; networks of several regions are as they were, as a call of one of them that fails
    could not undo what those before it wrote.
    """
    entry, first = metadata.entry, len(metadata.inputs)
    replaced = [k for k, state in enumerate(metadata.states) if state.axis is None]
    if entry is None or not replaced:
        return module
    numbers: list[int] = []
    for place, k in enumerate(replaced):
        if first + k in entry.inputs:
            result = entry.outputs[len(metadata.outputs) + place]
            numbers += [entry.inputs.index(first + k), result]
    out = module.clone()
    for name, function in module.functions.items():
        if is_region(function):
            out[name] = function.with_attr(REPLACED_ATTRIBUTE, numbers)
    return out


def with_states_in_place(metadata: Metadata, inputs: Collection[int]) -> Metadata:
    """Metadata that say which states the one region writes in place: those ``inputs`` of it."""
    if metadata.entry is None or not inputs:
        return metadata
    given = {metadata.entry.inputs[number] - len(metadata.inputs) for number in inputs}
    states = tuple(replace(s, in_place=k in given) for k, s in enumerate(metadata.states))
    return replace(metadata, states=states)


def require_empty(module: tvm.IRModule, states: tuple[StateInfo, ...]) -> None:
    """Raise ``CompileError`` where TVM computes on rows of a state, which has none at first."""
    lengths = {str(s.input.shape[s.axis]) for s in states if s.axis is not None}
    if lengths and (found := needs_rows(module, lengths)):
        raise CompileError(
            f"states begin without rows, which TVM's code of {found} does not take; the report of"
            " a compilation without states says why it is left to TVM"
        )
