"""Entry points: the packed function through which TVM calls a region.

It reads symbolic dimensions from the inputs' shapes, or from the shape that comes before them where
those do not tell them, checks every argument, takes the arena from the calling thread's workspace
and runs the region's body.
"""

from __future__ import annotations

import re

from codegen_cc import dtypes
from codegen_cc.dim import Dim, at_most, c_name, c_text, is_static
from codegen_cc.errors import CodegenError
from codegen_cc.libraries import KernelLibrary, library
from codegen_cc.operator import operator_of
from codegen_cc.plan.builder import Plan
from codegen_cc.plan.memory import Slot
from codegen_cc.region.graph import RegionNode, Value


def c_identifier(text: str, limit: int = 48) -> str:
    """A C identifier that resembles ``text``: ASCII letters, digits and underscores only."""
    clean = re.sub(r"[^0-9A-Za-z_]+", "_", text)[:limit]
    return clean if clean and not clean[0].isdigit() else f"_{clean}"


def slot_bytes(slot: Slot) -> str:
    """C expression of a slot's size: that of its largest buffer, rounded up for alignment."""
    sizes = list(dict.fromkeys(c_text(buffer.nbytes) for buffer in slot.buffers))
    largest = sizes[0]
    for size in sizes[1:]:
        largest = f"ext_larger({largest}, {size})"
    return f"ext_aligned({largest})"


def entry(plan: Plan, name: str = "") -> str:
    """The exported packed function of a region, by its symbol or another ``name``."""
    symbol = plan.region.symbol
    count = len(plan.inputs) + len(plan.outputs)
    bindings = _bindings(plan)
    storage = "const" if bindings else "static const"
    lines = [
        f"TVM_FFI_DLL_EXPORT int __tvm_ffi_{name or symbol}(",
        "    void* self, const TVMFFIAny* args, int32_t n_args, TVMFFIAny* result) {",
        *_take_sizes(plan),
        *bindings,
        f"  {storage} ext_tensor_spec specs[] = {{",
        *_specs(plan),
        "  };",
        f"  void* data[{count}];",
        "  (void)self;",
        "  (void)result;",
        f'  if (ext_check_call("{symbol}", args, n_args, specs, {count}, data) != 0) return -1;',
        *check_extents(plan),
        *(f"  if (ext_prepare_{name}() != 0) return -1;" for name in prepared(plan)),
        *_run(plan, count),
    ]
    return "\n".join([*lines, "}", ""])


def preparation(found: KernelLibrary) -> str:
    """C that a library needs before its first call in a region; empty where it needs nothing.

    ``ext_prepare_<name>`` opens its shared libraries and sets its threads; it returns 0, or what
    ``ext_raise`` gave.
    """
    name, threads = found.name, found.threads
    lines = []
    if found.link().shared:
        lines.append(f"  const char* const problem = ext_open_{name}();")
        lines.append(
            '  if (problem != NULL) return ext_raise("RuntimeError", problem);',
        )
    if threads is not None:
        lines.append(f"  {threads.set}(ext_threads_of_library());")
    if not lines:
        return ""
    text = [f"const char* ext_open_{name}(void);", ""] if found.link().shared else []
    text += [f"static int ext_prepare_{name}(void) {{", *lines, "  return 0;", "}", ""]
    return "\n".join(text)


def thread_count(found: KernelLibrary) -> str:
    """The packed function ``byoc_threads_<name>``: how many threads a library will use.

    Empty where it has none of its own, or cannot tell.
    """
    name, threads = found.name, found.threads
    if threads is None or threads.get is None:
        return ""
    text = [
        "/* Weak: every object of a model has it, where regions were compiled in several steps. */",
        f"TVM_FFI_DLL_EXPORT __attribute__((weak)) int __tvm_ffi_byoc_threads_{name}(",
        "    void* self, const TVMFFIAny* args, int32_t n_args, TVMFFIAny* result) {",
        "  (void)self;",
        "  (void)args;",
        "  (void)n_args;",
        f"  if (ext_prepare_{name}() != 0) return -1;",
        "  result->type_index = kTVMFFIInt;",
        "  result->zero_padding = 0;",
        f"  result->v_int64 = {threads.get}();",
        "  return 0;",
        "}",
        "",
    ]
    return "\n".join(text)


