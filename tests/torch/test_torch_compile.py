"""``torch.compile(model, backend="byoc")`` beside PyTorch."""

from __future__ import annotations

import gc
import math
import os
import warnings
import weakref
from pathlib import Path

import pytest
import torch
import torch._inductor.config
from torch import nn

import byoc
from byoc.errors import FallbackWarning, ModelError
from byoc.torch_compile import backend as home
from byoc.torch_compile.backend import backend
from byoc.torch_compile.graphs import collected


class Network(nn.Module):
    """Two results, and nothing between them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None, torch.Tensor]:
        y = torch.relu(self.norm(self.conv(x)))
        return self.head(y.mean((2, 3))), None, y


pytestmark = pytest.mark.usefixtures("nothing_compiled")


def require_equal(module: nn.Module, compiled: nn.Module, *inputs: torch.Tensor) -> None:
    found, wanted = compiled(*inputs), module(*inputs)
    assert found[1] is None and len(found) == 3
    for place in (0, 2):
        torch.testing.assert_close(found[place], wanted[place], rtol=1e-4, atol=1e-5)


def test_the_entry_point() -> None:
    """Read from the installed package: nothing is imported before the backend is asked for."""
    assert "byoc" in torch._dynamo.list_backends()
    assert torch._dynamo.backends.registry.lookup_backend("byoc") is backend


@torch.no_grad()
def test_the_own_cache_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new library makes room for itself; one that is used is young again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("BYOC_CACHE_LIMIT", "1e-6")
    old = tmp_path / "byoc" / "torch" / "old.so"
    old.parent.mkdir(parents=True)
    old.write_bytes(bytes(10_000))
    os.utime(old, (0, 0))
    module = Network().eval()
    compiled = torch.compile(module, backend=backend)
    require_equal(module, compiled, torch.randn(1, 3, 8, 8))
    (kept,) = old.parent.glob("*.so")
    assert kept != old
    os.utime(kept, (0, 0))
    torch.compiler.reset()  # as another process begins
    require_equal(module, torch.compile(module, backend=backend), torch.randn(1, 3, 8, 8))
    assert kept.stat().st_mtime > 0


@pytest.mark.slow
@torch.no_grad()
def test_sizes_cache_and_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, options = Network().eval(), {"cache": str(tmp_path)}
    compiled = torch.compile(module, backend=backend, options=options)
    for count in (1, 2, 3, 7):  # one library for 1, one for every other size
        require_equal(module, compiled, torch.randn(count, 3, 8, 8))
    assert len(list(tmp_path.glob("*.so"))) == 2

    torch.compiler.reset()  # as another process begins
    with monkeypatch.context() as patch:
        patch.setattr(home, "compile", None)
        require_equal(module, compiled, torch.randn(1, 3, 8, 8))

    module.head.weight.mul_(2)
    with pytest.warns(FallbackWarning, match="its weights are not those"):
        require_equal(module, compiled, torch.randn(1, 3, 8, 8))


def test_gradients_are_pytorchs(tmp_path: Path) -> None:
    module = Network().eval()
    compiled = torch.compile(module, backend=backend, options={"cache": str(tmp_path)})
    with pytest.warns(FallbackWarning, match=r"gradients may be wanted .* torch.no_grad"):
        compiled(torch.randn(1, 3, 8, 8))[0].sum().backward()
    assert module.conv.weight.grad is not None and not list(tmp_path.iterdir())


class Switched(nn.Module):
    """Gradients of one part alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None, torch.Tensor]:
        with torch.no_grad():
            y = self.first(x)
        with torch.enable_grad():
            return y, None, self.second(x)


@torch.no_grad()
def test_gradients_of_a_part() -> None:
    module = Switched().eval()
    compiled = torch.compile(module, backend=backend, options={"cache": False})
    with pytest.warns(FallbackWarning, match="gradients may be wanted"):
        found = compiled(torch.randn(2, 4))
    assert found[2].requires_grad and not found[0].requires_grad


