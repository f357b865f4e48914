"""What the forms of a quantised network become: regions, share of the products, seconds, size.

``python -m benchmarks.quantised_forms resnet50 mobilenet_v2 bert vit_b_16 [--repeats 3]``

QDQ and QOperator are those of ``onnxruntime.quantization.quantize_static``, dynamic is that of
``quantize_dynamic``, each as it comes.  Forms take turns with the network in float32.  Exit code 1
where one is more than a region, leaves products to TVM, takes more than twice float32's time to
compile, or makes a library larger than 0.35 of float32's.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

import onnx

import byoc
from benchmarks import harness
from byoc.bench.tables import Sheet
from byoc.zoo import build
from models.quantised import calibrate, dynamic

#: Greatest ratios to the float32 network: seconds of compiling, bytes of the library.
_SECONDS, _BYTES = 2.0, 0.35

PLAIN = "float32"
FORMS = (PLAIN, "QDQ", "QOperator", "dynamic")


@dataclass(frozen=True)
class Row:
    """One form of a network; the ratios are to its float32 form."""

    network: str
    form: str
    regions: int
    share_of_macs: float
    seconds: float
    seconds_ratio: float
    megabytes: float
    bytes_ratio: float

    @property
    def holds(self) -> bool:
        """Whether it is what it should be."""
        whole = self.regions == 1 and self.share_of_macs == 1.0
        small = self.form == PLAIN or self.bytes_ratio <= _BYTES
        return whole and small and self.seconds_ratio <= _SECONDS


def form_of(model: onnx.ModelProto, form: str, folder: Path) -> Path:
    """The file in ``folder`` with a form of a model."""
    if form == PLAIN:
        path = folder / "plain.onnx"
        onnx.save(model, path)
        return path
    return dynamic(model, folder) if form == "dynamic" else calibrate(model, folder, form)


def measure(name: str, repeats: int, folder: Path) -> list[Row]:
    """All forms of a network of the zoo."""
    model = build(name)
    files, seconds = {}, {form: [] for form in FORMS}
    for form in FORMS:
        (folder / form).mkdir()
        files[form] = form_of(model, form, folder / form)
    found = {}
    for _ in range(repeats):
        for form, file in files.items():
            start = time.perf_counter()
            report = byoc.compile(file, folder / f"{form}.so").report
            seconds[form].append(time.perf_counter() - start)
            found[form] = (report, (folder / f"{form}.so").stat().st_size)
    middle = {form: median(times) for form, times in seconds.items()}
    return [
        Row(
            *(name, form, len(report.regions), report.offloaded_macs / report.macs),
            *(middle[form], middle[form] / middle[PLAIN]),
            *(size / 1e6, size / found[PLAIN][1]),
        )
        for form, (report, size) in found.items()
    ]


def sheet(rows: Sequence[Row]) -> Sheet:
    """The table."""
    headings = ("network", "form", "regions", "MACs %", "compile s", "ratio", "MB", "ratio", "")
    lines = [
        (
            *(row.network, row.form, str(row.regions), f"{100 * row.share_of_macs:.1f}"),
            *(f"{row.seconds:.2f}", f"{row.seconds_ratio:.2f}"),
            *(f"{row.megabytes:.1f}", f"{row.bytes_ratio:.3f}", "" if row.holds else "missed"),
        )
        for row in rows
    ]
    return Sheet("Quantised forms beside float32", headings, lines, left=2)


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of some networks of the zoo."""
    parser = harness.parser("quantised_forms", __doc__ or "", markdown=True, repeats=3)
    parser.add_argument("networks", nargs="+", metavar="NETWORK", help="of the zoo")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", byoc.OffloadWarning)
    rows: list[Row] = []
    for name in options.networks:
        harness.tell(name)
        with tempfile.TemporaryDirectory(prefix="byoc-forms-") as folder:
            rows += measure(name, options.repeats, Path(folder))
    checks = [f"{row.network}, {row.form}: missed" for row in rows if not row.holds]
    if options.json:
        harness.show_json({"rows": list(map(asdict, rows)), "checks": checks})
    else:
        about = [f"onnxruntime {version('onnxruntime')}, {options.repeats} turns, medians"]
        harness.show_sheets([about, sheet(rows)], checks, options.markdown)
    return int(harness.misses(checks))


if __name__ == "__main__":
    sys.exit(main())
