"""Options of the verbs that can run or measure on other machines, through TVM's RPC."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from byoc.cli import options
from byoc.errors import ByocError
from byoc.rpc.address import Address

if TYPE_CHECKING:
    from byoc.rpc.devices import Devices

_TIMEOUT = 300.0


class _AddressType(click.ParamType):
    name = "address"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Address:
        """Parse HOST:PORT."""
        if isinstance(value, Address):
            return value
        try:
            return Address.parse(str(value))
        except ByocError as error:
            self.fail(str(error), param, ctx)


def _server(several: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    more = "; repeatable" if several else ""
    return click.option(
        "--rpc",
        "servers",
        type=_AddressType(),
        multiple=True,
        metavar="HOST:PORT",
        help=f"Do it on the machine of this RPC server of TVM's{more}.",
    )


_OPTIONS = (
    click.option(
        "--rpc-tracker",
        "tracker",
        type=_AddressType(),
        metavar="HOST:PORT",
        help="Do it on a machine that this RPC tracker of TVM's gives for --rpc-key.",
    ),
    click.option(
        "--rpc-key",
        "key",
        default="",
        metavar="KEY",
        help="The kind of machine that the tracker shall give, or the key of the server.",
    ),
    click.option(
        "--rpc-timeout",
        "timeout",
        type=options.Number(min=0, min_open=True),
        default=_TIMEOUT,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for a machine, and how long a session on it may last then.",
    ),
)
_COUNT = options.count(
    "--rpc-devices count", "Use so many machines of the tracker's at once (default: 1)."
)


def devices(several: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options to a verb, which gets them as ``devices``: ``Devices``, or None for here.

    With ``several`` the verb takes more than one device.
    """

    def decorate(verb: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(verb)
        def bundled(
            servers: tuple[Address, ...],
            tracker: Address | None,
            key: str,
            timeout: float,
            count: int | None = None,
            **others: Any,
        ) -> Any:
            _check(servers, tracker, key, count, several)
            found = None
            if servers or tracker is not None:
                from byoc.rpc.devices import Devices

                found = Devices(servers, tracker, key, count or 1, timeout)
            return verb(devices=found, **others)

        for option in reversed((_server(several), *_OPTIONS, *(_COUNT,) * several)):
            bundled = option(bundled)
        return bundled

    return decorate


def require_for_target(devices: Devices | None, target: str | None) -> None:
    """Refuse to measure on this machine what is compiled for another."""
    if target is not None and devices is None:
        raise click.UsageError("--target needs --rpc or --rpc-tracker, a machine of that kind")


def _check(
    servers: tuple[Address, ...],
    tracker: Address | None,
    key: str,
    count: int | None,
    several: bool,
) -> None:
    if servers and tracker:
        raise click.UsageError("--rpc names a server and --rpc-tracker somebody who does; give one")
    if tracker and not key:
        raise click.UsageError("--rpc-tracker needs --rpc-key, the kind of machine to ask for")
    if key and not (servers or tracker):
        raise click.UsageError("--rpc-key needs --rpc-tracker or --rpc")
    if count and not tracker:
        raise click.UsageError("--rpc-devices needs --rpc-tracker; give --rpc once for each server")
    if len(servers) > 1 and not several:
        raise click.UsageError("give --rpc once: a run is on one machine")
    if len(set(servers)) < len(servers):
        raise click.UsageError("--rpc names a server twice; it serves one client at a time")
