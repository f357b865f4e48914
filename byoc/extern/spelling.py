"""How names of a C prototype are spelled in generated Python."""

from __future__ import annotations

import builtins
import keyword

#: Names that generated modules use themselves.
_TAKEN = {
    *("te", "tirx", "relax", "tvm", "np", "pytest", "Path", "Sequence", "Sizes", "LIBRARY"),
    *("NAME", "infer", "load", "sizes", "scalars", "shapes", "ins", "outs", "call", "module"),
    *("replace", "embed", "supports", "reference", "result", "results", "shape_of", "byoc"),
}


def python_name(name: str) -> str:
    """The name itself, or with an underscore where Python or a generated module has it already."""
    taken = name in _TAKEN or keyword.iskeyword(name) or hasattr(builtins, name)
    return f"{name}_" if taken else name
