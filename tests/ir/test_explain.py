"""Bad models: one line names the node, the operator, what is wrong with it, and what would help."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from byoc.errors import ImportFailure
from byoc.frontends.onnx import import_onnx, prepare

FLOAT = TensorProto.FLOAT
ONES = np.ones((8, 8), np.float32)


DOMAINS = ("acme", "com.microsoft.nchwc")


def model(
    node: onnx.NodeProto,
    weights: dict[str, np.ndarray] | None = None,
    **inputs: tuple[int, list[int]],
) -> onnx.ModelProto:
    """One node; inputs by dtype and shape."""
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info(name, *about) for name, about in inputs.items()],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in DOMAINS)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def node(operator: str, *inputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, ["y"], "n", **attributes)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            model(node("Reluu", "x"), x=(FLOAT, [4, 8])),
            "operator Reluu (node 'n'); ONNX has no operator Reluu up to opset",
        ),
        (
            model(node("Swish", "x"), x=(FLOAT, [4, 8])),
            "operator Swish (node 'n'); Swish is new in opset 24, and the model is of opset 17",
        ),
        (
            model(node("Foo", "x", domain="acme"), x=(FLOAT, [4, 8])),
            "operator Foo of domain 'acme' (node 'n'); export the model with ONNX's own operators",
        ),
        (
            model(node("ReorderOutput", "x", domain=DOMAINS[1]), x=(FLOAT, [4, 8])),
            "ReorderOutput of domain 'com.microsoft.nchwc' (node 'n'); ONNX Runtime optimised the"
            " file for one CPU; write it with ORT_ENABLE_EXTENDED at most",
        ),
        (
            model(node("Relu", "x"), x=(TensorProto.COMPLEX64, [4])),
            "input 'x' is of dtype complex64; give the model real and imaginary parts",
        ),
        (
            model(node("MatMul", "x", "w"), {"w": ONES}, x=(FLOAT, [4, 7])),
            "operator MatMul (node 'n') of 'x' float[4, 7], 'w' float[8, 8]: Incompatible"
            " dimensions for matrix multiplication; the model contradicts itself",
        ),
        (
            model(node("Add", "x", "i"), x=(FLOAT, [4]), i=(TensorProto.INT64, [4])),
            "operator Add (node 'n') of 'x' float[4], 'i' int64[4]: input 'i' is of dtype int64,"
            " and 'x' of float; need the same",
        ),
        (
            model(node("Gather", "w", "x"), {"w": ONES}, x=(FLOAT, [4])),
            "operator Gather (node 'n'): indices is float32; need integers",
        ),
        (
            model(node("Conv", "x"), x=(FLOAT, [1, 4, 8, 8])),
            "operator Conv (node 'n') of 'x' float[1, 4, 8, 8]: inputs are 1; need 2 to 3 in"
            " opset 17",
        ),
        (
            model(node("Softmax", "x", axis=5), x=(FLOAT, [4, 8])),
            "operator Softmax (node 'n') of 'x' float[4, 8]: 'axis' must be in",
        ),
        (
            model(node("Reshape", "x", "s"), {"s": np.array([5, 5])}, x=(FLOAT, [4, 7])),
            "operator Reshape (node 'n') of 'x' float[4, 7], 's' int64[2]: Reshape expects",
        ),
        (
            model(
                node("Conv", "x", "w"),
                {"w": np.ones((8, 3, 3, 3), np.float32)},
                x=(FLOAT, [1, 4, 8, 8]),
            ),
            "operator Conv (node 'n') of 'x' float[1, 4, 8, 8], 'w' float[8, 3, 3, 3]: The channel",
        ),
    ],
    ids=lambda value: value.graph.node[0].op_type if isinstance(value, onnx.ModelProto) else "",
)
def test_bad_models(bad: onnx.ModelProto, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ImportFailure) as error:
        import_onnx(prepare(bad))
    assert message in str(error.value)
    assert "\n" not in str(error.value) and "ir.Op" not in str(error.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("last", ["FusedMatMul", "Foo"])
def test_what_has_no_type_is_named(last: str) -> None:
    """An operator that is written out as others asks for types; an unknown one is worse."""
    found = model(node("Cast", "x", to=FLOAT), x=(TensorProto.INT16, [4, 4]))
    del found.graph.node[:]
    domain = "com.microsoft"
    found.graph.node.extend(
        [
            helper.make_node("MatMulInteger16", ["x", "x"], ["m"], "sums", domain=domain),
            helper.make_node("Cast", ["m"], ["f"], "floats", to=FLOAT),
            helper.make_node("FusedMatMul", ["f", "f"], ["z"], "product", domain=domain),
            helper.make_node(last, ["z", "z"], ["y"], "last", domain=domain),
        ]
    )
    found.opset_import.append(helper.make_opsetid(domain, 1))
    with pytest.raises(ImportFailure) as error:
        import_onnx(prepare(found))
    if last == "Foo":
        assert str(error.value).startswith(f"no converter for operator Foo of domain {domain!r} (")
    else:
        assert str(error.value) == (
            "operator FusedMatMul of domain 'com.microsoft' (node 'product'): dtype and rank of its"
            " input 'f' are not known, because those of operator MatMulInteger16 of domain"
            " 'com.microsoft' (node 'sums') are not; export the model without MatMulInteger16"
        )
