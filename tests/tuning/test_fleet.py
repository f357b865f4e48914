"""One library with the choices of several machines: each takes its own when it is loaded."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
from byoc.cli import main
from byoc.compiler.keywords import CompileKeywords
from byoc.deploy.compiled_file import read_compiled
from byoc.errors import TuningError
from byoc.machine import cpu_name
from byoc.tuning.choice import timed_by_all
from byoc.tuning.database import merge
from codegen_cc.errors import CodegenError
from codegen_cc.instruction_sets import kernels_here
from codegen_cc.libraries import Selection
from codegen_cc.libraries.measured_choice import Race, Time, algorithms_of, stamp
from codegen_cc.link.toolchain import compiler
from codegen_cc.node import Node
from codegen_cc.runtime_files import runtime_file
from tests.libraries.sample import SampleLibrary, two_products
from tests.reference import assert_agrees, onnxruntime_outputs
from tests.tuning.networks import layers_of

#: Added by the kernel of the sample library, to tell who computed.
_MARK = 100.0
PLAIN, MARKED = "Plain CPU, model 1, avx512", "Marked CPU, avx2"


pytestmark = pytest.mark.usefixtures("forget_libraries")


@pytest.fixture
def fleet(tmp_path: Path) -> Selection:
    """Times of two machines: on one the sample library wins the second product."""
    sample = SampleLibrary(tmp_path, "source")
    source = tmp_path / "sample.c"
    source.write_text(source.read_text().replace("= sum;", f"= {_MARK}f + sum;"))
    libraries = Selection.of(["builtin", sample])
    layers = [
        layer for layer in layers_of(two_products(), ["builtin", sample]) if not layer.skipped
    ]
    for machine, winner in ((PLAIN, "builtin"), (MARKED, "sample")):
        races = {layer.signature: _race(libraries, layer.node, winner) for layer in layers}
        merge(tmp_path / "fleet.json", f"{machine}, 1 thread", races)
    return timed_by_all(libraries, tmp_path / "fleet.json", 1, ["Plain", "Marked"])


def _keywords(fleet: Selection, folder: Path, *machines: str) -> CompileKeywords:
    """The same by names, as users give it."""
    libraries, database = list(fleet.order), folder / "fleet.json"
    return {"libraries": libraries, "tuning_db": database, "tuning_machines": machines}


def _race(libraries: Selection, node: Node, winner: str) -> Race:
    able = libraries.able(node)
    times = {
        found.name: dict.fromkeys(
            algorithms_of(found, node), Time(1, 1) if found.name == winner else Time(9, 9)
        )
        for found in able
    }
    return Race({found.name: stamp(found) for found in able}, times)


def test_each_machine_takes_its_own(
    fleet: Selection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keywords = _keywords(fleet, tmp_path, "Plain", "Marked")
    compiled = byoc.compile(two_products(), tmp_path / "m.so", **keywords)
    assert len(compiled.report.regions) == 1 and not compiled.report.left
    rows = {"x": np.random.default_rng(1).standard_normal((5, 32), dtype=np.float32)}
    (name, right) = next(iter(onnxruntime_outputs(two_products(), rows).items()))
    own_level = kernels_here().ext_isa_name().decode()
    for machine, marked in (
        (PLAIN, False),
        (MARKED, True),
        ("Unknown CPU, avx2", True),  # the first of its level
        ("Unknown CPU, avx512", False),
        ("Unknown CPU, neon", False),  # the first of all
        ("", own_level == "avx2"),  # this one
    ):
        monkeypatch.setenv("BYOC_MACHINE", machine)
        copy = tmp_path / f"{len(list(tmp_path.glob('*.so')))}.so"  # which has asked nobody yet
        shutil.copy(tmp_path / "m.so", copy)
        for _ in range(2):
            found = byoc.load(copy).run(rows)
            assert_agrees(found, {name: right + _MARK if marked else right})


def test_reports_name_every_machine(
    fleet: Selection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the libraries of all, also those that the first machine does without."""
    keywords = _keywords(fleet, tmp_path, "Plain", "Marked")
    report = byoc.compile(two_products(), tmp_path / "m.so", **keywords).report
    assert {use.library for use in report.kernels} == {"builtin"}
    assert list(report.machines) == [PLAIN, MARKED] and report.machines[PLAIN] == report.kernels
    assert sum(u.nodes for u in report.machines[MARKED] if u.library == "sample") == 1
    assert {use.name: use.nodes for use in report.libraries} == {"builtin": 2, "sample": 1}
    assert {i.name for i in read_compiled(tmp_path / "m.so").metadata().libraries} == {
        "builtin",
        "sample",
    }
    assert f"on {MARKED}: sample: " in report.to_dot()
    assert f"Kernels on {MARKED}" in report.to_html()
    report.render()
    said = capsys.readouterr().out
    assert all(f"Kernels on {machine}" in said for machine in (PLAIN, MARKED))
    assert main(["inspect", str(tmp_path / "m.so")]) == 0
    said = capsys.readouterr().out
    assert f"machines  {PLAIN}: 2 by builtin: " in said
    assert f"          {MARKED}: " in said and "1 by sample: " in said


