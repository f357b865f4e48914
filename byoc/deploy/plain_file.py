"""Libraries of TVM that hold no metadata of ours: what can be read of their signature.

TVM's compiler stores, for each parameter of ``main``, the text of the error that a wrong argument
raises, with the parameter's name and type. So inputs are known without loading the library; of the
outputs nothing is, until they are there.
"""

from __future__ import annotations

import mmap
import re
from pathlib import Path

from byoc.deploy.metadata import Metadata, TensorInfo
from byoc.errors import LoadError
from codegen_cc.link.embedded_text import METADATA_SECTION

_PARAMETER = re.compile(
    rb"ErrorContext\(fn=main, loc=param\[(\d{1,4})\], param=([^\0]{1,512}?), "
    rb"annotation=([^\0]{1,2048}?)\) "
)
_TENSOR = re.compile(r'R\.Tensor\(\(([^()]*)\), dtype="(\w+)"\)')
#: The kind of module that every library for TVM's virtual machine holds.
_EXECUTABLE = b"relax.VMExecutable"
#: The symbol of the function that returns the metadata of a library that has them.
_DESCRIBED = b"__tvm_ffi_" + METADATA_SECTION.encode()
_REMEDY = "attach names with byoc.describe before tvm.compile, or use byoc.compile"


def plain_metadata(path: Path) -> Metadata:
    """Inputs of the function ``main`` of a library that TVM exported; ``outputs`` is empty.

    Raises ``LoadError`` where it is no such library, or a parameter is no tensor of known rank.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(_EXECUTABLE) < 0:
            raise LoadError(
                f"cannot load {path}: it is no library of TVM's virtual machine; {_REMEDY}"
            )
        if content.find(_DESCRIBED) >= 0:
            raise LoadError(f"cannot load {path}: its metadata are damaged; compile it again")
        found = {int(match[1]): (match[2], match[3]) for match in _PARAMETER.finditer(content)}
    if sorted(found) != list(range(len(found))):
        raise LoadError(f"cannot load {path}: parameters of its function main are not known")
    inputs = tuple(
        _input(path, name.decode("utf-8", "replace"), kind.decode("utf-8", "replace"))
        for _, (name, kind) in sorted(found.items())
    )
    return Metadata(inputs, (), form="plain")


def _input(path: Path, name: str, kind: str) -> TensorInfo:
    match = _TENSOR.fullmatch(kind)
    if match is None:
        raise LoadError(
            f"cannot load {path}: parameter {name!r} of main is {kind!r}, not a tensor of known "
            f"rank; {_REMEDY}"
        )
    extents = [part.strip() for part in match[1].split(",") if part.strip()]
    return TensorInfo(name, tuple(int(e) if e.isdigit() else e for e in extents), match[2])
