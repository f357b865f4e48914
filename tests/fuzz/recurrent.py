"""Recurrent layers in all their forms."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draft import Draft
from tests.fuzz.steps import require, source, step

#: Gates of an operator, and functions of a direction.
LAYERS = {"LSTM": (4, 3), "GRU": (3, 2), "RNN": (1, 1)}
FUNCTIONS = ("Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign", "Softplus", "Elu")


def _states(draft: Draft, x: str, operator: str, directions: int, units: int) -> list[str]:
    """Optional operands after the bias: lengths of the sequences, states, peepholes."""
    steps, batch = draft.shape(x)[:2]
    fixed = draft.is_fixed(x, 1)
    operands = [""] * 4
    if fixed and draft.is_fixed(x, 0) and steps and draft.chance(0.3):
        operands[0] = draft.constant(draft.rng.integers(1, steps + 1, batch), "int32", fixed=False)
    if fixed and draft.chance(0.5):
        operands[1] = draft.weight((directions, batch, units))
    if operator == "LSTM":
        if fixed and draft.chance(0.5):
            operands[2] = draft.weight((directions, batch, units))
        if draft.chance(0.2):
            operands[3] = draft.weight((directions, 3 * units), 0.5)
    while operands and not operands[-1]:
        operands.pop()
    return operands


@step(4)
def recurrent(draft: Draft, x: str) -> str:
    """One layer; its results are all steps, or the last states."""
    operator = draft.pick(tuple(LAYERS))
    gates, functions = LAYERS[operator]
    x = source(draft, x, ("float32",), (3,))
    width = draft.shape(x)[2]
    require(draft.is_fixed(x, 2) and 0 not in draft.shape(x), "symbolic or empty width")
    units = draft.pick((1, 2, 3, 5, 8, 16, 17))
    direction = draft.pick((None, "forward", "reverse", "bidirectional"))
    directions = 2 if direction == "bidirectional" else 1
    scale = 1 / max(1, width, units) ** 0.5
    operands = [
        x,
        draft.weight((directions, gates * units, width), scale),
        draft.weight((directions, gates * units, units), scale),
        draft.weight((directions, 2 * gates * units)) if draft.chance(0.7) else "",
        *_states(draft, x, operator, directions, units),
    ]
    attributes: dict[str, object] = {"hidden_size": units, "direction": direction}
    if draft.chance(0.2):
        attributes["activations"] = [
            draft.pick(FUNCTIONS) for _ in range(functions) for _ in range(directions)
        ]
    if draft.chance(0.15):
        attributes["clip"] = float(draft.pick((0.5, 1.0, 3.0)))
    if operator == "GRU":
        attributes["linear_before_reset"] = draft.pick((None, 0, 1, 1))
    if not draft.is_fixed(x, 0):  # ONNX Runtime leaves the last states of no step unset
        return _joined(draft, draft.op(operator, operands, **attributes), directions * units)
    results = draft.op(operator, operands, outputs=3 if operator == "LSTM" else 2, **attributes)
    if draft.chance(0.3):
        return str(draft.pick(results[1:]))
    return _joined(draft, results[0], directions * units)


def _joined(draft: Draft, y: str, width: int) -> str:
    """[steps, directions, batch, units] as [steps, batch, directions * units], as exporters do."""
    if draft.chance(0.3):
        return y
    if draft.shape(y)[1] == 1 and draft.chance(0.7):
        inputs = [draft.constant(np.array([1], "int64"))] if draft.opset >= 13 else []
        return str(draft.op("Squeeze", [y, *inputs], axes=None if inputs else [1]))
    y = draft.op("Transpose", [y], perm=[0, 2, 1, 3])
    return str(draft.op("Reshape", [y, draft.constant(np.array([0, 0, width], "int64"))]))
