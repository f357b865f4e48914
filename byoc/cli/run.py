"""``byoc run``: run a compiled library once, or often with its times; TVM's runtime only."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from byoc.array_files import read_arrays
from byoc.cli import options, progress, remote
from byoc.cli.process import import_without_torch
from byoc.destination import require_file_to_write, unfinished_file
from byoc.errors import RunError
from byoc.terminal import new_console, say, say_json

if TYPE_CHECKING:
    import numpy as np

    from byoc.deploy.loader import Model
    from byoc.deploy.metadata import TensorInfo
    from byoc.rpc.devices import Devices
    from byoc.rpc.session import RemoteModel

_FILL_MODES = ("random", "zeros", "ones")
_SEED = 0


@click.command("run")
@click.argument("library", type=options.PATH)
@options.inputs
@options.file("-o --outputs", "OUT.npz", "Write the results.")
@click.option(
    "--fill-mode",
    type=click.Choice(_FILL_MODES),
    help="How inputs that no file gives are filled; random (the default without -i) is seeded: "
    "normal numbers, and 0 or 1 for integers.",
)
@options.input_shapes
@options.count("--repeat", "Number of runs.", default=1)
@options.flag("--print-time", "Print the time per run, after one warm-up run.")
@options.count("--print-top", "Print the N greatest values of each output's first row.")
@options.threads
@remote.devices(several=False)
@options.as_json
@options.quiet
@options.verbose
def run_verb(
    library: Path,
    inputs: Path | None,
    outputs: Path | None,
    fill_mode: str | None,
    input_shapes: dict[str, list[int | str]] | None,
    repeat: int,
    print_time: bool,
    print_top: int | None,
    threads: int | None,
    devices: Devices | None,
    as_json: bool,
) -> None:
    """Run LIBRARY, written by `byoc compile`, on given or made-up inputs.

    With --rpc or --rpc-tracker it is uploaded to another machine, runs there, and times are those
    of that machine, without the network.
    """
    if outputs is not None:
        read = [library] if inputs is None else [library, inputs]
        require_file_to_write(outputs, RunError, read)
    import_without_torch("tvm_ffi")
    for name, shape in (input_shapes or {}).items():
        if names := [extent for extent in shape if isinstance(extent, str)]:
            raise click.UsageError(f"--input-shapes: {name!r} has {names[0]}; a run needs numbers")
    arrays = {} if inputs is None else read_arrays(inputs)

    times: list[float] = []
    with (
        progress.stages(running=True) as show,
        _opened(library, threads, devices, show) as (model, device),
    ):
        given = arrays
        if inputs is None or fill_mode is not None:
            given = _fill(model, arrays, fill_mode or "random", input_shapes or {})
        show("run")
        results = model.run(given)
        if print_time or repeat > 1:
            show(f"run {repeat} times")
            times = _time(model, given, repeat)
    if outputs is not None:
        _write(outputs, results)
    answer: dict[str, Any] = {"outputs": {name: _describe(a) for name, a in results.items()}}
    if devices is not None:
        answer["device"] = device
    if print_top is not None:
        answer["top"] = {name: _top(array, print_top) for name, array in results.items()}
    if print_time:
        answer["milliseconds"] = _statistics(times)
    if as_json:
        say_json(answer)
    else:
        _print(answer)


@contextmanager
def _opened(
    library: Path, threads: int | None, devices: Devices | None, show: Callable[[str], None]
) -> Iterator[tuple[Model | RemoteModel, str]]:
    """The library, loaded here or on another machine, and that machine's name."""
    if devices is None:
        from byoc.deploy.loader import load

        show("load")
        yield load(library, threads), ""
        return
    from byoc.deploy.compiled_file import read_compiled

    read_compiled(library)  # what is wrong with it is told before a machine is asked for
    show("ask for a machine")
    with devices.open() as session:
        show(f"upload to {session.name}")
        yield session.load(library, threads), session.name


def _write(path: Path, results: dict[str, np.ndarray]) -> None:
    """Write all results or nothing. Raises ``RunError``."""
    import numpy as np

    # By hand instead of np.savez, whose keyword arguments forbid the name "file".
    with unfinished_file(path, RunError) as place, zipfile.ZipFile(place, "w") as archive:
        for name, array in results.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _fill(
    model: Model | RemoteModel,
    given: dict[str, np.ndarray],
    mode: str,
    shapes: dict[str, list[int | str]],
) -> dict[str, np.ndarray]:
    """Add the inputs that are not given, in the shapes of ``shapes``, else the smallest ones."""
    import numpy as np

    from byoc.deploy.exchange import numpy_dtype
    from byoc.drawn_inputs import draw_input

    random = np.random.default_rng(_SEED)

    def made_up(info: TensorInfo) -> np.ndarray:
        shape = shapes.get(info.name, info.smallest)
        if mode == "zeros":
            return np.zeros(shape, numpy_dtype(info.dtype))
        if mode == "ones":
            return np.ones(shape, numpy_dtype(info.dtype))
        return draw_input(info, shape, random)

    made = {info.name: made_up(info) for info in model.inputs if info.name not in given}
    return given | made


def _time(model: Model | RemoteModel, arrays: dict[str, np.ndarray], repeat: int) -> list[float]:
    """Milliseconds of each run; ``run`` has warmed up."""
    from byoc.deploy.loader import Model

    if not isinstance(model, Model):
        return model.time(arrays, repeat)
    tensors = model.tensors(arrays)
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        model.invoke(tensors)
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def _statistics(times: list[float]) -> dict[str, float]:
    import numpy as np

    least, median, high, most = np.percentile(times, [0, 50, 90, 100]).round(4).tolist()
    return {"runs": len(times), "min": least, "p50": median, "p90": high, "max": most}


def _describe(array: np.ndarray) -> dict[str, Any]:
    return {"shape": list(array.shape), "dtype": str(array.dtype)}


def _top(array: np.ndarray, count: int) -> list[list[float]]:
    """[index, value] of the greatest values of the first row, NaN last."""
    import numpy as np

    row = array.reshape(-1, array.shape[-1])[0] if array.ndim else array.reshape(1)
    order = np.argsort(np.where(np.isnan(row), -np.inf, row), kind="stable")[::-1][:count]
    return [[int(index), row[index].item()] for index in order]


def _print(answer: dict[str, Any]) -> None:
    if "device" in answer:
        say(f"on {answer['device']}")
    for name, about in answer["outputs"].items():
        say(f"{name}: {about['dtype']}{about['shape']}")
        for index, value in answer.get("top", {}).get(name, []):
            say(f"  {index:>8}  {value:.6g}")
    if times := answer.get("milliseconds"):
        from rich.table import Table

        table = Table("runs", "min ms", "p50 ms", "p90 ms", "max ms")
        table.add_row(
            str(times["runs"]), *(f"{times[k]:.3f}" for k in ("min", "p50", "p90", "max"))
        )
        new_console().print(table)
