"""Turn adaptive average pooling to one pixel into the mean over height and width."""

from __future__ import annotations

from tvm import relax

from ..dataflow import Block


def mean_from_global_pool(block: Block) -> None:
    """Rewrite NCHW pooling with output size (1, 1), which is what ``mean`` computes."""
    for var, call in block.calls("relax.nn.adaptive_avg_pool2d"):
        size = call.attrs.output_size
        if call.attrs.layout != "NCHW" or call.attrs.out_layout not in ("NCHW", "") or not size:
            continue
        if [int(extent) for extent in size] == [1, 1]:
            block.replace(var, relax.op.mean(call.args[0], axis=[2, 3], keepdims=True))
