"""Convolutions whose weight is computed: which of them rules write in other operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tvm import relax

from byoc.canonicalise.dequantised_weights import DEQUANTIZE
from byoc.canonicalise.transposed_conv_to_conv import has_layouts
from byoc.ir.dataflow import Block, array_of, is_kernel_float, op_name, shape_of
from codegen_cc.dim import Dim, is_static


def computed_convolutions(
    block: Block,
    name: str,
    axes: str,
    computed: Callable[[relax.Call], bool],
) -> Iterator[tuple[relax.Var, relax.Call, list[tuple[Dim, ...]]]]:
    """The fp32 convolutions of this name, and the transposed ones, whose weight is no constant and
    which nobody computes as they are, with the shapes of data, weight and result. ``axes`` are
    those of an image or a volume in layouts: HW."""
    transposed_name = f"{name}_transpose"
    for var, call in block.calls(name, transposed_name):
        weight = call.args[1]
        shapes = [shape_of(expr) for expr in (*call.args, var)]
        if array_of(weight) is not None or block.call(weight, DEQUANTIZE) is not None:
            continue
        if not is_kernel_float(var) or None in shapes or not is_static(shapes[1]):
            continue
        transposed = op_name(call) == transposed_name
        if transposed and int(call.attrs.groups) > 1 and shapes[1][1] == 1:
            continue  # a sum of few numbers for each row that is copied; TVM's loops are faster
        kernel = f"IO{axes}" if transposed else f"OI{axes}"
        if not has_layouts(call, f"NC{axes}", kernel) or not is_static(shapes[0][1:2]):
            continue
        if 0 not in shapes[1] and not computed(call):
            yield var, call, shapes
