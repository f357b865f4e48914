"""A library that keeps states, as one that is given them, and gives what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from byoc.deploy.input_tensors import as_array
from byoc.deploy.loader import Model
from byoc.deploy.metadata import Described


class Stateless(Described):
    """A model whose states are inputs and outputs behind the others, copied at each call."""

    def __init__(self, model: Model) -> None:
        self._model, told = model, model.metadata
        self.path = model.path
        self.metadata = replace(
            told,
            inputs=(*told.inputs, *(state.input for state in told.states)),
            outputs=(*told.outputs, *(replace(s.input, name=s.output) for s in told.states)),
        )

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Outputs by name, of inputs by name. Raises what ``Model.restore`` and ``run`` do."""
        states = self._model.metadata.states
        kept = {s.input.name: as_array(s.input, inputs[s.input.name]).copy() for s in states}
        given = {name: array for name, array in inputs.items() if name not in kept}
        if any(state.axis is not None for state in states):
            self._model.restore(kept)
            results, became = self._model.run(given), self._model.states
        else:
            results, became = self._model.run_on(kept, given)
        return results | {state.output: np.array(became[state.input.name]) for state in states}
