"""Run compiled models on other machines, through TVM's own RPC server and tracker.

``connect`` (a server by its address) and ``connect_tracker`` (any free server of a key) give a
``Session``; its ``load`` uploads a library and gives a ``RemoteModel``.  Here TVM's runtime is
enough, as for ``byoc.load``; the server there needs TVM with its extra ``rpc``.

Importing this package imports neither TVM nor NumPy; names are resolved at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from byoc.errors import RpcError, RpcLost, RpcRefused, RpcTimeout

if TYPE_CHECKING:
    from byoc.rpc.session import RemoteModel, Session, connect
    from byoc.rpc.tracker import connect_tracker

__all__ = [
    "RemoteModel",
    "RpcError",
    "RpcLost",
    "RpcRefused",
    "RpcTimeout",
    "Session",
    "connect",
    "connect_tracker",
]

_HOMES = {
    "RemoteModel": "session",
    "Session": "session",
    "connect": "session",
    "connect_tracker": "tracker",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'byoc.rpc' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"byoc.rpc.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
