"""Operators that a C function can stand for (``op=...``): the ones of the node vocabulary.

Any other Relax operator is named in full, ``op=relax.nn.relu``: its tensor arguments are the inputs
in their order, its attributes those of the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class OperatorAttribute:
    """An attribute: its number of entries (None: one number), its least value.

    ``neutral`` is the value that a function assumes that is not told; None where there is none.
    Tests draw from ``choices``.
    """

    name: str
    count: int | None
    least: int
    neutral: int | None
    choices: tuple[int, ...]


@dataclass(frozen=True)
class Operator:
    """An operator of ``codegen_cc.node`` and its Relax name.

    ``layouts`` has the axes of each tensor by role, ``output`` included, where a function may have
    them in another order.  ``extents`` are shapes in the words of ``byoc.library``'s arguments,
    ``told`` what these call the entries of attributes.  ``byoc.extern.references`` has a NumPy
    function of the same name.
    """

    name: str
    relax: str
    roles: tuple[str, ...]
    attributes: tuple[OperatorAttribute, ...] = ()
    layouts: Mapping[str, str] = field(default_factory=dict)
    extents: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    told: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def attribute(self, name: str) -> OperatorAttribute | None:
        """The attribute of that name, or None."""
        return next((item for item in self.attributes if item.name == name), None)


OPERATORS = {
    operator.name: operator
    for operator in (
        Operator(
            "matmul",
            "relax.matmul",
            ("lhs", "rhs"),
            extents={
                # A plain matrix on the right has rows of every leading axis on its left.
                "lhs": (("m", "k"), ("*batch", "m", "k")),
                "rhs": (("k", "n"), ("*batch", "k", "n")),
                "output": (("m", "n"), ("*batch", "m", "n")),
            },
        ),
        Operator(
            "conv2d",
            "relax.nn.conv2d",
            ("input", "weight"),
            (
                OperatorAttribute("strides", 2, 1, 1, (1, 2)),
                OperatorAttribute("padding", 4, 0, 0, (0, 1, 2)),
                OperatorAttribute("dilation", 2, 1, 1, (1, 2)),
                OperatorAttribute("groups", None, 1, 1, (1, 2)),
            ),
            layouts={"input": "NCHW", "weight": "OIHW", "output": "NCHW"},
            extents={
                "input": (("batch", "in_c", "in_h", "in_w"),),
                "weight": (("out_c", "weight.1", "kernel_h", "kernel_w"),),
                "output": (("batch", "out_c", "out_h", "out_w"),),
            },
            told={
                "strides": ("stride_h", "stride_w"),
                "padding": ("pad_top", "pad_left", "pad_bottom", "pad_right"),
                "dilation": ("dilation_h", "dilation_w"),
                "groups": ("groups",),
            },
        ),
        Operator(
            "concat",
            "relax.concat",
            ("input0", "input1"),
            (OperatorAttribute("axis", None, 0, None, ()),),
        ),
        Operator(
            "softmax",
            "relax.nn.softmax",
            ("input",),
            (OperatorAttribute("axis", None, 0, None, ()),),
            extents={
                "input": (("*outer", "reduce", "*inner"),),
                "output": (("*outer", "reduce", "*inner"),),
            },
            told={"axis": ("attr.axis",)},
        ),
    )
}
