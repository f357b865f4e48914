"""Steps with graphs inside."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, helper

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


def _body(draft: Draft, carried: str, outer: str, head: list[str], scanned: bool) -> GraphProto:
    """A round: the carried value from itself and a value of the outer graph, perhaps a result."""
    state, mixed, after, flag = (draft.name("i") for _ in range(4))
    rank = [None] * draft.rank(carried)
    nodes = [
        helper.make_node(draft.pick(("Add", "Mul", "Max")), [state, outer], [mixed]),
        helper.make_node(draft.pick(("Tanh", "Sigmoid", "Softsign")), [mixed], [after]),
    ]
    inputs = [helper.make_tensor_value_info(state, 1, rank)]
    outputs = [helper.make_tensor_value_info(after, 1, rank)]
    if head:
        count, goes_on = head
        inputs = [
            helper.make_tensor_value_info(count, 7, []),
            helper.make_tensor_value_info(goes_on, 9, []),
            *inputs,
        ]
        nodes.append(helper.make_node("Identity", [goes_on], [flag]))
        outputs.insert(0, helper.make_tensor_value_info(flag, 9, []))
    if scanned:
        outputs.append(helper.make_tensor_value_info(mixed, 1, rank))
    return helper.make_graph(nodes, "body", inputs, outputs)


@step(1, since=11)
def loop(draft: Draft, x: str) -> str:
    """Loop of a number of rounds that is known, or fed; its result is carried or scanned."""
    x = source(draft, x, ("float32",), range(1, 4))
    other = partner(draft, x)
    require(draft.shape(other) == draft.shape(x), "the carried value keeps its shape")
    rounds = np.array(draft.between(0 if draft.chance(0.1) else 1, 6), "int64")
    count = draft.constant(rounds, fixed=draft.chance(0.7))
    scanned = draft.chance(0.4)
    body = _body(draft, x, other, [draft.name("i"), draft.name("i")], scanned)
    flag = draft.constant(np.array(True)) if draft.chance(0.5) else ""
    results = draft.op("Loop", [count, flag, x], outputs=1 + scanned, body=body)
    return str(draft.pick(results)) if scanned else str(results)


@step(1, since=11)
def scan(draft: Draft, x: str) -> str:
    """Scan along the first axis: a running value, and what it was at each round."""
    x = source(draft, x, ("float32",), range(2, 4))
    require(0 not in draft.shape(x), "nothing to scan")
    shape = draft.shape(x)[1:]
    require(all(draft.is_fixed(x, axis) for axis in range(1, draft.rank(x))), "symbolic rows")
    state, item, after, out = (draft.name("i") for _ in range(4))
    rows = [None] * len(shape)
    body = helper.make_graph(
        [
            helper.make_node(draft.pick(("Add", "Sub", "Min")), [state, item], [out]),
            helper.make_node("Tanh", [out], [after]),
        ],
        "body",
        [helper.make_tensor_value_info(name, 1, rows) for name in (state, item)],
        [helper.make_tensor_value_info(name, 1, rows) for name in (after, out)],
    )
    results = draft.op(
        "Scan",
        [draft.weight(shape), x],
        outputs=2,
        body=body,
        num_scan_inputs=1,
        scan_input_directions=draft.pick((None, [1])),
        scan_output_directions=draft.pick((None, [1])),
    )
    return str(draft.pick(results))
