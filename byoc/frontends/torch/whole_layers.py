"""Layers of LSTM, GRU and RNN of any length: PyTorch's tracer learns what their results are like.

By itself it computes step after step for that, which takes as long as there are steps, and makes
an open length the one of the example. The layers stay in the traced program as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensor

from byoc.frontends.torch.statistics import TRACED_OTHERWISE

_KEY = torch._C.DispatchKey.CompositeImplicitAutograd
_LAYERS = [getattr(torch.ops.aten, name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")]


@contextmanager
def whole_layers() -> Iterator[None]:
    """Tell the tracer the shapes of such layers' results, within this context."""
    with ExitStack() as stack:
        forms = [(layers.input, _results) for layers in _LAYERS]
        forms += [(layers.data, _results_of_lengths) for layers in _LAYERS]
        for layer, results in forms:
            for table, key in ((layer.py_kernels, _KEY), (decomposition_table, layer)):
                if (usual := table.get(key)) is not None:
                    stack.callback(table.__setitem__, key, usual)
                    table[key] = partial(results, usual)
            stack.callback(layer._dispatch_cache.clear)
            layer._dispatch_cache.clear()
        for operator, made in TRACED_OTHERWISE.items():
            operator.py_kernels[_KEY] = made
            stack.callback(operator._dispatch_cache.clear)
            stack.callback(operator.py_kernels.pop, _KEY)
            operator._dispatch_cache.clear()
        yield


def _results(
    usual: Callable[..., Any],
    input: torch.Tensor,
    hx: torch.Tensor | Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    """Tensors like a layer's results; of tensors with values, the results themselves."""
    if not isinstance(input, FakeTensor):
        rest = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
        return usual(input, hx, params, *rest)
    states = [hx] if isinstance(hx, torch.Tensor) else list(hx)
    units = states[0].shape[-1] * (2 if bidirectional else 1)
    shape = [*input.shape[:-1], units]
    return input.new_empty(shape), *(state.new_empty(state.shape) for state in states)


def _results_of_lengths(
    usual: Callable[..., Any],
    data: torch.Tensor,
    batch_sizes: torch.Tensor,
    hx: torch.Tensor | Sequence[torch.Tensor],
    *others: Any,
) -> tuple[torch.Tensor, ...]:
    """The same of padded steps and their lengths (``packed_sequences``)."""
    if not isinstance(data, FakeTensor) or data.dim() != 3:
        return usual(data, batch_sizes, hx, *others)
    return _results(usual, data, hx, *others, False)
