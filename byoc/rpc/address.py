"""Addresses of servers and trackers."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from byoc.arguments import as_text
from byoc.errors import RpcError

_GREATEST_PORT = 65535


@dataclass(frozen=True)
class Address:
    """A host, by name or number, and a port."""

    host: str
    port: int

    @classmethod
    def of(cls, given: str | Address) -> Address:
        """An address, or the text of one. Raises ``RpcError``."""
        return (
            given if isinstance(given, Address) else cls.parse(as_text(given, "address", RpcError))
        )

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``host:port``, where an IPv6 number stands in brackets. Raises ``RpcError``."""
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        valid = port.isascii() and port.isdigit() and 0 < int(port) <= _GREATEST_PORT
        if not (host and valid):
            raise RpcError(f"cannot read the address {text!r}; need HOST:PORT, such as board:9090")
        return cls(host, int(port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def number(self) -> str:
        """The host as a number. Raises ``RpcError`` where nobody knows the name."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RpcError(f"cannot find the host of {self}: {reason}") from error
        return str(found[0][4][0])
