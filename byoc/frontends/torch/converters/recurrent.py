"""Layers of LSTM, GRU and RNN, each as the one operator of ours that computes all of its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tvm import relax

from byoc.frontends.torch.values import Graph, Value
from byoc.ir.recurrent import recurrent
from codegen_cc.operators.recurrent import (
    BIDIRECTIONAL,
    FORWARD,
    GATES,
    GRU,
    LSTM,
    RNN,
    usual_functions,
)

op = relax.op

#: Of a state's projection, up to which the state of all units is found to float32's precision.
MAX_CONDITION = 1e4

#: Where ours of PyTorch's gates stand: i, f, g, o are i, o, f, n; r, z, n are z, u, n.
_ORDER = {LSTM: (0, 3, 1, 2), GRU: (1, 0, 2), RNN: (0,)}


def lstm(g: Graph, input: Value, hx: Sequence[Value], **others: object) -> list[relax.Expr]:
    """Outputs, and the last states of output and cell of every layer and direction."""
    return _layers(g, LSTM, input, hx, usual_functions(LSTM), **others)


def gru(g: Graph, input: Value, hx: Value, **others: object) -> list[relax.Expr]:
    """Outputs, and the last state of every layer and direction."""
    return _layers(g, GRU, input, [hx], usual_functions(GRU), **others)


def rnn(name: str) -> Callable[..., list[relax.Expr]]:
    """A recurrent layer of one gate."""
    functions = (name, *usual_functions(RNN)[1:])
    return lambda g, input, hx, **others: _layers(g, RNN, input, [hx], functions, **others)


def _layers(
    g: Graph,
    kind: str,
    input: Value,
    states: Sequence[Value],
    functions: Sequence[str],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    lengths: Value | None = None,
) -> list[relax.Expr]:
    if train and dropout:
        raise ValueError(f"{kind} of a module in training mode; call .eval() before exporting it")
    x, count = g.tensor(input), 2 if bidirectional else 1
    if x.ty.ndim != 3:
        raise ValueError(f"an input of rank {x.ty.ndim}; need an axis of sequences")
    each = len(params) // (num_layers * count)
    projected = each > (4 if has_biases else 2)
    first = [g.tensor(state) for state in states]
    last: list[list[relax.Expr]] = [[] for _ in first]
    for layer in range(num_layers):
        own = [params[(layer * count + d) * each :][:each] for d in range(count)]
        if projected:
            own, projections = _without_projections(own)
        operands = {"input": x, **_weights(g, kind, own, has_biases)}
        if lengths is not None:
            operands["lengths"] = op.astype(g.tensor(lengths), "int32")
        for role, state in zip(("initial_h", "initial_c"), first, strict=False):
            part = state
            if num_layers > 1:
                ends = [layer * count], [(layer + 1) * count]
                part = g.emit(op.strided_slice(state, [0], *ends))
            if projected and role == "initial_h":
                zero = isinstance(states[0], torch.Tensor) and not states[0].any()
                part = g.emit(op.matmul(part, g.tensor(_units_of_states(projections, zero))))
            # The operator has the batch first in states as well.
            operands[role] = op.permute_dims(part, [1, 0, 2]) if batch_first else part
        made = g.emit(_call(g, kind, operands, functions, bidirectional, batch_first))
        results = [g.emit(relax.TupleGetItem(made, i)) for i in range(1 + len(first))]
        x = _joined(g, results[0], batch_first)
        ends = [g.emit(op.permute_dims(s, [1, 0, 2])) if batch_first else s for s in results[1:]]
        if projected:
            side_by_side = torch.block_diag(*(weight.t() for weight in projections))
            x = g.emit(op.matmul(x, g.tensor(side_by_side)))
            each_own = torch.stack([weight.t() for weight in projections])
            ends[0] = g.emit(op.matmul(ends[0], g.tensor(each_own)))
        for kept, state in zip(last, ends, strict=True):
            kept.append(state)
    return [x, *(kept[0] if num_layers == 1 else op.concat(kept, 0) for kept in last)]


def _without_projections(
    own: Sequence[Sequence[Value]],
) -> tuple[list[list[torch.Tensor]], list[torch.Tensor]]:
    """The weights of a layer whose state is not projected, and the projections [size, units].

    The next step reads ``recurrence @ (projection @ h)``, which is ``(recurrence @ projection) @
    h``: the layer keeps h, and what it gives is projected behind it.
    """
    _require_constants(LSTM, own)
    projections = [direction[-1].detach() for direction in own]
    kept = []
    for (weight, recurrence, *biases, _), projection in zip(own, projections, strict=True):
        joined = (recurrence.detach().double() @ projection.double()).to(recurrence.dtype)
        kept.append([weight, joined, *biases])
    return kept, projections


def _units_of_states(projections: Sequence[torch.Tensor], zero: bool) -> torch.Tensor:
    """[directions, size, units]: from a projected state to one of all units that it is made of.

    ``zero``: the state is, and that of all units as well.
    """
    if zero:
        return torch.stack([torch.zeros_like(weight) for weight in projections])
    condition = max(float(torch.linalg.cond(weight.double())) for weight in projections)
    if not condition < MAX_CONDITION:
        raise ValueError(
            f"a projection of the state with condition {condition:.1e}, which no state can be told"
            f" from; need one below {MAX_CONDITION:.0e}, or proj_size=0"
        )
    inverses = [torch.linalg.pinv(weight.double()).t().to(weight.dtype) for weight in projections]
    return torch.stack(inverses)


def _require_constants(kind: str, own: Sequence[Sequence[Value]]) -> None:
    if not all(isinstance(value, torch.Tensor) for direction in own for value in direction):
        raise ValueError(f"weights of {kind} that are computed; need constants")


def _call(
    g: Graph,
    kind: str,
    operands: dict[str, relax.Expr],
    functions: Sequence[str],
    bidirectional: bool,
    batch_first: bool,
) -> relax.Expr:
    count = 2 if bidirectional else 1
    operands = {role: g.emit(value) for role, value in operands.items()}
    return recurrent(
        operands,
        kind=kind,
        direction=BIDIRECTIONAL if bidirectional else FORWARD,
        functions=list(functions) * count,
        alphas=[0.0] * len(functions) * count,
        betas=[0.0] * len(functions) * count,
        clip=0.0,
        coupled=False,
        reset_last=kind == GRU,
        batch_first=batch_first,
    )


def _weights(
    g: Graph, kind: str, own: Sequence[Sequence[Value]], has_biases: bool
) -> dict[str, relax.Expr]:
    """Weights of all directions, their gates in the operator's order."""
    _require_constants(kind, own)

    def ordered(value: torch.Tensor) -> torch.Tensor:
        gates = value.detach().chunk(GATES[kind], 0)
        return torch.cat([gates[place] for place in _ORDER[kind]], 0)

    operands = {
        role: g.tensor(torch.stack([ordered(direction[place]) for direction in own]))
        for place, role in enumerate(("weight", "recurrence"))
    }
    if has_biases:
        pairs = [torch.cat([ordered(bias) for bias in direction[2:]]) for direction in own]
        operands["bias"] = g.tensor(torch.stack(pairs))
    return operands


