"""Whole networks, ONNX in to numbers out."""