class Parts(nn.Module):
    """A graph, a break, and a graph of an operator that has no converter."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 6), nn.GELU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        torch._dynamo.graph_break()
        return torch.geqrf(y)[0]


def test_explain() -> None:
    inputs = torch.randn(5, 4)
    with pytest.warns(FallbackWarning, match=r"^PyTorch runs a graph: no converter for aten.geq"):
        told = byoc.explain(Parts().eval(), (inputs,), {"cache": False, "precision": "bf16"})
    (taken,), (left,) = (graph.parts for graph in told.graphs)
    assert taken.metadata is not None and len(taken.metadata.report["regions"]) == 1
    assert left.metadata is None and left.reason.startswith("no converter for aten.geqrf")
    lines = str(told).splitlines()
    assert lines[0] == "graph 1: 2 operators, byoc: 1 region"
    assert lines[1].startswith("graph 2: 2 operators, PyTorch: no converter")
    assert lines[2].startswith("break: ")
    with pytest.raises(ModelError, match="inputs is of type Tensor; need a tuple"):
        byoc.explain(Parts().eval(), inputs)


class Between(nn.Module):
    """Operators without a converter between others; one writes what a library gave."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(6, 8), nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None, torch.Tensor]:
        y, positive = torch.sigmoid(self.stem(x)), x.sum() > 0
        y.igamma_(y.new_ones(8))
        parts = torch.igammac(y, y)
        y = torch.cond(positive, torch.sin, torch.cos, (y,))
        return self.head(y) + parts[:, :1], None, parts


