"""Start MLServer on a folder of models: ``python -m byoc.integrations.serve FOLDER``.

The folder has MLServer's ``settings.json`` and ``model-settings.json`` files.  Besides what
``mlserver start`` does, bodies of REST requests are limited as gRPC's messages are, to
``grpc_max_message_length`` bytes, by default 64 MiB; and networks run in the server's process,
where they hold no lock of Python's, unless ``parallel_workers`` is set.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from byoc.errors import ByocError, IntegrationError
from byoc.integrations.engines import require_engine
from byoc.integrations.mlserver import answer_in_grpc

_MOST_BYTES = 64 << 20
_TOO_LARGE, _UNSUPPORTED = 413, 415

App = Callable[[Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Any]


class BodyLimit:
    """An ASGI application in front of another one: refuses bodies of more than ``most`` bytes.

    Compressed ones are refused as well, as these bytes say nothing of what they become.
    """

    def __init__(self, app: App, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Read the body, and hand it on."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = {name.lower(): value for name, value in scope["headers"]}
        coding = headers.get(b"content-encoding", b"identity").decode("latin-1")
        if coding != "identity":
            text = f"the body is compressed ({coding}); send it as it is"
            return await _refuse(send, _UNSUPPORTED, text)
        too_large = f"the body is larger than {self._most} bytes"
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._most:
            return await _refuse(send, _TOO_LARGE, too_large)
        messages, size = [], 0
        while True:
            messages.append(await receive())
            size += len(messages[-1].get("body", b""))
            if size > self._most:
                return await _refuse(send, _TOO_LARGE, too_large)
            if messages[-1]["type"] != "http.request" or not messages[-1].get("more_body"):
                break
        waiting = iter(messages)

        async def again() -> Any:
            return next(waiting, None) or await receive()

        return await self._app(scope, again, send)


async def _refuse(send: Any, status: int, text: str) -> None:
    kind = (b"content-type", b"application/json")
    close = (b"connection", b"close")
    await send({"type": "http.response.start", "status": status, "headers": [kind, close]})
    await send({"type": "http.response.body", "body": json.dumps({"error": text}).encode()})


async def serve(folder: Path) -> None:
    """Serve a folder's models until a signal ends it.

    Raises ``IntegrationError`` for settings that cannot be read, ports that are taken and models
    that do not load.
    """
    engine = require_engine("mlserver", "serve")
    if not folder.is_dir():
        raise IntegrationError(f"cannot serve {folder}: no such folder; need one of models")
    _require_readable(folder)
    load_settings = require_engine("mlserver.cli.serve", "serve").load_settings
    try:
        settings, models = await load_settings(str(folder))
    except (ValueError, ImportError, OSError) as error:
        raise IntegrationError(f"cannot read the settings in {folder}: {error}") from error
    for name, value in (
        ("debug", False),
        ("parallel_workers", 0),
        ("grpc_max_message_length", _MOST_BYTES),
    ):
        if name not in settings.model_fields_set:
            setattr(settings, name, value)
    if not models:
        raise IntegrationError(f"{folder} has no model-settings.json, here or in a folder of it")
    _require_ports(settings)
    answer_in_grpc()
    server = engine.MLServer(settings)
    logging.getLogger("mlserver").addFilter(_without_traceback)
    failed = _failures(server._model_registry, models)
    server._rest_server._app.add_middleware(BodyLimit, most=settings.grpc_max_message_length)
    await server.start(models)
    if failed:
        raise IntegrationError(f"cannot serve {'; '.join(failed)}")


def _require_readable(folder: Path) -> None:
    """Raise ``IntegrationError`` for settings of a model that the server would pass over."""
    read = require_engine("mlserver.settings", "serve").ModelSettings.parse_file
    for path in sorted(folder.rglob("model-settings.json")):
        try:
            read(str(path))
        except (ValueError, TypeError, OSError) as error:
            raise IntegrationError(f"cannot read {path}: {error}") from error


def _require_ports(settings: Any) -> None:
    """Raise ``IntegrationError`` where the server could not listen.

    It would end with a traceback; and two servers may share a port for gRPC, so that each request
    finds one of the two.
    """
    names = ["http_port", "grpc_port", *(["metrics_port"] if settings.metrics_endpoint else [])]
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with ExitStack() as held:
        for name in names:
            place = settings.host, getattr(settings, name)
            try:
                held.enter_context(socket.create_server(place, family=family))
            except (OSError, OverflowError) as error:
                why = str(getattr(error, "strerror", None) or error).partition(" (while")[0]
                raise IntegrationError(
                    f"cannot listen on {place[0]}, port {place[1]}: {why.rstrip('.')}; choose "
                    f"another {name} or host in settings.json"
                ) from error


def _without_traceback(record: logging.LogRecord) -> bool:
    """Leave the traceback out of what the server logs of our errors, which end it with a line."""
    if record.exc_info and isinstance(record.exc_info[1], ByocError):
        record.exc_info, record.exc_text = None, None
    return True


def _give_workers_a_loop() -> None:
    """Let this process be a worker of MLServer's where asking for an event loop does not make one.

    Workers ask before they run one, which uvloop 0.22 and Python 3.14 refuse.
    """
    worker = require_engine("mlserver.parallel.worker", "serve").Worker
    ignore_signals = worker._ignore_signals

    def with_loop(process: Any) -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())
        ignore_signals(process)

    worker._ignore_signals = with_loop


def _failures(registry: Any, models: Sequence[Any]) -> list[str]:
    """What went wrong with those of the models that did not load; the server itself just ends."""
    found: list[str] = []
    load = registry.load

    async def noting(settings: Any) -> Any:
        try:
            return await load(settings)
        except Exception as error:
            if any(settings is one for one in models):  # no later request to load a model
                found.append(f"{settings.name}: {error}")
            raise

    registry.load = noting
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit code 2 for what cannot be served."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) != 1:
        print("usage: python -m byoc.integrations.serve FOLDER", file=sys.stderr)
        return 2
    try:
        asyncio.run(serve(Path(given[0])))
    except ByocError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__mp_main__":  # as which worker processes of the command import this file
    _give_workers_a_loop()
elif __name__ == "__main__":
    sys.exit(main())
