"""ONNX Runtime in MLServer as one writes it, with MLServer's own codec and batching."""

from __future__ import annotations

import asyncio
from typing import Any

import onnxruntime
from mlserver import MLModel, types
from mlserver.codecs import NumpyCodec
from mlserver.utils import get_model_uri


class Runtime(MLModel):
    """A session with the threads of ``parameters.extra``; it runs outside of the event loop."""

    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.settings.parameters.extra["threads"]
        uri = await get_model_uri(self.settings)
        self._session = onnxruntime.InferenceSession(
            uri, options, providers=["CPUExecutionProvider"]
        )
        kinds = {"tensor(float)": types.Datatype.FP32}
        self.inputs, self.outputs = (
            [
                types.MetadataTensor(
                    name=one.name,
                    datatype=kinds[one.type],
                    shape=[n if isinstance(n, int) else -1 for n in one.shape],
                )
                for one in ends
            ]
            for ends in (self._session.get_inputs(), self._session.get_outputs())
        )
        return True

    async def predict(self, payload: Any) -> Any:
        given = {one.name: NumpyCodec.decode_input(one) for one in payload.inputs}
        results = await asyncio.to_thread(self._session.run, None, given)
        names = (one.name for one in self._session.get_outputs())
        outputs = [NumpyCodec.encode_output(n, r) for n, r in zip(names, results, strict=True)]
        return types.InferenceResponse(model_name=self.name, outputs=outputs)
