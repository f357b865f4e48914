"""One connection of TVM's RPC client, and what its socket tells and limits.

TVM's client waits without limit, for the handshake with a server that serves somebody else as well
as for an answer that never comes.  It does not show its socket, so that is looked up among the open
ones of the process; the system then ends a wait that takes too long, whatever thread it is in.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from byoc.errors import RpcError, RpcLost, RpcRefused, RpcTimeout
from byoc.rpc.address import Address

if TYPE_CHECKING:
    import tvm_ffi

#: Seconds that a server has, beyond those of the session, to say itself that these are over.
GRACE = 5.0
#: Seconds after which a silent peer is asked whether it is there, between questions; questions.
_KEEP_ALIVE = (10, 5, 3)
#: Milliseconds that the system goes on sending to a peer that does not confirm.
_UNCONFIRMED = 30_000

#: Seconds that a handshake may take to fail after its connection was cut.
_PARTING = 1.0

#: One connection at a time to an address: its socket could not be told from that of another.
_turns: defaultdict[tuple[str, int], threading.Lock] = defaultdict(threading.Lock)


class Connection:
    """A connection to a server; ``module`` is TVM's session.

    ``name`` is what messages call the server, ``key`` the one that it must have.  The server ends
    the session after ``limit`` seconds, None for no limit; ``wait`` limits the handshake.  Raises
    ``RpcRefused``, ``RpcTimeout``, ``RpcError``.
    """

    def __init__(
        self, name: str, address: Address, key: str, wait: float | None, limit: float | None
    ) -> None:
        self.name, self.limit = name, limit
        self._ended: RpcError | None = None
        self._peer = (address.number(), address.port)
        with _turns[self._peer]:
            self.module, self._socket = self._connect(key, wait)
        self._set_limits()

    def close(self) -> None:
        """End the session, so that the server can serve another."""
        with suppress(RuntimeError):  # it may be lost
            self.module["CloseRPCConnection"]()
        self._socket.close()
        self._ended = self._ended or RpcError(f"{self.name} was left")

    def abandon(self) -> None:
        """Cut the connection: whatever waits for an answer, or would ask for more, fails."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def failure(self, what: str, error: Exception) -> RpcError:
        """Why ``what``, such as ``run m.so``, failed with an error of TVM's; cuts what is broken.

        TVM's client tells a failure on the server, which leaves the session as it was, from one of
        the connection by texts alone.
        """
        if self._ended is not None:
            return type(self._ended)(f"the session is over: {self._ended}")
        text = str(error).strip() or type(error).__name__
        told, failed_there, reason = text.partition("RPCError: Error caught from RPC call:")
        if failed_there and not told:
            return RpcError(f"{self.name} cannot {what}: {first_line(reason)}")
        if "RPCSessionTimeoutError" in text or _EXPIRED in text:
            limit = "" if self.limit is None else f" of {self.limit:g} s"
            self._ended = RpcTimeout(
                f"{self.name} could not {what} within the time{limit} of its session; "
                "allow it more (--rpc-timeout)"
            )
        elif not self._is_alive():
            self._ended = RpcLost(
                f"{self.name} was lost when it was to {what}: its process crashed or was stopped, "
                "or the network failed; look at the server's output"
            )
        else:
            return RpcError(f"{self.name} cannot {what}: {first_line(text)}")
        self.abandon()
        return self._ended

    def _connect(self, key: str, wait: float | None) -> tuple[tvm_ffi.Module, socket.socket]:
        import tvm_ffi

        options = "" if self.limit is None else f" -timeout={self.limit}"
        host, port = self._peer
        before = _sockets().keys()
        results: list[tvm_ffi.Module] = []
        errors: list[Exception] = []
        done = threading.Event()

        def attempt() -> None:
            try:
                connect = tvm_ffi.get_global_func("rpc.Connect")
                results.append(connect(host, port, key + options, False))
            except Exception as error:
                errors.append(error)
            finally:
                done.set()

        threading.Thread(target=attempt, name=f"rpc {self.name}", daemon=True).start()
        try:
            in_time = done.wait(wait)
        except BaseException:  # interrupted
            self._cut_new(before, done)
            raise
        if not in_time:
            self._cut_new(before, done)
            raise RpcTimeout(
                f"{self.name} did not answer within {wait:g} s: it serves somebody else, hangs, "
                "or cannot be reached"
            )
        if errors:
            raise self._refusal(key, str(errors[0])) from errors[0]
        found = self._new_sockets(before)
        if len(found) != 1:
            raise RpcError(f"{self.name}: cannot tell the socket of its session ({len(found)} new)")
        return results[0], found[0]

    def _cut_new(self, before: Collection[str], done: threading.Event) -> None:
        """Let a handshake fail, and wait until it has."""
        for found in self._new_sockets(before):
            with suppress(OSError), found:
                found.shutdown(socket.SHUT_RDWR)
        done.wait(_PARTING)  # longer, where the system still tries to reach the host

    def _refusal(self, key: str, text: str) -> RpcError:
        if "cannot find server that matches key" in text:
            given = f"the key {key!r}" if key else "a client without a key"
            return RpcRefused(
                f"{self.name} refused {given}: it has another one (--rpc-key), or belongs to a "
                "tracker, which gives it away (--rpc-tracker)"
            )
        if "sock.Connect(addr)" in text:
            return RpcError(
                f"cannot connect to {self.name}: nothing listens there; start "
                "'python -m tvm.exec.rpc_server --port PORT'"
            )
        if "is not TVM RPC server" in text or "RecvAll" in text or "SendAll" in text:
            return RpcError(f"{self.name} is no RPC server of TVM, or ended during the handshake")
        return RpcError(f"cannot connect to {self.name}: {first_line(text)}")

    def _new_sockets(self, before: Collection[str]) -> list[socket.socket]:
        """Second handles of the sockets to this peer that were not there before."""
        found = []
        for identity, descriptor in _sockets().items():
            if identity in before:
                continue
            with suppress(OSError):
                handle = socket.socket(fileno=os.dup(descriptor))
                try:
                    if handle.getpeername()[:2] == self._peer:
                        found.append(handle)
                        continue
                except OSError:  # not connected
                    pass
                handle.close()
        return found

    def _set_limits(self) -> None:
        idle, interval, count = _KEEP_ALIVE
        own = self._socket
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, count)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNCONFIRMED)
        if self.limit is not None:
            # A server that is there says itself that the time is over; it may be not.
            seconds = self.limit + GRACE
            time = struct.pack("ll", int(seconds), int(1e6 * (seconds % 1)))
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, time)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, time)

    def _is_alive(self) -> bool:
        try:
            return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False


#: What the system says of a wait that took longer than the socket allows.
_EXPIRED = os.strerror(errno.EAGAIN)


def first_line(text: str) -> str:
    """The first line of a message that says something, without the C++ that was checked."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return re.sub(r"^Check failed: .* is false: (?=.)", "", line)


def _sockets() -> dict[str, int]:
    """Descriptors of this process's open sockets by what the system calls these."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile, as that of the folder itself
            identity = os.readlink(f"/proc/self/fd/{name}")
            if identity.startswith("socket:"):
                found[identity] = int(name)
    return found
