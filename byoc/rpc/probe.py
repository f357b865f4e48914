"""What a device is: CPU, instruction set of the kernels, cores."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from byoc.link_shared import link_shared
from byoc.machine import cpu_name, separate_cores
from byoc.rpc.session import Session
from codegen_cc.link.toolchain import build_object
from codegen_cc.target import HOST, Target

if TYPE_CHECKING:
    import tvm_ffi

#: C text of what is asked; other libraries may have it in them as well.
PROBE = Path(__file__).with_name("probe.c")


@dataclass(frozen=True)
class DeviceInfo:
    """What times depend on besides the work: the CPU, what the kernels use of it, and its cores.

    ``cores`` are those that the server's process may use, hyper-threads not counted.
    """

    cpu: str
    isa: str
    cores: int

    def __str__(self) -> str:
        return f"{self.cpu}, {self.cores} core{'' if self.cores == 1 else 's'}, {self.isa}"


def build_probe(folder: Path, target: Target = HOST) -> Path:
    """The library that ``describe`` uploads. Raises ``codegen_cc.errors.ToolchainError``."""
    built = build_object(PROBE.read_text(encoding="ascii"), folder, target=target)
    return link_shared([built], folder / "probe.so", target)


def describe(session: Session, probe: Path) -> DeviceInfo:
    """Look at the machine of a session. Raises ``RpcError``."""
    return look_at(session, session.upload(probe))


def look_at(session: Session, module: tvm_ffi.Module) -> DeviceInfo:
    """``describe`` by an uploaded library that has ``PROBE`` in it. Raises ``RpcError``."""
    with session.doing("describe itself"):
        isa = str(module["byoc_probe_isa"]())
        remote_read = module["byoc_probe_read"]

        def read(path: str) -> str:
            return str(remote_read(path))

        found = re.search(r"Cpus_allowed_list:\s*(\S+)", read("/proc/self/status"))
        allowed = _numbers(found[1]) if found else iter([0])
        return DeviceInfo(cpu_name(read), isa, len(separate_cores(allowed, read)))


def _numbers(text: str) -> Iterator[int]:
    """The numbers in a list such as ``0-3,8``."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
