"""A compiled model on a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc.deploy.compiled_file import read_compiled
from byoc.deploy.loader import Model, start_machine
from byoc.deploy.metadata import TensorInfo
from byoc.errors import LoadError

if TYPE_CHECKING:
    import tvm_ffi

    from byoc.rpc.session import Session


class RemoteModel:
    """A compiled model that was uploaded to a device.

    ``run`` takes and gives the same arrays as that of a local model; ``time`` tells how long a run
    takes there, without the network.
    """

    def __init__(self, session: Session, path: Path, threads: int | None = None) -> None:
        """Upload a library; see ``Session.load``."""
        metadata = read_compiled(path).metadata()
        if metadata.form == "plain":
            raise LoadError(
                f"cannot upload {path}: it does not say what its outputs are; attach names with "
                "byoc.describe before tvm.compile"
            )
        if metadata.form != "tvm" or path.suffix != ".so":
            raise LoadError(
                f"cannot upload {path}: need a library for TVM's runtime whose name ends in .so, "
                "as 'byoc compile MODEL -o m.so' writes it"
            )
        self.session, self.path, self.metadata = session, path, metadata
        module = session.upload(path)
        if count := threads or metadata.threads:
            session.set_threads(count)
        self._checker = Model(path, module, metadata)
        with session.doing(f"start {path.name}"):
            self._machine = start_machine(module)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Names, shapes and dtypes of the inputs, in order."""
        return self.metadata.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Names, shapes and dtypes of the outputs, in order."""
        return self.metadata.outputs

    def __repr__(self) -> str:
        inputs, outputs = ("; ".join(map(str, infos)) for infos in (self.inputs, self.outputs))
        return f"<byoc.rpc.RemoteModel {self.path.name}: ({inputs}) -> ({outputs})>"

    def run(self, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        """Run the model on named arrays; returns the outputs by name.

        Raises ``byoc.deploy.loader.InputError`` for what does not fit the model, ``RpcError``.
        """
        tensors = self._send(inputs)
        with self.session.doing(f"run {self.path.name}"):
            results = self.session.items(self._machine["main"](*tensors))
            arrays = [self.session.fetch(tensor) for tensor in results]
        return {info.name: array for info, array in zip(self.outputs, arrays, strict=True)}

    def time(self, inputs: dict[str, Any], runs: int = 10) -> list[float]:
        """Milliseconds of each of some runs on the device, after one that is not counted.

        Raises as ``run`` does.
        """
        tensors = self._send(inputs)
        with self.session.doing(f"time {self.path.name}"):
            return self.session.time(self._machine, "main", tensors, runs)

    def _send(self, inputs: dict[str, Any]) -> list[tvm_ffi.Tensor]:
        arrays = [np.from_dlpack(tensor) for tensor in self._checker.tensors(inputs)]
        with self.session.doing(f"take the inputs of {self.path.name}"):
            return [self.session.send(array) for array in arrays]
