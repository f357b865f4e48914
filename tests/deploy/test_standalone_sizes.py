"""Standalone libraries whose axes get their sizes at run time, beside ONNX Runtime."""

from __future__ import annotations

import ctypes
import subprocess
from ctypes import c_int, c_void_p
from pathlib import Path

import numpy as np
import onnx
import pytest

from byoc.compiler.standalone import Standalone, compile_standalone
from codegen_cc.target import HOST
from models.builder import GraphBuilder
from tests.deploy.standalone_api import (
    ALIGNMENT,
    ARGUMENT,
    MEMORY,
    OK,
    Allocate,
    Instance,
    Options,
    Release,
)
from tests.deploy.test_standalone import FUNCTIONS, symbols
from tests.deploy.test_standalone_example import STRICT, said
from tests.models.recurrent_layers import layer
from tests.reference import assert_agrees, onnxruntime_outputs


def images() -> onnx.ModelProto:
    """Images of any number and size: convolutions, a pool that halves them, and a mean."""
    graph = GraphBuilder("images", 1)
    x = graph.input("x", ("n", 3, "h", "w"))
    y = graph.op("Relu", graph.conv(x, (3, 8), 3))
    graph.output(y, "shown", ("n", 8, "h", "w"))
    y = graph.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = graph.op("Relu", graph.conv(y, (8, 24), 3, groups=1))
    graph.output(graph.op("GlobalAveragePool", y), "mean", ("n", 24, 1, 1))
    return graph.build()


def compiled(model: onnx.ModelProto, folder: Path, name: str, **options: object) -> Path:
    """The shared library of a network that is one region."""
    done: Standalone = compile_standalone(model, folder / "model", name=name, **options)
    assert len(done.report.regions) == 1 and not done.report.left
    return done.folder / "lib" / f"lib{name}.so"


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Path:
    return compiled(images(), tmp_path_factory.mktemp("sizes"), "images")


def drawn(n: int, h: int, w: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(n + h + w).standard_normal((n, 3, h, w), np.float32)}


@pytest.mark.parametrize(("compiler", "count"), [("gcc", 3), ("gcc", 2), ("g++", 3)])
def test_compilers_warn_of_too_few_sizes(
    shared: Path, tmp_path: Path, compiler: str, count: int
) -> None:
    """Three axes: C declares how long the array is at least."""
    source = tmp_path / ("short.c" if compiler == "gcc" else "short.cc")
    source.write_text(
        '#include "images.h"\n'
        f"int main(void) {{ const int64_t sizes[{count}] = {{1}}; images_model* model = 0;\n"
        "  return images_create(0, &model) || images_resize(model, sizes) || images_AXES != 3; }\n"
    )
    include = shared.parent.parent / "include"
    command = [compiler, "-O1", "-Wall", "-Werror", "-c", str(source), "-o", str(tmp_path / "o")]
    done = subprocess.run([*command, f"-I{include}"], capture_output=True, text=True)
    assert (done.returncode == 0) == (count == 3), done.stderr
    assert count == 3 or "images_resize" in done.stderr


@pytest.mark.parametrize("threads", [1, 3])
def test_sizes_of_every_kind(shared: Path, threads: int) -> None:
    """Larger and smaller ones in turns: memory is taken once and used again."""
    with Instance(shared, threads=threads) as model:
        for n, h, w in ((1, 8, 8), (3, 33, 20), (1, 2, 3), (2, 64, 65), (5, 9, 4)):
            assert model.resize(n=n, h=h, w=w) == OK
            told = [tuple(t.shape[: t.ndim]) for t in model.sized("outputs")]
            assert told == [(n, 8, h, w), (n, 24, 1, 1)]
            assert [t.bytes for t in model.sized("inputs")] == [4 * n * 3 * h * w]
            inputs = drawn(n, h, w)
            assert_agrees(model.answers(inputs), onnxruntime_outputs(images(), inputs))


def test_what_is_described_and_exported(shared: Path) -> None:
    more = {"axes", "resize", "inputs_of", "outputs_of"}
    wanted = {f"images_{function}" for function in {*FUNCTIONS, *more}}
    assert symbols(shared, "-D", "--defined-only") == wanted
    with Instance(shared, threads=1) as model:
        assert [(a.name, a.least, a.most) for a in model.axes] == [
            (name, 0, 2**31 - 1) for name in (b"h", b"n", b"w")
        ]
        for tensors in (model.inputs, model.sized("inputs")):
            assert [(t.shape[: t.ndim], t.bytes) for t in tensors] == [([-1, 3, -1, -1], 0)]


def test_sizes_that_do_not_fit_change_nothing(shared: Path) -> None:
    inputs = drawn(1, 8, 8)
    want = onnxruntime_outputs(images(), inputs)
    with Instance(shared, threads=1) as model:
        assert model.run_at([0], [0, 0]) == ARGUMENT
        assert model.error() == "images: axes have no sizes yet; call images_resize"
        for given, message in (
            ({"h": -8}, "axis 0 (h) is -8; need 0 to 2147483647"),
            ({"n": -1}, "axis 1 (n) is -1; need 0 to 2147483647"),
            ({"w": 2**31}, "axis 2 (w) is 2147483648; need 0 to 2147483647"),
            ({"h": 2**31 - 1, "w": 2**31 - 1}, "x would be too large"),
        ):
            for begun in (False, True):
                if begun:
                    assert model.resize(n=1, h=8, w=8) == OK
                assert model.resize(**({"n": 1, "h": 8, "w": 8} | given)) == ARGUMENT
                assert model.error() == f"images: {message}"
            assert_agrees(model.answers(inputs), want)
        assert model.function("resize", c_int, c_void_p, c_void_p)(model.handle, None) == ARGUMENT
        assert model.error() == "images: sizes is NULL"
        room = np.zeros(4000, np.float32)
        assert model.run_at([room.ctypes.data + 2], [room.ctypes.data] * 2) == ALIGNMENT
        assert model.run_at([room.ctypes.data], [room.ctypes.data] * 2) == ARGUMENT
        assert model.error() == "images: output 0 (shown) overlaps an input"
        assert_agrees(model.answers(inputs), want)
    assert model.function("resize", c_int, c_void_p, c_void_p)(None, None) == ARGUMENT