def _joined(g: Graph, output: relax.Expr, batch_first: bool) -> relax.Expr:
    """Directions side by side: from [steps, directions, batch, units], or with the batch first."""
    shape = list(output.ty.shape.values)
    if not batch_first:
        output = op.permute_dims(output, [0, 2, 1, 3])
        shape = [shape[0], shape[2], shape[1], shape[3]]
    return g.emit(op.reshape(output, [*shape[:2], shape[2] * shape[3]]))


def _of_lengths(layer: Callable[..., list[relax.Expr]]) -> Callable[..., list[relax.Expr]]:
    """A layer of padded steps and their lengths, as ``packed_sequences`` writes it."""

    def convert(g: Graph, data: Value, batch_sizes: Value, **others: object) -> list[relax.Expr]:
        if g.tensor(data).ty.ndim != 3:
            raise ValueError("packed sequences; need padded ones")
        return layer(g, data, lengths=batch_sizes, batch_first=False, **others)

    return convert


_LAYERS = {"lstm": lstm, "gru": gru, "rnn_tanh": rnn("tanh"), "rnn_relu": rnn("relu")}

RECURRENT = {
    **{f"{name}.input": layer for name, layer in _LAYERS.items()},
    **{f"{name}.data": _of_lengths(layer) for name, layer in _LAYERS.items()},
}
