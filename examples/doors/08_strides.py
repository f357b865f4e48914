"""Strided and offset buffers through each door: what works, what is refused, and with which words.

Shows: x or y is 16 of 32 columns ("strides"), or a view of a TVM tensor that begins 64 bytes into
its memory ("offset"; slices of NumPy and PyTorch move the pointer instead, which all doors take).
Each cell of the table is a run whose result is checked, or an error whose words are checked.
"""

import numpy as np
import tvm

import strided_doors as doors

FORMS = ("strides", "offset")
#: Errors by (argument, form). TVM checks arguments against the buffers that a function declares.
USUAL = {
    ("x", "strides"): "X.strides",
    ("x", "offset"): "X.byte_offset",
    ("y", "strides"): "Y.strides",
    ("y", "offset"): "Y.byte_offset",
}
EXTERN = {("x", "strides"): "x.strides", ("y", "strides"): "extern.strides"}
CHECKED = {(argument, "strides"): "need contiguous tensors" for argument in "xy"}
COPIED = {(argument, "strides"): "contiguous array" for argument in "xy"}

#: Door: how to open it, and what it refuses.
DOORS = {
    "1 Python, on the memory": (doors.python_view, {}),
    "1 Python, numpy()": (doors.python_copy, COPIED),
    "2 C that reads strides": (lambda: doors.packed("scale.c", "doors.scale"), {}),
    "2 C++ that checks": (lambda: doors.packed("scale.cc", "doors.scale_cpp"), CHECKED),
    "3 te.extern": (doors.te_extern, EXTERN),
    "4 call_extern": (lambda: doors.linked(doors.call_extern(False)), USUAL),
    "4 call_extern, declared": (lambda: doors.linked(doors.call_extern(True)), {}),
    "5 tensorised": (lambda: doors.linked(doors.tensorised(False)), USUAL),
    "5 tensorised, declared": (lambda: doors.linked(doors.tensorised(True)), {}),
    "6 static object": (doors.static_object, {}),
    "7 TVMScript loop": (lambda: doors.linked(doors.loop(False)), USUAL),
    "7 TVMScript loop, declared": (lambda: doors.linked(doors.loop(True)), {}),
    "10 region": (doors.region, {("x", "strides"): "is not contiguous; pass a contiguous copy"}),
}


def tensor(form=None):
    """8 x 16 numbers in one of the forms, or compact; 64-byte aligned as compiled code wants it."""
    memory = tvm.runtime.tensor(np.random.default_rng(1).random((16, 32), np.float32))
    if form == "offset":
        return memory._create_view((8, 16), "float32", 64)
    rows = np.from_dlpack(memory)
    return rows[:8, 16:] if form == "strides" else rows.reshape(32, 16)[:8]


def run(door, argument, form):
    """None, or the error of a call with one argument in that form. Raises where y is wrong."""
    x, y = (tensor(form if name == argument else None) for name in "xy")
    expected = 2 * np.from_dlpack(x)
    try:
        result = door(x, y)
    except (ValueError, RuntimeError) as error:  # TVM's InternalError is a RuntimeError
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    np.testing.assert_allclose(np.from_dlpack(y if result is None else result), expected)
    return None


print(f"{'':28}{''.join(f'{a}: {f:<10}' for a in 'xy' for f in FORMS)}")
said = {}
for name, (open_door, refused) in DOORS.items():
    door, cells = open_door(), []
    for argument in "xy":
        for form in FORMS:
            if argument == "y" and getattr(door, "allocates", False):
                cells.append("TVM's")
                continue
            error = run(door, argument, form)
            words = refused.get((argument, form))
            assert (error is None) == (words is None), (name, argument, form, error)
            if error is not None:
                assert words in error, error
                said.setdefault(error, name)
            cells.append("yes" if error is None else "refused")
    print(f"{name:28}{''.join(f'{cell:<13}' for cell in cells)}")

try:
    doors.te_extern_with_strides()
except RuntimeError as error:
    said[f"InternalError: {error}"] = "3 te.extern, declared (not even built)"
for error, name in said.items():
    print(f"\n{name}:\n  {error}")
