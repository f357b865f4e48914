"""Timers around every kernel call, for regions that are compiled to be profiled.

Two packed functions of the module serve them: ``byoc_calls_<region>()`` describes the calls of a
region, as JSON, and ``byoc_times_<region>()`` is the address of its ``Times``.

Threads are watched where kernels launch work on their pool (``runtime/workers.h``): the linker puts
a function with timers in the place of the pool's (``LINK_FLAGS``), so that kernels themselves know
nothing of it.  What TVM's own loops launch, and libraries with threads of their own, is not seen.
"""

from __future__ import annotations

import ctypes
import json

from codegen_cc.dim import Dim, is_static
from codegen_cc.plan.builder import Plan

#: Spans that a region keeps from one reset to the next; later ones are counted alone.
ROOM = 1 << 14

#: The worker of a span that is a whole call, on the thread that runs the network.
WHOLE = -1

LINK_FLAGS = ("-Wl,--wrap=ext_pool_run",)


class Span(ctypes.Structure):
    """From when to when, in seconds of CLOCK_MONOTONIC, a worker took part in a call."""

    _fields_ = (
        ("begin", ctypes.c_double),
        ("end", ctypes.c_double),
        ("call", ctypes.c_int32),
        ("worker", ctypes.c_int32),
    )


class Times(ctypes.Structure):
    """What a region noted since ``count`` and the ``seconds`` were last set to 0.

    ``seconds[i]`` is how long call i took, in all the region's runs. ``count`` spans happened, of
    which the first ``ROOM`` are at ``spans``.
    """

    _fields_ = (
        ("seconds", ctypes.POINTER(ctypes.c_double)),
        ("spans", ctypes.POINTER(Span)),
        ("count", ctypes.c_int64),
    )


PREAMBLE = f"""\
#include <time.h>

enum {{ EXT_SPANS = {ROOM}, EXT_WHOLE_CALL = {WHOLE} }};

typedef struct {{
  double begin, end;
  int32_t call, worker;
}} ext_span;

typedef struct {{
  double* seconds;
  ext_span* spans;
  int64_t count;
}} ext_times;

static double ext_now(void) {{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}}

static void ext_note_span(ext_times* times, int call, int worker, double begin, double end) {{
  const int64_t at = __atomic_fetch_add(&times->count, 1, __ATOMIC_RELAXED);
  if (at < EXT_SPANS) times->spans[at] = (ext_span){{begin, end, call, worker}};
}}

/* The call that runs; regions run one after another while they are profiled. */
static ext_times* ext_timed;
static int ext_timed_call;

static double ext_begin_call(ext_times* times, int call) {{
  ext_timed = times;
  ext_timed_call = call;
  return ext_now();
}}

static void ext_end_call(double begin) {{
  const double end = ext_now();
  ext_note_span(ext_timed, ext_timed_call, EXT_WHOLE_CALL, begin, end);
  ext_timed->seconds[ext_timed_call] += end - begin;
}}

/* Launches of the kernels, with a span for each worker. */
typedef void (*ext_task)(void* context, int32_t index);
extern int __real_ext_pool_run(void* pool, int32_t tasks, ext_task task, void* context);

typedef struct {{
  ext_task task;
  void* context;
}} ext_launch;

static void ext_timed_task(void* context, int32_t index) {{
  const ext_launch* launch = context;
  const double begin = ext_now();
  launch->task(launch->context, index);
  if (ext_timed) ext_note_span(ext_timed, ext_timed_call, index, begin, ext_now());
}}

__attribute__((used)) int __wrap_ext_pool_run(void* pool, int32_t tasks, ext_task task,
                                              void* context) {{
  ext_launch launch = {{task, context}};
  return __real_ext_pool_run(pool, tasks, ext_timed_task, &launch);
}}
"""


def times_symbol(region: str) -> str:
    """The name of the packed function that gives the address of a region's ``Times``."""
    return f"byoc_times_{region}"


def calls_symbol(region: str) -> str:
    """The name of the packed function that describes a region's calls."""
    return f"byoc_calls_{region}"


def describe_calls(plan: Plan) -> str:
    """JSON: for each call its kernel, library, composite, shapes and source, MACs and bytes moved.

    ``compute`` is the dtype that is multiplied in, empty where nothing is; ``node`` the number of
    the composite in the region that it belongs to, -1 for none. Where a node takes several calls,
    the last one has its MACs and bytes.
    """
    last = {id(call.node): index for index, call in enumerate(plan.calls) if call.node}
    numbers = {id(node.node): index for index, node in enumerate(plan.region.nodes)}
    rows = []
    for index, call in enumerate(plan.calls):
        node = call.node if last.get(id(call.node)) == index else None
        rows.append(
            {
                "function": call.function,
                "library": call.library,
                "composite": call.composite,
                "what": call.comment,
                "macs": _known(node.macs) if node else 0,
                "bytes": _known(node.bytes_moved) if node else 0,
                "compute": node.multiplied_in if node else "",
                "node": numbers.get(id(call.node), -1),
            }
        )
    return json.dumps(rows)


def storage(plan: Plan) -> str:
    """The variables in which a region keeps its times."""
    symbol, calls = plan.region.symbol, max(1, len(plan.calls))
    return (
        f"static double {symbol}_seconds[{calls}];\n"
        f"static ext_span {symbol}_spans[EXT_SPANS];\n"
        f"static ext_times {symbol}_times = {{{symbol}_seconds, {symbol}_spans, 0}};\n"
    )


def timed(plan: Plan, index: int, lines: list[str]) -> list[str]:
    """The lines of one call between two looks at the clock."""
    begin = f"begin{index}"
    return [
        f"  const double {begin} = ext_begin_call(&{plan.region.symbol}_times, {index});",
        *lines,
        f"  ext_end_call({begin});",
    ]


def reader(plan: Plan) -> str:
    """The packed function itself."""
    symbol = plan.region.symbol
    return f"""\
TVM_FFI_DLL_EXPORT int __tvm_ffi_{times_symbol(symbol)}(
    void* self, const TVMFFIAny* args, int32_t n_args, TVMFFIAny* result) {{
  (void)self;
  (void)args;
  (void)n_args;
  result->type_index = kTVMFFIOpaquePtr;
  result->zero_padding = 0;
  result->v_ptr = &{symbol}_times;
  return 0;
}}
"""


def _known(count: Dim) -> int:
    """A number of operations or bytes; 0 where sizes of the call's own decide."""
    return int(count) if is_static([count]) else 0
