"""States of a standalone library that grow: decoders step by step beside ONNX Runtime."""

from __future__ import annotations

from ctypes import byref, c_int, c_int64, c_void_p
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from byoc.compiler.standalone import compile_standalone
from byoc.errors import CompileError
from models.decoder import gpt2_decoder, llama
from models.grouped_decoder import grouped_llama
from models.weight_only import weight_only
from tests.deploy.standalone_api import ARGUMENT, FULL, OK, Instance
from tests.deploy.test_standalone import FUNCTIONS, symbols
from tests.deploy.test_standalone_sizes import Heap
from tests.deploy.test_standalone_states import addresses, call
from tests.models.test_states import Reference, drawn
from tests.reference import assert_agrees

SMALL = {"layers": 2, "hidden": 64, "heads": 4, "groups": 2, "inner": 96, "vocabulary": 50}
CAPACITY = 12
DECODERS = {
    "llama": lambda: llama(**SMALL),
    "gpt2": lambda: gpt2_decoder(**SMALL | {"groups": 4}),
    "grouped": lambda: grouped_llama(**SMALL),
    "4 bits": lambda: weight_only(grouped_llama(packed=True, **SMALL), 4),
}


@pytest.fixture(scope="module", params=DECODERS)
def decoder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[onnx.ModelProto, Path]:
    """A decoder and its shared library."""
    model = DECODERS[request.param]()
    return model, compiled(model, tmp_path_factory.mktemp("decoder"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[onnx.ModelProto, Path]:
    model = llama(**SMALL)
    return model, compiled(model, tmp_path_factory.mktemp("small"))


def compiled(model: onnx.ModelProto, folder: Path, **options: object) -> Path:
    done = compile_standalone(model, folder / "model", name="decoder", states=True, **options)
    assert len(done.report.regions) == 1 and not done.report.left
    assert "attention" in [use.algorithm for use in done.report.kernels]
    return done.folder / "lib" / "libdecoder.so"


class Writer:
    """An instance that takes tokens, beside ONNX Runtime."""

    def __init__(self, net: Instance, model: onnx.ModelProto, batch: int = 2) -> None:
        self.net, self.reference, self.batch, self.past = net, Reference(model, batch), batch, 0
        self.names = [i.name for i in model.graph.input if not i.name.startswith("past")]
        # Places are counted from the mask, whose ones are at its beginning; of several sentences
        # ONNX Runtime takes one token each once there is a cache.
        self.grouped = "position_ids" not in self.names

    def take(self, length: int, seed: int = 0) -> None:
        """Compare the answers to so many tokens."""
        inputs = self.inputs(length, seed)
        assert self.net.resize(batch=self.batch, sequence=length) == OK
        got = self.net.answers(inputs)
        assert_agrees(got, {"logits": self.reference.step(inputs)})
        self.past += length
        assert self.rows == self.past

    def inputs(self, length: int, seed: int = 0) -> dict[str, np.ndarray]:
        given = drawn(self.batch, length, self.past, seed)
        if self.grouped:
            given["attention_mask"][:] = 1
        return {name: given[name] for name in self.names}

    @property
    def rows(self) -> int:
        return self.net.function("rows", c_int64, c_void_p)(self.net.handle)

    def saved(self) -> dict[str, np.ndarray]:
        """The states as they lie, rows first."""
        found = {t.name.decode(): t.zeros() for t in self.net.sized("states")}
        assert call(self.net, "save", addresses(found)) == OK
        return found


def restore(net: Instance, states: dict[str, np.ndarray] | None, rows: int) -> int:
    given = None if states is None else addresses(states)
    function = net.function("restore", c_int, c_void_p, c_void_p, c_int64)
    return function(net.handle, given, rows)


@pytest.mark.parametrize("threads", [1, 3])
def test_prompts_and_steps(decoder: tuple[onnx.ModelProto, Path], threads: int) -> None:
    model, shared = decoder
    with Instance(shared, threads=threads, capacity=CAPACITY) as net:
        for batch in (2, 1):  # a reset lets another batch begin
            writer = Writer(net, model, batch)
            several = 1 if writer.grouped and batch > 1 else 3
            for seed, length in enumerate((4, 1, 1, several, 1)):
                writer.take(length, seed)
            want = {name: np.moveaxis(x, 2, 0) for name, x in writer.reference.past.items()}
            assert_agrees(writer.saved(), want)
            assert call(net, "reset") == OK
            assert writer.rows == 0


def test_a_clone_goes_its_own_way(decoder: tuple[onnx.ModelProto, Path]) -> None:
    model, shared = decoder
    with Instance(shared, threads=1, capacity=CAPACITY) as net:
        first = Writer(net, model)
        first.take(3)
        handle = c_void_p()
        assert call(net, "clone", byref(handle)) == OK
        with Instance(shared, threads=1) as other:
            other.destroy()
            other.handle = handle
            second = Writer(other, model)
            second.past, second.reference.past = first.past, dict(first.reference.past)
            for seed in range(3):
                first.take(1, seed)
                second.take(1 if second.grouped else 2, seed + 5)


def test_saved_states_begin_elsewhere(small: tuple[onnx.ModelProto, Path]) -> None:
    model, shared = small
    with Instance(shared, threads=1) as net, Instance(shared, threads=2, capacity=5) as other:
        first, second = Writer(net, model), Writer(other, model)
        first.take(4)
        saved = first.saved()
        assert restore(other, saved, 4) == ARGUMENT
        assert other.error() == "decoder: axes have no sizes yet; call decoder_resize"
        assert other.resize(batch=2, sequence=1) == OK
        assert restore(other, saved, 6) == FULL
        assert other.error() == "decoder: states have room for 5 rows, not for 6"
        assert restore(other, saved, -1) == ARGUMENT
        assert restore(other, None, 4) == ARGUMENT
        assert other.error() == ("decoder: the buffer of state 0 (past_key_values.0.key) is NULL")
        assert second.rows == 0
        assert {t.shape[0] for t in other.sized("states")} == {0}
        assert restore(other, saved, 4) == OK
        second.past, second.reference.past = first.past, dict(first.reference.past)
        second.take(1)


def test_a_full_state_and_another_batch_change_nothing(
    small: tuple[onnx.ModelProto, Path],
) -> None:
    model, shared = small
    with Instance(shared, threads=1, capacity=6) as net:
        writer = Writer(net, model)
        writer.take(4)
        for batch, length, status, message in (
            (2, 3, FULL, "states have 4 of 6 rows, and this run adds 3; set options.capacity, or"),
            (1, 1, ARGUMENT, "states have other sizes than this run; reset before it"),
        ):
            assert net.resize(batch=batch, sequence=length) == OK
            inputs = {name: array[:batch] for name, array in writer.inputs(length).items()}
            assert net.run(inputs)[0] == status
            assert net.error().startswith(f"decoder: {message}")
        for what, given in (
            ("save", addresses(writer.reference.past)),
            ("clone", byref(c_void_p())),
        ):
            assert call(net, what, given) == ARGUMENT
            assert net.error().startswith("decoder: states have other sizes than this run")
        writer.take(1)
        writer.take(0)
        writer.take(1)
    refused = Instance(shared, capacity=-1)
    assert refused.status == ARGUMENT
    assert refused.options.said == "decoder: options.capacity is -1; need 0 to 2147483647"


def test_no_state_is_copied(decoder: tuple[onnx.ModelProto, Path]) -> None:
    """The memory of the rows is taken once, however many there are."""
    model, shared = decoder
    heap, taken = Heap(), set()
    heap.options.threads, heap.options.capacity = 1, 64
    with Instance(shared, heap.options) as net:
        writer = Writer(net, model)
        for seed in range(40):
            writer.take(1, seed)
            taken.add(heap.taken)
    assert len(taken) < 12 and not heap.pieces and not heap.wrong


def test_what_is_exported(small: tuple[onnx.ModelProto, Path]) -> None:
    more = {"states", "reset", "clone", "save", "restore", "rows"}
    more |= {"axes", "resize", "inputs_of", "outputs_of", "states_of"}
    wanted = {f"decoder_{function}" for function in {*FUNCTIONS, *more}}
    assert symbols(small[1], "-D", "--defined-only") == wanted
    text = (small[1].parents[1] / "include" / "decoder.h").read_text()
    assert " *   0  past_key_values_0_key: float32 [past, batch, 2, 16]\n" in text
    assert " *   past: how many rows the states have; a run adds sequence\n" in text


# ------------------------------------------------------------------ refusals


def test_states_that_grow_differently_are_refused(tmp_path: Path) -> None:
    info = helper.make_tensor_value_info
    values = {"a": ["p", 4], "b": ["q", 4], "x": ["n", 4], "an": ["u", 4], "bn": ["v", 4]}
    axis = numpy_helper.from_array(np.array([0], np.int64), "axis")
    nodes = [
        helper.make_node("Concat", ["a", "x"], ["an"], axis=0),
        helper.make_node("Concat", ["b", "x"], ["bn"], axis=0),
        helper.make_node("Concat", ["an", "bn"], ["both"], axis=0),
        helper.make_node("ReduceSum", ["both", "axis"], ["y"]),
    ]
    tensors = {name: info(name, TensorProto.FLOAT, shape) for name, shape in values.items()}
    y = info("y", TensorProto.FLOAT, [1, 4])
    graph = helper.make_graph(
        nodes,
        "grows",
        [tensors[name] for name in "abx"],
        [y, tensors["an"], tensors["bn"]],
        [axis],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    pairs = {"a": "an", "b": "bn"}
    with pytest.raises(CompileError, match="needs all states to grow alike; here p by n and q by"):
        compile_standalone(model, tmp_path / "c", states=pairs, min_bytes=0)
    assert not list(tmp_path.iterdir())
