"""Compiled networks in MLServer, which speaks the Open Inference Protocol over REST and gRPC.

``byoc.integrations.mlserver.Runtime`` is the implementation that a ``model-settings.json`` names,
and ``parameters.uri`` the library.  ``byoc/integrations/serve.py`` starts a server.  Needs the
extra ``serve``.
"""

from __future__ import annotations

import asyncio
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from byoc.errors import ByocError, InputError, IntegrationError
from byoc.integrations.engines import require_engine
from byoc.integrations.inference_protocol import (
    array_of_input,
    datatype_of,
    require_bytes,
    shape_of,
)
from byoc.integrations.row_queue import QueueFull
from byoc.integrations.served import Limits, Served, TooLarge
from byoc.integrations.serving_metrics import metrics

_BAD, _TOO_LARGE, _TOO_MANY, _FAILED = 400, 413, 429, 500


def __getattr__(name: str) -> Any:
    """``Runtime``, which is made where MLServer is there."""
    if name == "Runtime":
        return _runtime()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _runtime() -> type:
    """The class of MLServer's runtimes for compiled networks. Raises ``IntegrationError``."""
    engine = require_engine("mlserver", "serve")
    answer_in_grpc()

    class Runtime(engine.MLModel, _Network):  # type: ignore[misc, name-defined]
        """A compiled network; ``Limits`` are its settings in ``parameters.extra``."""

        async def load(self) -> bool:
            return await self.load_network()

        async def predict(self, payload: Any) -> Any:
            return await self.answer(payload)

        async def unload(self) -> bool:
            return await self.unload_network()

    return Runtime


@cache
def answer_in_grpc() -> None:
    """Give MLServer the gRPC statuses that it lacks, and let it check the bytes of inputs."""
    statuses = require_engine("mlserver.grpc.utils", "serve").STATUS_CODE_MAPPING
    exhausted = require_engine("grpc", "serve").StatusCode.RESOURCE_EXHAUSTED
    for status in (_TOO_LARGE, _TOO_MANY):
        statuses.setdefault(status, exhausted)
    converters = require_engine("mlserver.grpc.converters", "serve")
    refusal = require_engine("mlserver.errors", "serve").MLServerError
    fill = converters.inject_raw

    def checked(inputs: Any, contents: Any) -> Any:
        try:
            require_bytes([one for one in inputs if not one.data], contents)
        except InputError as error:
            raise refusal(str(error), _BAD) from error
        return fill(inputs, contents)

    converters.inject_raw = checked


class _Network:
    """What a runtime does, besides what MLServer's class does for it."""

    settings: Any
    name: str
    version: str | None
    _served: Served
    _watch: asyncio.Task | None = None

    async def load_network(self) -> bool:
        """Load the library, say what it takes, and look after its file from now on."""
        if self.settings.max_batch_size or self.settings.max_batch_time:
            raise IntegrationError(
                "max_batch_size and max_batch_time are MLServer's own batching, "
                "which joins requests unchecked; set max_batch_rows in parameters.extra"
            )
        given = self.settings.parameters.extra if self.settings.parameters else None
        limits = Limits.read(given or {})
        uri = await _library_of(self.settings)
        self._metrics = metrics(self.name, self.version)
        make = partial(Served, uri, limits, self._metrics.called)
        self._served = await asyncio.to_thread(make)
        self._describe()
        if limits.reload_seconds:
            self._watch = asyncio.create_task(self._reload_forever(limits.reload_seconds))
        return True

    async def unload_network(self) -> bool:
        """Answer what waits, and let go of the library."""
        if self._watch is not None:
            self._watch.cancel()
        if hasattr(self, "_served"):
            await asyncio.to_thread(self._served.close)
        return True

    def _describe(self) -> None:
        tensor = require_engine("mlserver.types", "serve").MetadataTensor
        self.inputs, self.outputs = (
            [tensor(name=i.name, datatype=datatype_of(i), shape=shape_of(i)) for i in infos]
            for infos in (self._served.model.inputs, self._served.model.outputs)
        )
        self.settings.platform = "byoc"

    async def _reload_forever(self, seconds: float) -> None:
        logger = require_engine("mlserver.logging", "serve").logger
        while True:
            await asyncio.sleep(seconds)
            try:
                if await asyncio.to_thread(self._served.reload_if_replaced):
                    self._describe()
                    self._metrics.reloaded(True)
                    logger.info(f"{self.name}: loaded {self._served.path}, which was replaced")
            except ByocError as error:
                self._metrics.reloaded(False)
                logger.error(f"{self.name} goes on with the library that it has: {error}")

    async def answer(self, payload: Any) -> Any:
        """The response to a request. Raises MLServer's error with a status for what is refused."""
        try:
            wanted = self._wanted(payload)
            waiting = self._served.ask(self._arrays(payload))
            results = await asyncio.wrap_future(waiting)
        except ByocError as error:
            status = _status(error)
            self._metrics.refused(status)
            refusal = require_engine("mlserver.errors", "serve").MLServerError
            raise refusal(str(error), status) from error
        return self._response(payload, results, wanted)

    def _wanted(self, payload: Any) -> list[str]:
        """Names of the outputs that a request asks for."""
        known = [info.name for info in self._served.model.outputs]
        asked = [output.name for output in payload.outputs or ()]
        if unknown := [name for name in asked if name not in known]:
            there = "; ".join(map(str, self._served.model.outputs))
            raise InputError(f"unknown output {unknown[0]!r}; {self.name} gives {there}")
        return asked or known

    def _arrays(self, payload: Any) -> dict[str, np.ndarray]:
        arrays: dict[str, np.ndarray] = {}
        for given in payload.inputs:
            if given.name in arrays:
                raise InputError(f"input {given.name!r} is given twice")
            kind = given.parameters.content_type if given.parameters else None
            if kind not in (None, "np"):
                raise InputError(
                    f"input {given.name!r} has the content type {kind!r}; need numbers, without one"
                )
            datatype = getattr(given.datatype, "value", given.datatype)
            data = getattr(given.data, "root", given.data)
            arrays[given.name] = array_of_input(given.name, datatype, given.shape, data)
        return arrays

    def _response(self, payload: Any, results: dict[str, np.ndarray], wanted: list[str]) -> Any:
        types = require_engine("mlserver.types", "serve")
        infos = {info.name: info for info in self._served.model.outputs}
        outputs = [
            types.ResponseOutput(
                name=name,
                shape=list(results[name].shape),
                datatype=datatype_of(infos[name]),
                data=results[name].ravel().tolist(),
            )
            for name in wanted
        ]
        return types.InferenceResponse(
            id=payload.id, model_name=self.name, model_version=self.version, outputs=outputs
        )


async def _library_of(settings: Any) -> Path:
    """The library that a model's settings name. Raises ``IntegrationError`` where there is none."""
    invalid = require_engine("mlserver.errors", "serve").InvalidModelURI
    need = "need the path of a library, from the folder of its model-settings.json on"
    try:
        uri = Path(await require_engine("mlserver.utils", "serve").get_model_uri(settings))
    except invalid as error:
        given = settings.parameters.uri if settings.parameters else None
        raise IntegrationError(f"parameters.uri is {given!r}: no such file; {need}") from error
    if uri.is_dir():
        raise IntegrationError(f"parameters.uri is the folder {uri}; {need}")
    return uri


def _status(error: ByocError) -> int:
    """The HTTP status of an error."""
    kinds = {TooLarge: _TOO_LARGE, InputError: _BAD, QueueFull: _TOO_MANY}
    return next((status for kind, status in kinds.items() if isinstance(error, kind)), _FAILED)
