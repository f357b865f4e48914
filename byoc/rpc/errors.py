"""What may go wrong between this machine and a device."""

from __future__ import annotations

from byoc.errors import ByocError


class RpcError(ByocError):
    """A device cannot be reached, or what was asked of it failed there."""


class RpcRefused(RpcError):
    """A server or tracker is there and says no: a wrong key, or no device of that key."""


class RpcTimeout(RpcError):
    """A device, or an answer of one, did not come in time."""


class RpcLost(RpcError):
    """The connection ended while it was used: the server crashed, was stopped or cut off."""