def prepared(plan: Plan) -> list[str]:
    """The libraries of a plan that have an ``ext_prepare_<name>``."""
    return [name for name in plan.libraries if preparation(library(name))]


def arena_parts(plan: Plan) -> list[str]:
    """C expressions of bytes that are together those of a region's arena."""
    parts = [c_text(plan.arena_bytes)] if plan.arena_bytes or not plan.slots else []
    return [*parts, *(slot_bytes(slot) for slot in plan.slots)]


def _run(plan: Plan, count: int) -> list[str]:
    symbol = plan.region.symbol
    arguments = [f"data[{i}]" for i in range(count)] + [c_name(s) for s in plan.symbols()]
    if not plan.slots and not plan.arena_bytes:
        return [f"  return {symbol}_body({', '.join([*arguments, 'NULL'])});"]
    return [
        f"  char* const arena = ext_workspace_alloc({' + '.join(arena_parts(plan))});",
        f'  if (arena == NULL) return ext_raise_status("{symbol}", "arena", EXT_ERR_MEMORY);',
        f"  const int status = {symbol}_body({', '.join([*arguments, 'arena'])});",
        "  ext_workspace_free(arena);",
        "  return status;",
    ]


def _take_sizes(plan: Plan) -> list[str]:
    """Read the shape that comes before the tensors, where there is one, and step past it."""
    sizes = plan.region.sizes
    if not sizes:
        return []
    return [
        f"  int64_t sizes[{len(sizes)}];",
        f'  if (ext_take_sizes("{plan.region.symbol}", args, n_args, {len(sizes)}, sizes) != 0)'
        " return -1;",
        "  ++args;",
        "  --n_args;",
    ]


def _bindings(plan: Plan) -> list[str]:
    """Variables for symbolic dimensions, each read from the first place that tells it."""
    lines = []
    for symbol in plan.symbols():
        places = [
            f"ext_extent(args, n_args, {index}, {len(value.shape)}, {value.shape.index(symbol)})"
            for index, value in enumerate(plan.region.inputs)
            if symbol in value.shape
        ]
        if symbol in plan.region.sizes:
            places.append(f"sizes[{plan.region.sizes.index(symbol)}]")
        if not places:
            raise CodegenError(
                f"region {plan.region.symbol}: dimension {symbol.name} is no axis of an input; "
                "partition the module with byoc.partition_for_ext, which passes it"
            )
        lines.append(f"  const int64_t {c_name(symbol)} = {places[0]};")
    return lines


def check_extents(plan: Plan) -> list[str]:
    """C that refuses sizes which are too small for what is computed inside, as a pool's window.

    Inputs and outputs were compared with what the call has.
    """
    known = {dim for value in (*plan.region.inputs, *plan.region.outputs) for dim in value.shape}
    inner = dict.fromkeys(dim for node in plan.region.nodes for dim in _extents_of(node))
    doubtful = {dim: f"{c_text(dim)} < 0" for dim in inner if dim not in known}
    for node in plan.region.nodes:
        doubtful |= _parts_of_windows(node)
    found = [(str(dim), small, dim) for dim, small in doubtful.items() if not at_most(0, dim)]
    for node in plan.region.nodes:
        found += _axes_to_fill(node)
    beyond = [rest for node in plan.region.nodes for rest in _beyond_the_ends(node)]
    unlike = [case for node in plan.region.nodes for case in _unlike(node)]
    symbol = plan.region.symbol
    return [
        f'  if ({small}) return ext_raise_negative("{symbol}", "{what}", {c_text(dim)}, "{sizes}");'
        for sizes, cases in (("larger", found), ("smaller", beyond), ("other", unlike))
        for what, small, dim in dict.fromkeys(cases)
    ]


def _extents_of(node: RegionNode) -> list[Dim]:
    rests = [dim for dim in operator_of(node.node.op).rests(node.node) if not is_static([dim])]
    return [*(dim for value in node.outputs for dim in value.shape), *_room_to_pad(node), *rests]