@pytest.mark.slow
@torch.no_grad()
def test_operators_without_a_converter_are_pytorchs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are compiled around them, also in the next process, and for other sizes."""
    module, options = Between().eval(), {"cache": str(tmp_path), "min_bytes": 0, "verify": False}
    why = r"^PyTorch runs operators of a graph: no converter for aten.igamma.* .*igammac.default"
    with pytest.warns(FallbackWarning, match=why):
        told = byoc.explain(module, (torch.randn(2, 6),), options)
    stem, middle, head = told.graphs[0].parts
    assert "stem + sigmoid" in [node["name"] for node in stem.metadata.report["nodes"]]
    assert "no converter for aten.igamma.default" in middle.reason and middle.metadata is None
    assert head.operators >= 3 and head.metadata.report["left"] == []
    assert str(told).splitlines()[0] == "graph 1: 3 parts"

    libraries = len(list(tmp_path.glob("*.so")))
    compiled = torch.compile(module, backend=backend, options=options)
    with monkeypatch.context() as patch, pytest.warns(FallbackWarning, match=why):
        patch.setattr(home, "compile", None)
        require_equal(module, compiled, torch.randn(2, 6))
    with pytest.warns(FallbackWarning, match=why):
        require_equal(module, compiled, torch.randn(3, 6))
    assert len(list(tmp_path.glob("*.so"))) == 2 * libraries


@torch.no_grad()
def test_options_that_cannot_be_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for options, message in (
        ({"speed": 11}, "option 'speed'; the backend byoc has cache, verify"),
        ({"threads": "two"}, "threads is 'two'; need a whole number"),
        ({"precision": "fp8"}, "cannot read precision 'fp8'"),
        ({"cache": 5}, "cache is 5; need a path"),
        ({"cache": tmp_path / "file" / "in"}, "cannot keep libraries in .*: Not a directory"),
    ):
        compiled = torch.compile(nn.ReLU(), backend=backend, options=options)
        with pytest.raises(Exception, match=message):
            compiled(torch.randn(4, 4))


@torch.no_grad()
@pytest.mark.parametrize("write", ["data", "new_data", "numpy", "inference"])
def test_weights_that_are_written_unseen(write: str) -> None:
    """PyTorch counts none of these writes."""
    mode = torch.inference_mode if write == "inference" else torch.no_grad
    given = torch.randn(1, 3, 8, 8)
    with mode():
        module = Network().eval()
        compiled = torch.compile(module, backend=backend, options={"cache": False, "min_bytes": 0})
        require_equal(module, compiled, given)
        weight = module.head.weight
        if write == "data":
            weight.data.mul_(2)
        elif write == "new_data":
            weight.data = weight * 2
        elif write == "numpy":
            weight.numpy()[:] = 1
        else:
            weight.mul_(2)
        with pytest.warns(FallbackWarning, match="its weights are not those"):
            require_equal(module, compiled, given)


@pytest.mark.slow
@torch.no_grad()
def test_results_lie_as_pytorchs_do() -> None:
    """A view of a result that leaves the graph counts on it."""

    def turned(x: torch.Tensor) -> torch.Tensor:
        y = x.T * 2
        torch._dynamo.graph_break()
        return y.T.view(-1)

    options = {"cache": False, "min_bytes": 0}
    told = byoc.explain(lambda x: x.T * 2, (torch.randn(3, 4),), options)
    assert told.graphs[0].parts[0].metadata is not None
    given = torch.randn(3, 4)
    assert torch.equal(
        torch.compile(turned, backend=backend, options=options)(given), given.view(-1) * 2
    )
    conv = nn.Conv2d(3, 4, 3).eval()
    given = torch.randn(1, 3, 6, 6).to(memory_format=torch.channels_last)
    result = torch.compile(conv, backend=backend, options=options)(given)
    assert result.stride() == conv(given).stride()
    torch.testing.assert_close(result, conv(given), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@torch.no_grad()
def test_strides_are_no_inputs() -> None:
    """Where they change, PyTorch makes them inputs of the graph, which nothing reads."""
    module = Network().eval()
    compiled = torch.compile(module, backend=backend, options={"cache": False, "min_bytes": 0})
    for wide in (8, 16, 24):
        require_equal(module, compiled, torch.randn(1, 3, 8, wide)[..., :8])
    require_equal(module, compiled, torch.randn(1, 3, 8, 8).transpose(2, 3))


@pytest.mark.slow
@torch.no_grad()
def test_modes_have_libraries_of_their_own(tmp_path: Path) -> None:
    """The code of a graph does not show the default dtype, nor autocast around the module."""

    def filled(x: torch.Tensor) -> torch.Tensor:
        return x @ x + torch.full((4,), 2.0)

    options = {"cache": str(tmp_path), "min_bytes": 0}
    given = torch.randn(4, 4)
    for dtype in (torch.float32, torch.float64):
        torch.compiler.reset()
        torch.set_default_dtype(dtype)
        try:
            result = torch.compile(filled, backend=backend, options=options)(given)
        finally:
            torch.set_default_dtype(torch.float32)
        assert result.dtype == dtype
    linear = nn.Linear(4, 4).eval()
    for enabled in (True, False):
        torch.compiler.reset()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            result = torch.compile(linear, backend=backend, options=options)(given)
        assert result.dtype == (torch.bfloat16 if enabled else torch.float32)


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("norm_first", [False, True])
def test_layers_of_transformers_that_pytorch_calls_whole(norm_first: bool, tmp_path: Path) -> None:
    """Without gradients PyTorch traces a layer as one operator, with its mask of padding."""
    layer = nn.TransformerEncoderLayer(
        *(8, 2, 16), batch_first=True, norm_first=norm_first, activation="gelu"
    )
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    given, hidden = torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
    hidden[0, 3:] = True
    options = {"cache": tmp_path, "min_bytes": 0}  # explained and called: one compilation
    queries = torch.zeros(5, 5, dtype=torch.bool)
    queries[:, 4] = True
    for masks in (
        {},
        {"src_key_padding_mask": hidden},
        {"mask": queries, "is_causal": False},
        {"mask": queries, "src_key_padding_mask": hidden, "is_causal": False},
    ):
        told = byoc.explain(module, {"src": given, **masks}, options)
        (part,) = told.graphs[0].parts
        assert part.metadata is not None and part.metadata.report["left"] == []
        compiled = torch.compile(module, backend=backend, options=options)
        torch.testing.assert_close(
            compiled(given, **masks), module(given, **masks), rtol=1e-4, atol=1e-5
        )


class Scaled(nn.Module):
    """A number that no axis has, as a factor and as a place."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, count: int) -> torch.Tensor:
        return (self.inner(x) * count).relu()[:, :count] + count


@pytest.mark.slow
@torch.no_grad()
def test_numbers_are_inputs() -> None:
    """One library serves all numbers that the tracer leaves open; those below 2 are PyTorch's."""
    module, options = Scaled().eval(), {"cache": False, "min_bytes": 0}
    met = []

    def counted(graph: torch.fx.GraphModule, inputs: list[object]) -> object:
        met.append(backend(graph, inputs, options=options))
        return met[-1]

    compiled, x = torch.compile(module, backend=counted), torch.randn(8, 16)
    for count in (3, 5, 7, 12):
        torch.testing.assert_close(compiled(x, count), module(x, count), rtol=1e-4, atol=1e-5)
    assert len(met) == 2
    with pytest.warns(FallbackWarning):
        for count in (1, 0, -2):
            torch.testing.assert_close(compiled(x, count), module(x, count), rtol=1e-4, atol=1e-5)


