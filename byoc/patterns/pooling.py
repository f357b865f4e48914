"""Rows of pooling."""

from __future__ import annotations

from tvm import relax

from byoc.patterns.row import Candidate, Row, candidate, four_sides, integers, need_layout

POOLS = {"relax.nn.max_pool2d": "max_pool2d", "relax.nn.avg_pool2d": "avg_pool2d"}


def build_pool2d(call: relax.Call) -> Candidate:
    """NCHW image."""
    attrs = call.attrs
    need_layout("layout", attrs.layout, "NCHW")
    need_layout("out_layout", attrs.out_layout, "NCHW")
    return candidate(
        POOLS[call.op.name],
        call,
        [("input", call.args[0])],
        {
            "pool_size": integers(attrs.pool_size),
            "strides": integers(attrs.strides),
            "padding": four_sides(attrs.padding),
            "dilation": integers(attrs.dilation),
            "ceil_mode": bool(attrs.ceil_mode),
            "count_include_pad": bool(attrs.count_include_pad),
        },
    )


def build_adaptive_average(call: relax.Call) -> Candidate:
    """NCHW image; the result's shape says how many windows there are."""
    attrs = call.attrs
    need_layout("layout", attrs.layout, "NCHW")
    need_layout("out_layout", attrs.out_layout or attrs.layout, "NCHW")
    return candidate("adaptive_avg_pool2d", call, [("input", call.args[0])], {})


POOLING_ROWS = (
    *(Row(name, build_pool2d, op) for name, op in POOLS.items()),
    Row("relax.nn.adaptive_avg_pool2d", build_adaptive_average, "adaptive_avg_pool2d"),
)
