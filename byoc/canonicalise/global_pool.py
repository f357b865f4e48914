"""Turn adaptive average pooling into a mean, or into pooling with fixed windows.

To one element per axis it is the mean over all; where the input's extents are multiples of the
output's, all windows have one size, the quotient, and do not overlap.
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, is_kernel_float, op_name, shape_of, static_shape_of

LAYOUTS = {
    "relax.nn.adaptive_avg_pool1d": "NCW",
    "relax.nn.adaptive_avg_pool2d": "NCHW",
    "relax.nn.adaptive_avg_pool3d": "NCDHW",
}


def mean_from_global_pool(block: Block) -> None:
    """Rewrite pools whose windows are all alike."""
    for var, call in block.calls(*LAYOUTS):
        layout = LAYOUTS[op_name(call)]
        size = call.attrs.output_size
        if call.attrs.layout != layout or call.attrs.out_layout not in (layout, "") or not size:
            continue
        axes = list(range(2, len(layout)))
        extents = [int(extent) for extent in size]
        if shape_of(call.args[0]) is None:
            continue
        if extents == [1] * len(axes):
            block.replace(var, relax.op.mean(call.args[0], axis=axes, keepdims=True))
            continue
        shape = static_shape_of(call.args[0])
        if shape is None or layout != "NCHW" or not is_kernel_float(var):
            continue
        if any(n % m for n, m in zip(shape[2:], extents, strict=True)):
            continue
        window = tuple(n // m for n, m in zip(shape[2:], extents, strict=True))
        if window == (1, 1):
            block.alias(var, call.args[0])
        else:
            block.replace(var, relax.op.nn.avg_pool2d(call.args[0], window, window))
