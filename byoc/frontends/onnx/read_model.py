"""Read a model: from a file with its external data, or from memory, and only if it is sound.

A model may come from a stranger. Its external data lie in its own folder or below, the files are
plain ones, and no number in it decides how much memory is taken before it was checked.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath

import onnx
from google.protobuf.message import DecodeError

from byoc.errors import ModelError
from byoc.frontends.onnx.check_model import check_model, data_bytes, sort_nodes
from byoc.frontends.onnx.given_model import GivenModel, ReadModel, given_model
from byoc.frontends.onnx.graph_names import all_tensors
from byoc.frontends.onnx.labelled_outputs import with_numbers
from byoc.frontends.onnx.loose_models import as_standard
from byoc.frontends.onnx.shadowed_names import without_shadows
from byoc.frontends.onnx.weights_apart import ApartModel, apart_from, leave_external, read_apart
from codegen_cc.errors import one_line

#: How files begin that are taken for models, and what they are.
_OTHERS = {
    b"version https://git-lfs.github.com/spec/": "it is a pointer of Git LFS, whose file"
    " 'git lfs pull' brings",
    b"\x7fELF": "it is a library, as byoc compile writes; give the model that it was made of",
    b"PK\x03\x04": "it is a ZIP archive, as PyTorch's weights and scripts; export the module itself"
    " to a .pt2 file by torch.export.save, or to ONNX",
    b"\x1f\x8b": "it is compressed by gzip; unpack it",
    b"\x89HDF": "it is an HDF5 file, as Keras writes; export the model to ONNX",
}

#: What a tensor may say of its data in a file.
_EXTERNAL_KEYS = frozenset(("basepath", "checksum", "length", "location", "offset"))


def load_model(path: Path) -> onnx.ModelProto:
    """Read a model file and its external data. Raises ``ModelError``."""
    return read(path).whole()


def read(model: GivenModel) -> ApartModel:
    """A sound model, its nodes in order, with large weights left where they are.

    Raises ``ModelError``. A model in memory is not changed.
    """
    given = given_model(model)
    if isinstance(given, onnx.ModelProto):
        if not given.graph.output:
            raise ModelError("the model has a graph without outputs; mark at least one output")
        _require_data(given)
        given, labelled = with_numbers(without_shadows(as_standard(given)))
        check_model(given)
        apart = apart_from(given)
        apart.labelled = labelled
        sort_nodes(apart.model.graph)
        return apart
    return _read_file(given)


def read_graph(model: ReadModel) -> onnx.ModelProto:
    """A model without what it keeps in other files, as it is. Raises ``ModelError``."""
    if isinstance(model, onnx.ModelProto):
        return model
    _require_plain_file(model)
    with _readable(model):
        return onnx.load(str(model), load_external_data=False)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise ``ModelError`` for a file that cannot be read, or is no model."""
    try:
        yield
    except (DecodeError, ValueError, UnicodeDecodeError) as err:
        raise ModelError(f"{path}: no ONNX model{_why_not(path, err)}") from err
    except OSError as err:
        raise ModelError(f"{path}: cannot be read ({err.strerror}); check its permissions") from err


def _why_not(path: Path, err: BaseException) -> str:
    with path.open("rb") as file:
        begin = file.read(max(map(len, _OTHERS)))
    for other, what in _OTHERS.items():
        if begin.startswith(other):
            return f": {what}"
    said = one_line(err).partition(": ")[2] or type(err).__name__
    return f" ({said}); the file is damaged or of another format"


def _read_file(path: Path) -> ApartModel:
    _require_plain_file(path)
    with _readable(path):
        apart = read_apart(path, lambda: onnx.load(str(path), load_external_data=False))
    model = apart.model
    if not model.graph.output or model.ir_version == 0:
        size = path.stat().st_size
        raise ModelError(
            f"{path}: no ONNX model (a graph without outputs in {size} bytes);"
            " the file is empty, damaged or of another format"
        )
    model, apart.labelled = with_numbers(without_shadows(as_standard(model)))
    apart.model = model
    try:
        check_model(model, apart.weights)
        sort_nodes(model.graph)
    except ModelError as err:
        raise ModelError(f"{path}: {err}") from err
    files = _check_external_data(model, path)
    apart.files = (path, *files)
    leave_external(apart, path.parent)
    onnx.load_external_data_for_model(model, str(path.parent))
    return apart


