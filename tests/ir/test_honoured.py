"""Every attribute of ONNX's operators is read by a converter, has no effect, or is refused.

The converters' source is searched for the attributes' names, with the classes and functions that it
mentions. What is found nowhere must be in the list below, and is refused when a node has it with
another value than the default.
"""

from __future__ import annotations

import ast
import inspect
import sys
from types import ModuleType

import onnx
from onnx import defs
from tvm.relax.frontend.onnx import onnx_frontend

from byoc.frontends.onnx import honoured, resize, symbolic_resize
from byoc.frontends.onnx.converters import CONVERTERS, old_broadcast
from byoc.frontends.onnx.honoured import (
    ATTRIBUTES_WITH_EFFECT_IF,
    ATTRIBUTES_WITHOUT_EFFECT,
    attribute_counts,
    default_of,
    input_counts,
    schema_of,
)
from byoc.frontends.onnx.quantised_operators import OF_ONNX, QUANTISED

#: Attributes of any opset, of operators with a converter, that no converter reads.
REFUSED = {
    "Attention": {
        "is_causal",
        "kv_num_heads",
        "left_window_size",
        "q_num_heads",
        "qk_matmul_output_mode",
        "right_window_size",
        "softcap",
        "softmax_precision",
    },
    "BatchNormalization": {"spatial"},
    "Cast": {"round_mode", "saturate"},
    "CastLike": {"round_mode", "saturate"},
    "Constant": {
        "sparse_value",
        "value_float",
        "value_floats",
        "value_int",
        "value_ints",
        "value_string",
        "value_strings",
    },
    "LayerNormalization": {"stash_type"},
    "Pad": {"paddings"},
    "Range": {"stash_type"},
    "Reshape": {"shape"},
    "SequenceEmpty": {"dtype"},
    "SpaceToDepth": {"mode"},
    "Upsample": {"height_scale", "width_scale"},
}


def strings(node: ast.AST) -> set[str]:
    return {
        leaf.value
        for leaf in ast.walk(node)
        if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)
    }


def parsed(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def read_by_tvm() -> dict[str, set[str]]:
    """The strings in the source of each operator's converter, and in all that it mentions."""
    defined = {
        node.name: node
        for node in parsed(onnx_frontend).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    found = {}
    for operator, converter in onnx_frontend._get_convert_map().items():
        todo = [cls.__name__ for cls in converter.__mro__]
        seen: set[str] = set()
        found[operator] = set()
        while todo:
            name = todo.pop()
            if name not in defined or name in seen:
                continue
            seen.add(name)
            found[operator] |= strings(defined[name])
            mentioned = (leaf for leaf in ast.walk(defined[name]) if isinstance(leaf, ast.Name))
            todo += [leaf.id for leaf in mentioned]
    return found


def test_attributes_that_no_converter_reads() -> None:
    read = read_by_tvm()
    for operator, converter in CONVERTERS.items():
        modules = [sys.modules[converter.__module__]]
        modules += [resize, symbolic_resize] if operator in ("Resize", "Upsample") else []
        own = (strings(parsed(module)) for module in modules)
        read[operator] = read.get(operator, set()).union(*own)
    for operator in (*OF_ONNX, "ConvInteger"):  # converted as the operator on floats
        read[operator] |= read[QUANTISED[operator].operator]
    for operator in old_broadcast.OPERATORS:
        read[operator] |= strings(parsed(old_broadcast))
    harmless = {
        operator: {*ATTRIBUTES_WITHOUT_EFFECT["*"], *ATTRIBUTES_WITHOUT_EFFECT.get(operator, ())}
        for operator in read
    }
    unread: dict[str, set[str]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.name in read:
            names = set(schema.attributes) - read[schema.name] - harmless[schema.name]
            unread.setdefault(schema.name, set()).update(names)
    assert {operator: names for operator, names in unread.items() if names} == REFUSED


def test_unread_attributes_are_refused_unless_they_have_their_default() -> None:
    checked = 0
    for schema in defs.get_all_schemas_with_history():
        for name in REFUSED.get(schema.name, ()) if schema.domain == "" else ():
            if name in schema.attributes:
                assert attribute_counts(schema.name, name, {name: object()}, schema)
                default = default_of(schema, schema.name, name)
                assert default is None or not attribute_counts(
                    schema.name, name, {name: default}, schema
                )
                checked += 1
    assert checked > 50


def test_tables_name_attributes_and_inputs_of_the_schemas() -> None:
    history: dict[str, list[defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        history.setdefault(schema.name, []).append(schema)
    attributes = {
        **{op: set(names) for op, names in ATTRIBUTES_WITHOUT_EFFECT.items() if op != "*"},
    }
    for operator, conditions in ATTRIBUTES_WITH_EFFECT_IF.items():
        others = {other for other, _ in conditions.values()}
        attributes.setdefault(operator, set()).update(conditions, others)
    for operator, names in attributes.items():
        known = set().union(*(schema.attributes for schema in history[operator]))
        assert names <= known, operator
    for table in (
        honoured.INPUTS_WITHOUT_EFFECT,
        honoured.INPUTS_WITH_EFFECT_IF,
        honoured.INPUTS_WITHOUT_EFFECT_AS,
    ):
        for operator, places in table.items():
            assert max(places) < max(len(schema.inputs) for schema in history[operator])


def test_conditions() -> None:
    """The region of interest counts for one coordinate transformation alone."""
    schema = schema_of("Resize", 19)
    crop = {"coordinate_transformation_mode": b"tf_crop_and_resize"}
    assert input_counts("Resize", 1, None, crop, schema)
    assert not input_counts("Resize", 1, None, {}, schema)
    exclude = {"exclude_outside": 1}
    assert attribute_counts("Resize", "exclude_outside", {**exclude, "mode": b"cubic"}, schema)
    assert not attribute_counts("Resize", "exclude_outside", exclude, schema)
    assert schema_of("Resize", 19, "mine") is None
    assert onnx.defs.has("Resize")
