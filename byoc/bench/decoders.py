"""Decoders with caches: what their files say of them, and the engines that they go through.

Only a worker process calls the engines, so that no engine's threads disturb another's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from byoc.bench.precision import FP32
from byoc.errors import BenchmarkError

if TYPE_CHECKING:
    from byoc.frontends import GivenModel

Arrays = dict[str, np.ndarray]

#: How names of states begin, as inputs and as outputs.
PAST, PRESENT = "past_key_values", "present"

_PIECE = 128  # tokens that are read at once where only the cache is wanted


@dataclass(frozen=True)
class Decoder:
    """What a decoder's file says: its inputs, and its states [batch, heads, rows, width] by name.

    ``dtype`` is theirs. The inputs are ``input_ids``, ``attention_mask`` and, maybe,
    ``position_ids``; each state has the output of the name with ``present`` for
    ``past_key_values``. ``vocabulary`` is the width of ``logits``, 0 where the file leaves it open.
    """

    inputs: tuple[str, ...]
    states: Mapping[str, tuple[int, int]]
    dtype: str
    vocabulary: int

    @classmethod
    def of(cls, model: GivenModel, name: str) -> Decoder:
        """Read a model. Raises ``BenchmarkError`` for one that is no decoder with a cache."""
        from byoc.frontends.onnx.measured_model import described_inputs

        inputs = described_inputs(model)
        past = {state: sizes for state, sizes in inputs.items() if state.startswith(PAST)}
        rest = tuple(given for given in inputs if given not in past)
        known = ("input_ids", "attention_mask", "position_ids")
        outputs = {info.name: info.type.tensor_type.shape for info in model.graph.output}
        wanted = {"logits", *(state.replace(PAST, PRESENT) for state in past)}
        if not past or set(rest) - set(known) or "input_ids" not in rest or wanted - {*outputs}:
            raise BenchmarkError(
                f"{name} is no decoder to generate with: its inputs are {', '.join(rest)} and"
                f" {len(past)} states; need {', '.join(known)}, past_key_values.* with present.*,"
                " and logits"
            )
        states = {state: (shape[1], shape[3]) for state, (shape, _) in past.items()}
        vocabulary = outputs["logits"].dim[-1].dim_value
        return cls(rest, states, next(dtype for _, dtype in past.values()), vocabulary)

    @property
    def row_bytes(self) -> int:
        """Bytes of the cache for each token."""
        return np.dtype(self.dtype).itemsize * sum(map(np.prod, self.states.values()))

    def call(self, past: int, length: int) -> Arrays:
        """Inputs of ``length`` tokens behind ``past`` others: the first ids, which all have."""
        given = {
            "input_ids": np.random.default_rng(past).integers(0, 32, (1, length)),
            "attention_mask": np.ones((1, past + length), np.int64),
            "position_ids": np.arange(past, past + length)[None],
        }
        return {name: given[name] for name in self.inputs}

    def no_rows(self) -> Arrays:
        """Keys and values before the first token."""
        return {
            name: np.zeros((1, heads, 0, width), self.dtype)
            for name, (heads, width) in self.states.items()
        }

    def to_json(self) -> dict[str, object]:
        """Plain values, of which ``from_json`` makes the same."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, object]) -> Decoder:
        """What ``to_json`` gave."""
        states = {name: tuple(sizes) for name, sizes in plain["states"].items()}
        return cls(tuple(plain["inputs"]), states, plain["dtype"], plain["vocabulary"])


def pieces(inputs: Arrays) -> Iterator[Arrays]:
    """A prompt from the beginning in parts of some tokens, whose logits are small."""
    length = inputs["input_ids"].shape[1]
    for begin in range(0, length, _PIECE):
        end = min(begin + _PIECE, length)
        yield {
            name: array[:, (0 if name == "attention_mask" else begin) : end]
            for name, array in inputs.items()
        }


