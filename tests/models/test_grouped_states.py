"""Decoders of onnxruntime-genai's form, whose rows are put in place, beside ONNX Runtime."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

import byoc
from models.grouped_decoder import grouped_llama
from models.weight_only import weight_only
from tests.models.test_states import Reference, with_states
from tests.reference import assert_agrees

SMALL = {"layers": 2, "hidden": 64, "heads": 4, "groups": 2, "inner": 96, "vocabulary": 50}
DECODERS = {
    "float32": lambda: grouped_llama(**SMALL),
    "4 bits": lambda: weight_only(grouped_llama(packed=True, **SMALL), 4),
}


@pytest.fixture(scope="module", params=DECODERS)
def decoder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[onnx.ModelProto, byoc.Compiled, str]:
    return with_states(DECODERS[request.param](), tmp_path_factory.mktemp("grouped"))


@pytest.mark.slow
def test_a_step_copies_no_cache(decoder: tuple[onnx.ModelProto, byoc.Compiled, str]) -> None:
    model, made, code = decoder
    names = [info.name for info in model.graph.input if info.name.startswith("past")]
    assert [state.input.name for state in made.metadata.states] == names
    assert len(made.report.regions) == 1
    assert not made.report.left
    assert made.report.offloaded_macs == made.report.macs > 0
    algorithms = [use.algorithm for use in made.report.kernels]
    assert "attention" in algorithms
    assert ("MatMulNBits" in {node.op_type for node in model.graph.node}) == (
        any("4-bit" in name for name in algorithms)
    )
    rows = re.findall(r"/\* ext\.concat axis 0: (part \d)", code)
    assert rows == ["part 1"] * len(names)  # and no part 0: the cache is not copied,
    puts = re.findall(r"EXT_SCATTER_UPDATE,\s+(input\d+),[^;]*?(\w+)\)\)", code)
    assert len(puts) == len(names)
    assert all(data == result for data, result in puts)  # nor where rows are put in place,
    assert not re.findall(r"reorder \[.*past|ext\.gather", code)  # nor repeated for groups of heads


@pytest.mark.parametrize("lengths", [[5], [5, 3, 4]])
def test_prompts_and_steps_are_what_onnx_runtime_gives(
    decoder: tuple[onnx.ModelProto, byoc.Compiled, str], lengths: list[int]
) -> None:
    """Sentences of several lengths end in zeros of the mask; what lies behind them is open."""
    batch, reference = len(lengths), Reference(decoder[0], len(lengths))
    counts, past = np.zeros(batch, int), 0
    with byoc.load(decoder[1].path, capacity=8) as model:
        for seed, new in enumerate((np.array(lengths), 1, 1)):
            rows, counts = int(np.max(new)), counts + new
            seen = np.arange(past + rows) < counts[:, None]
            inputs = {
                "input_ids": np.random.default_rng(seed).integers(0, 50, (batch, rows)),
                "attention_mask": seen.astype(np.int64),
            }
            got, want = model.run(inputs)["logits"], reference.step(inputs)
            for item, length in enumerate(np.broadcast_to(new, batch)):
                assert_agrees({"logits": got[item, :length]}, {"logits": want[item, :length]})
                assert_agrees(*(
                    {name: array[item, :, : counts[item]] for name, array in states.items()}
                    for states in (model.states, reference.past)
                ))  # fmt: skip
            past += rows


def test_a_mask_of_another_length_is_refused(
    decoder: tuple[onnx.ModelProto, byoc.Compiled, str],
) -> None:
    """Nothing in the network needs the mask's length: its ones are counted."""
    net = byoc.load(decoder[1].path)
    tokens = {"input_ids": np.ones((1, 4), np.int64)}
    for length in (3, 5):
        with pytest.raises(byoc.InputError, match="attention_mask"):
            net.run({**tokens, "attention_mask": np.ones((1, length), np.int64)})
    net.run({**tokens, "attention_mask": np.ones((1, 4), np.int64)})
