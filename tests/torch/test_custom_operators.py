"""Operators that ``torch.library`` knows from a user, computed by the user's kernels."""

from __future__ import annotations

import numpy as np
import pytest

import byoc
from byoc.errors import ImportFailure, UnsupportedForm
from byoc.library import Library
from tests.libraries.test_custom_operators import library

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("forget_operators")


def counted(x, weight, bins, top):
    weights = None if weight is None else weight.double()
    counts = torch.histogram(x.double(), bins, range=(0.0, top), weight=weights).hist
    return counts.to(torch.int32), counts.max().float()


@pytest.fixture(scope="module")
def histogram() -> None:
    """Define ``acme::histogram`` once in the process."""

    @torch.library.custom_op("acme::histogram", mutates_args=())
    def operator(
        x: torch.Tensor, weight: torch.Tensor | None, bins: int, top: float = 1.0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return counted(x, weight, bins, top)

    @operator.register_fake
    def _(x, weight, bins, top=1.0):
        return x.new_empty((bins,), dtype=torch.int32), x.new_empty(())


class Counts(torch.nn.Module):
    def __init__(self, bins: int = 8, weighted: bool = False) -> None:
        super().__init__()
        self.bins, self.weighted = bins, weighted

    def forward(self, x):
        weight = torch.ones_like(x) + torch.ones_like(x) if self.weighted else None
        counts, most = torch.ops.acme.histogram(torch.relu(x), weight, self.bins, 2.0)
        return counts.float() * 2, most


@pytest.fixture
def own(tmp_path) -> Library:
    return library(tmp_path)


@pytest.mark.usefixtures("histogram")
@pytest.mark.parametrize("weighted", [False, True])
def test_a_users_operator_is_part_of_a_region(weighted: bool, tmp_path, own: Library) -> None:
    x = 2 * torch.rand(64, generator=torch.manual_seed(0))
    module = Counts(weighted=weighted).eval()
    done = byoc.compile(
        module, tmp_path / "m.so", example_inputs=(x,), libraries=[own, "builtin"], verify=True
    )
    assert len(done.report.regions) == 1 and not done.report.left
    assert {use.library for use in done.report.kernels} == {"own", "builtin"}
    found = byoc.load(tmp_path / "m.so").run({"x": x.numpy()})
    for array, wanted in zip(found.values(), module(x), strict=True):
        np.testing.assert_array_equal(array, wanted.numpy())


@pytest.mark.usefixtures("histogram")
def test_of_open_length(tmp_path, own: Library) -> None:
    x = 2 * torch.rand(64, generator=torch.manual_seed(0))
    length = torch.export.Dim("n")
    byoc.compile(
        Counts().eval(),
        tmp_path / "m.so",
        example_inputs=(x,),
        dynamic_shapes=({0: length},),
        libraries=[own, "builtin"],
    )
    (counts, most) = byoc.load(tmp_path / "m.so").run({"x": x[:33].numpy()}).values()
    np.testing.assert_array_equal(counts, Counts()(x[:33])[0].numpy())
    assert most == counts.max() / 2


@pytest.mark.slow
@pytest.mark.usefixtures("histogram")
def test_torch_compile_calls_the_kernel(tmp_path, own: Library) -> None:
    """Nothing is kept on disk: the kernel may change, and have the same name."""
    x = 2 * torch.rand(64, generator=torch.manual_seed(0))
    options = {"libraries": [own, "builtin"], "cache": tmp_path / "kept"}
    compiled = torch.compile(Counts().eval(), backend="byoc", options=options)
    torch.testing.assert_close(compiled(x), Counts()(x))
    assert not [*(tmp_path / "kept").iterdir()]
    explained = byoc.explain(Counts().eval(), (x,), options={"libraries": [own, "builtin"]})
    assert not explained.breaks and "byoc: 1 region" in str(explained)


@pytest.mark.usefixtures("histogram")
def test_without_its_library_it_is_named(tmp_path) -> None:
    x = torch.rand(64)
    with pytest.raises(ImportFailure, match=r"no converter for acme\.histogram"):
        byoc.compile(Counts().eval(), tmp_path / "m.so", example_inputs=(x,))


@pytest.mark.usefixtures("histogram")
def test_a_result_that_pytorch_has_otherwise_is_refused(tmp_path, own: Library) -> None:
    from dataclasses import replace

    from codegen_cc.operator import operator_of, register

    record = operator_of("histogram")
    one_more = replace(
        record.custom,
        results=lambda operands, attributes: [
            ((attributes["bins"] + 1,), "int32"),
            ((), "float32"),
        ],
    )
    register(replace(record, custom=one_more), "own")
    with pytest.raises(UnsupportedForm, match=r"would be int32\[9\]; PyTorch has int32\[8\]"):
        byoc.compile(
            Counts().eval(),
            tmp_path / "m.so",
            example_inputs=(torch.rand(64),),
            libraries=[own, "builtin"],
        )
