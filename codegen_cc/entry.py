"""Entry points: the packed function through which TVM calls a region.

It checks every argument, reads symbolic dimensions from the inputs' shapes, takes the arena from
the calling thread's workspace and runs the region's body.
"""

from __future__ import annotations

import re

import sympy

from codegen_cc.builder import Plan
from codegen_cc.dim import Dim, c_name, c_text, same, symbols
from codegen_cc.errors import CodegenError
from codegen_cc.memory import Slot
from codegen_cc.region import Value

#: DLPack's type code and bits of each dtype.
_DL_TYPES = {
    "float32": "kDLFloat, 32",
    "int32": "kDLInt, 32",
    "int64": "kDLInt, 64",
    "bool": "kDLBool, 8",
}


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


def entry(plan: Plan) -> str:
    """The exported packed function of a region."""
    symbol = plan.region.symbol
    count = len(plan.inputs) + len(plan.outputs)
    bindings = _bindings(plan)
    storage = "const" if bindings else "static const"
    lines = [
        f"TVM_FFI_DLL_EXPORT int __tvm_ffi_{symbol}(",
        "    void* self, const TVMFFIAny* args, int32_t n_args, TVMFFIAny* result) {",
        *bindings,
        f"  {storage} ext_tensor_spec specs[] = {{",
        *_specs(plan),
        "  };",
        f"  void* data[{count}];",
        "  (void)self;",
        "  (void)result;",
        f'  if (ext_check_call("{symbol}", args, n_args, specs, {count}, data) != 0) return -1;',
        *_run(plan, count),
    ]
    return "\n".join([*lines, "}", ""])


def _run(plan: Plan, count: int) -> list[str]:
    symbol = plan.region.symbol
    arguments = [f"data[{i}]" for i in range(count)] + [c_name(s) for s in plan.symbols()]
    if plan.slots is None and not plan.arena_bytes:
        return [f"  return {symbol}_body({', '.join([*arguments, 'NULL'])});"]
    total = str(plan.arena_bytes)
    if plan.slots is not None:
        total = " + ".join(slot_bytes(slot) for slot in plan.slots)
    return [
        f"  char* const arena = ext_workspace_alloc({total});",
        f'  if (arena == NULL) return ext_raise_status("{symbol}", "arena", EXT_ERR_MEMORY);',
        f"  const int status = {symbol}_body({', '.join([*arguments, 'arena'])});",
        "  ext_workspace_free(arena);",
        "  return status;",
    ]


def _bindings(plan: Plan) -> list[str]:
    """Variables for symbolic dimensions, each read from the first input that tells it."""
    lines = []
    for symbol in plan.symbols():
        for index, value in enumerate(plan.region.inputs):
            found = [(a, s) for a, d in enumerate(value.shape) if (s := _solve(d, symbol))]
            if found:
                axis, text = found[0]
                extent = f"ext_extent(args, n_args, {index}, {len(value.shape)}, {axis})"
                lines.append(f"  const int64_t {c_name(symbol)} = {text.format(extent)};")
                break
        else:
            raise CodegenError(
                f"region {plan.region.symbol}: dimension {symbol.name} is in no input's shape; "
                "give it a fixed size with --input-shapes"
            )
    return lines


def _solve(dim: Dim, symbol: sympy.Symbol) -> str | None:
    """How to get the symbol from the value of ``dim``, if dim is ``a * symbol + b``."""
    if isinstance(dim, int) or symbols([dim]) != [symbol]:
        return None
    try:
        slope, offset = sympy.Poly(dim, symbol).all_coeffs()
    except (ValueError, sympy.PolynomialError):
        return None
    if not (slope.is_Integer and offset.is_Integer):
        return None
    text = "{}" if same(int(offset), 0) else f"({{}} - {int(offset)})"
    return text if slope == 1 else f"{text} / {int(slope)}"


def _specs(plan: Plan) -> list[str]:
    names = [f"input {i} ({c_identifier(v.name)})" for i, v in enumerate(plan.region.inputs)]
    names += [f"output {i}" for i in range(len(plan.outputs))]
    values = [*plan.region.inputs, *plan.region.outputs]
    return [_spec(name, value) for name, value in zip(names, values, strict=True)]


def _spec(name: str, value: Value) -> str:
    shape = ", ".join(c_text(dim) for dim in value.shape) or "0"
    kind = _DL_TYPES[value.dtype]
    return f'      {{"{name}", "{value.dtype}", {kind}, {len(value.shape)}, {{{shape}}}}},'
