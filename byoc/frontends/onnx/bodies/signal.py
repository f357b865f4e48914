"""Fourier transforms that are others: along an axis that is computed, or with what is left out."""

from __future__ import annotations

from byoc.frontends.onnx.bodies.call import Call


def dft(call: Call) -> bool:
    """The transform along each axis, and of all results the one that is asked for."""
    shape = call.shape()
    if call.opset < 20 or not call.input(2) or call.known(2) is not None:
        return False
    if shape is None or call.input(1) or call.attrs.get("onesided", 0):
        return False
    rank, y, inverse = len(shape), "", call.attrs.get("inverse", 0)
    asked = call.op("Mod", call.input(2), call.constant(rank, call.dtype(2)))
    for place in range(rank - 1):
        axis = call.constant(place, call.dtype(2))
        part = call.op("DFT", call.input(0), "", axis, inverse=inverse)
        y = call.op("Where", call.op("Equal", asked, axis), part, y) if y else part
    call.give(0, y)
    return True


def stft(call: Call) -> bool:
    """``onesided`` written out, which is 1: ``onnx.shape_inference`` takes it for 0."""
    if "onesided" in call.attrs:
        return False
    call.give(0, call.op("STFT", *call.node.input, onesided=1))
    return True
