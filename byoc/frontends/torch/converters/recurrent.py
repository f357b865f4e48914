"""Layers of LSTM, GRU and RNN, each as the one operator of ours that computes all of its steps."""

from __future__ import annotations

from collections.abc import Sequence

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

#: Where ours of PyTorch's gates stand: i, f, g, o are i, o, f, n; r, z, n are z, u, n.
_ORDER = {LSTM: (0, 3, 1, 2), GRU: (1, 0, 2), RNN: (0,)}


def lstm(g: Graph, input: Value, hx: Sequence[Value], **others: object) -> list[relax.Expr]:
    """Outputs, and the last states of output and cell of every layer and direction."""
    return _layers(g, LSTM, input, hx, usual_functions(LSTM), **others)


def gru(g: Graph, input: Value, hx: Value, **others: object) -> list[relax.Expr]:
    """Outputs, and the last state of every layer and direction."""
    return _layers(g, GRU, input, [hx], usual_functions(GRU), **others)


def rnn(name: str) -> object:
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
) -> list[relax.Expr]:
    if train and dropout:
        raise ValueError(f"{kind} of a module in training mode; call .eval() before exporting it")
    x, count = g.tensor(input), 2 if bidirectional else 1
    if x.ty.ndim != 3:
        raise ValueError(f"an input of rank {x.ty.ndim}; need an axis of sequences")
    each = 4 if has_biases else 2
    if len(params) != num_layers * count * each:
        raise ValueError(f"{kind} with a projection of its state; need proj_size=0")
    first = [g.tensor(state) for state in states]
    last: list[list[relax.Expr]] = [[] for _ in first]
    for layer in range(num_layers):
        own = [params[(layer * count + d) * each :][:each] for d in range(count)]
        operands = {"input": x, **_weights(g, kind, own, has_biases)}
        for role, state in zip(("initial_h", "initial_c"), first, strict=False):
            part = state
            if num_layers > 1:
                ends = [layer * count], [(layer + 1) * count]
                part = g.emit(op.strided_slice(state, [0], *ends))
            # The operator has the batch first in states as well.
            operands[role] = op.permute_dims(part, [1, 0, 2]) if batch_first else part
        made = g.emit(_call(g, kind, operands, functions, bidirectional, batch_first))
        results = [g.emit(relax.TupleGetItem(made, i)) for i in range(1 + len(first))]
        x = _joined(g, results[0], batch_first)
        for kept, state in zip(last, results[1:], strict=True):
            kept.append(g.emit(op.permute_dims(state, [1, 0, 2])) if batch_first else state)
    return [x, *(kept[0] if num_layers == 1 else op.concat(kept, 0) for kept in last)]


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
    if not all(isinstance(value, torch.Tensor) for direction in own for value in direction):
        raise ValueError(f"weights of {kind} that are computed; need constants")

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


RECURRENT = {
    "lstm.input": lstm,
    "gru.input": gru,
    "rnn_tanh.input": rnn("tanh"),
    "rnn_relu.input": rnn("relu"),
}
