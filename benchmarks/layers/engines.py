"""The ways from a layer to its kernel: what each makes of a layer, and which of them there are."""

from __future__ import annotations

import ctypes
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks import harness
from benchmarks.layers import doors, tensorised
from benchmarks.layers.algorithms import ALGORITHMS
from benchmarks.layers.network import Layer
from byoc.bench.engines import ENGINES
from byoc.deploy.loader import Metadata, TensorInfo
from byoc.errors import BenchmarkError
from byoc.frontends.onnx.one_layer import onnx_model
from byoc.tuning.layers import TO_CHANNELS_LAST
from codegen_cc import metadata_module
from codegen_cc.errors import LibraryError, ToolchainError
from codegen_cc.libraries import KernelLibrary, library
from codegen_cc.libraries.registry import SHIPPED, installed
from codegen_cc.node import Node
from codegen_cc.operators import conv2d_ways
from codegen_cc.runtime_files import runtime_file


@dataclass(frozen=True)
class Candidate:
    """A compiled layer: the file, how it computes, and copies of images that it makes as well."""

    file: Path
    algorithm: str
    copies: int = 0


class Engine(ABC):
    """One way to compute layers.

    ``meaning`` explains it; ``loader`` is the key in ``byoc.bench.engines.ENGINES``. All libraries
    for TVM's runtime are called alike, whoever compiled them.
    """

    name: str
    title: str
    meaning: str
    loader = "byoc"
    channels_last = True

    def refuses(self, node: Node) -> str | None:
        """Why it does not compute a layer, or None."""
        return None

    @abstractmethod
    def build(self, layer: Layer, folder: Path) -> Candidate:
        """Compile a layer that it did not refuse into a file of ``folder``."""

    def inputs(self, layer: Layer) -> dict[str, np.ndarray]:
        """The layer's inputs as this engine wants them, in their order."""
        return {role: self.laid_out(layer, role, x) for role, x in layer.draw_inputs().items()}

    def laid_out(self, layer: Layer, role: str, array: np.ndarray) -> np.ndarray:
        """An input, or the ``output``, in the layout that this engine has it in."""
        turned = self.channels_last and layer.node.op == "conv2d"
        return np.ascontiguousarray(array.transpose(TO_CHANNELS_LAST)) if turned else array


class PlainTvm(Engine):
    """TVM without any external kernel."""

    name, title = "tvm", "plain TVM"
    meaning = (
        "TVM's importer and default pipeline for the target `llvm`; its loops are serial; images"
        " NCHW"
    )
    channels_last = False

    def build(self, layer: Layer, folder: Path) -> Candidate:
        """Import the ONNX layer, compile it."""
        from byoc.frontends.onnx import import_onnx, prepare

        module = import_onnx(prepare(onnx_model(layer)))
        # With -mcpu its sums, chains of fused multiply-adds then, were a quarter slower.
        return Candidate(_compile(module, folder / "tvm.so", "llvm"), "loops of TVM")


class TeExtern(Engine):
    """The built-in convolution behind ``te.extern``."""

    name = title = "te.extern"
    meaning = (
        "TVM calls the built-in convolution, epilogue included, as a packed function; always"
        " implicit GEMM, or depthwise"
    )

    def __init__(self, folder: Path) -> None:
        includes = [f"-I{runtime_file('include')}", *harness.ffi_includes()]
        archive = str(runtime_file("lib/libext_kernels.a"))
        alone = harness.build_c(doors.SOURCE, folder / "alone.o", "-c", *includes)
        flags = ("-r", "-nostdlib")
        self._object = harness.build_c(alone, folder / "extern.o", *flags, link=[archive])

    def refuses(self, node: Node) -> str | None:
        """Convolutions only."""
        return _only_convolutions(node)

    def build(self, layer: Layer, folder: Path) -> Candidate:
        """One call in a Relax function."""
        module = doors.extern_module(layer)
        if doors.FUNCTION not in module.script():
            raise BenchmarkError(f"it does not call {doors.FUNCTION}")
        file = _compile(module, folder / "te.extern.so", _this_cpu(), [str(self._object)])
        return Candidate(
            file,
            conv2d_ways.algorithm_of(
                layer.node, conv2d_ways.Way(0, conv2d_ways.own_rows(layer.node))
            ),
        )


class Tensorised(Engine):
    """TVM's loops around a microkernel in C."""

    name = title = "tensorised"
    meaning = (
        "TVM's loops around a register tile in C (`tile.c`); TVM pads, and adds bias, residual and"
        " activation to each tile"
    )

    def __init__(self, folder: Path) -> None:
        source, flags = tensorised.SOURCE, ("-O3", "-march=native")
        self._object = harness.build_c(source, folder / "tile.o", "-c", *flags)
        tile = ctypes.CDLL(str(harness.build_c(source, folder / "tile.so", "-shared", *flags)))
        self._tile = tile.byoc_bench_tile_rows(), tile.byoc_bench_tile_columns()

    def laid_out(self, layer: Layer, role: str, array: np.ndarray) -> np.ndarray:
        """Channels-last; residual and output with another axis for blocks of channels."""
        image = super().laid_out(layer, role, array)
        if role == "input":
            return image
        block = tensorised.greatest_divisor(image.shape[-1], self._tile[1])
        return image.reshape(*image.shape[:-1], -1, block)

    def refuses(self, node: Node) -> str | None:
        """Convolutions of one group, with activations that it can write."""
        return _only_convolutions(node) or tensorised.refuses(node, self._tile[0])

    def build(self, layer: Layer, folder: Path) -> Candidate:
        """Schedule, tensorise, link the tile in."""
        module = tensorised.tensorised_module(layer, *self._tile)
        if "byoc_bench_tile" not in module.script():
            raise BenchmarkError("it does not call byoc_bench_tile")
        file = _compile(module, folder / "tensorised.so", _this_cpu(), [str(self._object)])
        return Candidate(file, "register tiles")