def test_images_too_small_for_what_is_inside(tmp_path: Path) -> None:
    """A window of 5 needs as many pixels: the network says which extent there would be."""
    graph = GraphBuilder("windows", 1)
    x = graph.input("x", (1, 4, "h", 16))
    y = graph.op("Relu", graph.conv(x, (4, 8), 3, padding=0))
    y = graph.op("AveragePool", y, kernel_shape=[5, 5])
    graph.output(y, "shown", (1, 8, "h2", 10))
    graph.output(graph.op("GlobalMaxPool", y), "y", (1, 8, 1, 1))
    with Instance(compiled(graph.build(), tmp_path, "windows"), threads=1) as model:
        for h, message in (
            (7, ""),
            (3, "axis 2 of shown would be -3; give larger sizes"),
            (1, "inside the network would be -1; give larger sizes"),
            (12, ""),
        ):
            status = model.resize(h=h)
            if message:
                assert status == ARGUMENT
                assert model.error().endswith(message)
                continue
            assert status == OK
            inputs = {"x": np.random.default_rng(h).standard_normal((1, 4, h, 16), np.float32)}
            assert_agrees(model.answers(inputs), onnxruntime_outputs(graph.build(), inputs))


@pytest.mark.parametrize("language", ["-xc -std=c11", "-xc++ -std=c++17"])
def test_the_header_in_strict_languages(language: str, shared: Path, tmp_path: Path) -> None:
    (tmp_path / "use").write_text('#include "images.h"\nint x = BYOC_ERR_FULL;\n')
    include = shared.parents[1] / "include"
    flags = [*language.split(), *STRICT.split(), "-fsyntax-only"]
    said(*HOST.compiler(), f"-I{include}", *flags, tmp_path / "use")
    text = (include / "images.h").read_text()
    assert " *   0  x: float32 [n, 3, h, w]\n" in text
    assert " * Axes:\n *   0  h\n *   1  n\n *   2  w\n" in text
    assert "_ELEMENTS" not in text.replace("images_OUTPUT_1_ELEMENTS", "")


def test_sequences_of_any_length(tmp_path: Path) -> None:
    """A recurrent layer, whose number of steps is an axis."""
    model = layer("LSTM", ("steps", "batch", 12), 16, batch="batch")
    with Instance(compiled(model, tmp_path, "steps"), threads=2) as net:
        for steps, batch in ((1, 1), (7, 2), (3, 5)):
            sizes = {"steps": steps, "batch": batch}
            assert net.resize(**{a.name.decode(): sizes[a.name.decode()] for a in net.axes}) == OK
            draw = np.random.default_rng(steps)
            inputs = {
                t.name.decode(): draw.standard_normal(t.shape[: t.ndim], np.float32)
                for t in net.sized("inputs")
            }
            assert_agrees(net.answers(inputs), onnxruntime_outputs(model, inputs))


class Heap:
    """A heap that counts what is taken, and has no more than it is told."""

    def __init__(self, most: int = 1 << 60) -> None:
        self.pieces: dict[int, ctypes.Array] = {}
        self.most, self.wrong = most, 0
        self.options = Options(
            threads=3, allocate=Allocate(self._allocate), release=Release(self._release)
        )

    @property
    def taken(self) -> int:
        return sum(map(len, self.pieces.values()))

    def _allocate(self, heap: int | None, alignment: int, size: int) -> int:
        if self.taken + size > self.most:
            return 0
        piece = ctypes.create_string_buffer(size + alignment)
        address = -(-ctypes.addressof(piece) // alignment) * alignment
        self.pieces[address] = piece
        return address

    def _release(self, heap: int | None, memory: int) -> None:
        self.wrong += self.pieces.pop(memory, None) is None


def test_all_memory_is_given_back(shared: Path) -> None:
    heap, taken = Heap(), []
    with Instance(shared, heap.options) as model:
        for n in (1, 4, 2, 4, 1):
            assert model.resize(n=n, h=40, w=40) == OK
            for _ in range(2):
                inputs = drawn(n, 40, 40)
                assert_agrees(model.answers(inputs), onnxruntime_outputs(images(), inputs))
            taken.append(heap.taken)
    assert taken[0] < taken[1] == taken[2] == taken[3] == taken[4]
    assert not heap.pieces and not heap.wrong


def test_sizes_without_enough_memory(shared: Path) -> None:
    heap = Heap()
    with Instance(shared, heap.options) as model:
        heap.most = heap.taken + 2_000_000
        for n, status in ((1, OK), (50, MEMORY), (2, OK)):
            assert model.resize(n=n, h=40, w=40) == OK
            found, results = model.run(drawn(n, 40, 40))
            assert found == status, (n, model.error())
            if status == OK:
                assert_agrees(results, onnxruntime_outputs(images(), drawn(n, 40, 40)))
            else:
                assert "bytes for the arena" in model.error()
    assert not heap.pieces and not heap.wrong
