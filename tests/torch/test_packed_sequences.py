"""Packed sequences, which a recurrent layer reads as padded ones and their lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

import byoc
from byoc.errors import ModelError

OPEN = torch.export.Dim.DYNAMIC
Tensors = tuple[torch.Tensor, ...]


class Read(nn.Module):
    """Sequences in any order; ``total`` None is as long as the longest one, -1 as long as ``x``."""

    def __init__(
        self, layer: nn.RNNBase, total: int | None = -1, value: float = 0.0, as_list: bool = False
    ) -> None:
        super().__init__()
        self.layer, self.total, self.value, self.as_list = layer, total, value, as_list

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Tensors:
        first = self.layer.batch_first
        given = lengths.tolist() if self.as_list else lengths.cpu()
        packed = pack_padded_sequence(x, given, first, enforce_sorted=False)
        output, states = self.layer(packed)
        total = x.shape[1 if first else 0] if self.total == -1 else self.total
        output, lengths = pad_packed_sequence(output, first, self.value, total)
        return output, *(states if isinstance(states, tuple) else (states,)), lengths


READERS = {
    "lstm": (Read(nn.LSTM(6, 16, 2, batch_first=True)), 1),
    "both_ways": (Read(nn.LSTM(6, 16, 2, bidirectional=True)), 1),
    "projected": (Read(nn.LSTM(6, 16, batch_first=True, proj_size=5), value=-1.0), 1),
    "gru": (Read(nn.GRU(6, 16, bidirectional=True), total=9), 1),
    "rnn": (Read(nn.RNN(6, 16, batch_first=True), as_list=True), 1),
    "longest": (Read(nn.GRU(6, 16, batch_first=True), total=None), 2),
}


def inputs(layer: nn.RNNBase, lengths: list[int], steps: int = 7) -> Tensors:
    shape = (len(lengths), steps) if layer.batch_first else (steps, len(lengths))
    return torch.randn(*shape, 6), torch.tensor(lengths)


@torch.no_grad()
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("name", READERS)
def test_lengths_differ(name: str, is_open: bool, tmp_path: Path) -> None:
    module, regions = READERS[name]
    module, library = module.eval(), tmp_path / "read.so"
    # A list has as many numbers as the example, and the steps that are padded to nine are seven.
    axes = {0: OPEN, 1: OPEN} if name != "gru" else {1: OPEN}
    report = byoc.compile(
        module,
        library,
        example_inputs=inputs(module.layer, [3, 7, 1]),
        dynamic_shapes=(axes, {0: OPEN}) if is_open and not module.as_list else None,
        min_bytes=0,
    ).report
    assert len(report.regions) == regions
    assert "recurrent" not in {entry.op for entry in report.left}
    cases = [([3, 7, 1], 7), ([7, 7, 7], 7), ([1, 1, 2], 7)]
    if is_open and not module.as_list:
        cases += [([4, 2], 7), *([([9, 11, 3, 5], 11)] if name != "gru" else [])]
    with byoc.load(library) as model:
        for lengths, steps in cases:
            given = inputs(module.layer, lengths, steps)
            names = [info.name for info in model.inputs]
            found = model.run(dict(zip(names, (x.numpy() for x in given), strict=True)))
            for value, wanted in zip(found.values(), module(*given), strict=True):
                assert_close(torch.from_numpy(np.asarray(value)), wanted)


class Inside(nn.Module):
    """As networks are written that apply a layer to every step that there is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths)
        made = PackedSequence(self.layer(packed.data), packed.batch_sizes)
        return pad_packed_sequence(made)[0]


def test_what_is_packed_is_not_read(tmp_path: Path) -> None:
    given = torch.randn(7, 2, 6), torch.tensor([7, 4])
    with pytest.raises(ModelError, match=r"what a packed sequence holds is read; need a .*, line"):
        byoc.compile(Inside().eval(), tmp_path / "packed.so", example_inputs=given)
