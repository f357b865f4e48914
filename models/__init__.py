"""The model zoo: builders of ONNX graphs with seeded weights, and the demo's picture.

For tests, benchmarks, examples and the demo. ``byoc.zoo`` is the door to it; an installed package
has this folder as ``byoc._models``, hence the relative imports.
"""
