"""The C source of a standalone model: its region, its descriptors, and the functions of its header.

The region's body is the same text as in a library for TVM; another header gives meaning to what it
says when a kernel fails.
"""

from __future__ import annotations

from codegen_cc.emit.entry import preparation, prepared
from codegen_cc.emit.source import called_libraries, head, region_text
from codegen_cc.errors import CodegenError
from codegen_cc.link.opened_functions import c_string
from codegen_cc.plan.builder import Plan
from codegen_cc.standalone.interface import Interface, TensorSpec

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

byoc_status @NAME@_restore(@NAME@_model* model, const void* const* states) {
  return ext_model_restore((ext_instance*)model, states);
}
"""


def source_text(plan: Plan, interface: Interface) -> str:
    """The C source of a model whose region's symbol is the model's name."""
    name = interface.name
    assert plan.region.symbol == name, plan.region.symbol
    if plan.slots or plan.symbols():
        raise CodegenError(f"{name} has symbolic shapes; give every axis a size")
    libraries = called_libraries([plan])
    parts = head(f": {name}.h by calls of", [f"{name}.h", "ext_standalone.h"], libraries)
    parts += [text for found in libraries if (text := preparation(found))]
    parts += region_text(plan)
    parts.append(_run_function(plan, interface))
    parts.append(_descriptors(interface, "inputs", interface.inputs))
    parts.append(_descriptors(interface, "outputs", interface.outputs))
    parts.append(_descriptors(interface, "states", interface.states))
    parts.append(_in_place(plan, interface))
    parts.append(_spec(plan, interface))
    api = _API + (_STATES_API if interface.states else "")
    parts.append(api.replace("@NAME@", name))
    return "\n".join(parts)


def _run_function(plan: Plan, interface: Interface) -> str:
    name = interface.name
    place = {region: model for model, region in enumerate(interface.region_outputs)}
    given, results = len(interface.inputs), len(interface.outputs)
    arguments = [_element("inputs", "before", model, given) for model in interface.region_inputs]
    arguments += [
        _element("outputs", "after", place[region], results) for region in range(len(plan.outputs))
    ]
    lines = [
        f"static int {name}_run_body(const void* const* inputs, void* const* outputs,",
        "    const void* const* before, void* const* after, char* arena) {",
        "  (void)inputs, (void)before, (void)after;",
    ]
    for library in prepared(plan):
        lines += [
            f"  const int {library} = ext_prepare_{library}();",
            f"  if ({library} != 0) return {library};",
        ]
    lines += [f"  return {name}_body({', '.join([*arguments, 'arena'])});", "}", ""]
    return "\n".join(lines)


def _element(array: str, behind: str, index: int, count: int) -> str:
    """What is at an index of an array with ``count`` elements that another one follows."""
    return f"{array}[{index}]" if index < count else f"{behind}[{index - count}]"


def _descriptors(interface: Interface, what: str, specs: tuple[TensorSpec, ...]) -> str:
    symbol = f"{interface.name}_{what}"
    lines = [
        f"static const int64_t {symbol}_shape{index}[] = {{{', '.join(map(str, spec.shape))}}};"
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


def _in_place(plan: Plan, interface: Interface) -> str:
    """Which states the region writes where they lie."""
    first = len(interface.inputs)
    stored = {interface.region_inputs[rows.input] - first for rows in plan.in_place}
    flags = [str(int(state in stored)) for state in range(len(interface.states))]
    text = ", ".join(flags) or "0"
    return f"static const unsigned char {interface.name}_in_place[] = {{{text}}};\n"


def _spec(plan: Plan, interface: Interface) -> str:
    name = interface.name
    return "\n".join(
        [
            f"static const ext_model {name}_spec = {{",
            f'    .name = "{name}",',
            f"    .input_count = {len(interface.inputs)},",
            f"    .output_count = {len(interface.outputs)},",
            f"    .state_count = {len(interface.states)},",
            f"    .inputs = {name}_inputs_table,",
            f"    .outputs = {name}_outputs_table,",
            f"    .states = {name}_states_table,",
            f"    .in_place = {name}_in_place,",
            f"    .arena_bytes = {int(plan.arena_bytes)}u,",
            f"    .threads = {interface.threads},",
            f"    .run = {name}_run_body,",
            "};",
            "",
        ]
    )
