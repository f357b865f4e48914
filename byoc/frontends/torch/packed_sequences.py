"""Packed sequences (``torch.nn.utils.rnn``) as padded ones beside their lengths.

PyTorch packs the steps of all sequences that there are in one matrix, whose number of rows data
decide, and no tracer follows. The operator of ours reads padded sequences to their lengths and no
further, so that a layer of LSTM, GRU or RNN needs nothing packed: in a traced program it is
``lstm.data`` of padded steps, [steps, batch, features], with the lengths in the place of the sizes
of batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence


class PaddedSequence(PackedSequence):
    """What stands for a packed sequence: ``steps`` [steps, batch, ...] and ``lengths`` [batch].

    Whoever else reads what is packed is refused. ``is_zero_behind``: steps behind the lengths are
    zeros.
    """

    steps: torch.Tensor
    lengths: torch.Tensor
    is_zero_behind: bool

    def __new__(
        cls, steps: torch.Tensor, lengths: torch.Tensor, is_zero_behind: bool = False
    ) -> PaddedSequence:
        made = tuple.__new__(cls, (None,) * len(cls._fields))
        made.steps, made.lengths, made.is_zero_behind = steps, lengths, is_zero_behind
        return made

    def _refuse(self, *_: Any) -> Any:
        raise TypeError(
            "what a packed sequence holds is read; need a layer of LSTM, GRU or RNN, or"
            " pad_packed_sequence, to read it"
        )

    data = batch_sizes = sorted_indices = unsorted_indices = property(_refuse)
    __iter__ = __getitem__ = _refuse


def _packed(usual: Callable[..., PackedSequence]) -> Callable[..., PackedSequence]:
    @wraps(usual)
    def packed(
        input: torch.Tensor,
        lengths: torch.Tensor | Sequence[int],
        batch_first: bool = False,
        enforce_sorted: bool = True,
    ) -> PackedSequence:
        del enforce_sorted  # in any order: rows stay where they are
        if not isinstance(lengths, torch.Tensor):
            lengths = torch.stack([torch.scalar_tensor(n, dtype=torch.int64) for n in lengths])
        steps = input.transpose(0, 1) if batch_first else input
        return PaddedSequence(steps, lengths.to(torch.int64))

    return packed


def _padded(usual: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(usual)
    def padded(
        sequence: PackedSequence,
        batch_first: bool = False,
        padding_value: float = 0.0,
        total_length: int | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not isinstance(sequence, PaddedSequence):
            return usual(sequence, batch_first, padding_value, total_length)
        steps, lengths = sequence.steps, sequence.lengths
        if padding_value or not sequence.is_zero_behind:
            places = torch.arange(steps.shape[0], device=lengths.device)
            behind = places[:, None] >= lengths
            behind = behind.reshape(*behind.shape, *[1] * (steps.dim() - 2))
            steps = steps.masked_fill(behind, padding_value)
        if total_length is None:
            steps = steps[: lengths.max()]
        elif total_length < steps.shape[0]:
            steps = steps[:total_length]
        elif total_length > steps.shape[0]:
            widths = [0, 0] * (steps.dim() - 1) + [0, total_length - steps.shape[0]]
            steps = nn.functional.pad(steps, widths, value=padding_value)
        return steps.transpose(0, 1) if batch_first else steps, lengths

    return padded


def _layer(usual: Callable[..., Any]) -> Callable[..., Any]:
    """``forward`` of a layer, which gives a packed sequence and the last states."""

    @wraps(usual)
    def forward(layer: nn.RNNBase, input: torch.Tensor | PackedSequence, hx: Any = None) -> Any:
        if not isinstance(input, PaddedSequence):
            return usual(layer, input, hx)
        steps, is_lstm = input.steps, layer.mode == "LSTM"
        if hx is None:
            rows = layer.num_layers * (2 if layer.bidirectional else 1)
            units = layer.proj_size or layer.hidden_size
            hx = steps.new_zeros(rows, steps.shape[1], units)
            if is_lstm:
                hx = hx, steps.new_zeros(rows, steps.shape[1], layer.hidden_size)
        operator = getattr(torch.ops.aten, layer.mode.lower()).data
        made = operator(
            steps,
            input.lengths,
            list(hx) if is_lstm else hx,
            layer._flat_weights,
            layer.bias,
            layer.num_layers,
            float(layer.dropout),
            layer.training,
            layer.bidirectional,
        )
        output = PaddedSequence(made[0], input.lengths, is_zero_behind=True)
        return output, tuple(made[1:]) if is_lstm else made[1]

    return forward


#: What stands for these functions, each made of the usual one.
PACKED_SEQUENCES = {
    (rnn, "pack_padded_sequence"): _packed,
    (rnn, "pad_packed_sequence"): _padded,
    **{(layer, "forward"): _layer for layer in (nn.LSTM, nn.GRU, nn.RNN)},
}
