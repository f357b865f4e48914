"""The C source of a standalone model: its region, its descriptors, and the functions of its header.

The region's body is the same text as in a library for TVM; another header gives meaning to what it
says when a kernel fails.
"""

from __future__ import annotations

from codegen_cc.dim import Dim, c_name, is_static
from codegen_cc.emit.entry import preparation, prepared
from codegen_cc.emit.source import called_libraries, head, region_text
from codegen_cc.link.opened_functions import c_string
from codegen_cc.plan.builder import Plan
from codegen_cc.standalone import sizes
from codegen_cc.standalone.interface import Interface, TensorSpec
from codegen_cc.standalone.sizes import axes_table, measure_function, read_sizes, require_sizes

_API = """\
/* The functions of @NAME@.h. */
const byoc_tensor* @NAME@_inputs(int32_t* count) {
  if (count != NULL) *count = @NAME@_spec.input_count;
  return @NAME@_spec.inputs;
}

const byoc_tensor* @NAME@_outputs(int32_t* count) {
  if (count != NULL) *count = @NAME@_spec.output_count;
  return @NAME@_spec.outputs;
}

byoc_status @NAME@_create(const byoc_options* options, @NAME@_model** model) {
  ext_instance* made = NULL;
  const byoc_status status = ext_model_create(&@NAME@_spec, options, model ? &made : NULL);
  if (model != NULL) *model = (@NAME@_model*)made;
  return status;
}

byoc_status @NAME@_run(@NAME@_model* model, const void* const* inputs, void* const* outputs) {
  return ext_model_run((ext_instance*)model, inputs, outputs);
}

const char* @NAME@_error(const @NAME@_model* model) {
  return ext_model_error((const ext_instance*)model);
}

const char* @NAME@_status_text(byoc_status status) {
  return ext_model_status_text(status);
}

void @NAME@_destroy(@NAME@_model* model) {
  ext_model_destroy((ext_instance*)model);
}
"""

_STATES_API = """\

const byoc_tensor* @NAME@_states(int32_t* count) {
  if (count != NULL) *count = @NAME@_spec.state_count;
  return @NAME@_spec.states;
}

byoc_status @NAME@_reset(@NAME@_model* model) {
  return ext_model_reset((ext_instance*)model);
}

byoc_status @NAME@_clone(@NAME@_model* model, @NAME@_model** made) {
  ext_instance* copy = NULL;
  const byoc_status status = ext_model_clone((ext_instance*)model, made ? &copy : NULL);
  if (made != NULL) *made = (@NAME@_model*)copy;
  return status;
}

byoc_status @NAME@_save(@NAME@_model* model, void* const* states) {
  return ext_model_save((ext_instance*)model, states);
}

byoc_status @NAME@_restore(@NAME@_model* model, const void* const* states@ROWS_PARAMETER@) {
  return ext_model_restore((ext_instance*)model, states, @ROWS@);
}
"""


def source_text(plan: Plan, interface: Interface) -> str:
    """The C source of a model whose region's symbol is the model's name."""
    name = interface.name
    assert plan.region.symbol == name, plan.region.symbol
    require_sizes(plan, interface)
    libraries = called_libraries([plan])
    parts = head(f": {name}.h by calls of", [f"{name}.h", "ext_standalone.h"], libraries)
    parts += [text for found in libraries if (text := preparation(found))]
    parts += region_text(plan)
    parts.append(_run_function(plan, interface))
    parts.append(_descriptors(interface, "inputs", interface.inputs))
    parts.append(_descriptors(interface, "outputs", interface.outputs))
    parts.append(_descriptors(interface, "states", interface.states))
    parts.append(_state_kinds(plan, interface))
    parts.append(axes_table(interface))
    parts.append(measure_function(plan, interface))
    parts.append(_spec(plan, interface))
    parts.append(_api(interface))
    return "\n".join(part for part in parts if part)


def _api(interface: Interface) -> str:
    sized, rows = not interface.is_fixed, interface.rows is not None
    api = _API + (_STATES_API if interface.states else "") + (sizes.API if sized else "")
    api += sizes.STATES_API if interface.states and sized else ""
    api += sizes.ROWS_API if rows else ""
    return (
        api.replace("@ROWS_PARAMETER@", ", int64_t rows" if rows else "")
        .replace("@ROWS@", "rows" if rows else "0")
        .replace("@NAME@", interface.name)
    )


