"""Trained decoders that write one token after another, with the keys and values of those before.

Moonshine's speech recognisers: their encoders hear a sound, their decoders get what these heard and
the tokens so far. Optimum's exports have a prompt's network and a step's in one file, tf2onnx's
have a file for each.
"""

from __future__ import annotations

from collections.abc import Iterable

from .file import CONTROL_FLOW, DECODER, QUANTISED, File, Package
from .inputs import Draw, all_of, ids, normal, sound

#: Rows of what an encoder heard, and tokens before the one that is decoded.
_HEARD, _BEFORE = 82, 24
_HEADS, _TOKENS = 8, 32768


def _merged(member: str, layers: int, width: int, kinds: Iterable[str] = ()) -> File:
    """A step of optimum's merged decoder."""
    inputs: dict[str, Draw] = {
        "input_ids": ids(_TOKENS, 1, 1),
        "encoder_hidden_states": normal(1, _HEARD, width),
        "use_cache_branch": all_of(1, 1, dtype="bool"),
    }
    for layer in range(layers):
        for of, rows in (("decoder", _BEFORE), ("encoder", _HEARD)):
            for what in ("key", "value"):
                name = f"past_key_values.{layer}.{of}.{what}"
                inputs[name] = normal(1, _HEADS, rows, width // _HEADS)
    kinds = frozenset({CONTROL_FLOW, DECODER, *kinds})
    return File(f"package/dist/model/{member}/decoder_model_merged.onnx", inputs, kinds)


def _encoder(member: str, kinds: Iterable[str] = ()) -> File:
    """Two seconds of sound."""
    file = f"package/dist/model/{member}/encoder_model.onnx"
    return File(file, {"input_values": sound(1, 32000)}, frozenset(kinds))


def _separate_step(member: str, layers: int, width: int) -> File:
    """A step of tf2onnx's decoder: tokens, what was heard, and for each layer four caches."""
    inputs: dict[str, Draw] = {
        "args_0": ids(_TOKENS, 1, 1, dtype="int32"),
        "args_1": normal(1, _HEARD, width),
        "args_2": all_of(_BEFORE + 1, 1, dtype="int32"),
    }
    for place in range(4 * layers):
        rows = _BEFORE if place % 4 < 2 else _HEARD
        inputs[f"args_{3 + place}"] = normal(1, rows, _HEADS, width // _HEADS)
    return File(f"package/dist/model/{member}", inputs, frozenset({DECODER, QUANTISED}))


_MOONSHINE = "npm:@usefulsensors/moonshine-js"

PACKAGES = (
    Package(
        _MOONSHINE,
        "0.1.1",
        "MIT",
        {
            "moonshine_tiny_step": _separate_step(
                "tiny/cached_decode_quantized_weights.onnx", 6, 288
            ),
        },
    ),
    Package(
        _MOONSHINE,
        "0.1.2",
        "MIT",
        {
            "moonshine_tiny_encoder": _encoder("tiny/float"),
            "moonshine_tiny_decoder": _merged("tiny/float", 6, 288),
        },
    ),
    Package(
        _MOONSHINE,
        "0.1.17",
        "MIT",
        {
            "moonshine_tiny_int8_encoder": _encoder("tiny/quantized", {QUANTISED}),
            "moonshine_tiny_int8_decoder": _merged("tiny/quantized", 6, 288, {QUANTISED}),
            "moonshine_base_int8_encoder": _encoder("base/quantized", {QUANTISED}),
            "moonshine_base_int8_decoder": _merged("base/quantized", 8, 416, {QUANTISED}),
            "moonshine_es_int8_decoder": _merged(
                "base-es-non-commercial/quantized", 8, 416, {QUANTISED}
            ),
        },
    ),
)
