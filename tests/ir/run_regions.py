"""Regions built by hand, compiled and called: what the planner lowers, in numbers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import tvm_ffi

from codegen_cc import dim, supports
from codegen_cc.emit.source import emit_source
from codegen_cc.libraries import KernelLibrary
from codegen_cc.link.toolchain import build_object, compiler
from codegen_cc.link.weights import WeightBlob
from codegen_cc.lowering import plan_region
from codegen_cc.region.graph import Region


class CompiledRegions:
    """Any number of regions in one library; ``functions`` are the kernels that each one calls.

    ``libraries`` are those that nodes name, the built-in one aside.
    """

    def __init__(
        self, regions: list[Region], folder: Path, libraries: tuple[KernelLibrary, ...] = ()
    ) -> None:
        self.regions = {region.symbol: region for region in regions}
        for region in regions:
            for node in region.nodes:
                assert supports(node.node) is None, (region.symbol, supports(node.node))
        weights = WeightBlob("w", folder / "weights.o")
        plans = [plan_region(region, weights) for region in regions]
        self.functions = {
            plan.region.symbol: [call.function for call in plan.calls] for plan in plans
        }
        stored = [weight.symbol for weight in weights.weights]
        objects = [build_object(emit_source(plans), folder, libraries, weights=stored)]
        if (constants := weights.finish(objects[0])) is not None:
            objects.append(constants)
        library = folder / "regions.so"
        subprocess.run([*compiler(), "-shared", "-o", library, *objects, "-lm"], check=True)
        self._module = tvm_ffi.load_module(str(library))

    def run(self, symbol: str, *inputs: np.ndarray, **dims: int) -> list[np.ndarray]:
        """The region's outputs, ``dims`` in place of symbols; what is not written stays 77."""
        values = {dim.symbol(name): size for name, size in dims.items()}
        outputs = []
        for value in self.regions[symbol].outputs:
            shape = [d if isinstance(d, int) else int(d.subs(values)) for d in value.shape]
            outputs.append(np.full(shape, 77, np.dtype(value.dtype)))
        arguments = [tvm_ffi.from_dlpack(_aligned(array)) for array in inputs]
        results = [_aligned(array) for array in outputs]
        self._module[symbol](*arguments, *(tvm_ffi.from_dlpack(array) for array in results))
        return results


def _aligned(array: np.ndarray) -> np.ndarray:
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
