"""Steps with graphs inside."""

from __future__ import annotations

from onnx import helper

from tests.fuzz.draft import Draft
from tests.fuzz.steps import partner, require, source, step


@step(1, since=11)
def if_(draft: Draft, x: str) -> str:
    """If with a branch that reads values of the outer graph."""
    x = source(draft, x, ("float32",), range(0, 5))
    flag = draft.input((), "bool") if draft.chance(0.7) else draft.constant(draft.array((), "bool"))
    other = partner(draft, x)
    require(draft.shape(other) == draft.shape(x), "both branches give one shape")
    branches = {}
    for key, kind in (("then_branch", "Add"), ("else_branch", "Mul")):
        inner, result = draft.name("i"), draft.name("i")
        nodes = [
            helper.make_node(kind, [x, other], [inner]),
            helper.make_node(draft.pick(("Relu", "Tanh", "Neg")), [inner], [result]),
        ]
        info = [helper.make_tensor_value_info(result, 1, [None] * draft.rank(x))]
        branches[key] = helper.make_graph(nodes, key, [], info)
    return draft.op("If", [flag], **branches)
