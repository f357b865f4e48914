"""Run compiled models on other machines, through TVM's own RPC server and tracker.

``connect`` (a server by its address) and ``connect_tracker`` (any free server of a key) give a
``Session``; its ``load`` uploads a library and gives a ``RemoteModel``.  Here TVM's runtime is
enough, as for ``byoc.load``; the server there needs TVM with its extra ``rpc``.

Importing this package imports neither TVM nor NumPy; names are resolved at first use.
"""

# ruff: noqa: F401 (what is imported here is for type checkers alone)

from typing import TYPE_CHECKING

from byoc.errors import RpcError, RpcLost, RpcRefused, RpcTimeout
from codegen_cc.lazy_names import lazy_names

if TYPE_CHECKING:
    from byoc.rpc.session import RemoteModel, Session, connect
    from byoc.rpc.tracker import connect_tracker

_HOMES = {
    "RemoteModel": "byoc.rpc.session",
    "Session": "byoc.rpc.session",
    "connect": "byoc.rpc.session",
    "connect_tracker": "byoc.rpc.tracker",
}

__all__ = ["RpcError", "RpcLost", "RpcRefused", "RpcTimeout", *_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
