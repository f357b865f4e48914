"""Graphs that once failed, minimised: ``regressions.jsonl``, one a line.

A line has a title (source, seed and what was wrong), the model, the shapes with symbols and the
inputs of each run; CI compiles and runs every one.
"""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
import onnx

from tests.fuzz.draft import Drawn

FILE = Path(__file__).with_name("regressions.jsonl")


def keep(title: str, graph: Drawn) -> None:
    """Add a graph."""
    line = {
        "title": title,
        "model": base64.b64encode(graph.model.SerializeToString()).decode(),
        "shapes": graph.shapes,
        "special": graph.special,
        "feeds": [_packed(feeds) for feeds in graph.feeds],
    }
    with FILE.open("a") as file:
        file.write(json.dumps(line) + "\n")


def read() -> list[tuple[str, Drawn]]:
    """Every graph with its title."""
    found = []
    for text in FILE.read_text().splitlines() if FILE.exists() else ():
        line = json.loads(text)
        model = onnx.ModelProto.FromString(base64.b64decode(line["model"]))
        feeds = [dict(np.load(io.BytesIO(base64.b64decode(f)))) for f in line["feeds"]]
        found.append((line["title"], Drawn(model, feeds, line["shapes"], line["special"])))
    return found


def _packed(feeds: dict[str, np.ndarray]) -> str:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **feeds)
    return base64.b64encode(buffer.getvalue()).decode()
