"""Timers around every kernel call, for regions that are compiled to be profiled.

Two packed functions of the module serve them: ``byoc_calls_<region>()`` describes the calls of a
region, as JSON, and ``byoc_seconds_<region>(i)`` is how long call i took in the last run.
"""

from __future__ import annotations

import json

from codegen_cc.dim import estimate
from codegen_cc.plan.builder import Plan

PREAMBLE = """\
#include <time.h>

static double ext_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
"""


def seconds_symbol(region: str) -> str:
    """The name of the packed function that tells how long a region's calls took."""
    return f"byoc_seconds_{region}"


def calls_symbol(region: str) -> str:
    """The name of the packed function that describes a region's calls."""
    return f"byoc_calls_{region}"


def describe_calls(plan: Plan) -> str:
    """JSON: for each call its kernel, library, composite, shapes and source, MACs and bytes moved.

    Where a node takes several calls, the last one has its MACs and bytes.
    """
    last = {id(call.node): index for index, call in enumerate(plan.calls) if call.node}
    rows = []
    for index, call in enumerate(plan.calls):
        node = call.node if last.get(id(call.node)) == index else None
        rows.append(
            {
                "function": call.function,
                "library": call.library,
                "composite": call.composite,
                "what": call.comment,
                "macs": int(estimate(node.macs)) if node else 0,
                "bytes": int(estimate(node.bytes_moved)) if node else 0,
            }
        )
    return json.dumps(rows)


def storage(plan: Plan) -> str:
    """The variables in which a region keeps its times."""
    return f"static double {plan.region.symbol}_seconds[{max(1, len(plan.calls))}];\n"


def timed(plan: Plan, index: int, lines: list[str]) -> list[str]:
    """The lines of one call between two looks at the clock."""
    seconds = f"  {plan.region.symbol}_seconds[{index}]"
    return [f"{seconds} = -ext_now();", *lines, f"{seconds} += ext_now();"]


def reader(plan: Plan) -> str:
    """The packed function itself."""
    symbol, count = plan.region.symbol, len(plan.calls)
    return f"""\
TVM_FFI_DLL_EXPORT int __tvm_ffi_{seconds_symbol(symbol)}(
    void* self, const TVMFFIAny* args, int32_t n_args, TVMFFIAny* result) {{
  (void)self;
  if (n_args != 1 || args[0].v_int64 < 0 || args[0].v_int64 >= {count})
    return ext_raise("ValueError", "{symbol} has times of calls 0 to {count - 1}");
  result->type_index = kTVMFFIFloat;
  result->zero_padding = 0;
  result->v_float64 = {symbol}_seconds[args[0].v_int64];
  return 0;
}}
"""