class Region(Engine):
    """A region of this project, its contraction computed by one kernel library."""

    def __init__(self, found: KernelLibrary) -> None:
        self.library = found
        self.name = self.title = found.name
        self.meaning = f"a region on the library {found.name}"
        if found.name == "builtin":
            self.meaning = "a region on the built-in kernels, which choose the algorithm"
        elif found.name in ALGORITHMS:
            self.meaning = "a region on the built-in kernels, always with one algorithm"

    def refuses(self, node: Node) -> str | None:
        """The library's own reason."""
        return self.library.supports(node)

    def build(self, layer: Layer, folder: Path) -> Candidate:
        """Compile the ONNX layer, and make sure that the library computes it."""
        from byoc.compiler.compile import compile

        file, code = folder / f"{self.name}.so", folder / f"{self.name}-code"
        libraries = dict.fromkeys((self.library, library("builtin")))
        compiled = compile(
            onnx_model(layer, channels_last=True), file, libraries=libraries, dump_code=code
        )
        nodes: list[dict[str, Any]] = compiled.report.to_json()["nodes"]
        found = [node for node in nodes if node["composite"] == layer.node.composite]
        if [node["library"] for node in found] != [self.name] or compiled.report.left:
            became = [f"{node['composite']} ({node['library']})" for node in nodes]
            raise BenchmarkError(
                f"it became {', '.join(became)} and"
                f" {len(compiled.report.left)} operators of TVM; need {layer.node.composite}"
            )
        text = "".join(path.read_text(encoding="utf-8") for path in sorted(code.glob("*.c")))
        copies = len(re.findall(r"\bext_copy\(", text))
        return Candidate(file, found[0]["algorithm"], copies)


class OnnxFile(Engine):
    """Another engine that reads ONNX files, beside the ways through TVM."""

    channels_last = False

    def __init__(self, name: str) -> None:
        if reason := ENGINES[name].absent():
            raise LibraryError(reason)
        self.name = self.loader = name
        self.title = ENGINES[name].title
        self.meaning = "its own kernels; images NCHW, and its reorders to and from blocks are timed"

    def build(self, layer: Layer, folder: Path) -> Candidate:
        """The ONNX layer as it is."""
        onnx.save(onnx_model(layer), folder / "layer.onnx")
        return Candidate(folder / "layer.onnx", "")


_PEERS = ("onnxruntime", "openvino")
_OWN = ("tvm", "te.extern", "tensorised", *_PEERS)
#: What the table shows unless told otherwise.
DEFAULT = ("tvm", "te.extern", "tensorised", "builtin", "cblas", "onednn", *ALGORITHMS)


def find_engines(names: Sequence[str], folder: Path) -> tuple[list[Engine], dict[str, str]]:
    """The engines of these names, and why others of them are absent on this machine.

    A name that is none of ``DEFAULT`` is a kernel library: installed, or the path of a ``.py``
    file. Raises ``LibraryError`` for one that nobody knows. ``folder`` is for their C code.
    """
    found: list[Engine] = []
    absent: dict[str, str] = {}
    for name in dict.fromkeys(names):
        try:
            found.append(_engine(name, folder))
        except (LibraryError, ToolchainError) as error:
            if name not in {*_OWN, *SHIPPED, *installed()}:
                raise
            absent[name] = str(error)
    return found, absent


def versions(engines: Sequence[Engine]) -> dict[str, str]:
    """Versions of byoc, TVM, the reference, other engines and the kernel libraries."""
    found = {"byoc": ENGINES["byoc"].version(), "TVM": ENGINES["tvm"].version()}
    peers = dict.fromkeys(["onnxruntime", *(e.name for e in engines if e.name in _PEERS)])
    found |= {ENGINES[name].title: ENGINES[name].version() for name in peers}
    for engine in engines:
        if isinstance(engine, Region) and engine.name not in ("builtin", *ALGORITHMS):
            found[engine.name] = engine.library.version
    return found


def _engine(name: str, folder: Path) -> Engine:
    if name == "te.extern":
        return TeExtern(folder)
    if name == "tensorised":
        return Tensorised(folder)
    if name == "tvm":
        return PlainTvm()
    if name in _PEERS:
        return OnnxFile(name)
    return Region(ALGORITHMS[name] if name in ALGORITHMS else library(name))


def _only_convolutions(node: Node) -> str | None:
    return None if node.op == "conv2d" else f"operator {node.op}; need conv2d"


def _compile(module: Any, file: Path, target: Any, addons: Sequence[str] = ()) -> Path:
    """Compile with TVM's default pipeline, and write what ``byoc.load`` takes."""
    import tvm

    main = module["main"]
    inputs = [_info(parameter.name, parameter.ty) for parameter in main.params]
    output = _info("output", main.body.body.ty)
    names = metadata_module(Metadata(tuple(inputs), (output,)).to_json())
    executable = tvm.compile(module.with_attr("external_mods", list(names)), target)
    executable.export_library(str(file), addons=list(addons))
    return file


def _this_cpu() -> Any:
    import tvm

    cpu = tvm.target.codegen.llvm_get_system_cpu()
    return tvm.target.Target({"kind": "llvm", "mcpu": cpu})


def _info(name: str, type_: Any) -> TensorInfo:
    return TensorInfo(name, tuple(map(int, type_.shape)), str(type_.dtype))
