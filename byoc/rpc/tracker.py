"""TVM's RPC tracker: who hands out the servers of a key.

Its protocol: a magic number to and fro, then JSON behind its length in 32 bits, little-endian.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections import Counter
from contextlib import closing
from typing import Any

from byoc.arguments import as_seconds, as_text
from byoc.errors import RpcError, RpcRefused, RpcTimeout
from byoc.rpc.address import Address
from byoc.rpc.session import TIMEOUT, Session, connect

_MAGIC = 0x2F271
_SUCCESS, _REQUEST, _SUMMARY = 0, 4, 6
_SERVER = "server:"

#: Servers that are tried one after the other: one that died may still be on the tracker's list.
_ATTEMPTS = 3
#: Seconds that a handshake has, however little time is left.
_LEAST_WAIT = 1.0
#: Seconds that a tracker may take for an answer that needs no device.
_PATIENCE = 10.0


def connect_tracker(
    address: str | Address,
    key: str,
    timeout: float | None = TIMEOUT,
    wait: float | None = None,
) -> Session:
    """Open a session on a server that the tracker at ``host:port`` has under a key.

    ``timeout`` is how many seconds to wait for one that is free, and how long the session may last
    then; None means no limit.  ``wait`` is the first of the two where they differ.  Raises
    ``RpcRefused`` where there is no server of that key, ``RpcTimeout`` where none comes free in
    time, ``RpcError``.
    """
    tracker = Tracker(address)
    key = as_text(key, "key", RpcError)
    timeout = as_seconds(timeout, "timeout", RpcError)
    patience = timeout if wait is None else as_seconds(wait, "wait", RpcError)
    end = None if patience is None else time.monotonic() + patience
    for attempt in range(_ATTEMPTS):
        left = None if end is None else max(end - time.monotonic(), _LEAST_WAIT)
        place, match = tracker.request(key, left)
        try:
            return connect(place, match, timeout, left, f"device {key} at {place}")
        except RpcError:
            if attempt == _ATTEMPTS - 1 or (end is not None and time.monotonic() >= end):
                raise
    raise AssertionError("the last attempt returns or raises")


class Tracker:
    """The tracker at an address; each question has a connection of its own."""

    def __init__(self, address: str | Address) -> None:
        self.address = Address.of(address)

    def devices(self) -> Counter[str]:
        """How many servers each key has, free or not. Raises ``RpcError``."""
        with closing(self._open()) as connection:
            servers = self._ask(connection, [_SUMMARY])[1]["server_info"]
        return Counter(server["key"].removeprefix(_SERVER) for server in servers)

    def request(self, key: str, wait: float | None) -> tuple[Address, str]:
        """A server of a key that is ours now, and the word that it expects from us.

        Raises ``RpcRefused``, ``RpcTimeout``, ``RpcError``.
        """
        devices = self.devices()
        if not devices[key]:
            others = ", ".join(f"{name} ({count})" for name, count in sorted(devices.items()))
            has = f"it has {others}" if others else "it has none at all"
            raise RpcRefused(f"tracker {self.address} has no device of key {key!r}; {has}")
        with closing(self._open()) as connection:
            connection.settimeout(wait)
            try:
                status, found = self._ask(connection, [_REQUEST, key, "", 1])
            except TimeoutError:
                count = f"all {devices[key]} devices" if devices[key] > 1 else "the only device"
                raise RpcTimeout(
                    f"tracker {self.address}: {count} of key {key!r} did not come free "
                    f"within {wait:g} s"
                ) from None
        if status != _SUCCESS:
            raise RpcError(f"tracker {self.address} gave no device of key {key!r}: {found}")
        host, port, match = found
        return Address(host, port), match

    def _open(self) -> socket.socket:
        name, port = self.address.number(), self.address.port
        try:
            connection = socket.create_connection((name, port), _PATIENCE)
        except OSError as error:
            reason = error.strerror or error
            raise RpcError(
                f"cannot connect to RPC tracker {self.address}: {reason}; start "
                "'python -m tvm.exec.rpc_tracker --port PORT'"
            ) from error
        try:
            connection.sendall(struct.pack("<i", _MAGIC))
            if self._receive(connection, 4) == struct.pack("<i", _MAGIC):
                return connection
        except OSError:
            pass
        connection.close()
        raise RpcError(f"{self.address} is no RPC tracker of TVM (a server is given by --rpc)")

    def _ask(self, connection: socket.socket, question: list[Any]) -> list[Any]:
        text = json.dumps(question).encode()
        try:
            connection.sendall(struct.pack("<i", len(text)) + text)
            (length,) = struct.unpack("<i", self._receive(connection, 4))
            answer = json.loads(self._receive(connection, length))
        except TimeoutError:
            raise
        except (OSError, ValueError) as error:
            raise RpcError(f"RPC tracker {self.address} was lost: {error}") from error
        return answer

    @staticmethod
    def _receive(connection: socket.socket, length: int) -> bytes:
        data = b""
        while len(data) < length:
            more = connection.recv(length - len(data))
            if not more:
                raise OSError("it closed the connection")
            data += more
        return data
