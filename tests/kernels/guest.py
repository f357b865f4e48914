"""The kernels of another architecture, run by QEMU's user mode and called as if they were here.

``guest.c``, compiled for the other architecture, loads its ``libext_kernels.so``.  Test and guest
map one piece of memory at one address; while a test runs, numpy's arrays and the guarded pages of
``guard.py`` lie there, and a call sends a function's name and its arguments.  Structures need no
translation where both architectures are little-endian with 64-bit pointers.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import mmap
import os
import shutil
import struct
import subprocess
import weakref
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks import abi
from codegen_cc.errors import ToolchainError
from codegen_cc.link.foreign_kernels import kernel_file
from codegen_cc.target import HOST, Target
from tests.kernels import guard

_HERE = Path(__file__).resolve().parent
#: Address and size of the shared memory: far from where Linux puts anything by itself.
_BASE, _SIZE = 0x6000_0000_0000, 8 << 30
#: Its parts: the blocks that calls point to, guarded pages, numpy's arrays.
_CALLS, _GUARDED = 1 << 16, 2 << 30
_REQUEST, _REPLY = struct.Struct("48s q 12q 2f"), struct.Struct("q d 240s")
_LIBC = ctypes.CDLL(None, use_errno=True)


class GuestError(RuntimeError):
    """The guest cannot be had, or has ended."""


class SharedMemory:
    """Memory at a fixed address that numpy allocates from while ``in_use``."""

    def __init__(self, folder: Path) -> None:
        self.descriptor = os.memfd_create("kernels")
        os.ftruncate(self.descriptor, _SIZE)
        _LIBC.mmap.restype = ctypes.c_void_p
        _LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        fixed = 0x100000  # MAP_FIXED_NOREPLACE
        access, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | fixed
        if _LIBC.mmap(_BASE, _SIZE, access, flags, self.descriptor, 0) != _BASE:
            raise GuestError(f"no memory at {_BASE:#x}: {os.strerror(ctypes.get_errno())}")
        self._next_slot = _BASE + _CALLS
        self._free_slots: dict[int, list[int]] = {}
        self._forbidden: list[int] = []
        self._protect: list[Callable[[int, int], None]] = []
        self._handler = self._numpy_handler(folder)

    def _numpy_handler(self, folder: Path) -> ctypes.py_object:
        library = folder / "arena.so"
        source = str(_HERE / "arena.c")
        command = [*HOST.compiler(), "-O2", "-Wall", "-fPIC", "-shared", source, "-o", str(library)]
        subprocess.run(command, check=True)
        arena = ctypes.CDLL(str(library))
        arena.arena_handler.restype = ctypes.c_void_p
        arena.arena_handler.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        handler = arena.arena_handler(_BASE + _GUARDED, _SIZE - _GUARDED)
        new = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
        )(("PyCapsule_New", ctypes.pythonapi))
        return new(handler, _CAPSULE_NAME, None)

    def protect_here_and_by(self, protect: Callable[[int, int], None]) -> None:
        """Let a guest forbid what is forbidden here, now and later: ``protect(address, bytes)``."""
        self._protect.append(protect)
        for address in self._forbidden:
            protect(address, mmap.PAGESIZE)

    def protect_no_longer_by(self, protect: Callable[[int, int], None]) -> None:
        """The guest has ended."""
        self._protect.remove(protect)

    def guarded(self, usable: int) -> ctypes.Array[ctypes.c_char]:
        """At least ``usable`` bytes up to a forbidden page; the place is used again later."""
        size = max(mmap.PAGESIZE, 1 << (usable - 1).bit_length())
        slots = self._free_slots.setdefault(size, [])
        if not slots:
            slots.append(self._next_slot)
            self._next_slot += size + mmap.PAGESIZE
            if self._next_slot > _BASE + _GUARDED:
                raise MemoryError("too many guarded pages")
            self._forbidden.append(slots[0] + size)
            for protect in (guard.forbid, *self._protect):
                protect(self._forbidden[-1], mmap.PAGESIZE)
        address = slots.pop()
        memory = (ctypes.c_char * usable).from_address(address + size - usable)
        weakref.finalize(memory, slots.append, address)
        return memory

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Make numpy's arrays and guarded pages here."""
        before = _set_numpy_handler(self._handler)
        try:
            with guard.pages_from(self.guarded):
                yield
        finally:
            _set_numpy_handler(before)

    def contains(self, address: int) -> bool:
        return _BASE <= address < _BASE + _SIZE


_CAPSULE_NAME = b"mem_handler"


def _set_numpy_handler(handler: Any) -> Any:
    """``PyDataMem_SetHandler``: entry 304 of numpy's C interface. Returns the handler before."""
    table = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )(table, None)
    entry = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_void_p))[304]
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(entry)(handler)


def emulator(target: Target) -> list[str]:
    """The command that runs a program of another architecture. Raises ``GuestError``."""
    program = shutil.which(f"qemu-{target.machine}") or shutil.which(
        f"qemu-{target.machine}-static"
    )
    if program is None:
        raise GuestError(f"no qemu-{target.machine} on the path (Debian: qemu-user)")
    return [program, "-L", os.environ.get("QEMU_LD_PREFIX", f"/usr/{target.triple}")]