def _axes_to_fill(node: RegionNode) -> list[tuple[str, str, Dim]]:
    """Axes that need an element and may have none: what each is, when it is wrong, its extent.

    There is no place of an extreme then; where none is asked for, nothing is wrong.
    """
    found, shape = [], node.inputs[0].shape if node.inputs else ()
    for axis in operator_of(node.node.op).filled(node.node):
        if at_most(1, shape[axis]):
            continue
        name = node.node.composite.removeprefix("ext.")
        what = f"of axis {axis} of {name}, which needs 1 or more,"
        asked = [f"{c_text(extent)} > 0" for place, extent in enumerate(shape) if place != axis]
        found.append((what, " && ".join([f"{c_text(shape[axis])} == 0", *asked]), shape[axis]))
    return found


def _beyond_the_ends(node: RegionNode) -> list[tuple[str, str, Dim]]:
    """What is left of axes of known sizes before and behind what is read, and when that is more
    than there is.

    As of a table of 512 positions, of which a sentence takes as many as it is long, from its
    beginning or from the middle on.
    """
    reads = operator_of(node.node.op).reads(node.node)
    found, extents = [], [e for e in node.outputs[0].shape if not is_static([e])]
    for size, (begin, end) in zip(node.inputs[0].shape if reads else (), reads, strict=True):
        for rest in (begin, size - end) if is_static([size]) else ():
            if not is_static([rest]) and not at_most(0, rest):
                wrong = [*(f"{c_text(extent)} > 0" for extent in extents), f"{c_text(rest)} < 0"]
                found.append((str(rest), " && ".join(wrong), rest))
    return found


def _unlike(node: RegionNode) -> list[tuple[str, str, Dim]]:
    """What has to be 0, and when it is not."""
    differences = operator_of(node.node.op).differences(node.node)
    return [(str(d), f"{c_text(d)} != 0", d) for d in differences if not is_static([d])]


def _room_to_pad(node: RegionNode) -> list[Dim]:
    """What a pad by the tensor's own elements leaves of each axis, below 0 where it is too short.

    A mirror image takes all but the border, a repeated border itself.
    """
    attrs = node.node.attrs
    if node.node.op != "pad" or attrs["mode"] == "constant":
        return []
    shape, pads = node.role("input").shape, attrs["pads"]
    widths = [max(pads[axis], pads[axis + len(shape)]) for axis in range(len(shape))]
    mirrored = attrs["mode"] == "reflect"
    return [
        extent - (width if mirrored else 0) - 1
        for extent, width in zip(shape, widths, strict=True)
        if width > 0 and not is_static([extent])
    ]


def _parts_of_windows(node: RegionNode) -> dict[Dim, str]:
    """What a pool's first window leaves of each axis, with the condition that it is too large.

    Where that is between -stride and 0, ONNX's formula rounds down to no window and ONNX Runtime
    cuts off to one, which sees a part of the image. At fixed sizes the importer refuses such pools.
    Of an image without elements both make nothing.
    """
    attrs = node.node.attrs
    if "pool_size" not in attrs or attrs["ceil_mode"]:
        return {}
    sides = zip(attrs["padding"][:2], attrs["padding"][2:], strict=True)
    windows = zip(attrs["pool_size"], attrs["dilation"], attrs["strides"], sides, strict=True)
    rest = {}
    for extent, (taps, gap, stride, pads) in zip(
        node.role("input").shape[2:], windows, strict=True
    ):
        left = extent + sum(pads) - (taps - 1) * gap - 1
        if stride > 1 and not is_static([extent]):
            part = f"{c_text(left)} < 0 && {c_text(left)} > -{stride}"
            rest[left] = f"{part} && {c_text(extent)} > 0"
    return rest


def _specs(plan: Plan) -> list[str]:
    names = [f"input {i} ({c_identifier(v.name)})" for i, v in enumerate(plan.region.inputs)]
    names += [f"output {i}" for i in range(len(plan.outputs))]
    values = [*plan.region.inputs, *plan.region.outputs]
    return [_spec(name, value) for name, value in zip(names, values, strict=True)]


def _spec(name: str, value: Value) -> str:
    shape = ", ".join(c_text(dim) for dim in value.shape) or "0"
    dtype = dtypes.of(value.dtype)
    kind = f'"{dtype.name}", {dtype.dl_code}, {dtype.bits}'
    return f'      {{"{name}", {kind}, {len(value.shape)}, {{{shape}}}}},'