def _run_function(plan: Plan, interface: Interface) -> str:
    name = interface.name
    place = {region: model for model, region in enumerate(interface.region_outputs)}
    given, results = len(interface.inputs), len(interface.outputs)
    growing = interface.growing
    replaced = [state for state in range(len(interface.states)) if state not in growing]
    arguments = [
        f"inputs[{model}]"
        if model < given
        else f"after[{model - given}]"  # rows are written behind those that are there
        if model - given in growing
        else f"before[{model - given}]"
        for model in interface.region_inputs
    ]
    for region in range(len(plan.outputs)):
        model = place[region]
        arguments.append(
            f"outputs[{model}]" if model < results else f"after[{replaced[model - results]}]"
        )
    arguments += [c_name(found) for found in plan.symbols()]
    lines = [
        f"static int {name}_run_body(const void* const* inputs, void* const* outputs,",
        "    const void* const* before, void* const* after, const int64_t* sizes, char* arena) {",
        "  (void)inputs, (void)before, (void)after, (void)sizes;",
        *read_sizes(plan.symbols(), interface),
    ]
    for library in prepared(plan):
        lines += [
            f"  const int {library} = ext_prepare_{library}();",
            f"  if ({library} != 0) return {library};",
        ]
    lines += [f"  return {name}_body({', '.join([*arguments, 'arena'])});", "}", ""]
    return "\n".join(lines)


def _descriptors(interface: Interface, what: str, specs: tuple[TensorSpec, ...]) -> str:
    symbol = f"{interface.name}_{what}"
    lines = [
        f"static const int64_t {symbol}_shape{index}[] = {{{', '.join(map(_extent, spec.shape))}}};"
        for index, spec in enumerate(specs)
        if spec.shape
    ]
    lines.append(f"static const byoc_tensor {symbol}_table[] = {{")
    for index, spec in enumerate(specs):
        shape = f"{symbol}_shape{index}" if spec.shape else "NULL"
        lines.append(
            f"    {{{c_string(spec.name)}, BYOC_{spec.dtype.upper()}, {len(spec.shape)}, {shape}, "
            f"{spec.nbytes}u, {spec.alignment}}},"
        )
    if not specs:
        lines.append("    {NULL, BYOC_FLOAT32, 0, NULL, 0, 1},")
    return "\n".join([*lines, "};", ""])


def _extent(dim: Dim) -> str:
    return str(dim) if is_static([dim]) else "-1"


def _state_kinds(plan: Plan, interface: Interface) -> str:
    """What a run does with each state."""
    first = len(interface.inputs)
    stored = {interface.region_inputs[rows.input] - first for rows in plan.in_place}
    growing = interface.growing
    kinds = [
        "EXT_STATE_GROWS"
        if state in growing
        else "EXT_STATE_IN_PLACE"
        if state in stored
        else "EXT_STATE_REPLACED"
        for state in range(len(interface.states))
    ]
    text = ", ".join(kinds) or "0"
    return f"static const unsigned char {interface.name}_state_kind[] = {{{text}}};\n"


def _spec(plan: Plan, interface: Interface) -> str:
    name = interface.name
    return "\n".join(
        [
            f"static const ext_model {name}_spec = {{",
            f'    .name = "{name}",',
            f"    .input_count = {len(interface.inputs)},",
            f"    .output_count = {len(interface.outputs)},",
            f"    .state_count = {len(interface.states)},",
            f"    .axis_count = {len(interface.axes)},",
            f"    .inputs = {name}_inputs_table,",
            f"    .outputs = {name}_outputs_table,",
            f"    .states = {name}_states_table,",
            f"    .state_kind = {name}_state_kind,",
            f"    .axes = {name}_axis_table,",
            f"    .most_rows = {0 if interface.rows is None else interface.rows.axis.most},",
            f"    .arena_bytes = {int(plan.arena_bytes) if interface.is_fixed else 0}u,",
            f"    .threads = {interface.threads},",
            f"    .measure = {'NULL' if interface.is_fixed else f'{name}_measure'},",
            f"    .run = {name}_run_body,",
            "};",
            "",
        ]
    )
