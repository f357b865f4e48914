"""One region as a C library of its own, which needs neither TVM nor anything but libc and libm.

``interface`` says what the library takes and gives, ``names`` what it may be called, ``source``,
``sizes`` and ``header`` are its C text, ``package`` compiles it and writes the folder.
"""

from codegen_cc.standalone.interface import Axis, Interface, Rows, TensorSpec, function_names
from codegen_cc.standalone.names import default_name, require_name
from codegen_cc.standalone.package import Package, build

__all__ = [
    "Axis",
    "Interface",
    "Package",
    "Rows",
    "TensorSpec",
    "build",
    "default_name",
    "function_names",
    "require_name",
]
