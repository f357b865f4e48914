"""TVM's own RPC tracker and servers in processes of their own, on free ports of this machine."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_BOUND = re.compile(r"bind to \S+:(\d+)")
_START_LIMIT = 120.0  # seconds; importing TVM takes several on a busy machine
_END_LIMIT = 10.0
#: Below those that Linux takes for connections, above those of Ray's workers.
_PORTS = range(20000, 32768)


class Peer:
    """A tracker or server, which says ``bind to HOST:PORT`` when it listens.

    The process that is started may start others, as TVM's does for its work and for each session:
    they are a process group, and end as one.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: dict[str, str]) -> None:
        self._log = log
        with log.open("w", encoding="utf-8") as file:
            self._process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=os.environ | environment,
                start_new_session=True,
            )

    @property
    def address(self) -> str:
        """Where it listens, when it does."""
        end = time.monotonic() + _START_LIMIT
        while time.monotonic() < end and self._process.poll() is None:
            if found := _BOUND.search(self.said()):
                return f"127.0.0.1:{found[1]}"
            time.sleep(0.05)
        raise RuntimeError(f"{self._log.name}: not started: {self.said()}")

    def said(self) -> str:
        """What it has logged so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, text: str) -> None:
        """Wait until it has logged a text."""
        end = time.monotonic() + _START_LIMIT
        while text not in self.said():
            assert time.monotonic() < end, f"no {text!r} in: {self.said()}"
            time.sleep(0.02)

    def pause(self) -> None:
        """Stop all its processes where they are: a machine that says nothing any more."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def stop(self) -> None:
        """End it and what it started; nobody listens on its port any more."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if (found := _BOUND.search(self.said())) is None:
            return
        end = time.monotonic() + _END_LIMIT
        with suppress(OSError):  # the one that listened is not the one that was waited for
            while time.monotonic() < end:
                socket.create_connection(("127.0.0.1", int(found[1])), 1).close()
                time.sleep(0.02)


def tracker(folder: Path) -> Peer:
    """Start a tracker, with its log in a folder."""
    return _start("rpc_tracker", folder)


def server(folder: Path, *arguments: str) -> Peer:
    """Start a server, with its log in a folder; ``arguments`` are those of TVM's program."""
    return _start("rpc_server", folder, *arguments)


def free_port() -> int:
    """A port that nobody uses, and that the system gives to no connection in the meantime."""
    while True:
        port = random.choice(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def without_torch(folder: Path, *path: Path) -> dict[str, str]:
    """Variables for processes that import TVM, whose FFI imports PyTorch, which takes seconds.

    ``path`` are folders with modules to import; one in ``folder`` takes PyTorch's place.
    """
    if not (placeholder := folder / "torch.py").exists():  # another may be reading it
        placeholder.write_text("raise ImportError('PyTorch is not needed here')\n")
    folders = [str(folder), *map(str, path), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, folders))}


def _start(program: str, folder: Path, *arguments: str) -> Peer:
    # Of two that start at once in one range of ports, one may come to nothing (SO_REUSEADDR).
    port = free_port()
    command = [sys.executable, "-m", f"tvm.exec.{program}", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--port-end", str(port + 1), *arguments]
    environment = {"TVM_BIND_THREADS": "0", "TVM_USE_RUNTIME_LIB": "1"} | without_torch(folder)
    number = len(list(folder.glob("*.log")))
    return Peer(command, folder / f"{number}_{program}.log", environment)