class Rounded(nn.Module):
    """A tensor, and a size of it that is rounded up to tens."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x.sin() * 2, torch.sym_max(1, math.ceil(x.shape[1] / 10) * 10 + 5) * x.shape[0]


@torch.no_grad()
def test_sizes_that_are_rounded_up_are_results() -> None:
    module, given = Rounded(), {"backend": backend, "options": {"cache": False}}
    compiled = torch.compile(module, dynamic=True, **given)
    for n in (20, 33, 5):
        x = torch.randn(4, n)
        (found, size), (wanted, known) = compiled(x), module(x)
        torch.testing.assert_close(found, wanted)
        assert size == known


class Places(nn.Module):
    def forward(self) -> torch.Tensor:
        return torch.arange(6).float().sin() * 2


@torch.no_grad()
def test_a_graph_without_inputs_is_pytorchs() -> None:
    module = Places().eval()
    with pytest.warns(FallbackWarning, match=r"^PyTorch runs a graph: a graph without inputs"):
        compiled = torch.compile(module, backend=backend, options={"cache": False})()
    torch.testing.assert_close(compiled, module())


@torch.no_grad()
@torch._inductor.config.patch(freezing=True)
def test_weights_that_a_graph_has_itself() -> None:
    """So PyTorch hands them over where Inductor may freeze them: they are frozen and checked."""
    module, x = Network().eval(), torch.randn(2, 3, 9, 8)
    compiled = torch.compile(module, backend=backend, options={"cache": False, "min_bytes": 0})
    with collected() as graphs, warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        require_equal(module, compiled, x)
        require_equal(module, compiled, x + 1)
    ((part,),) = (graph.parts for graph in graphs)
    assert part.metadata is not None and len(part.metadata.report["regions"]) == 1
    module.head.weight.mul_(2)
    with pytest.warns(FallbackWarning, match="its weights are not those"):
        require_equal(module, compiled, x)


class Layer(nn.Module):
    def __init__(self, scale: torch.Tensor) -> None:
        super().__init__()
        self.inner, self.scale = nn.Linear(8, 8), scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.inner(x)) * self.scale


@pytest.mark.slow
def test_layers_alike_have_libraries_of_their_own() -> None:
    """PyTorch compiles the code of a layer once, and calls it with the weights of each."""
    torch.manual_seed(3)
    shared = torch.tensor([2.0])
    wanted = nn.Sequential(*(Layer(shared) for _ in range(3))).eval()
    layers = nn.Sequential(*(Layer(shared) for _ in range(3))).eval()
    layers.load_state_dict(wanted.state_dict())
    torch.compiler.reset()
    for layer in layers:
        layer.compile(backend="byoc", options={"cache": False})
    x = torch.randn(4, 8)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", FallbackWarning)
        for _ in range(2):
            torch.testing.assert_close(layers(x), wanted(x))
    with torch.no_grad():
        for each in (layers, wanted):
            each[1].inner.weight.add_(1.0)
        with pytest.warns(FallbackWarning, match="its weights are not those"):
            torch.testing.assert_close(layers(x), wanted(x))


@pytest.mark.slow
def test_weights_of_models_that_are_gone_are_given_back() -> None:
    """Models of one class, one after another, share PyTorch's code, and each has a library."""
    torch.compiler.reset()
    x, weights = torch.randn(4, 8), []
    for number in range(5):
        torch.manual_seed(number)
        model = Layer(torch.tensor([1.0])).eval()
        compiled = torch.compile(model, backend="byoc", options={"cache": False})
        weights.append(weakref.ref(model.inner.weight))
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("error", FallbackWarning)
            for _ in range(8):
                torch.testing.assert_close(compiled(x), model(x))
    del model, compiled
    gc.collect()
    assert [weight() is not None for weight in weights] == [True, False, False, True, True]
