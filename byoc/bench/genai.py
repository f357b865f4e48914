"""Engines that keep the cache themselves: onnxruntime-genai and OpenVINO GenAI.

Both read a folder in a form of their own, which is written from the decoder's file. Neither is
given a tokenizer: tokens go in and come out as numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc.bench.decoders import PAST, PRESENT, Arrays, Decoder, pieces
from byoc.bench.precision import FP32
from byoc.errors import BenchmarkError

if TYPE_CHECKING:
    import openvino

_KINDS = ("key", "value")


class OnnxRuntimeGenAI:
    """onnxruntime-genai with the file as it is, beside a configuration that names its parts.

    ``data`` are the files of its external data.
    """

    def __init__(
        self, path: Path, decoder: Decoder, threads: int, capacity: int, data: Sequence[str]
    ) -> None:
        import onnxruntime_genai

        self._engine = onnxruntime_genai
        with TemporaryDirectory(prefix="byoc-genai-") as folder:
            for name in (path.name, *data):  # it takes no path to elsewhere
                Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
                Path(folder, name).symlink_to((path.parent / name).resolve())
            told = _configuration(path.name, decoder, threads, capacity)
            Path(folder, "genai_config.json").write_text(json.dumps(told), encoding="utf-8")
            self._model = onnxruntime_genai.Model(folder)
        self._room = capacity
        self._generator: Any = None

    def restore(self, inputs: Arrays) -> None:
        """A generator of its own for each beginning."""
        told = self._engine.GeneratorParams(self._model)
        told.set_search_options(max_length=self._room)
        self._generator = self._engine.Generator(self._model, told)
        for piece in pieces(inputs):
            self.call(piece)

    def call(self, inputs: Arrays) -> np.ndarray:
        """The logits of the last token, which are all that it hands out without a copy of more."""
        self._generator.append_tokens(inputs["input_ids"][0].astype(np.int32))
        return self._generator.get_logits()


def _configuration(name: str, decoder: Decoder, threads: int, capacity: int) -> dict[str, Any]:
    """What genai_config.json says. Raises ``BenchmarkError`` for states of other names."""
    layers = len(decoder.states) // len(_KINDS)
    patterns = {kind: f"{PAST}.%d.{kind}" for kind in _KINDS}
    named = {pattern % layer for pattern in patterns.values() for layer in range(layers)}
    if named != set(decoder.states):
        raise BenchmarkError(
            f"onnxruntime-genai numbers states as {PAST}.0.key; the file has"
            f" {next(iter(decoder.states))}"
        )
    heads, width = next(iter(decoder.states.values()))
    inputs: dict[str, str] = {name: name for name in decoder.inputs}
    outputs = {"logits": "logits"}
    for kind, pattern in patterns.items():
        inputs[f"past_{kind}_names"] = pattern
        outputs[f"present_{kind}_names"] = pattern.replace(PAST, PRESENT)
    options = {"intra_op_num_threads": threads, "inter_op_num_threads": 1, "provider_options": []}
    parts = {"filename": name, "session_options": options}
    sizes = {"num_hidden_layers": layers, "num_key_value_heads": heads, "head_size": width}
    end = decoder.vocabulary - 1  # asked for by the format, and never written
    return {
        "model": {
            # A decoder with inputs and outputs of the names below, whatever it computes.
            "type": "qwen2",
            "context_length": capacity,
            "vocab_size": decoder.vocabulary,
            **{"bos_token_id": 0, "eos_token_id": end, "pad_token_id": 0},
            "decoder": {**parts, **sizes, "inputs": inputs, "outputs": outputs},
        },
        "search": {"max_length": capacity, "past_present_share_buffer": False},
    }


class OpenVinoGenAI:
    """OpenVINO GenAI's ``LLMPipeline`` on a model with states.

    It tells chosen tokens and no logits, and it cannot be given a token behind a cache: each call
    reads all tokens from the beginning, and steps go on from there with the tokens that it chooses.
    """

    def __init__(
        self,
        path: Path,
        decoder: Decoder,
        threads: int,
        capacity: int,
        precision: str = FP32,
    ) -> None:
        import openvino
        import openvino_genai

        hint = "bf16" if precision == "bf16" else "f32"
        self._engine, self._tensor = openvino_genai, openvino.Tensor
        with TemporaryDirectory(prefix="byoc-genai-") as folder:
            _with_states(path, decoder, Path(folder))
            self._pipeline = openvino_genai.LLMPipeline(
                folder,
                "CPU",
                ATTENTION_BACKEND="SDPA",  # the other one takes files of its own exporter alone
                INFERENCE_NUM_THREADS=threads,
                INFERENCE_PRECISION_HINT=hint,
                KV_CACHE_PRECISION=hint,
            )
        self._ids = np.zeros((1, 0), np.int64)

    def restore(self, inputs: Arrays) -> None:
        """Tokens are noted, and read by the next call."""
        self._ids = inputs["input_ids"]

    def call(self, inputs: Arrays) -> np.ndarray:
        """The token [1, 1] that it chose."""
        self._ids = np.concatenate([self._ids, inputs["input_ids"]], axis=1)
        return np.array([self._generate(1).tokens[0]])

    def steps(self, count: int) -> list[float]:
        """Milliseconds of steps behind the tokens that are there, as the pipeline tells them."""
        told = self._generate(count + 1).perf_metrics.raw_metrics.m_new_token_times
        return np.diff(np.array(told, np.float64)).tolist()

    def _generate(self, count: int) -> Any:
        told = self._engine.GenerationConfig()
        # No token ends a text; the pipeline wants one that would.
        told.max_new_tokens, told.ignore_eos, told.eos_token_id = count, True, 0
        return self._pipeline.generate(self._tensor(self._ids), told)


def _with_states(path: Path, decoder: Decoder, folder: Path) -> None:
    """Write the decoder as OpenVINO GenAI takes it: states inside, and ``beam_idx`` as an input."""
    import openvino
    from openvino import opset8
    from openvino._offline_transformations import apply_make_stateful_transformation

    model = openvino.Core().read_model(str(path))
    beams = opset8.parameter([-1], np.int32, name="beam_idx")
    beams.output(0).get_tensor().add_names({"beam_idx"})
    model.add_parameters([beams])
    for state in decoder.states:
        _ordered(model.input(state), beams)
    model.validate_nodes_and_infer_types()
    pairs = {state: state.replace(PAST, PRESENT) for state in decoder.states}
    apply_make_stateful_transformation(model, pairs)
    openvino.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)


def _ordered(state: openvino.Output, beams: openvino.Node) -> None:
    """Let the readers of a state have its rows in the order of the beams."""
    from openvino import opset8

    readers = list(state.get_target_inputs())
    taken = opset8.gather(state, beams, np.int32(0))
    for reader in readers:
        reader.replace_source_output(taken.output(0))