class GuestLibrary:
    """``libext_kernels.so`` of another architecture, with the functions of ``abi.signatures()``.

    ``level`` is what ``BYOC_ISA`` asks for there.  A guest that ended is started again by the next
    call.  Raises ``GuestError`` where compiler or emulator are missing.
    """

    def __init__(
        self, target: Target, memory: SharedMemory, folder: Path, level: str = "", threads: int = 1
    ) -> None:
        self.memory = memory
        self._environment = {**os.environ, "BYOC_ISA": level}
        self._process: subprocess.Popen[bytes] | None = None
        emulate = emulator(target)
        try:
            library = kernel_file(target, "lib/libext_kernels.so")
            program = folder / f"guest-{target.machine}"
            # Its symbols are visible, as the kernels look for TVM's functions there.
            command = [*target.compiler(), "-O1", "-Wall", "-rdynamic", "-pthread"]
            subprocess.run([*command, str(_HERE / "guest.c"), "-o", str(program)], check=True)
        except ToolchainError as error:
            raise GuestError(str(error)) from error
        shared = (str(memory.descriptor), hex(_BASE), str(_SIZE))
        self._command = [*emulate, str(program), str(library), str(threads), *shared]

    def __getattr__(self, name: str) -> GuestFunction:
        if name not in abi.signatures():
            raise AttributeError(name)
        function = GuestFunction(self, name)
        setattr(self, name, function)
        return function

    def close(self) -> int:
        """End the guest and return its exit code."""
        process, self._process = self._process, None
        if process is None or process.stdin is None or process.stdout is None:
            return 0
        self.memory.protect_no_longer_by(self._protect)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        return process.wait(10)

    def send(
        self, name: str, kind: str, integers: list[int], floats: list[float]
    ) -> tuple[int, float, bytes]:
        """Call a function; the result as integer, as float and as text."""
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin and self._process.stdout
        integers = integers + [0] * (12 - len(integers))
        floats = floats + [0.0] * (2 - len(floats))
        with contextlib.suppress(BrokenPipeError):  # an empty answer tells it as well
            request = _REQUEST.pack(name.encode(), ord(kind), *integers, *floats)
            self._process.stdin.write(request)
            self._process.stdin.flush()
        answer = self._process.stdout.read(_REPLY.size)
        if len(answer) < _REPLY.size:
            raise GuestError(f"the guest ended in {name}, exit code {self.close()}")
        integer, real, text = _REPLY.unpack(answer)
        return integer, real, text.rstrip(b"\0")

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, env=self._environment, pass_fds=[self.memory.descriptor],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.memory.protect_here_and_by(self._protect)

    def _protect(self, address: int, size: int) -> None:
        if self.send("protect", "i", [address, size], [])[0] != 0:
            raise GuestError(f"the guest cannot protect {address:#x}")


class GuestFunction:
    """One function of a guest's library; arguments and result as ctypes has them."""

    def __init__(self, library: GuestLibrary, name: str) -> None:
        self.library, self.name = library, name
        self.argtypes, self.restype = abi.signatures()[name]

    @cached_property
    def _kind(self) -> str:
        return {ctypes.c_char_p: "s", ctypes.c_double: "d"}.get(self.restype, "i")

    def __call__(self, *arguments: Any) -> Any:
        if len(arguments) != len(self.argtypes):
            raise TypeError(f"{self.name} takes {len(self.argtypes)} arguments")
        integers, floats, block = [], [], _BASE
        for value, wanted in zip(arguments, self.argtypes, strict=True):
            if wanted is ctypes.c_float:
                floats.append(value)
            elif isinstance(value, ctypes.Structure):
                self._check_pointers(value)
                ctypes.memmove(block, ctypes.addressof(value), ctypes.sizeof(value))
                integers.append(block)
                block += -(-ctypes.sizeof(value) // abi.ALIGN) * abi.ALIGN
            else:
                if wanted is ctypes.c_void_p:
                    self._check(value)
                integers.append(_signed(value or 0))
        integer, real, text = self.library.send(self.name, self._kind, integers, floats)
        if self._kind == "s":
            return text if integer else None
        if self._kind == "d":
            return real
        if self.restype is ctypes.c_void_p:
            return integer or None
        return None if self.restype is None else self.restype(integer).value

    def _check_pointers(self, block: ctypes.Structure) -> None:
        for name, kind in block._fields_:
            if kind is ctypes.c_void_p:
                self._check(getattr(block, name))

    def _check(self, pointer: int | None) -> None:
        # What is given back is memory of the guest's own.
        own = self.name == "ext_workspace_free"
        if pointer and not own and not self.library.memory.contains(pointer):
            raise GuestError(f"{self.name}: {pointer:#x} is not in the shared memory")


def _signed(value: int) -> int:
    """The same 64 bits as a signed number."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
