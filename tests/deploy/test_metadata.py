"""What a library says of itself, from the file; libraries that do not fit are refused by a line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

import byoc
import byoc.compiler.partitioned
import byoc.deploy.compiled_file
import byoc.deploy.metadata
from byoc.cli import main
from byoc.compiler.compile import compile
from byoc.deploy.compiled_file import read_compiled
from byoc.deploy.metadata import FORMAT_VERSION, Entry, Metadata, TensorInfo
from byoc.errors import LoadError
from codegen_cc.link.checksum import seal
from models.builder import GraphBuilder
from tests.deploy.networks import two_by_two

#: Offset of e_machine in the ELF header, and AArch64's number there.
_MACHINE_AT, _AARCH64 = 18, 183


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library compiled from a file, for a CPU of some level."""
    folder = tmp_path_factory.mktemp("metadata")
    onnx.save(two_by_two(), folder / "model.onnx")
    compiled = compile(
        folder / "model.onnx", folder / "m.so", target="x86-64-v2", threads=2, skip_ops=["softmax"]
    )
    assert len(compiled.report.regions) == 1
    return folder / "m.so"


def test_everything_comes_back_from_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = two_by_two()
    onnx.save(model, tmp_path / "model.onnx")
    compiled = compile(tmp_path / "model.onnx", tmp_path / "m.so", threads=2)
    file = read_compiled(tmp_path / "m.so")
    found = file.metadata()
    assert file.machine == "x86_64"
    assert found.inputs == (
        TensorInfo("image", (1, 3, 16, 16), "float32"),
        TensorInfo("scale", (1, 8, 1, 1), "float32"),
    )
    assert [info.name for info in found.outputs] == ["probabilities", "mean"]
    assert found.threads == 2 and found.form == "tvm"
    assert [library.name for library in found.libraries] == ["builtin"]
    assert found.target is not None
    assert found.target.kernel_levels == ("baseline", "avx2", "avx512")
    assert dict(found.versions) == byoc.compiler.partitioned.versions()
    digest = hashlib.sha256((tmp_path / "model.onnx").read_bytes()).hexdigest()
    assert [(s.name, s.sha256) for s in found.source] == [("model.onnx", digest)]
    assert isinstance(found.entry, Entry) and sorted(found.entry.inputs) == [0, 1]
    assert found.report == compiled.report.to_json()
    assert len(found.report["regions"]) == 1 and not found.report["left"]
    assert found == byoc.load(tmp_path / "m.so").metadata
    assert Metadata.from_json(found.to_json()) == found
    assert str(byoc.load(tmp_path / "m.so").function("byoc_metadata")()) == file.text

    assert main(["inspect", str(tmp_path / "m.so"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed.pop("machine") == "x86_64" and printed.pop("file") == "m.so"
    assert printed.pop("bytes") == (tmp_path / "m.so").stat().st_size
    assert Metadata.from_json(json.dumps(printed)) == found


def test_inspect_tells_people_what_is_inside(
    library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(library)]) == 0
    text = capsys.readouterr().out
    assert "image: float32[1, 3, 16, 16]" in text and "mean: float32[1, 8, 1, 1]" in text
    assert "x86-64-v2 (x86_64), kernels for baseline, avx2, avx512" in text
    assert "sse4_2" in text and "model.onnx, SHA-256 " in text
    assert "left to TVM:" in text and "skipped by operator relax.nn.softmax" in text
    assert "apache" not in text and text.isprintable() is False  # several lines, nothing odd
    assert all(line.isprintable() for line in text.splitlines())


def test_names_of_the_model_cannot_draw_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = GraphBuilder("odd", 1)
    x = graph.input("x\x1b[2J\n", (1, 4))
    graph.output(graph.op("Relu", x), 'y";}\x07', (1, 4))
    model = graph.build()
    model.graph.node[0].name = "node\x1b[31m"
    compile(model, tmp_path / "m.so", skip_ops=["relu"])
    assert main(["inspect", str(tmp_path / "m.so")]) == 0
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())
    assert read_compiled(tmp_path / "m.so").metadata().inputs[0].name == "x\x1b[2J\n"


def test_external_data_are_hashed_as_well(tmp_path: Path) -> None:
    onnx.save(
        two_by_two(),
        tmp_path / "model.onnx",
        save_as_external_data=True,
        location="model.data",
        size_threshold=0,
    )
    compile(tmp_path / "model.onnx", tmp_path / "m.so")
    source = read_compiled(tmp_path / "m.so").metadata().source
    names = ["model.onnx", "model.data"]
    hashes = [hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in names]
    assert [(s.name, s.sha256) for s in source] == list(zip(names, hashes, strict=True))


_USE = {"library": "builtin", "algorithm": "matmul", "nodes": 2}


@pytest.mark.parametrize(
    ("machines", "said"),
    [
        ([_USE], "report.machines is "),
        ({"CPU": _USE}, "report.machines.CPU is "),
        ({"CPU": ["builtin"]}, r"report.machines.CPU\[0\] is 'builtin'"),
        ({"CPU": [{**_USE, "nodes": "two"}]}, r"report.machines.CPU\[0\].nodes is 'two'"),
        ({"CPU": [{"library": "builtin"}]}, r"report.machines.CPU\[0\] has no algorithm"),
    ],
)
def test_machines_that_no_compiler_writes(library: Path, machines: object, said: str) -> None:
    about = read_compiled(library).metadata().to_dict()
    about["report"]["machines"] = {"CPU": [_USE | {"macs": 5}]}
    assert Metadata.from_json(json.dumps(about)).report["machines"]
    about["report"]["machines"] = machines
    with pytest.raises(ValueError, match=f"its metadata are damaged .{said}"):
        Metadata.from_json(json.dumps(about))


def _refusal(path: Path) -> str:
    with pytest.raises(LoadError) as error:
        byoc.load(path)
    assert "\n" not in str(error.value)
    assert main(["run", str(path)]) == 2
    return str(error.value)


def test_a_library_for_another_architecture_is_refused(library: Path, tmp_path: Path) -> None:
    content = bytearray(library.read_bytes())
    content[_MACHINE_AT] = _AARCH64
    other = tmp_path / "other.so"
    other.write_bytes(content)
    seal(other)
    message = _refusal(other)
    assert message.endswith(
        "other.so: it is for aarch64, and this machine is x86_64; compile the model for it with "
        "--target"
    )
    assert read_compiled(other).metadata().inputs  # it can be inspected all the same


def test_a_library_of_another_tvm_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {"byoc": "0.1.0", "tvm": "0.31.2", "tvm_ffi": "0.4.0"}
    monkeypatch.setattr(byoc.compiler.partitioned, "versions", lambda: made)
    compile(two_by_two(), tmp_path / "m.so")
    message = _refusal(tmp_path / "m.so")
    assert "it was compiled with TVM 0.31.2 and FFI 0.4.0, and this is TVM 0.27" in message
    assert "compile the model again, or install apache-tvm==0.31.2" in message


def test_a_patch_release_of_tvm_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = byoc.compiler.partitioned.versions() | {"tvm": "0.27.9"}
    monkeypatch.setattr(byoc.compiler.partitioned, "versions", lambda: made)
    compile(two_by_two(), tmp_path / "m.so")
    assert byoc.load(tmp_path / "m.so").metadata.versions["tvm"] == "0.27.9"


def test_a_library_of_another_format_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(byoc.deploy.metadata, "FORMAT_VERSION", 77)
        compile(two_by_two(), tmp_path / "m.so")
    message = _refusal(tmp_path / "m.so")
    assert f"format version 77 (byoc {byoc.__version__} wrote it), where this byoc reads" in message
    assert f"reads {FORMAT_VERSION}; compile the model again" in message
    assert main(["inspect", str(tmp_path / "m.so")]) == 2


def test_a_cpu_without_the_level_is_told_what_it_lacks(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = frozenset({"ssse3", "cx16"})
    monkeypatch.setattr(byoc.deploy.compiled_file, "cpu_flags", lambda: old)
    message = _refusal(library)
    assert "it is for x86-64-v2, and this CPU lacks lahf_lm, popcnt, sse4_1, sse4_2;" in message


@pytest.mark.parametrize("damage", ["text", "cut", "none"])
def test_what_is_no_library_of_ours_is_refused(
    library: Path, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.so"
    changes: dict[str, Callable[[bytes], bytes]] = {
        "text": lambda content: b"not a library",
        "cut": lambda content: content[: len(content) // 2],
        "none": lambda content: content.replace(b"\0byoc_metadata\0", b"\0byoc_metadatb\0"),
    }
    path.write_bytes(changes[damage](library.read_bytes()))
    if damage == "none":
        seal(path)
    said = {
        "text": "it is not a 64-bit ELF library",
        "cut": "it is cut off",
        "none": "its metadata are damaged; compile it again",
    }
    assert main(["inspect", str(path)]) == 2
    assert said[damage] in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "absent.so")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_a_folder_and_a_file_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder.so").mkdir()
    with pytest.raises(LoadError, match="it is a folder; give the library in it"):
        byoc.load(tmp_path / "folder.so")
    (tmp_path / "secret.so").write_bytes(b"?")

    def refuse(self: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(LoadError, match=r"cannot load .*secret.so: Permission denied"):
        byoc.load(tmp_path / "secret.so")
