"""C of a standalone model whose axes have sizes that are chosen at run time.

A function tells by these sizes, and by the rows that states have, how large all tensors and the
arena are; a table names the axes.
"""

from __future__ import annotations

from collections.abc import Collection

import sympy

from codegen_cc.dim import c_name, c_text, symbols
from codegen_cc.emit.entry import arena_parts, check_extents
from codegen_cc.errors import CodegenError
from codegen_cc.link.opened_functions import c_string
from codegen_cc.plan.builder import Plan
from codegen_cc.standalone.interface import Interface

API = """\

const byoc_axis* @NAME@_axes(int32_t* count) {
  if (count != NULL) *count = @NAME@_spec.axis_count;
  return @NAME@_spec.axes;
}

byoc_status @NAME@_resize(@NAME@_model* model, const int64_t* sizes) {
  return ext_model_resize((ext_instance*)model, sizes);
}

const byoc_tensor* @NAME@_inputs_of(const @NAME@_model* model, int32_t* count) {
  return ext_model_inputs((const ext_instance*)model, count);
}

const byoc_tensor* @NAME@_outputs_of(const @NAME@_model* model, int32_t* count) {
  return ext_model_outputs((const ext_instance*)model, count);
}
"""

STATES_API = """\

const byoc_tensor* @NAME@_states_of(const @NAME@_model* model, int32_t* count) {
  return ext_model_states((const ext_instance*)model, count);
}
"""

ROWS_API = """\

int64_t @NAME@_rows(const @NAME@_model* model) {
  return ext_model_rows((const ext_instance*)model);
}
"""


def require_sizes(plan: Plan, interface: Interface) -> None:
    """Raise ``CodegenError`` where nobody tells a size that the region or a tensor has."""
    inner = [found for found in plan.symbols() if found not in interface.sizes]
    if unknown := [*interface.unknown, *inner]:
        raise CodegenError(
            f"{interface.name}: no input has {unknown[0]} as an axis, so that nobody could say how "
            "large it is; give --input-shapes numbers"
        )


def read_sizes(used: Collection[sympy.Symbol], interface: Interface) -> list[str]:
    """C variables of these symbols, from the array ``sizes``."""
    return [
        f"  const int64_t {c_name(found)} = sizes[{place}];"
        for place, found in enumerate(interface.sizes)
        if found in used
    ]


def measure_function(plan: Plan, interface: Interface) -> str:
    """The function that tells what a run needs, or why sizes do not fit; empty without axes."""
    if interface.is_fixed:
        return ""
    name, rows = interface.name, interface.rows
    step = 0 if rows is None else rows.step
    extents = [dim for spec in interface.tensors for dim in spec.shape]
    used = {*symbols([*extents, step]), *plan.symbols()}
    lines = [
        "/* What a run needs with these sizes of the axes"
        + (", behind which come the rows of the states. */" if rows is not None else ". */"),
        f"static int {name}_measure(const int64_t* sizes, ext_needs* needs) {{",
        *read_sizes(used, interface),
        *check_extents(plan),
        "  const int64_t extents[] = {",
    ]
    lines += [
        f"      {', '.join(map(c_text, spec.shape))}," for spec in interface.tensors if spec.shape
    ]
    lines += [
        "  };",
        "  memcpy(needs->extents, extents, sizeof extents);",
        f"  needs->step = {c_text(step)};",
        "  needs->arena_bytes =\n      " + " +\n      ".join(arena_parts(plan)) + ";",
        "  return 0;",
        "}",
        "",
    ]
    return "\n".join(lines)


def axes_table(interface: Interface) -> str:
    """The names of the axes, and what their sizes may be."""
    rows = [
        f"    {{{c_string(axis.symbol.name)}, {axis.least}, {axis.most}}},"
        for axis in interface.axes
    ]
    rows = rows or ["    {NULL, 0, 0},"]
    return "\n".join(
        [f"static const byoc_axis {interface.name}_axis_table[] = {{", *rows, "};", ""]
    )