def _require_plain_file(path: Path) -> None:
    """Raise ``ModelError`` for what is no file: a device or a pipe might never end."""
    hint = "give the path of an ONNX model"
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(f"{path}: no such file; {hint}") from None
    except OSError as err:
        raise ModelError(f"{path}: cannot be read ({err.strerror}); check its permissions") from err
    if stat.S_ISDIR(mode):
        raise ModelError(f"{path}: is a folder; {hint} in it")
    if not stat.S_ISREG(mode):
        raise ModelError(f"{path}: is a device, a pipe or a socket; {hint}")


# ---------------------------------------------------------------------- external data


def _external_tensors(
    model: onnx.ModelProto,
) -> Iterator[tuple[onnx.TensorProto, dict[str, str]]]:
    """Tensors with their data in a file, at any depth, and what they say of it."""
    for tensor in all_tensors(model.graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor, {entry.key: entry.value for entry in tensor.external_data}


def data_locations(path: Path) -> set[str]:
    """Files that a model has its external data in, as it says: from its own folder."""
    model = onnx.load(path, load_external_data=False)
    return {entries["location"] for _, entries in _external_tensors(model)}


def _require_data(model: onnx.ModelProto) -> None:
    for tensor, entries in _external_tensors(model):
        raise ModelError(
            f"tensor {tensor.name!r} has its data in the file {entries.get('location')!r}, which"
            " was not loaded; give the path of the model, or call onnx.load_external_data_for_model"
        )


def _check_external_data(model: onnx.ModelProto, path: Path) -> list[Path]:
    """The files of external data, each once; what is not said of the data's length is added.

    Raises ``ModelError`` where a file is not in the model's folder, or is too short.
    """
    files: dict[str, Path] = {}
    for tensor, entries in _external_tensors(model):
        keys = [entry.key for entry in tensor.external_data]
        if len(entries) < len(keys) or not _EXTERNAL_KEYS.issuperset(keys):
            raise ModelError(
                f"{path}: tensor {tensor.name!r} describes its external data by {keys}; need each"
                f" of {sorted(_EXTERNAL_KEYS)} at most once; the model is damaged, fetch it again"
            )
        location = entries.get("location", "")
        if location not in files:
            files[location] = _data_file(path, location, tensor.name)
        offset, need = _whole(path, tensor, entries, "offset"), data_bytes(tensor)
        if need is None:
            raise ModelError(
                f"{path}: tensor {tensor.name!r} is of a type whose data cannot be in a file of"
                " their own; export the model again"
            )
        if "length" not in entries:
            tensor.external_data.add(key="length", value=str(need))
        elif (length := _whole(path, tensor, entries, "length")) != need:
            raise ModelError(
                f"{path}: tensor {tensor.name!r} {list(tensor.dims)} needs {need} bytes and has"
                f" {length} in {location!r}; the model is damaged, fetch it again"
            )
        size = files[location].stat().st_size
        if size < offset + need:
            raise ModelError(
                f"{path}: external data file {location!r} has {size} bytes and"
                f" tensor {tensor.name!r} needs {offset + need}; the file is damaged, fetch it"
                " again"
            )
    return list(files.values())


def _data_file(path: Path, location: str, name: str) -> Path:
    """The file of a location: a plain one in the model's folder, also where links lead."""
    what = f"{path}: external data file {location!r} of tensor {name!r}"
    file = path.parent / location
    if not location or "\0" in location:
        raise ModelError(f"{what} has no usable name; the model is damaged, fetch it again")
    # Models travel between systems: what is absolute on one is so everywhere.
    parts = {*Path(location).parts, *PureWindowsPath(location).parts}
    if Path(location).is_absolute() or PureWindowsPath(location).anchor or ".." in parts:
        raise ModelError(
            f"{what} is not in the model's folder; put it into {path.parent} and save the model"
            " with that location"
        )
    try:
        inside = file.resolve().is_relative_to(path.parent.resolve())
        mode = file.stat().st_mode
    except FileNotFoundError:
        raise ModelError(f"{what} is missing; put it into {path.parent}") from None
    except (OSError, RuntimeError) as err:  # a loop of links is a RuntimeError before Python 3.13
        raise ModelError(f"{what} cannot be read ({one_line(err)}); check it") from err
    if not inside:
        raise ModelError(
            f"{what} is a link that leads out of the model's folder; copy the file into"
            f" {path.parent}"
        )
    if not stat.S_ISREG(mode):
        raise ModelError(f"{what} is no plain file; put the data into {path.parent}")
    return file


def _whole(path: Path, tensor: onnx.TensorProto, entries: dict[str, str], key: str) -> int:
    text = entries.get(key, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(
            f"{path}: tensor {tensor.name!r} has the {key} {text[:40]!r}; need a whole number of"
            " bytes, 0 or more"
        )
    return int(text)
