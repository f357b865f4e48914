"""The dtypes of values, each once: its name in Relax, NumPy, C, DLPack and the kernels.

Nothing has a dtype by default.  Three things are told apart:

- *storage*, what lies in memory: ``Operand.dtype`` and ``Node.dtype``;
- *compute*, what a kernel multiplies in: ``Node.compute``, empty where it is the storage;
- *accumulation*, what it sums in: the kernel's own matter, never narrower than float32 for
  floating-point numbers.

Which of them a kernel takes is for its library to judge (``KernelLibrary.supports``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_cc.errors import CodegenError


@dataclass(frozen=True)
class Dtype:
    """One dtype: as Relax and NumPy call it, its ``kind``, and how others write it.

    ``kind`` is ``float``, ``int``, ``uint`` or ``bool``.  ``ctype`` holds one element in C, as bits
    where C has no such type.  ``dl_code`` is DLPack's type code.  ``enumerator`` is the name in
    ``ext_dtype``, None where the kernels of ``ext_kernels.h`` do not have it.
    """

    name: str
    kind: str
    bits: int
    ctype: str
    dl_code: str
    enumerator: str | None = None

    @property
    def bytes(self) -> int:
        """Bytes of one element."""
        return -(-self.bits // 8)

    @property
    def is_numpys(self) -> bool:
        """Whether NumPy has the dtype itself; the others, such as bfloat16, are ``ml_dtypes``'."""
        return self.dl_code in ("kDLFloat", "kDLInt", "kDLUInt", "kDLBool") and self.bits >= 8

    @property
    def numpy(self) -> np.dtype:
        """The dtype of arrays."""
        if self.is_numpys:
            return np.dtype(self.name)
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, self.name))


def _integers(*bits: int, kernels: tuple[str, ...] = ()) -> list[Dtype]:
    return [
        Dtype(
            f"{kind}{n}",
            kind,
            n,
            f"{kind}{n}_t",
            dl_code,
            f"EXT_{kind.upper()}{n}" if f"{kind}{n}" in kernels else None,
        )
        for kind, dl_code in (("int", "kDLInt"), ("uint", "kDLUInt"))
        for n in bits
    ]


#: Floating-point numbers of eight bits or fewer, whose names say how they are made.
_SMALL = {
    8: ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"),
    6: ("e2m3fn", "e3m2fn"),
    4: ("e2m1fn",),
}

#: All dtypes by name; those of the kernels in the order of ``ext_dtype``.
DTYPES: dict[str, Dtype] = {
    dtype.name: dtype
    for dtype in (
        Dtype("float32", "float", 32, "float", "kDLFloat", "EXT_FLOAT32"),
        *_integers(32, 64, kernels=("int32", "int64")),
        Dtype("bool", "bool", 8, "uint8_t", "kDLBool", "EXT_BOOL"),
        Dtype("float64", "float", 64, "double", "kDLFloat"),
        *_integers(8, 16, kernels=("int8", "uint8")),
        Dtype("float16", "float", 16, "uint16_t", "kDLFloat", "EXT_FLOAT16"),
        Dtype("bfloat16", "float", 16, "uint16_t", "kDLBfloat", "EXT_BFLOAT16"),
        Dtype("int4", "int", 4, "int8_t", "kDLInt"),
        Dtype("uint4", "uint", 4, "uint8_t", "kDLUInt"),
        *(
            Dtype(f"float{bits}_{form}", "float", bits, "uint8_t", f"kDLFloat{bits}_{form}")
            for bits, forms in _SMALL.items()
            for form in forms
        ),
    )
}

#: Single precision, in which kernels compute floating-point numbers (NumPy: ``np.single``).
SINGLE = "float32"

#: What the kernels of ``ext_kernels.h`` have, in the order of ``ext_dtype``.
KERNEL_DTYPES = tuple(dtype.name for dtype in DTYPES.values() if dtype.enumerator)
#: Those that kernels store, move and convert, but do not compute with; and the others.
KERNEL_HALVES = ("float16", "bfloat16")
KERNEL_NUMBERS = tuple(name for name in KERNEL_DTYPES if name not in KERNEL_HALVES)
#: Of the latter the floating-point numbers, the integers, those that hold indices, and those of
#: one byte.
KERNEL_FLOATS = tuple(name for name in KERNEL_NUMBERS if DTYPES[name].kind == "float")
KERNEL_INTEGERS = tuple(name for name in KERNEL_DTYPES if DTYPES[name].kind in ("int", "uint"))
KERNEL_INDICES = tuple(name for name in KERNEL_INTEGERS if DTYPES[name].bits >= 32)
KERNEL_BYTES = tuple(name for name in KERNEL_INTEGERS if DTYPES[name].bits == 8)


def of(name: str) -> Dtype:
    """The dtype of that name. Raises ``CodegenError`` where there is none."""
    if name not in DTYPES:
        raise CodegenError(f"dtype {name!r} is not known; known: {', '.join(DTYPES)}")
    return DTYPES[name]