class DecoderEngine(Protocol):
    """An engine with a decoder in it.

    One that cannot be given single tokens has ``steps(count)``, the milliseconds of so many.
    """

    def restore(self, inputs: Arrays) -> None:
        """Begin anew, behind these tokens; there may be none."""

    def call(self, inputs: Arrays) -> np.ndarray:
        """The logits [1, n, vocabulary] of some tokens more, whose keys and values are kept.

        They may be those of the last token alone, or be the token [1, 1] that the engine chose.
        """


class Ours:
    """This project: a library from ``byoc.compile`` with states.

    With ``large_pages`` what calls read of its weights lies in such before steps are timed.
    """

    def __init__(
        self,
        path: Path,
        decoder: Decoder,
        threads: int,
        capacity: int,
        large_pages: bool = False,
    ) -> None:
        # TVM's FFI imports PyTorch where that is installed: a second, and memory, for nothing.
        sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
        from byoc.deploy.loader import load

        self._model = load(path, threads, capacity=capacity)
        self._rooms: dict[int, np.ndarray] = {}
        self._large_pages = large_pages

    def restore(self, inputs: Arrays) -> None:
        """Memory of states, and of results, stays."""
        self._model.reset()
        for piece in pieces(inputs):
            self.call(piece)
        if self._large_pages:
            self._model.enlarge_weights()

    def call(self, inputs: Arrays) -> np.ndarray:
        """New rows go behind those that are there; calls of as many tokens share their results."""
        length = inputs["input_ids"].shape[1]
        room = self._rooms.get(length)
        given = None if room is None else {"logits": room}
        self._rooms[length] = self._model.run(inputs, given)["logits"]
        return self._rooms[length]


class OnnxRuntime:
    """ONNX Runtime, which is handed what it gave, and writes all of it again."""

    def __init__(self, path: Path, decoder: Decoder, threads: int, capacity: int) -> None:
        del capacity
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors only
        self._engine, self._decoder = onnxruntime, decoder
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self._names = [output.name for output in self._session.get_outputs()]
        self._past: dict[str, object] = {}

    def restore(self, inputs: Arrays) -> None:
        """From keys and values of no rows."""
        value = self._engine.OrtValue.ortvalue_from_numpy
        self._past = {name: value(array) for name, array in self._decoder.no_rows().items()}
        for piece in pieces(inputs):
            self.call(piece)

    def call(self, inputs: Arrays) -> np.ndarray:
        """By bindings, so that nothing is copied on the way."""
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        for name, value in self._past.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._names:
            binding.bind_output(name)
        self._session.run_with_iobinding(binding)
        found = dict(zip(self._names, binding.get_outputs(), strict=True))
        self._past = {name: found[name.replace(PAST, PRESENT)] for name in self._past}
        return found["logits"].numpy()


class OpenVino:
    """OpenVINO with the file's own inputs and outputs, which it is handed back.

    Where weights have 8 or 4 bits it rounds data to bytes by itself, unless told not to.
    """

    def __init__(
        self,
        path: Path,
        decoder: Decoder,
        threads: int,
        capacity: int,
        precision: str = FP32,
        rounds_data: bool = True,
    ) -> None:
        del capacity
        import openvino

        hint = "bf16" if precision == "bf16" else "f32"
        options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": hint}
        options |= {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "KV_CACHE_PRECISION": hint}
        if not rounds_data:
            options["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
        compiled = openvino.Core().compile_model(str(path), "CPU", options)
        self._request, self._tensor = compiled.create_infer_request(), openvino.Tensor
        self._decoder = decoder
        self._past: dict[str, object] = {}

    def restore(self, inputs: Arrays) -> None:
        """From keys and values of no rows."""
        self._past = {name: self._tensor(a) for name, a in self._decoder.no_rows().items()}
        for piece in pieces(inputs):
            self.call(piece)

    def call(self, inputs: Arrays) -> np.ndarray:
        """Its results' memory is its own, and written again by the next call: they are copied."""
        self._request.infer({**inputs, **self._past}, share_inputs=True)
        for name in self._past:
            result = self._request.get_tensor(name.replace(PAST, PRESENT))
            self._past[name] = self._tensor(result.data.copy())
        return self._request.get_tensor("logits").data
