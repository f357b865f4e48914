"""Transposed convolutions of stride 1 are convolutions, with all that these have."""

from __future__ import annotations

from pathlib import Path

import pytest

import byoc
from tests.models.test_group_norm import Graph, check, compiled

FORMS = {
    "plain": {},
    "same": {"pads": [1, 1, 1, 1]},
    "cut": {"pads": [2, 0, 1, 2]},
    "groups": {"group": 2, "pads": [1, 1, 0, 0]},
    "holes": {"dilations": [2, 3]},
}


def is_transposed(done: byoc.Compiled) -> bool:
    """Whether the kernel for transposed convolutions is called."""
    (kernel,) = (use.algorithm for use in done.report.kernels if use.macs)
    return kernel == "conv2d_transpose"


@pytest.mark.parametrize("form", FORMS)
def test_stride_1(form: str, tmp_path: Path) -> None:
    g = Graph()
    attributes = FORMS[form]
    per_group = 6 // attributes.get("group", 1)
    weight = g.floats(4, per_group, 3, 3)
    y = g.call("Relu", g.call("ConvTranspose", "x", weight, g.floats(6), **attributes))
    done = compiled(g.model(y, [2, 4, 9, 8]), tmp_path)
    assert not is_transposed(done)
    check(g.model(y, [2, 4, 9, 8]), tmp_path, (2, 4, 9, 8), limit=5e-6)


def test_more_is_cut_off_than_taps_reach(tmp_path: Path) -> None:
    g = Graph()
    y = g.call("ConvTranspose", "x", g.floats(4, 6, 3, 3), pads=[3, 1, 0, 3])
    done = compiled(g.model(y, [1, 4, 9, 8]), tmp_path)
    assert is_transposed(done)
    check(g.model(y, [1, 4, 9, 8]), tmp_path, (1, 4, 9, 8), limit=5e-6)


def test_lines(tmp_path: Path) -> None:
    g = Graph()
    y = g.call("ConvTranspose", "x", g.floats(4, 6, 5), pads=[1, 2])
    done = compiled(g.model(y, [1, 4, "n"]), tmp_path)
    assert not is_transposed(done)
    check(g.model(y, [1, 4, "n"]), tmp_path, (1, 4, 30), (1, 4, 7), limit=5e-6)
