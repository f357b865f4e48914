"""C's arithmetic types: which dtype an array of them has, and which numbers fit into one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scalar:
    """An arithmetic type of C.

    ``dtype`` is None where an array of it cannot be a tensor; ``why`` then says so.  ``low`` and
    ``high`` are C constants, the range of an integer type as far as an int64_t reaches.
    """

    dtype: str | None
    kind: str  # "int", "float" or "bool"
    low: str = "INT64_MIN"
    high: str = "INT64_MAX"
    why: str = ""


def _integers(low: str, high: str, dtype: str, *names: str) -> dict[str, Scalar]:
    return {name: Scalar(dtype, "int", low, high) for name in names}


#: By the words of the type, sorted: ``unsigned long int`` and ``long unsigned`` are one type.
SCALARS: dict[str, Scalar] = {
    "float": Scalar("float32", "float"),
    "double": Scalar("float64", "float"),
    "_Bool": Scalar("bool", "bool"),
    **_integers("INT8_MIN", "INT8_MAX", "int8", "int8_t", "char signed"),
    **_integers("0", "UINT8_MAX", "uint8", "uint8_t", "char unsigned"),
    **_integers("INT16_MIN", "INT16_MAX", "int16", "int16_t", "short", "int short"),
    **_integers("0", "UINT16_MAX", "uint16", "uint16_t", "short unsigned", "int short unsigned"),
    **_integers("INT32_MIN", "INT32_MAX", "int32", "int32_t", "int", "signed", "int signed"),
    **_integers("0", "UINT32_MAX", "uint32", "uint32_t", "unsigned", "int unsigned"),
    **_integers("INT64_MIN", "INT64_MAX", "int64", "int64_t", "long long", "int long long"),
    **_integers("INT64_MIN", "INT64_MAX", "int64", "ptrdiff_t", "ssize_t", "intptr_t"),
    **_integers("0", "INT64_MAX", "uint64", "uint64_t", "size_t", "uintptr_t"),
    **_integers("0", "INT64_MAX", "uint64", "long long unsigned", "int long long unsigned"),
}

#: Types that are fine as a size, but whose width differs between platforms.
for _name, _low, _high, _instead in (
    ("long", "LONG_MIN", "LONG_MAX", "int64_t"),
    ("int long", "LONG_MIN", "LONG_MAX", "int64_t"),
    ("long unsigned", "0", "LONG_MAX", "uint64_t"),
    ("int long unsigned", "0", "LONG_MAX", "uint64_t"),
    ("char", "CHAR_MIN", "CHAR_MAX", "int8_t or uint8_t"),
):
    SCALARS[_name] = Scalar(
        None, "int", _low, _high, f"has another width or sign elsewhere; use {_instead}"
    )

#: An enumeration is passed like an int.
ENUMERATION = Scalar(None, "int", "INT_MIN", "INT_MAX", "is an enumeration; use int32_t")
