"""What byoc must know of my_library: which operator each C function computes, and what to link."""

from pathlib import Path

from byoc.library import Kernel, Library, Link

HERE = Path(__file__).resolve().parent

LIBRARY = Library(
    "my_library",
    version="1.0",
    abi=1,  # of byoc.library
    link=Link(
        headers=("my_library.h",),
        include_dirs=(HERE,),
        archives=(HERE / "build" / "libmy_library.a",),
    ),
    status_text="my_status",
    kernels=[
        Kernel(
            "matmul",
            function="my_gemm",
            arguments=("lhs", "rhs", "bias", "relu", "output", "m", "n", "k"),
            epilogue=("bias", "relu"),
            supports=lambda node: None if node.shape[-1] >= 8 else f"n={node.shape[-1]}; need 8",
            algorithm="row by row",
        ),
    ],
)
