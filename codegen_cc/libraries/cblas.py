"""``cblas``: matrix products, and convolutions as such, on the sgemm of any BLAS.

The BLAS is what ``codegen_cc.libraries.blas`` finds; ``runtime/adapters/ext_cblas.c`` calls it.  A
shared one is opened when a model runs, a static one becomes part of the model.  The work is shared
out by ``ext_parallel_for``, and the BLAS is told to use one thread per call: two pools of
spinning threads would fight over the cores.
"""

from __future__ import annotations

import numpy as np

from codegen_cc.libraries.blas import Blas, find_blas
from codegen_cc.libraries.interface import LIBRARY_ABI, Link, Threads
from codegen_cc.node import Node
from codegen_cc.operators import conv2d, dtype_rules, epilogue, matmul
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.region.graph import RegionNode
from codegen_cc.runtime_files import runtime_file


class CblasLibrary:
    """matmul and conv2d in fp32 on a BLAS."""

    name = "cblas"
    abi = LIBRARY_ABI
    status_text: str | None = None

    def __init__(self, blas: Blas) -> None:
        self.blas = blas
        self.version = blas.version
        self.threads: Threads | None = None
        if blas.family is not None:
            self.threads = Threads("ext_cblas_set_threads", "ext_cblas_get_threads")

    def supports(self, node: Node) -> str | None:
        """None for fp32 matrix products and convolutions, depthwise ones aside."""
        if node.op not in ("matmul", "conv2d"):
            return f"operator {node.op}; need matmul or conv2d"
        reason = dtype_rules.as_stored(node) or dtype_rules.only_single(node)
        reason = reason or epilogue.supports(node)
        if reason is not None or node.op == "matmul":
            return reason or matmul.supports(node)
        groups = node.attrs["groups"]
        if groups > 1 and groups in (node.operand("input").shape[1], node.shape[1]):
            return f"groups={groups} of one channel; need a product of matrices"
        return conv2d.supports(node)

    def lower(self, node: RegionNode, builder: PlanBuilder) -> None:
        """One call; operands are copied only where neither rows nor columns are contiguous."""
        (_lower_matmul if node.node.op == "matmul" else _lower_conv2d)(node, builder)

    def link(self) -> Link:
        """The adapter's source and the BLAS."""
        header = runtime_file("adapters/ext_cblas.h")
        blas, family = self.blas, self.blas.family
        flags = ["-O3", f"-DEXT_CBLAS_PREFIX={blas.prefix}"]
        if family is not None:
            flags.append(f"-DEXT_CBLAS_SET_THREADS={family.set_threads}")
            flags.append(f"-DEXT_CBLAS_GET_THREADS={family.get_threads}")
            flags.append(f"-DEXT_CBLAS_COUNT={family.count}")
        return Link(
            headers=(header.name,),
            include_dirs=(header.parent,),
            sources=(runtime_file("adapters/ext_cblas.c"),),
            archives=(blas.path,) if blas.static else (),
            shared=() if blas.static else (blas.path,),
            cflags=tuple(flags),
        )

    def algorithm(self, node: Node) -> str:
        """``sgemm``, after gathering windows where pixels are not rows already."""
        gathered = node.op == "conv2d" and not _is_plain(node)
        return "im2col + sgemm" if gathered else "sgemm"

    def cost(self, node: Node) -> float | None:
        """Not known without measuring."""
        del node
        return None


def _lower_matmul(node: RegionNode, builder: PlanBuilder) -> None:
    placed = matmul.place_matmul(node, builder, plain=True)
    lhs, rhs = placed.inputs["lhs"], placed.inputs["rhs"]
    arguments = [placed.params, lhs, rhs, placed.epilogue, placed.output]
    placed.call(node, builder, "ext_cblas_matmul", arguments)


def _lower_conv2d(node: RegionNode, builder: PlanBuilder) -> None:
    attrs, weight = node.node.attrs, node.role("weight").data
    placed = conv2d.place_conv2d(node, builder, attrs["padding"][:2])
    packed = builder.constant(_plain_weight(weight, attrs["groups"]))
    x, y = placed.inputs["input"], placed.output
    arguments = [placed.params, x, packed, placed.epilogue, y]
    placed.call(node, builder, "ext_cblas_conv2d", arguments)


def _is_plain(node: Node) -> bool:
    """Whether the pixels of the input are the rows of the product."""
    attrs = node.attrs
    sizes = (*node.operand("weight").shape[2:], *attrs["strides"])
    return set(sizes) == {1} and not any(attrs["padding"])


def _plain_weight(weight: np.ndarray, groups: int) -> np.ndarray:
    """OIHW weights as [groups, KH, KW, I/groups, O/groups]."""
    parts = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    return np.ascontiguousarray(parts.transpose(0, 3, 4, 2, 1))


def __getattr__(name: str) -> CblasLibrary:
    """``LIBRARY``, made when it is asked for. Raises ``LibraryError`` where there is no BLAS."""
    if name != "LIBRARY":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    library = globals()["LIBRARY"] = CblasLibrary(find_blas())
    return library