def test_one_machine_by_name(fleet: Selection, tmp_path: Path) -> None:
    keywords = _keywords(fleet, tmp_path, "Marked")
    report = byoc.compile(two_products(), tmp_path / "m.so", **keywords).report
    assert {use.library for use in report.kernels} == {"builtin", "sample"}
    assert report.machines == {} and report.to_json()["machines"] == {}
    for wrong in ({**keywords, "tuning_db": None}, {**keywords, "choose": "measured"}):
        with pytest.raises(TuningError, match=r"tuning_machines in Python. needs --tuning-db"):
            byoc.compile(two_products(), tmp_path / "m.so", **wrong)  # type: ignore[arg-type]
    with pytest.raises(TuningError, match="tuning_machines is 3; need a list of texts"):
        byoc.compile(two_products(), tuning_db="db.json", tuning_machines=3)  # type: ignore[arg-type]


def test_machines_that_agree_share_the_code(fleet: Selection, tmp_path: Path) -> None:
    """And what both take for all nodes of a region is written once, without asking."""
    (_, times), _ = fleet.fleet
    alike = Selection(fleet.order, tuning=times, fleet=((PLAIN, times), (MARKED, times)))
    byoc.compile(two_products(), libraries=alike, dump_code=tmp_path / "alike")
    byoc.compile(two_products(), libraries=fleet, dump_code=tmp_path / "apart")
    (alike_code,), (apart_code,) = ((tmp_path / n).glob("*.c") for n in ("alike", "apart"))
    assert "ext_machine" not in alike_code.read_text()
    text = apart_code.read_text()
    assert f'"{PLAIN}"' in text.replace("\\054", ",").replace("\\040", " ")
    assert text.count("_on1_body(const") == 1 and "_on2" not in text


def test_what_has_one_way_refuses_several(fleet: Selection, tmp_path: Path) -> None:
    keywords: CompileKeywords = {"libraries": fleet}
    with pytest.raises(CodegenError, match="standalone form has the choices of one machine"):
        byoc.compile_standalone(two_products(), tmp_path / "folder", name="two", **keywords)
    with pytest.raises(CodegenError, match="library with timers has the choices of one machine"):
        byoc.compile(two_products(), timers=True, **keywords)
    database = tmp_path / "fleet.json"
    with pytest.raises(TuningError, match=r"is named twice, by Plain and model 1"):
        timed_by_all(fleet, database, 1, ["Plain", "model 1"])


def test_the_command(fleet: Selection, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del fleet
    onnx.save(two_products(), tmp_path / "m.onnx")
    command = ["compile", tmp_path / "m.onnx", "-o", tmp_path / "m.so", "--library", "builtin"]
    machines = ["--tuning-machine", "Plain", "--tuning-machine", "Marked"]
    words = [str(word) for word in (*command, "--tuning-db", tmp_path / "fleet.json")]
    assert main([*words, *machines]) == 0
    assert main([*words, *machines, "--tuning-machine", "Third"]) == 2
    assert "no machine like 'Third'" in capsys.readouterr().err


_CPUINFO = (
    "processor\t: 0\nmodel\t\t: 17\nmodel name\t: Some (R) CPU, @ 2.4  \nflags\t: a\n",
    "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n\nprocessor\t: 1\n"
    "CPU implementer\t: 0x41\nCPU part\t: 0xd05\n\nCPU part\t: 0xd0b\n",
    "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd08\n",
)


@pytest.mark.parametrize("text", _CPUINFO)
def test_both_languages_name_a_cpu_alike(text: str, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    (tmp_path / "name.c").write_text(
        '#include "ext_machine.h"\nconst char* ext_isa_name(void) { return "level"; }\n'
        "int main(void) { char text[512]; ext_machine_cpu(text, sizeof text); puts(text); }\n"
    )
    flags = ["-Wall", "-Werror", f"-I{runtime_file('include/ext_machine.h').parent}"]
    flags.append(f'-DEXT_CPUINFO="{tmp_path / "cpuinfo"}"')
    subprocess.run([*compiler(), *flags, "name.c", "-o", "name"], cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "name"], capture_output=True, text=True, check=True).stdout
    assert said == f"{cpu_name(lambda path: text)}\n"
