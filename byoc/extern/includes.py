"""``python -m byoc.extern.includes``: how a compiler finds the headers of TVM and byoc."""

from __future__ import annotations

import tvm_ffi.libinfo

from codegen_cc.runtime_files import runtime_file


def include_flags() -> list[str]:
    """``-I`` options for the generated C. Raises ``ToolchainError`` where headers are missing."""
    folders = [
        runtime_file("include/ext_extern_entry.h").parent,
        tvm_ffi.libinfo.find_include_path(),
        tvm_ffi.libinfo.find_dlpack_include_path(),
    ]
    return [f"-I{folder}" for folder in dict.fromkeys(map(str, folders))]


if __name__ == "__main__":
    print(" ".join(include_flags()))
