"""Graphs by a generator of our own: random steps, one after another.

A seed says everything: opset, whether there are symbolic axes, and the steps.
"""

from __future__ import annotations

import numpy as np

# Imported for the steps that they list.
from tests.fuzz import contrib, control, elementwise, images, movement, recurrent, rows, sums  # noqa: F401
from tests.fuzz.draft import Draft, Drawn, Unusable
from tests.fuzz.evaluate import Unrunnable, expected, survives
from tests.fuzz.steps import STEPS, draw_shape

#: The opsets of groups of seeds, in turns.
OPSETS = (17, 13, 18, 11, 7, 20, 17, 14, 9, 18, 22, 13, 10, 16, 21, 12, 17, 8, 19, 23, 15, 24)

#: Neighbouring seeds have one opset: their graphs can be parts of one model.
GRAPHS_PER_OPSET = 5

#: Share of the graphs that have symbolic axes.
SYMBOLIC = 0.3

#: Sizes of symbols: those that a graph is built with, in every world different ones, and those at
#: which the library runs as well.
WORLDS = ({"n": 3, "m": 5}, {"n": 6, "m": 2})
FURTHER_WORLDS = ({"n": 1, "m": 1}, {"n": 0, "m": 4}, {"n": 2, "m": 0}, {"n": 9, "m": 3})

MOST_STEPS = 7
MOST_ATTEMPTS = 40


def draw(seed: int, special: bool = False) -> Drawn:
    """The graph of a seed; with ``special`` values NaN, infinities, huge and tiny numbers."""
    opset = OPSETS[seed // GRAPHS_PER_OPSET % len(OPSETS)]
    for attempt in range(100):  # a seed whose steps all fail draws again
        rng = np.random.default_rng((seed, attempt))
        worlds = WORLDS if rng.random() < SYMBOLIC else ({},)
        draft = Draft(int(rng.integers(2**31)), opset, worlds, special)
        try:
            _walk(draft)
            return _with_further_worlds(draft)
        except Unusable:
            continue
    raise RuntimeError(f"seed {seed} gives no graph")


def _walk(draft: Draft) -> None:
    rank = draft.pick((0, 1, 2, 2, 3, 3, 4, 4, 4, 4, 5, 6))
    newest = draft.input(draw_shape(draft, rank))
    listed = [step for step in STEPS if step.since <= draft.opset]
    weights = np.array([step.weight for step in listed])
    wanted, done = draft.between(1, MOST_STEPS), 0
    for _ in range(MOST_ATTEMPTS):
        chosen = listed[int(draft.rng.choice(len(listed), p=weights / weights.sum()))]
        others = list(draft.values)
        origin = newest if draft.chance(0.7) else draft.pick(others)
        try:
            newest = chosen.run(draft, origin)
        except Unusable:
            continue
        done += 1
        if done == wanted:
            break
    if not done:
        raise Unusable("no step fits")


def _with_further_worlds(draft: Draft) -> Drawn:
    drawn = draft.finish()
    if not drawn.shapes:
        drawn.feeds = drawn.feeds[:1]
        return drawn
    for world in FURTHER_WORLDS:
        feeds = {
            name: draft.array([world.get(e, e) for e in shape], draft.dtype(name))
            if any(isinstance(e, str) for e in shape)
            else draft.values[name][0]
            for name, shape in draft.inputs.items()
            if name in drawn.feeds[0]
        }
        if 0 in world.values() and any(node.domain for node in drawn.model.graph.node):
            continue  # no inference of shapes is there to say who is right
        if 0 in world.values() and not survives(drawn.model, feeds):
            continue
        try:
            expected(drawn.model, feeds)
        except Unrunnable:
            continue  # not defined at these sizes
        drawn.feeds.append(feeds)
    return drawn
